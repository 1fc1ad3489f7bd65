"""Converts microseconds, as written in a file, to exact integer nanoseconds.

A float64 holds a decimal of three fraction digits exactly enough only below 2**42
microseconds: its error is then less than a quarter of a nanosecond. Absolute Unix times
with a fraction are larger; they are parsed from their text, and so is a time with more
digits that a float does not tell from one halfway between two nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fusetui.text.patterns import lazy_pattern
from fusetui.trace.model.arrays import Flags, Floats, Int64s
from fusetui.trace.read.structure import BLANKS

EXACT_BELOW_US = float(2**42)
"""Floats below this (in microseconds) are closer to the nanosecond that was written
than to the middle between two."""

LIMIT_NS = 2**61
"""Times further from zero are unreadable: 73 years, which as Unix time ends in January
2043. So twice the span of a trace fits into 64 bits."""

PLAIN_TIME = lazy_pattern(r"([0-9]{1,15})(?:\.([0-9]{1,3}))?")
"""Almost all times have this form, and are in range."""

PRODUCT_ERROR_NS = 1e-9  # a product of floats below 1000 is less inexact than that
MAX_EXPONENT = 30  # a larger one is beyond every limit, a smaller one gives zero
SHOWN_CHARS = 40  # of what is no time, in messages


class InexactTimesError(Exception):
    """These floats lost digits of the file: parse the text instead."""


def _raise_inexact() -> Int64s:
    """Raise InexactTimesError, where no digits are at hand to decide."""
    raise InexactTimesError


def nanoseconds(
    values: Sequence[int | float], digits: Callable[[], Int64s] = _raise_inexact
) -> Int64s:
    """Integer or float microseconds, shape [n] -> int64 nanoseconds, shape [n].

    Where a float is too large to be exact or close to the middle between two
    nanoseconds, `digits` is asked, which gives all of them by their text or raises
    InexactTimesError. Raises OverflowError when a time is out of range.
    """
    numbers = np.asarray(values)
    max_us = LIMIT_NS // 1000
    if numbers.dtype == np.int64:
        largest = int(numbers.max())
        smallest = int(numbers.min())
        if max(largest, -smallest) > max_us:
            raise OverflowError("a time is out of range")
        return numbers * 1000
    floats = numbers.astype(np.float64)
    sizes = np.abs(floats)
    if not (sizes <= max_us).all():  # nor is a nan
        raise OverflowError("a time is out of range")
    nearest = _nearest_nanoseconds(floats, sizes)
    if not nearest.is_doubtful.any():
        return nearest.ns
    return np.where(nearest.is_doubtful, digits(), nearest.ns)


class _NearestNanoseconds(NamedTuple):
    """Floats as nanoseconds; arrays of shape [n]."""

    ns: Int64s
    is_doubtful: Flags  # another number of nanoseconds may have been written


def _nearest_nanoseconds(floats: Floats, sizes: Floats) -> _NearestNanoseconds:
    """The times in ns nearest to floats in microseconds, and which of them may be off
    by one. `sizes` are the absolute values of the floats."""
    fraction_us, whole_us = np.modf(floats)
    fraction_ns = fraction_us * 1000
    nearest_ns = np.rint(fraction_ns)
    # A float is at most half its spacing away from what was written.
    error_ns = np.spacing(sizes) * 500 + PRODUCT_ERROR_NS
    is_near_middle = np.abs(fraction_ns - nearest_ns) >= 0.5 - error_ns
    is_doubtful = (sizes >= EXACT_BELOW_US) | is_near_middle
    ns: Int64s = whole_us.astype(np.int64) * 1000 + nearest_ns.astype(np.int64)
    return _NearestNanoseconds(ns=ns, is_doubtful=is_doubtful)


def exact_nanoseconds(text: bytes | str) -> int:
    """The text of one JSON number (or a number in quotes), in microseconds ->
    nanoseconds.

    Digits beyond the nanosecond are rounded half to even. Raises ValueError for
    anything that is not a finite number within LIMIT_NS.
    """
    plain = text.decode("ascii", "replace") if isinstance(text, bytes) else text
    usual_time = PLAIN_TIME.fullmatch(plain)
    if usual_time:
        whole_us, decimals = usual_time.groups("")
        fraction_ns = decimals.ljust(3, "0")  # 2.5 us: 2 us and 500 ns
        return int(whole_us) * 1000 + int(fraction_ns)
    shown = plain[:SHOWN_CHARS]
    digits = plain.strip().strip('"')
    is_json = digits.isascii() and "_" not in digits  # Decimal accepts more
    if not is_json:
        raise ValueError(f"not a number: {shown!r}")
    try:
        microseconds = Decimal(digits)
    except InvalidOperation:
        raise ValueError(f"not a number: {shown!r}") from None
    # These two are decided before numbers of that size are computed with.
    if not microseconds.is_finite() or microseconds.adjusted() > MAX_EXPONENT:
        raise ValueError(f"not a time: {shown!r}")
    if microseconds.adjusted() < -MAX_EXPONENT:
        return 0
    ns = int((microseconds * 1000).to_integral_value())
    if abs(ns) > LIMIT_NS:
        raise ValueError(f"a time out of range: {shown!r}")
    return ns


# Times whose floats lost digits: by their digits in the text that was decoded, all at
# once. The key is looked for in the text. What stands behind it is used only if there
# is one place for each number that was decoded, and a zero wherever a zero, or nothing,
# was decoded. If args hold the key too, the places of the events behind them are one
# too late, and only an event without the key could make up for it: but that was decoded
# as zero, so the number at its place is refused.

NUMBER = lazy_pattern(rb"[-+.0-9eE]+")
ESCAPED_LETTER = b"\\u00"  # what a letter of a key may be written as
MAX_WHOLE_DIGITS = 16  # before the point of a usual number
MAX_DECIMALS = 9  # behind it
WINDOW = np.arange(-MAX_WHOLE_DIGITS, MAX_DECIMALS + 2, dtype=np.int8)
"""The bytes that are looked at of a number, counted from its point: its digits, and one
byte behind them."""
POINT = MAX_WHOLE_DIGITS  # the index of the point in a window
WEIGHTS = np.zeros((len(WINDOW), 3))
"""What a digit counts in each of three sums: the upper eight digits before the point,
the lower eight, and the decimals. They are floats, as BLAS multiplies these, and no sum
reaches 2**53."""
for _digit in range(MAX_WHOLE_DIGITS):
    WEIGHTS[_digit, _digit // 8] = 10.0 ** (7 - _digit % 8)
WEIGHTS[POINT + 1 : -1, 2] = 10.0 ** np.arange(MAX_DECIMALS - 1, -1, -1)
LEAST_OF_DIGITS = np.array([0.0, *(10.0 ** np.arange(1, MAX_WHOLE_DIGITS))])
"""The least numbers that have 1, 2, ... digits before the point."""
DECIMAL_UNITS = 10**MAX_DECIMALS  # of decimals in a microsecond
UNITS_PER_NS = DECIMAL_UNITS // 1000
ENDS_NUMBER = np.isin(np.arange(256), list(b",}] \t\r\n"))  # by byte


class UsualNumbers(NamedTuple):
    """Numbers of at most so many digits, without a sign and an exponent. Arrays of shape
    [numbers]."""

    is_usual: Flags  # the others are 0 in both columns
    whole: Int64s  # before the point
    decimals: Int64s  # behind it, in DECIMAL_UNITS


def by_digits(text: bytes, key: bytes, values: Sequence[int | float]) -> Int64s:
    """What stands behind a key such as `"ts":` in the text (microseconds), in
    nanoseconds, half to even. `values` are those that were decoded for this key, in
    order, 0 where there is none.

    Raises InexactTimesError if the places of the numbers are uncertain, or one is out of
    range.
    """
    floats = np.asarray(values, dtype=np.float64)
    begins = _find_ends_of_key(text, key)
    # The first of both searches is faster, and mostly finds nothing.
    has_escapes = ESCAPED_LETTER[:1] in text and ESCAPED_LETTER in text
    if len(begins) != len(floats) or has_escapes:
        raise InexactTimesError
    # so that the window of the first and of the last number is within the bytes
    padding_before = bytes(MAX_WHOLE_DIGITS)
    padding_after = bytes(len(WINDOW))
    padded_text = b"".join((padding_before, text, padding_after))
    padded = np.frombuffer(padded_text, dtype=np.uint8)
    has_blank = padded[begins + MAX_WHOLE_DIGITS] == ord(" ")
    begins += has_blank

    numbers = _parse_usual_numbers(padded, begins, floats)
    is_usual = numbers.is_usual & (numbers.whole < LIMIT_NS // 1000)
    usual_ns = numbers.whole * 1000 + _round_to_ns(numbers.decimals)
    ns = np.where(is_usual, usual_ns, 0)
    # A number that is not the decoded one stands behind the key of something else.
    written = numbers.whole + numbers.decimals / DECIMAL_UNITS
    max_error = 4 * np.spacing(np.abs(floats))
    differs = np.abs(written - floats) > max_error
    for row in np.flatnonzero(~is_usual).tolist():
        number = _number_at(text, begins[row])
        try:
            differs[row] = float(number) != floats[row]
            ns[row] = exact_nanoseconds(number)
        except ValueError:
            raise InexactTimesError from None
    if differs.any():
        raise InexactTimesError
    return ns


def _number_at(text: bytes, begin: int) -> bytes:
    """The characters of the number that begins at a byte of the text; they may not be a
    valid number. Raises InexactTimesError if there are none."""
    number = NUMBER.match(text, begin)
    if number is None:
        raise InexactTimesError
    return number[0]


def _parse_usual_numbers(
    padded: NDArray[np.uint8], begins: Int64s, floats: Floats
) -> UsualNumbers:
    """Parse the numbers that begin at these bytes of a text, if they have the usual
    form with a point and few decimals.

    `padded` has MAX_WHOLE_DIGITS bytes before the text, and some after it. `floats` are
    the decoded numbers, which tell how many whole digits there are.
    """
    whole_digits = LEAST_OF_DIGITS.searchsorted(floats, side="right").astype(np.int8)
    all_windows = np.lib.stride_tricks.sliding_window_view(padded, len(WINDOW))
    windows = all_windows[begins + whole_digits]
    digits = windows - np.uint8(ord("0"))  # more than 9 for other bytes
    decimal_count = _count_decimals(windows, digits)
    byte_behind = windows[np.arange(len(begins)), POINT + 1 + decimal_count]
    is_usual = ENDS_NUMBER[byte_behind] & (decimal_count != 0)

    is_before = -whole_digits[:, None] > WINDOW
    is_behind = decimal_count.astype(np.int8)[:, None] < WINDOW
    digits[is_before | is_behind] = 0
    digits[:, POINT] = 0
    if digits.max(initial=0) > 9:  # an exponent
        is_usual &= digits.max(axis=1) < 10
    digits[~is_usual] = 0
    upper, lower, decimals = (digits.astype(np.float64) @ WEIGHTS).T
    whole = upper * 1e8 + lower
    return UsualNumbers(
        is_usual=is_usual,
        whole=whole.astype(np.int64),
        decimals=decimals.astype(np.int64),
    )


def _count_decimals(windows: NDArray[np.uint8], digits: NDArray[np.uint8]) -> Int64s:
    """The number of digits after the point of each number; 0 if there are too many, -1
    without a point. `windows` has the bytes, `digits` the same bytes minus the code of
    0."""
    has_point = windows[:, POINT] == ord(".")
    is_decimal = digits[:, POINT + 1 :] < 10
    first_no_digit = np.argmin(is_decimal, axis=1)  # 0 if all are digits
    return np.where(has_point, first_no_digit, -1)


def _round_to_ns(decimals: Int64s) -> Int64s:
    """Decimals of microseconds rounded to nanoseconds, halves to the even neighbor."""
    ns, rest = np.divmod(decimals, UNITS_PER_NS)
    half = UNITS_PER_NS // 2
    is_odd = ns & 1 == 1
    rounds_up = (rest > half) | ((rest == half) & is_odd)
    rounded: Int64s = ns + rounds_up
    return rounded


def _find_ends_of_key(text: bytes, key: bytes) -> Int64s:
    """The byte behind each occurrence of a key of at least four letters, ascending.
    Raises InexactTimesError if a blank stands before its last character somewhere."""
    data = np.frombuffer(text, dtype=np.uint8)
    beginnings = _find_four_bytes(data, key[:4])
    at = beginnings[beginnings < len(data) - len(key)]
    for place in range(4, len(key) - 1):
        at = at[data[at + place] == key[place]]
    last_byte = data[at + len(key) - 1]
    is_blank = np.frombuffer(BLANKS, dtype=np.uint8)
    if is_blank[last_byte].any():
        raise InexactTimesError
    ends: Int64s = at[last_byte == key[-1]] + len(key)
    return ends


def _find_four_bytes(data: NDArray[np.uint8], four_bytes: bytes) -> Int64s:
    """The places at which these four bytes occur, ascending. Four bytes are compared as
    one number, once for each of the four ways to divide the data."""
    word = np.frombuffer(four_bytes, dtype=np.uint32)
    places = []
    for shift in range(4):
        bytes_of_words = (len(data) - shift) // 4 * 4
        words = data[shift : shift + bytes_of_words].view(np.uint32)
        places.append(np.flatnonzero(words == word) * 4 + shift)
    return np.sort(np.concatenate(places))
