"""Formats times, sizes, counts and shares for people; `--json` is exact.

Rounding is exact, in integers and fractions, half up: the printed decimal is the
nearest one to the exact value. A figure that would round up to the next unit is shown
in that unit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from fractions import Fraction

    Number = int | Fraction


class Scale(NamedTuple):
    """`factor` of the smallest unit (ns, bytes) are 1 of the unit `name`."""

    factor: int
    name: str


TIME_UNITS = (
    Scale(1, "ns"),
    Scale(1_000, "us"),
    Scale(1_000_000, "ms"),
    Scale(1_000_000_000, "s"),
)
BYTE_UNITS = (
    Scale(1, "bytes"),
    Scale(10**3, "kB"),
    Scale(10**6, "MB"),
    Scale(10**9, "GB"),
    Scale(10**12, "TB"),
)
PREFIXES = (
    Scale(1, ""),
    Scale(10**3, "k"),
    Scale(10**6, "M"),
    Scale(10**9, "G"),
    Scale(10**12, "T"),
    Scale(10**15, "P"),
    Scale(10**18, "E"),
)
PREFIXES_WITHOUT_KILO = tuple(prefix for prefix in PREFIXES if prefix.name != "k")
NS_PER_UNIT = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # U+00B5, the micro sign
    "μs": 1_000,  # U+03BC, the Greek letter
    "ms": 1_000_000,
    "s": 1_000_000_000,
}
TIME = r"(-?)([0-9]{1,18})(?:\.([0-9]{1,18}))? ?(ns|us|µs|μs|ms|s)"
MAX_FRACTION_DIGITS = 18  # after the point of a time
SIGNIFICANT_DIGITS = 4
RATE_DIGITS = 3  # of work per second, and of other figures that are estimated
TINY_PER_ONE = 10**6  # a quantity below 1/TINY_PER_ONE is written with an exponent
HUGE = 10**21  # a quantity from this on is written with an exponent


class Unit(msgspec.Struct, frozen=True):
    """How the times of a column are written: `scale` ns are 1 of the unit."""

    scale: int
    name: str
    decimals: int

    def text(self, ns: int) -> str:
        """Return a time in this unit, rounded half up, without the name of the unit:
        `1,437.3`.

        A time that would round to nothing is shown as `<0.1`, whatever its sign.

            >>> unit_of([1_437_300, 12]).text(12)
            '<0.001'
        """
        if self.hides(ns):
            smallest = _format_decimal(1, self.decimals)
            return f"<{smallest}"
        sign = "-" if ns < 0 else ""
        digits = self._digits(ns)
        return f"{sign}{_format_decimal(digits, self.decimals, thousands=',')}"

    def hides(self, ns: int) -> bool:
        """Return whether a time that is not 0 rounds to 0 in this unit."""
        return ns != 0 and self._digits(ns) == 0

    def _digits(self, ns: int) -> int:
        """Return the digits of a time in this unit, as a number without the point:
        14373 for 1,437.3."""
        return _round_half_up(abs(ns) * 10**self.decimals, self.scale)


def unit_of(times_ns: Iterable[int]) -> Unit:
    """Choose one unit for a column of times.

    It is the largest unit of which the longest time has at least 1, with so many
    decimals that this time has four significant digits.

    >>> unit_of([1_437_300, 12])
    Unit(scale=1000000, name='ms', decimals=3)
    >>> unit_of([1_437_300, 12]).text(1_437_300)
    '1.437'
    """
    longest_ns = max(map(abs, times_ns), default=0)
    chosen, *larger_units = TIME_UNITS
    for unit in larger_units:
        if unit.factor <= longest_ns:
            chosen = unit
    whole_digits = len(str(longest_ns // chosen.factor))
    wanted_decimals = max(0, SIGNIFICANT_DIGITS - whole_digits)
    exact_decimals = len(str(chosen.factor)) - 1  # with as many, each ns is shown
    decimals = min(exact_decimals, wanted_decimals)
    return Unit(scale=chosen.factor, name=chosen.name, decimals=decimals)


def common_unit(columns_ns: Iterable[Sequence[int]], most_cells: int) -> Unit:
    """Choose one unit for several columns of times, so that they can be compared.

    It is the unit of the column with the shortest times, if the longest of all times
    fits; else the next larger one in which it does:

    >>> common_unit([[4_011_000], [154_400], [7_934_000]], most_cells=9)
    Unit(scale=1000, name='us', decimals=1)

    If some time would round to nothing in that, it is a smaller unit, or one with more
    decimals, in which none does, if there is one:

    >>> common_unit([[7_934_000], [2_154_400, 12]], most_cells=9)
    Unit(scale=1000, name='us', decimals=3)

    Args:
        columns_ns: The times of each column, in ns. Zeros do not count.
        most_cells: How many characters the longest time may take.
    """
    all_times_ns: list[int] = []
    longest_of_columns = []
    for column_ns in columns_ns:
        times_ns = [abs(time_ns) for time_ns in column_ns if time_ns != 0]
        if times_ns:
            all_times_ns += times_ns
            longest_of_columns.append(max(times_ns))
    if not all_times_ns:
        return unit_of([0])
    longest_ns = max(all_times_ns)
    shortest_ns = min(all_times_ns)

    # The column with the shortest times decides.
    deciding_ns = min(longest_of_columns)
    smallest_scale = unit_of([deciding_ns]).scale
    chosen = unit_of([longest_ns])
    for unit in _units_that_fit(longest_ns, deciding_ns, most_cells):
        if unit.scale >= smallest_scale:
            chosen = unit
            break
    if not chosen.hides(shortest_ns):
        return chosen

    largest_without_hiding = chosen
    for unit in _units_that_fit(longest_ns, shortest_ns, most_cells):
        if unit.scale <= chosen.scale and not unit.hides(shortest_ns):
            largest_without_hiding = unit
    return largest_without_hiding


def _units_that_fit(longest_ns: int, exact_ns: int, most_cells: int) -> Iterator[Unit]:
    """Yield the units in which a time fits, the smallest first.

    Args:
        longest_ns: The time that has to fit.
        exact_ns: A shorter time, which gets four significant digits if the cells
            suffice; so it decides how many decimals a unit has.
        most_cells: How many characters there are.
    """
    for unit in TIME_UNITS:
        whole_cells = len(f"{longest_ns // unit.factor:,}")
        if whole_cells > most_cells:
            continue
        exact_decimals = len(str(unit.factor)) - 1  # with as many, each ns is shown
        whole_digits = len(str(exact_ns // unit.factor))
        wanted_decimals = SIGNIFICANT_DIGITS - whole_digits
        cells_behind_point = most_cells - whole_cells - len(".")
        decimals = min(exact_decimals, wanted_decimals, cells_behind_point)
        yield Unit(scale=unit.factor, name=unit.name, decimals=max(0, decimals))


def parse_time(text: str) -> int | None:
    """Read a time with its unit as nanoseconds; None if the text is no such time.

    Fractions of a nanosecond are dropped.

    >>> parse_time("12.5ms"), parse_time("-3 us"), parse_time("0.9ns"), parse_time("5")
    (12500000, -3000, 0, None)
    """
    match = re.fullmatch(TIME, text)
    if match is None:
        return None
    sign, whole, fraction, unit = match.groups(default="")
    ns_per_unit = NS_PER_UNIT[unit]
    # With all digits written out, the fraction is an integer: .5 is 500...0.
    fraction_digits = int(fraction.ljust(MAX_FRACTION_DIGITS, "0"))
    fraction_ns = fraction_digits * ns_per_unit // 10**MAX_FRACTION_DIGITS
    ns: int = int(whole) * ns_per_unit + fraction_ns
    return -ns if sign else ns


def duration(ns: int) -> str:
    """Write a time with at most four significant digits.

    >>> duration(0), duration(512), duration(41_200), duration(1_204_000_000)
    ('0 ns', '512 ns', '41.2 us', '1.204 s')
    """
    return _in_units(ns, TIME_UNITS)


def signed_duration(ns: int) -> str:
    """Write a change of a time.

    >>> signed_duration(41_200), signed_duration(-512), signed_duration(0)
    ('+41.2 us', '-512 ns', '0 ns')
    """
    plus = "+" if ns > 0 else ""
    return plus + duration(ns)


def microseconds(ns: int | None, signed: bool = False) -> str:
    """Write a time for a column in microseconds, with one decimal; "-" for None.

    What rounds to nothing has no sign.

    >>> microseconds(1_437_300), microseconds(60_200, signed=True), microseconds(-12)
    ('1,437.3', '+60.2', '0.0')
    """
    if ns is None:
        return "-"
    tenths_of_us = _round_half_up(abs(ns), 100)
    sign = ""
    if tenths_of_us > 0 and ns < 0:
        sign = "-"
    elif tenths_of_us > 0 and signed:
        sign = "+"
    return sign + _format_decimal(tenths_of_us, 1, thousands=",")


def tick(ns: int, step: int) -> str:
    """Write a time with just enough digits to tell it from times `step` ns away.

    It is in the largest unit in which it is at least 1, and `step` at least 1/1000.

    >>> tick(820_000, step=10_000), tick(1_250_000_000, step=50_000_000)
    ('820 us', '1.25 s')

    Args:
        ns: The time.
        step: Another time is this far away; above 0.
    """
    sign = "-" if ns < 0 else ""
    for unit in reversed(TIME_UNITS):
        decimals = 0
        while step * 10**decimals < unit.factor:  # until the step is one last digit
            decimals += 1
        # The number in this unit, without its point: 125 for 1.25.
        rounded = _round_half_up(abs(ns) * 10**decimals, unit.factor)
        is_one_or_more = rounded >= 10**decimals
        is_step_large_enough = step >= unit.factor // 1000
        if unit.factor == 1 or (is_step_large_enough and is_one_or_more):
            return f"{sign}{_format_decimal(rounded, decimals)} {unit.name}"
    raise AssertionError("nanoseconds are the last unit")


def window(begin_ns: int, end_ns: int) -> str:
    """Write two times, with enough digits to tell how far apart they are.

    >>> window(10_000_000_000, 10_003_000_000)
    '10000.00 ms to 10003.00 ms'
    """
    step = max((end_ns - begin_ns) // 100, 1)
    return f"{tick(begin_ns, step)} to {tick(end_ns, step)}"


def size(count: int) -> str:
    """Write a number of bytes in decimal units.

    >>> size(1), size(512), size(3_059_000)
    ('1 byte', '512 bytes', '3.059 MB')
    """
    if count == 1:
        return "1 byte"
    return _in_units(count, BYTE_UNITS)


def signed_size(count: int) -> str:
    """Write a change of a number of bytes.

    >>> signed_size(3_059_000), signed_size(-512), signed_size(0)
    ('+3.059 MB', '-512 bytes', '0 bytes')
    """
    if count > 0:
        return "+" + size(count)
    if count < 0:
        return "-" + size(-count)
    return size(0)


def quantity(value: float, unit: str = "", digits: int = SIGNIFICANT_DIGITS) -> str:
    """Write a finite value with a prefix of its unit: k, M, G, ...

    >>> quantity(12.5), quantity(1_204_000), quantity(934.2e6, "B"), quantity(2e-9, "s")
    ('12.5', '1.204 M', '934.2 MB', '2e-09 s')

    Without a unit, thousands are written out: 1204 has no "k". Values below 10**-6 and
    from 10**21 on have an exponent, and one digit less.

    Args:
        value: The value.
        unit: The unit.
        digits: How many significant digits there are at most.
    """
    exact = _exact_fraction(value)
    size = abs(exact)
    is_tiny = exact != 0 and size * TINY_PER_ONE < 1
    if is_tiny or size >= HUGE:
        return f"{value:.{digits - 1}g} {unit}".rstrip()
    if size < 1:
        return f"{significant(value, digits)} {unit}".rstrip()

    prefixes = PREFIXES if unit else PREFIXES_WITHOUT_KILO
    units = [Scale(prefix.factor, f"{prefix.name}{unit}") for prefix in prefixes]
    return _in_units(exact, units, digits).rstrip()


def significant(value: float, digits: int = SIGNIFICANT_DIGITS) -> str:
    """Write a value with some significant digits, without zeros at the end of a
    fraction.

    >>> significant(0.012), significant(41.25), significant(812.34), significant(12041)
    ('0.012', '41.25', '812.3', '12041')
    """
    size = abs(_exact_fraction(value))
    whole_digits = len(str(int(size))) if size >= 1 else 0
    decimals = max(0, digits - whole_digits)
    # A number such as 0.0012 has zeros before its first digit, which do not count.
    smallest_with_all_digits = 10 ** (digits - 1)
    while 0 < size * 10**decimals < smallest_with_all_digits:
        decimals += 1
    sign = "-" if value < 0 else ""
    rounded = _round_half_up(size * 10**decimals, 1)
    return f"{sign}{_format_trimmed(rounded, decimals)}"


def percent(part: float, whole: float, *, fine: bool = False) -> str:
    """Write a share in percent; "" if the whole is 0.

    `100 %` means exactly all, `0 %` exactly nothing. Shares below 10 % and close to
    100 % have one decimal; with `fine` all have.

    >>> percent(712, 1000), percent(4, 1000), percent(712, 1000, fine=True)
    ('71 %', '0.4 %', '71.2 %')
    >>> percent(1, 10**6), percent(999_999, 10**6), percent(1, 0)
    ('<0.1 %', '>99.9 %', '')
    """
    if whole <= 0:
        return ""
    if part < 0:
        return _put_sign(percent(-part, whole, fine=fine), "-")
    if part == 0:
        return "0 %"
    if part == whole:
        return "100 %"
    # Fractions are slower than integers.
    exact_part = part if isinstance(part, int) else _exact_fraction(part)
    exact_whole = whole if isinstance(whole, int) else _exact_fraction(whole)
    tenths = _round_half_up(1000 * exact_part, exact_whole)  # of a percent
    if tenths == 0:
        return "<0.1 %"
    if tenths == 1000:
        return ">99.9 %" if exact_part < exact_whole else ">100 %"

    is_below_10_percent = tenths < 100
    would_round_to_100_percent = 995 <= tenths < 1005
    if fine or is_below_10_percent or would_round_to_100_percent:
        return f"{_format_decimal(tenths, 1)} %"
    percents = _round_half_up(100 * exact_part, exact_whole)
    return f"{percents} %"


def signed_percent(part: float, whole: float) -> str:
    """Write a change in percent, with one decimal and a sign; "" if the whole is 0.

    >>> signed_percent(15, 1000), signed_percent(-2, 1000), signed_percent(0, 1000)
    ('+1.5 %', '-0.2 %', '0 %')
    >>> signed_percent(1, 10**6), signed_percent(-1, 10**6)
    ('<+0.1 %', '>-0.1 %')
    """
    share = percent(part, whole, fine=True)
    if part > 0 and share:
        return _put_sign(share, "+")
    return share


def _put_sign(share: str, sign: str) -> str:
    """Put a sign before the number of a share: "1.5 %" becomes "-1.5 %".

    A bound turns around below zero: "<0.1 %" becomes ">-0.1 %".
    """
    is_negative = sign == "-"
    if share.startswith("<"):
        bound = ">" if is_negative else "<"
    elif share.startswith(">"):
        bound = "<" if is_negative else ">"
    else:
        bound = ""
    number = share.lstrip("<>")
    return f"{bound}{sign}{number}"


MIN_MULTIPLE = 10  # from so many times on, no percentage says how much longer it is


def multiple(before: float, after: float) -> str:
    """Say how many times as much something is as before.

    It is "" below 10 times, which a percentage says better, and if there was nothing
    before.

    >>> multiple(0.02, 48.641), multiple(2, 25), multiple(2, 3)
    ('2,432 times', '12.5 times', '')
    """
    if before <= 0 or after < MIN_MULTIPLE * before:
        return ""
    ratio = _exact_fraction(after) / _exact_fraction(before)
    if ratio < 100:
        return f"{significant(float(ratio), 3)} times"
    return f"{count(_round_half_up(ratio, 1))} times"


def pace(before: float, after: float) -> str:
    """Say how long something takes compared with before, which is above 0.

    >>> pace(100, 97), pace(1000, 1165), pace(0.02, 48.641), pace(5, 5)
    ('3.0 % faster', '16.5 % slower', '2,432 times as long', 'as fast')
    """
    if before == after:
        return "as fast"
    times = multiple(before, after)
    if times:
        return f"{times} as long"
    direction = "faster" if after < before else "slower"
    share = percent(abs(after - before), before, fine=True)
    return f"{share} {direction}"


def change(before: int, after: int) -> str:
    """Say how much something is compared with before.

    >>> change(1000, 882), change(100, 103), change(2, 25), change(5, 5)
    ('11.8 % less', '3.0 % more', '12.5 times as much', 'as much')
    >>> change(0, 5)  # of nothing there is no share
    'more'
    """
    if before == after:
        return "as much"
    times = multiple(before, after)
    if times:
        return f"{times} as much"
    word = "less" if after < before else "more"
    share = percent(abs(after - before), before, fine=True)
    return f"{share} {word}".strip()


def count(number: int) -> str:
    """Write an integer with commas between thousands: 1234567 is `1,234,567`."""
    return f"{number:,}"


def plural(number: int, noun: str) -> str:
    """Write a number with a noun, in the plural unless it is 1.

    >>> plural(1, "kernel"), plural(2000, "kernel"), plural(0, "launch")
    ('1 kernel', '2,000 kernels', '0 launches')
    """
    if number == 1:
        return f"1 {noun}"
    takes_es = noun.endswith(("ch", "sh", "ss", "x"))
    ending = "es" if takes_es else "s"
    return f"{count(number)} {noun}{ending}"


def several(names: Sequence[str], most: int) -> str:
    """List the first names, and count the others.

    >>> several(["a", "b", "c", "d", "e"], most=2), several(["a", "b"], most=2)
    ('a, b and 3 more', 'a, b')
    """
    listed = ", ".join(names[:most])
    others = len(names) - most
    return f"{listed} and {count(others)} more" if others > 0 else listed


def amount(text: str) -> float | None:
    """Read the value of an environment variable as a number.

    It is None if the text is no number, not finite, or negative.

    >>> amount("0.5"), amount("-1"), amount("")
    (0.5, None, None)
    """
    try:
        number = float(text)
    except ValueError:
        return None
    if not math.isfinite(number) or number < 0:
        return None
    return number


def _exact_fraction(value: float) -> Fraction:
    """Return the exact value of a float or an integer as a fraction."""
    from fractions import Fraction  # takes a while to import, and many runs need none

    return Fraction(value)


def _in_units(
    value: Number, units: Sequence[Scale], digits: int = SIGNIFICANT_DIGITS
) -> str:
    """Write a value in the largest unit of which it has at least 1 after rounding.

    >>> _in_units(41_200, TIME_UNITS), _in_units(999_999, TIME_UNITS)
    ('41.2 us', '1 ms')

    Args:
        value: The value in the first unit.
        units: The units, ascending; the first has the factor 1, and is used for what is
            less than 1 of it.
        digits: How many significant digits there are at most.
    """
    size = value if value >= 0 else -value
    sign = "-" if value < 0 else ""
    for unit in reversed(units):
        whole = int(size) // unit.factor
        whole_digits = len(str(whole)) if whole > 0 else 0
        decimals = max(0, digits - whole_digits)
        # The number in this unit, without its point: 412 for 41.2.
        rounded = _round_half_up(size * 10**decimals, unit.factor)
        is_one_or_more = rounded >= 10**decimals
        if is_one_or_more or unit.factor == 1:
            return f"{sign}{_format_trimmed(rounded, decimals)} {unit.name}"
    raise AssertionError("the first unit is 1")


def _round_half_up(value: Number, scale: Number) -> int:
    """Return value / scale, rounded half up; neither is negative.

    >>> _round_half_up(5, 2), _round_half_up(4, 3)
    (3, 1)
    """
    return int((2 * value + scale) // (2 * scale))


def _format_trimmed(number: int, decimals: int) -> str:
    """Write number / 10**decimals without zeros at the end of its fraction.

    >>> _format_trimmed(41200, 3), _format_trimmed(5000, 3), _format_trimmed(500, 0)
    ('41.2', '5', '500')
    """
    text = _format_decimal(number, decimals)
    if not decimals:
        return text
    return text.rstrip("0").rstrip(".")


def _format_decimal(number: int, decimals: int, thousands: str = "") -> str:
    """Write number / 10**decimals.

    >>> _format_decimal(14373, 1), _format_decimal(14373, 1, thousands=",")
    ('1437.3', '1,437.3')
    """
    whole, fraction = divmod(number, 10**decimals)
    text = f"{whole:{thousands}}"
    if decimals:
        text += f".{fraction:0{decimals}}"
    return text
