"""Reads one element as actual programs write it, with repairs where that is safe.

Accepted deviations from JSON: NaN, inf, hex numbers, trailing commas, raw control
characters, invalid UTF-8 and unescaped backslashes. Missing quotes are never guessed.
"""

from __future__ import annotations

import json  # which takes its own words for numbers, and lone surrogates
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'  # possessive: strings may be very long
WORD = r"-?\b(?:inf|nan|NaN|Infinity|0x[0-9a-fA-F]+)\b"
COMMA = r",(?=\s*+[}\]])|(?<=[{\[,])\s*+,"
ODD = r"[\x00-\x1f]|\\u[dD][89a-fA-F]"  # in a string: control characters, surrogates
BAD_ESCAPE = r'\\(?!["\\/bfnrtu])|\\u(?![0-9a-fA-F]{4})'
PATH_ESCAPE = r'\\(?!["\\])'


def loads(text: bytes) -> Any:
    """One value; numbers with a fraction become Decimal, invalid numbers become text.

    Raises ValueError or RecursionError.
    """
    plain = text.decode("utf-8", "replace")
    try:
        return _loads(plain)
    except (ValueError, RecursionError):
        return _loads(_repair(plain))


def repaired(text: bytes) -> bytes:
    """The text of one element with known deviations replaced by valid JSON."""
    try:
        return _repair(text.decode("utf-8", "replace")).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        return text


def problem_of(text: bytes) -> str:
    """Why a text is no event, as the end of a sentence."""
    try:
        loads(text)
    except RecursionError:
        return "nested too deeply"
    except ValueError as error:
        return getattr(error, "msg", "") or str(error)
    return "no JSON"


def _loads(text: str) -> Any:
    return json.loads(text, strict=False, parse_float=_fraction, parse_constant=str)


def _repair(plain: str) -> str:
    """A text that is no JSON with what is usually wrong repaired."""
    # a Windows path: then \t and \n in it are no escapes either
    if re.search(BAD_ESCAPE, plain):
        plain = re.sub(PATH_ESCAPE, r"\\\\", plain)
    for sought, pattern, replace in REPAIRS:
        if re.search(sought, plain):
            plain = re.sub(pattern, replace, plain, flags=re.DOTALL)
    return plain


def _fraction(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent out of range: infinite, or zero
        return Decimal(float(text))


def _string(token: str) -> str:
    """A string in quotes, written as valid JSON; lone surrogates become `?`."""
    if token.isprintable() and "\\u" not in token:
        return token
    text = json.loads(token, strict=False)
    return json.dumps(text.encode("utf-8", "replace").decode(), ensure_ascii=False)


def _number(word: str) -> str:
    """Hex numbers in decimal; what is not a number stays as text."""
    return str(int(word, 16)) if "0x" in word else f'"{word}"'


REPAIRS: tuple[tuple[str, str, Callable[[re.Match[str]], str]], ...] = (
    (WORD, rf"({STRING})|{WORD}", lambda found: found[1] or _number(found[0])),
    (COMMA, rf"({STRING})|{COMMA}", lambda found: found[1] or ""),
    (ODD, STRING, lambda found: _string(found[0])),
)
"""What is searched for first, and what is then replaced: outside strings, or in
them."""
