"""Times whose floats lost digits: by their digits in the text that was decoded, all at once.

The key is looked for in the text. Its places are used only if there is one for each number that was
decoded, and what stands behind it is zero wherever zero, or nothing, was decoded. If the args of an
event hold the key too, the places of all events behind it are late by one, up to an event without
the key; that one would then stand for a number other than zero, or for an event like itself. So each
number is found where it was decoded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from fusetui.trace.model.arrays import Int64s
from fusetui.trace.read.structure import BLANKS
from fusetui.trace.read.times import LIMIT_NS, InexactTimes, exact_nanoseconds

NUMBER = re.compile(rb"[-+.0-9eE]+")
ESCAPED = (b"\\u006", b"\\u007")  # in keys, the letters of ours
WHOLE, FRACTION = 16, 9  # the most digits before and behind the point of a usual number
COLUMNS = np.arange(WHOLE + FRACTION + 2)  # these, the point, and what follows
_POWER = COLUMNS[:, None] - COLUMNS - 1  # of ten, by the place of the point and of the digit
OF_WHOLE = np.where((_POWER >= 0) & (_POWER < WHOLE), 10 ** np.clip(_POWER, 0, WHOLE), 0)
_POWER = _POWER + FRACTION + 1
OF_FRACTION = np.where((_POWER >= 0) & (_POWER < FRACTION), 10 ** np.clip(_POWER, 0, FRACTION), 0)
UNITS = 10**FRACTION  # of a fraction
ENDS = np.isin(np.arange(256), list(b",}] \t\r\n"))


def by_digits(text: bytes, key: bytes, values: Sequence[int | float]) -> Int64s:
    """What stands behind a key such as `"ts":` in the text (microseconds), in nanoseconds, half to
    even. `values` are those that were decoded for this key, in order, 0 where there is none.

    Raises InexactTimes if the places of the numbers are uncertain, ValueError if one is out of
    range.
    """
    floats = np.asarray(values, dtype=np.float64)
    at = _behind(text, key)
    if len(at) != len(floats) or any(letters in text for letters in ESCAPED):
        raise InexactTimes
    data = np.frombuffer(text + bytes(len(COLUMNS) + 1), dtype=np.uint8)
    at += data[at] == ord(" ")
    rows, window = np.arange(len(at)), data[at[:, None] + COLUMNS]
    digits = window - np.uint8(ord("0"))
    is_digit = digits < 10
    point = np.argmin(is_digit, axis=1)
    is_digit[rows, point] = window[rows, point] == ord(".")
    end = np.argmin(is_digit, axis=1)
    decimals = end - point - 1  # -1 without a point
    usual = ENDS[window[rows, end]] & (point > 0) & (point <= WHOLE)
    usual &= (decimals != 0) & (decimals <= FRACTION)
    digits[COLUMNS >= end[:, None]] = 0
    whole = np.einsum("ij,ij->i", digits, OF_WHOLE[point])
    fraction = np.einsum("ij,ij->i", digits, OF_FRACTION[point])
    usual &= whole < LIMIT_NS // 1000
    ns, rest = np.divmod(fraction, UNITS // 1000)
    half = UNITS // 2000
    ns += (rest > half) | ((rest == half) & (ns & 1 == 1))
    found: Int64s = np.where(usual, whole * 1000 + ns, 0)
    differs = np.abs(whole + fraction / UNITS - floats) > 4 * np.spacing(np.abs(floats))
    for row in np.flatnonzero(~usual).tolist():
        number = NUMBER.match(text, at[row])
        differs[row] = number is None or float(number[0]) != floats[row]
        found[row] = 0 if number is None else exact_nanoseconds(number[0])
    if differs.any():
        raise InexactTimes
    return found


def _behind(text: bytes, key: bytes) -> Int64s:
    """The bytes behind each place of a key of four letters or more. Raises InexactTimes if it may
    be written in another way too."""
    data = np.frombuffer(text, dtype=np.uint8)
    word = np.frombuffer(key[:4], dtype=np.uint32)
    parts = [data[n : n + (len(data) - n) // 4 * 4].view(np.uint32) for n in range(4)]
    at = np.sort(np.concatenate([np.flatnonzero(p == word) * 4 + n for n, p in enumerate(parts)]))
    at = at[at < len(data) - len(key)]
    for place in range(4, len(key) - 1):
        at = at[data[at + place] == key[place]]
    follows = data[at + len(key) - 1]
    if np.frombuffer(BLANKS, dtype=np.uint8)[follows].any():
        raise InexactTimes
    return at[follows == key[-1]] + len(key)
