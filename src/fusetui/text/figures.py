"""Times, sizes, counts and shares as users read them; `--json` is exact.

Rounding is exact, in integers and fractions, half up: the printed decimal is the
nearest one to the exact value. A figure that would round up to the next unit is shown
in that unit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from fractions import Fraction

    Number = int | Fraction
Units = Sequence[tuple[int, str]]

UNITS: Units = ((1, "ns"), (1_000, "us"), (1_000_000, "ms"), (1_000_000_000, "s"))
SIZES: Units = (
    (1, "bytes"),
    (1_000, "kB"),
    (10**6, "MB"),
    (10**9, "GB"),
    (10**12, "TB"),
)
PREFIXES: Units = tuple((1000**n, letter) for n, letter in enumerate(("", *"kMGTPE")))
NS = {unit: size for size, unit in UNITS} | {"µs": 1000, "μs": 1000}
TIME = r"(-?)([0-9]{1,18})(?:\.([0-9]{1,18}))? ?(ns|us|µs|μs|ms|s)"
FRACTION = 18  # digits after the point of a time, at most
DIGITS = 4
LEAST, MOST = 10**6, 10**21
"""A quantity, which may be any float, below 1/LEAST or from MOST on has an exponent."""


class Unit(msgspec.Struct, frozen=True):
    """`scale` ns are 1 of the unit."""

    scale: int
    name: str
    decimals: int

    def text(self, ns: int) -> str:
        """`1,437.3`; rounded half up. A time that would round to nothing is shown as
        `<0.1`.

        >>> unit_of([1_437_300, 12]).text(12)
        '<0.001'
        """
        near = (2 * abs(ns) * 10**self.decimals + self.scale) // (2 * self.scale)
        least = ns and not near
        whole, rest = divmod(1 if least else near, 10**self.decimals)
        fraction = f".{rest:0{self.decimals}}" if self.decimals else ""
        return f"{'<' if least else '-' if ns < 0 else ''}{whole:,}{fraction}"


def unit_of(times_ns: Iterable[int]) -> Unit:
    """The unit in which the longest of these times has four significant digits.

    >>> unit_of([1_437_300, 12]).text(1_437_300)
    '1.437'
    """
    longest = max(map(abs, times_ns), default=0)
    scale, name = max((unit for unit in UNITS if unit[0] <= longest), default=UNITS[0])
    digits = len(str(longest // scale))
    return Unit(scale, name, min(len(str(scale)) - 1, max(0, DIGITS - digits)))


def parse_time(text: str) -> int | None:
    """`12.5ms`, `-3 us` -> ns; fractions of a ns are dropped. None if it is not a
    time."""
    found = re.fullmatch(TIME, text)
    if found is None:
        return None
    sign, whole, fraction, unit = found.groups()
    digits = (fraction or "").ljust(FRACTION, "0")
    ns: int = int(whole) * NS[unit] + int(digits) * NS[unit] // 10**FRACTION
    return -ns if sign else ns


def duration(ns: int) -> str:
    """Nanoseconds with at most four significant digits: `0 ns`, `512 ns`, `41.2 us`,
    `1.204 s`."""
    return _in_units(ns, UNITS)


def signed_duration(ns: int) -> str:
    """A change: `+41.2 us`, `-512 ns`, `0 ns`."""
    return f"{'+' if ns > 0 else ''}{duration(ns)}"


def microseconds(ns: int | None, signed: bool = False) -> str:
    """For columns in microseconds: `1,437.3` or `+60.2`; `-` for None. What rounds to
    nothing is `0.0`, without a sign."""
    if ns is None:
        return "-"
    tenths = _rounded(abs(ns), 100)
    sign = "" if not tenths else "-" if ns < 0 else "+" if signed else ""
    return f"{sign}{tenths // 10:,}.{tenths % 10}"


def tick(ns: int, step: int) -> str:
    """A time with just enough digits to distinguish times `step` ns apart: `820 us`,
    `1.25 s`."""
    for scale, unit in reversed(UNITS):
        decimals = next(n for n in range(len(str(scale))) if scale <= step * 10**n)
        near = _rounded(abs(ns) * 10**decimals, scale)
        if scale == 1 or (step >= scale // 1000 and near >= 10**decimals):
            return f"{'-' if ns < 0 else ''}{_decimal(near, decimals)} {unit}"
    raise AssertionError("nanoseconds are the last unit")


def window(begin_ns: int, end_ns: int) -> str:
    """Two times, with enough digits to tell how far apart they are.

    >>> window(10_000_000_000, 10_003_000_000)
    '10000.00 ms to 10003.00 ms'
    """
    step = max((end_ns - begin_ns) // 100, 1)
    return f"{tick(begin_ns, step)} to {tick(end_ns, step)}"


def size(count: int) -> str:
    """Bytes in decimal units: `1 byte`, `512 bytes`, `3.059 MB`."""
    return "1 byte" if count == 1 else _in_units(count, SIZES)


def signed_size(count: int) -> str:
    """A change: `+3.059 MB`, `-512 bytes`, `0 bytes`."""
    return f"{'+' if count > 0 else '-' if count < 0 else ''}{size(abs(count))}"


def quantity(value: float, unit: str = "", digits: int = DIGITS) -> str:
    """A finite value in decimal units: `12.5`, `1.204 M`, `934.2 MB`.

    Without a unit, thousands are written out.
    """
    exact = _fraction(value)
    if exact and not (abs(exact) * LEAST >= 1 and abs(exact) < MOST):
        return f"{value:.{digits - 1}g} {unit}".rstrip()
    if abs(exact) < 1:
        return f"{significant(value, digits)} {unit}".rstrip()
    units = PREFIXES if unit else (PREFIXES[0], *PREFIXES[2:])
    return _in_units(
        exact, [(scale, letter + unit) for scale, letter in units], digits
    ).rstrip()


def significant(value: float, digits: int = DIGITS) -> str:
    """This many digits, without trailing zeros of the fraction: 0.012, 1.2, 41.25,
    812.3, 1204."""
    exact = abs(_fraction(value))
    decimals = max(0, digits - len(str(int(exact)))) if exact >= 1 else digits
    while 0 < exact * 10**decimals < 10 ** (digits - 1):
        decimals += 1
    return f"{'-' if value < 0 else ''}{_trimmed(_rounded(exact * 10**decimals, 1), decimals)}"


def percent(part: float, whole: float, *, fine: bool = False) -> str:
    """A share as `71 %`, `0.4 %`, `<0.1 %`, `>99.9 %`; blank if the whole is 0.

    `100 %` means exactly all, `0 %` exactly nothing. `fine`: with one decimal, as `71.3
    %`.
    """
    if whole <= 0:
        return ""
    if part < 0:
        return _signed(percent(-part, whole, fine=fine), "-")
    if part in (0, whole):
        return "100 %" if part else "0 %"
    # Fractions are slower than integers.
    one, all_ = (n if isinstance(n, int) else _fraction(n) for n in (part, whole))
    tenths = _rounded(1000 * one, all_)
    if not tenths:
        return "<0.1 %"
    if tenths == 1000:
        return ">99.9 %" if one < all_ else ">100 %"
    if fine or tenths < 100 or 995 <= tenths < 1005:
        return f"{_decimal(tenths, 1)} %"
    return f"{_rounded(100 * one, all_)} %"


def signed_percent(part: float, whole: float) -> str:
    """With one decimal and a sign, as `+1.5 %` or `-0.2 %`; nearly none is `<+0.1 %` or
    `>-0.1 %`, none `0 %`."""
    text = percent(part, whole, fine=True)
    return _signed(text, "+") if part > 0 else text


def _signed(share: str, sign: str) -> str:
    """A share of a positive part with a sign; below zero more than a bound is less than
    it."""
    bound = share[: share.startswith(("<", ">"))]
    turned = {"<": ">", ">": "<"}.get(bound, "") if sign == "-" else bound
    return f"{turned}{sign}{share.removeprefix(bound)}"


def change(before: int, after: int) -> str:
    """`11.8 % less`, `3.0 % more`, or `as much`; `more` for a change from 0, which has
    no share."""
    if before == after:
        return "as much"
    word = "less" if after < before else "more"
    return f"{percent(abs(after - before), before, fine=True)} {word}".strip()


def count(number: int) -> str:
    """1234567 -> `1,234,567`."""
    return f"{number:,}"


def plural(number: int, noun: str) -> str:
    """`1 kernel`, `2 kernels`."""
    return f"{count(number)} {noun}" + ("" if number == 1 else "s")


def several(names: Sequence[str], most: int) -> str:
    """`a, b and 3 more`."""
    shown = ", ".join(names[:most])
    return (
        shown if len(names) <= most else f"{shown} and {count(len(names) - most)} more"
    )


def _fraction(value: float) -> Fraction:
    from fractions import Fraction  # takes a while to import, and many runs need none

    return Fraction(value)


def _in_units(value: Number, units: Units, digits: int = DIGITS) -> str:
    """In the largest unit that the rounded number reaches, or the smallest unit below
    that."""
    exact = value if value >= 0 else -value
    sign = "-" if value < 0 else ""
    for scale, unit in reversed(units):
        whole = int(exact) // scale
        decimals = max(0, digits - len(str(whole))) if whole else digits
        number = _rounded(exact * 10**decimals, scale)
        if number >= 10**decimals or scale == 1:
            return f"{sign}{_trimmed(number, decimals)} {unit}"
    raise AssertionError("the first unit is 1")


def _rounded(value: Number, scale: Number) -> int:
    """value / scale rounded to the nearest integer, half up; neither is negative."""
    return int((2 * value + scale) // (2 * scale))


def _trimmed(number: int, decimals: int) -> str:
    """number / 10**decimals without trailing zeros of the fraction."""
    text = _decimal(number, decimals)
    return text.rstrip("0").rstrip(".") if decimals else text


def _decimal(number: int, decimals: int) -> str:
    """number / 10**decimals, written out."""
    whole, fraction = divmod(number, 10**decimals)
    return f"{whole}.{fraction:0{decimals}}" if decimals else str(whole)


def amount(text: str) -> float | None:
    """The number in the value of a variable; None if it is none, or not finite, or
    negative.

    >>> amount("0.5"), amount("-1"), amount("")
    (0.5, None, None)
    """
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) and found >= 0 else None
