"""Ticks of a time axis at round times."""

from __future__ import annotations

from fusetui.text.figures import tick

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
        found.append(((time - begin) * width // (end - begin), tick(time, step)))
    return found
