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
    """Decode one JSON value, repaired where that is safe. Numbers with a fraction
    become Decimal, numbers that JSON does not have become text.

    Raises ValueError or RecursionError if it cannot be repaired.
    """
    plain = text.decode("utf-8", "replace")
    try:
        return _decode_lenient(plain)
    except (ValueError, RecursionError):
        # repairing is slow, so only what fails is repaired
        return _decode_lenient(_repair_text(plain))


def repaired(text: bytes) -> bytes:
    """The text of one element with known deviations from JSON replaced by valid JSON. A
    text that cannot be repaired is returned as it is."""
    try:
        return _repair_text(text.decode("utf-8", "replace")).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        return text


def problem_of(text: bytes) -> str:
    """The reason why a text is not an event, as the end of a sentence. It is "nested
    too deeply", the message of the decoder, or "no JSON" for a text that only a repair
    makes readable."""
    try:
        loads(text)
    except RecursionError:
        return "nested too deeply"
    except ValueError as error:
        return getattr(error, "msg", "") or str(error)
    return "no JSON"


def _decode_lenient(text: str) -> Any:
    """Decode JSON, allowing raw control characters in strings. Fractions become
    Decimal; NaN and infinity become text."""
    return json.loads(
        text, strict=False, parse_float=_parse_fraction, parse_constant=str
    )


def _repair_text(plain: str) -> str:
    """Replace the deviations from JSON that writers of traces are known for.
    Backslashes of Windows paths come first, then REPAIRS."""
    # a Windows path: then \t and \n in it are no escapes either
    if re.search(BAD_ESCAPE, plain):
        plain = re.sub(PATH_ESCAPE, r"\\\\", plain)
    for sought, pattern, replace in REPAIRS:
        # the short search is fast; the replacement goes through every string
        if re.search(sought, plain):
            plain = re.sub(pattern, replace, plain, flags=re.DOTALL)
    return plain


def _parse_fraction(text: str) -> Decimal:
    """The Decimal of a number with a fraction or an exponent. An exponent out of range
    gives infinity or zero."""
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent out of range: infinite, or zero
        return Decimal(float(text))


def _rewrite_string(token: str) -> str:
    """A string in its quotes, rewritten as valid JSON; lone surrogates become `?`."""
    if token.isprintable() and "\\u" not in token:
        return token
    text = json.loads(token, strict=False)
    return json.dumps(text.encode("utf-8", "replace").decode(), ensure_ascii=False)


def _rewrite_number(word: str) -> str:
    """The JSON for a word that JSON does not have as a number. A hex number becomes
    decimal; others, such as NaN, become text in quotes."""
    return str(int(word, 16)) if "0x" in word else f'"{word}"'


REPAIRS: tuple[tuple[str, str, Callable[[re.Match[str]], str]], ...] = (
    (WORD, rf"({STRING})|{WORD}", lambda found: found[1] or _rewrite_number(found[0])),
    (COMMA, rf"({STRING})|{COMMA}", lambda found: found[1] or ""),
    (ODD, STRING, lambda found: _rewrite_string(found[0])),
)
"""What is searched for first, and what is then replaced: outside strings, or in
them."""
