"""Microseconds as written in a file -> exact integer nanoseconds.

A float64 holds a decimal of three fraction digits exactly enough only below 2**42
microseconds: its error is then less than a quarter of a nanosecond. Absolute Unix times
with a fraction are larger; they are parsed from their text, and so is a time with more
digits that a float does not tell from one halfway between two nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation

import numpy as np

from fusetui.text.patterns import lazy_pattern
from fusetui.trace.model.arrays import Int64s
from fusetui.trace.read.structure import BLANKS

EXACT_BELOW_US = float(2**42)
"""Floats below this (in microseconds) are closer to the nanosecond that was written
than to the middle between two."""

LIMIT_NS = 2**61
"""Times further from zero are unreadable: 73 years, which as Unix time ends in January
2043. So twice the span of a trace fits into 64 bits."""

PLAIN = lazy_pattern(r"([0-9]{1,15})(?:\.([0-9]{1,3}))?")
"""Almost all times have this form, and are in range."""

TINY = 1e-9  # ns: a product of floats below 1000 is less inexact than that
LONGEST_EXPONENT = 30  # digits: a longer exponent is beyond every limit, or gives zero


class InexactTimesError(Exception):
    """These floats lost digits of the file: parse the text instead."""


def _unknown() -> Int64s:
    raise InexactTimesError


def nanoseconds(
    values: Sequence[int | float], digits: Callable[[], Int64s] = _unknown
) -> Int64s:
    """Integer or float microseconds, shape [n] -> int64 nanoseconds, shape [n].

    Where a float is too large to be exact or close to the middle between two
    nanoseconds, `digits` is asked, which gives all of them by their text or raises
    InexactTimesError. Raises OverflowError when a time is out of range.
    """
    numbers = np.asarray(values)
    if numbers.dtype == np.int64:
        if max(int(numbers.max()), -int(numbers.min())) > LIMIT_NS // 1000:
            raise OverflowError("a time is out of range")
        return numbers * 1000
    floats = numbers.astype(np.float64)
    sizes = np.abs(floats)
    if not (sizes <= LIMIT_NS // 1000).all():
        raise OverflowError("a time is out of range")
    fraction, whole = np.modf(floats)
    fraction *= 1000
    nearest = np.rint(fraction)
    error = np.spacing(sizes) * 500 + TINY
    doubtful = (sizes >= EXACT_BELOW_US) | (np.abs(fraction - nearest) >= 0.5 - error)
    exact: Int64s = whole.astype(np.int64) * 1000
    exact += nearest.astype(np.int64)
    return np.where(doubtful, digits(), exact) if doubtful.any() else exact


def exact_nanoseconds(text: bytes | str) -> int:
    """The text of one JSON number (or a number in quotes), in microseconds ->
    nanoseconds.

    Digits beyond the nanosecond are rounded half to even. Raises ValueError for
    anything that is not a finite number within LIMIT_NS.
    """
    plain = text.decode("ascii", "replace") if isinstance(text, bytes) else text
    if found := PLAIN.fullmatch(plain):
        return int(found[1]) * 1000 + int((found[2] or "0").ljust(3, "0"))
    digits = plain.strip().strip('"')
    try:
        number = Decimal(digits if digits.isascii() and "_" not in digits else "none")
    except InvalidOperation:
        raise ValueError(f"not a number: {plain[:40]!r}") from None
    if not number.is_finite() or number.adjusted() > LONGEST_EXPONENT:
        raise ValueError(f"not a time: {plain[:40]!r}")
    if number.adjusted() < -LONGEST_EXPONENT:
        return 0
    exact = int((number * 1000).to_integral_value())
    if abs(exact) > LIMIT_NS:
        raise ValueError(f"a time out of range: {plain[:40]!r}")
    return exact


# Times whose floats lost digits: by their digits in the text that was decoded, all at
# once. The key is looked for in the text. What stands behind it is used only if there
# is one place for each number that was decoded, and a zero wherever a zero, or nothing,
# was decoded. If args hold the key too, the places of the events behind them are one
# too late, and only an event without the key could make up for it: but that was decoded
# as zero, so the number at its place is refused.
NUMBER = lazy_pattern(rb"[-+.0-9eE]+")
ESCAPED = b"\\u00"  # what a letter of a key may be written as
WHOLE, DECIMALS = 16, 9  # the most digits before and behind the point of a usual number
# bytes around the point, and one behind
AROUND = np.arange(-WHOLE, DECIMALS + 2, dtype=np.int8)
# upper and lower eight digits, decimals: floats, as BLAS
HALVES = np.zeros((len(AROUND), 3))
for _place in range(WHOLE):  # multiplies them, and no sum reaches 2**53
    HALVES[_place, _place // 8] = 10.0 ** (7 - _place % 8)
HALVES[WHOLE + 1 : -1, 2] = 10.0 ** np.arange(DECIMALS - 1, -1, -1)
# the least numbers of 1, 2... digits
TENS = 10.0 ** np.arange(WHOLE) * (np.arange(WHOLE) > 0)
UNITS = 10**DECIMALS
ENDS = np.isin(np.arange(256), list(b",}] \t\r\n"))


def by_digits(text: bytes, key: bytes, values: Sequence[int | float]) -> Int64s:
    """What stands behind a key such as `"ts":` in the text (microseconds), in
    nanoseconds, half to even. `values` are those that were decoded for this key, in
    order, 0 where there is none.

    Raises InexactTimesError if the places of the numbers are uncertain, or one is out
    of range."""
    floats = np.asarray(values, dtype=np.float64)
    at = _behind(text, key)
    if len(at) != len(floats) or (ESCAPED[:1] in text and ESCAPED in text):
        raise InexactTimesError
    data = np.frombuffer(
        b"".join((bytes(WHOLE), text, bytes(len(AROUND)))), dtype=np.uint8
    )
    at += data[at + WHOLE] == ord(" ")
    # before the point
    length = np.searchsorted(TENS, floats, side="right").astype(np.int8)
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
    whole, fraction = (
        (parts[:, :2] @ (1e8, 1)).astype(np.int64),
        parts[:, 2].astype(np.int64),
    )
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
            raise InexactTimesError from None
    if differs.any():
        raise InexactTimesError
    return found


def _behind(text: bytes, key: bytes) -> Int64s:
    """Where a key of four letters or more ends. Raises InexactTimesError if it has
    another form too."""
    data = np.frombuffer(text, dtype=np.uint8)
    word = np.frombuffer(key[:4], dtype=np.uint32)
    parts = [data[n : n + (len(data) - n) // 4 * 4].view(np.uint32) for n in range(4)]
    at = np.sort(
        np.concatenate([np.flatnonzero(p == word) * 4 + n for n, p in enumerate(parts)])
    )
    at = at[at < len(data) - len(key)]
    for place in range(4, len(key) - 1):
        at = at[data[at + place] == key[place]]
    follows = data[at + len(key) - 1]
    if np.frombuffer(BLANKS, dtype=np.uint8)[follows].any():
        raise InexactTimesError
    found: Int64s = at[follows == key[-1]] + len(key)
    return found
