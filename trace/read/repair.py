"""Reads one element as writers of traces really write it: repaired where that is safe.

What JSON does not know and some writers use: NaN, inf, hex numbers, trailing commas, raw control
characters, invalid UTF-8 and unescaped backslashes. Nothing here guesses a missing quote.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal, InvalidOperation
from typing import Any

from fusetui.trace.read.events import ExactEvent, coerced_object

STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'  # possessive: strings may be very long
BARE_WORD = re.compile(rf"({STRING})|(-?\b(?:inf|nan|NaN|Infinity|0x[0-9a-fA-F]+)\b)", re.DOTALL)
TRAILING_COMMA = re.compile(rf"({STRING})|,(?=\s*+[}}\]])|(?<=[{{\[,])\s*+,", re.DOTALL)
BAD_ESCAPE = re.compile(r'\\(?!["\\/bfnrtu])|\\u(?![0-9a-fA-F]{4})')
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
PATH_ESCAPE = re.compile(r'\\(?!["\\])')


class BadSyntax(ValueError):  # noqa: N818
    """This text is no JSON, and cannot be made into one."""


def parse(text: bytes) -> ExactEvent:
    """One event from its text. Raises BadSyntax, or another ValueError for what is no event."""
    return coerced_object(loads(text))


def loads(text: bytes) -> Any:
    """One value; numbers with a fraction become Decimal, those that are none become text.

    Raises BadSyntax.
    """
    plain = text.decode("utf-8", "replace")
    try:
        return _loads(plain)
    except (ValueError, RecursionError):
        pass
    try:
        return _loads(_repair(plain))
    except RecursionError:
        raise BadSyntax("nested too deeply") from None
    except ValueError as error:
        raise BadSyntax(getattr(error, "msg", "") or str(error)) from None


def repaired(text: bytes) -> bytes:
    """The text of one element with what JSON does not know made into what it does."""
    return _repair(text.decode("utf-8", "replace")).encode("utf-8", "replace")


def _loads(text: str) -> Any:
    return json.loads(text, strict=False, parse_float=_fraction, parse_constant=str)


def _repair(plain: str) -> str:
    if BAD_ESCAPE.search(plain):  # a Windows path: then \t and \n in it are no escapes either
        plain = PATH_ESCAPE.sub(r"\\\\", plain)
    plain = BARE_WORD.sub(lambda m: _string(m[1]) if m[1] else _number(m[2]), plain)
    return TRAILING_COMMA.sub(lambda m: m[1] or "", plain)


def _fraction(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent beyond all bounds: infinite, or zero
        return Decimal(float(text))


def _string(token: str) -> str:
    """A string in quotes, written as JSON wants it; lone surrogates become `?`."""
    if token.isprintable() and not SURROGATE.search(token):
        return token
    text = json.loads(token, strict=False)
    return json.dumps(text.encode("utf-8", "replace").decode(), ensure_ascii=False)


def _number(word: str) -> str:
    """Hex numbers in decimal; what is no number stays as text."""
    return str(int(word, 16)) if "0x" in word else f'"{word}"'
