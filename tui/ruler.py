"""Ticks of a time axis at round times."""

from __future__ import annotations

UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns"))
ROUND = (1, 2, 5)


def tick_step(span_ns: int, most: int) -> int:
    """The smallest round step (1, 2 or 5 times a power of ten, in ns) with at most `most` ticks."""
    power = 1
    while True:
        for factor in ROUND:
            if span_ns <= factor * power * max(1, most):
                return factor * power
        power *= 10


def ticks(begin: int, end: int, width: int, room: int = 11) -> list[tuple[int, str]]:
    """(column, text) of each tick of the window [begin, end) in ns over `width` columns.

    Texts are times from zero in the unit of the step; `room` columns are kept for each.
    """
    step = tick_step(end - begin, width // room)
    first = -(-begin // step) * step
    found: list[tuple[int, str]] = []
    for time in range(first, end, step):
        found.append(((time - begin) * width // (end - begin), tick_text(time, step)))
    return found


def tick_text(time: int, step: int) -> str:
    """A time with just the digits that tell neighbouring ticks apart: `820 us`, `1.25 s`."""
    size, unit = next((s, u) for s, u in UNITS if (step >= s // 1000 and abs(time) >= s) or s == 1)
    decimals = 0
    while size // 10**decimals > step and decimals < 9:
        decimals += 1
    return f"{time / size:.{decimals}f} {unit}"
