"""The events of a file behind its columns: their args and samples, read when somebody asks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.ids import Id

BETWEEN = b"\0"
"""Between the texts of two args: no JSON text holds it."""


class Stretch(msgspec.Struct, frozen=True, eq=False):
    """The bytes [start, end) of a document that hold `events` elements of traceEvents."""

    start: int
    end: int
    events: int
    samples: int = 0  # how many of them may hold values: counters and instants
    places: NDArray[np.int64] | None = None
    """Where the bytes do not decode as one list: of each event its number, start and end byte."""


class Sample(NamedTuple):
    """An event that holds values: a counter, or one of torch's [memory]."""

    is_memory: bool
    name: str
    pid: Id
    id: str
    ts: bytes  # the number as it is written
    args: dict[str, Any]


class Text(Protocol):
    """What is known of a document that was read."""

    @property
    def at_hand(self) -> bool:
        """Can any part be had at once."""

    def problem(self) -> str:
        """Why no part can be had any more, in one sentence; "" when it can."""

    def part(self, start: int, end: int) -> Any:
        """The bytes [start, end). Raises TraceError or OSError."""


class Events(Protocol):
    """The events of one document, which stays where it is."""

    @property
    def text(self) -> Text: ...

    @property
    def stretches(self) -> tuple[Stretch, ...]: ...

    @property
    def at_hand(self) -> bool:
        """Whether any event can be had at once."""

    def problem(self) -> str:
        """Why no event can be had any more, in one sentence; "" when it can."""

    def warm(self) -> None:
        """Have the text at hand, which may take a second per GB."""

    def element(self, order: int) -> dict[str, Any]:
        """The event at this place of traceEvents; {} when it cannot be read (any more).

        Raises IndexError when there is no such place.
        """

    def samples(self, number: int) -> Iterable[tuple[Sample, int]]:
        """The samples of stretch `number` in the order of the file, each with its time in ns."""

    def args(self, number: int, places: Sequence[int], names: tuple[str, ...]) -> list[bytes]:
        """Of these elements of stretch `number` (counted from its first) the args of these names,
        as their texts joined by BETWEEN; blank for what is not there or cannot be read.
        """
