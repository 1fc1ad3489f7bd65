"""Times whose floats lost digits: by their digits in the text that was decoded, all at once.

The key is looked for in the text. What stands behind it is used only if there is one place for each
number that was decoded, and a zero wherever a zero, or nothing, was decoded. If args hold the key
too, the places of the events behind them are one too late, and only an event without the key could
make up for it: but that was decoded as zero, so the number at its place is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fusetui.text.patterns import late
from fusetui.trace.model.arrays import Int64s
from fusetui.trace.read.structure import BLANKS
from fusetui.trace.read.times import LIMIT_NS, InexactTimes, exact_nanoseconds

NUMBER = late(rb"[-+.0-9eE]+")
ESCAPED = b"\\u00"  # what a letter of a key may be written as
WHOLE, DECIMALS = 16, 9  # the most digits before and behind the point of a usual number
AROUND = np.arange(-WHOLE, DECIMALS + 2, dtype=np.int8)  # bytes around the point, and one behind
HALVES = np.zeros((len(AROUND), 3))  # upper and lower eight digits, decimals: floats, as BLAS
for _place in range(WHOLE):  # multiplies them, and no sum reaches 2**53
    HALVES[_place, _place // 8] = 10.0 ** (7 - _place % 8)
HALVES[WHOLE + 1 : -1, 2] = 10.0 ** np.arange(DECIMALS - 1, -1, -1)
TENS = 10.0 ** np.arange(WHOLE) * (np.arange(WHOLE) > 0)  # the least numbers of 1, 2... digits
UNITS = 10**DECIMALS
ENDS = np.isin(np.arange(256), list(b",}] \t\r\n"))


def by_digits(text: bytes, key: bytes, values: Sequence[int | float]) -> Int64s:
    """What stands behind a key such as `"ts":` in the text (microseconds), in nanoseconds, half to
    even. `values` are those that were decoded for this key, in order, 0 where there is none.

    Raises InexactTimes if the places of the numbers are uncertain, or one is out of range.
    """
    floats = np.asarray(values, dtype=np.float64)
    at = _behind(text, key)
    if len(at) != len(floats) or (ESCAPED[:1] in text and ESCAPED in text):
        raise InexactTimes
    data = np.frombuffer(b"".join((bytes(WHOLE), text, bytes(len(AROUND)))), dtype=np.uint8)
    at += data[at + WHOLE] == ord(" ")
    length = np.searchsorted(TENS, floats, side="right").astype(np.int8)  # before the point
    window = np.lib.stride_tricks.sliding_window_view(data, len(AROUND))[at + length]
    digits = window - np.uint8(ord("0"))
    has_point = window[:, WHOLE] == ord(".")
    decimals = np.where(has_point, np.argmin(digits[:, WHOLE + 1 :] < 10, axis=1), -1)
    usual = ENDS[window[np.arange(len(at)), WHOLE + 1 + decimals]] & (decimals != 0)
    last = decimals.astype(np.int8)[:, None]
    digits[(-length[:, None] > AROUND) | (last < AROUND)] = 0
    digits[:, WHOLE] = 0
    if digits.max(initial=0) > 9:  # an exponent
        usual &= digits.max(axis=1) < 10
    digits[~usual] = 0
    parts = digits.astype(np.float64) @ HALVES
    whole, fraction = (parts[:, :2] @ (1e8, 1)).astype(np.int64), parts[:, 2].astype(np.int64)
    usual &= whole < LIMIT_NS // 1000
    ns, rest = np.divmod(fraction, UNITS // 1000)
    half = UNITS // 2000
    ns += (rest > half) | ((rest == half) & (ns & 1 == 1))
    found: Int64s = np.where(usual, whole * 1000 + ns, 0)
    differs = np.abs(whole + fraction / UNITS - floats) > 4 * np.spacing(np.abs(floats))
    for row in np.flatnonzero(~usual).tolist():
        number = NUMBER.match(text, at[row])
        try:
            differs[row] = number is None or float(number[0]) != floats[row]
            found[row] = exact_nanoseconds(number[0]) if number else 0
        except ValueError:
            raise InexactTimes from None
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
    found: Int64s = at[follows == key[-1]] + len(key)
    return found
