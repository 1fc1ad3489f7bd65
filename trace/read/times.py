"""Microseconds as written in a file -> exact integer nanoseconds.

A float64 holds a decimal of three fraction digits exactly enough only below 2**42 microseconds:
its error is then less than a quarter of a nanosecond. Absolute Unix times with a fraction are
larger; they are parsed from their text, and so is a time with more digits that a float does not
tell from one halfway between two nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation

import numpy as np

from fusetui.text.patterns import late
from fusetui.trace.model.arrays import Int64s

EXACT_BELOW_US = float(2**42)
"""Floats below this (in microseconds) are closer to the nanosecond that was written than to the
middle between two."""

LIMIT_NS = 2**61
"""Times further from zero are unreadable: 73 years, which as Unix time ends in January 2043. So
twice the span of a trace fits into 64 bits."""

PLAIN = late(r"([0-9]{1,15})(?:\.([0-9]{1,3}))?")
"""Almost all times have this form, and are in range."""

TINY = 1e-9  # ns: a product of floats below 1000 is less inexact than that
LONGEST_EXPONENT = 30  # digits: a longer exponent is beyond every limit, or gives zero


class InexactTimes(Exception):  # noqa: N818
    """These floats lost digits of the file: parse the text instead."""


def _unknown() -> Int64s:
    raise InexactTimes


def nanoseconds(values: Sequence[int | float], digits: Callable[[], Int64s] = _unknown) -> Int64s:
    """Integer or float microseconds, shape [n] -> int64 nanoseconds, shape [n].

    Where a float is too large to be exact or close to the middle between two nanoseconds, `digits`
    is asked, which gives all of them by their text or raises InexactTimes. Raises OverflowError
    when a time is out of range.
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


def check_ends(start: Int64s, dur: Int64s) -> None:
    """Raises OverflowError if a slice ends out of range; both are in ns and within LIMIT_NS."""
    if len(start) and int((start + dur).max()) > LIMIT_NS:
        raise OverflowError("a slice ends out of range")


def exact_nanoseconds(text: bytes | str) -> int:
    """The text of one JSON number (or a number in quotes), in microseconds -> nanoseconds.

    Digits beyond the nanosecond are rounded half to even. Raises ValueError for anything that is
    not a finite number within LIMIT_NS.
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
