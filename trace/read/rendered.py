"""The text of events that a file does not hold as JSON: written where somebody looks at it.

So args, counters, memory and searches are read from every format in one way (see elements.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import msgspec

from fusetui.trace.model.errors import CannotRead
from fusetui.trace.model.events import Stretch
from fusetui.trace.model.raw import Label

SPACE = 1 << 22  # bytes between the places of two stretches, whatever their texts are long
KEPT = 4  # texts


class Rendered:
    """The text of all stretches, each written on demand: `write(number)` gives the elements of
    traceEvents in stretch `number` as JSON, with commas between them and no brackets.

    `problem` says why that is not possible any more, in one sentence, "" if it is. `write` raises
    TraceError or OSError, and may be called in another process after a fork.
    """

    at_hand = True

    def __init__(self, write: Callable[[int], bytes], problem: Callable[[], str]) -> None:
        self._write = lru_cache(maxsize=KEPT)(write)
        self.problem = problem

    def part(self, start: int, end: int) -> bytes:
        """The text of the stretch that begins at `start`; b"" if `end` is no later."""
        if problem := self.problem():
            raise CannotRead(f"{problem}.")
        return self._write(start // SPACE) if end > start else b""


def stretches_of(events: Sequence[int], samples: Sequence[int]) -> tuple[Stretch, ...]:
    """Stretches with so many elements each, and so many of them that hold values."""
    counts = zip(events, samples, strict=True)
    return tuple(
        Stretch(number * SPACE, (number + 1) * SPACE, count, values)
        for number, (count, values) in enumerate(counts)
    )


def label_text(label: Label) -> bytes:
    """A label as the metadata event that it is in JSON."""
    key = "labels" if label.kind == "process_labels" else "name"
    event = {"ph": "M", "name": label.kind, "pid": label.pid, "tid": label.tid}
    return msgspec.json.encode(event | {"args": {key: label.value}})


def micros(ns: int) -> bytes:
    """As JSON has times, exactly."""
    whole, rest = divmod(abs(ns), 1000)
    return b"%s%d.%03d" % (b"-" if ns < 0 else b"", whole, rest)
