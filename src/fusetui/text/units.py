"""Times of one column in one unit, with their decimals aligned."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from fusetui.text.figures import DIGITS, UNITS


class Unit(msgspec.Struct, frozen=True):
    """`scale` ns are 1 of the unit."""

    scale: int
    name: str
    decimals: int

    def text(self, ns: int) -> str:
        """`1,437.3`; rounded half up. A time that would round to nothing is shown as `<0.1`.

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
