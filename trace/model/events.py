"""The events of a file behind its columns: their args and samples, read on demand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from fusetui.trace.model.arrays import Int32s, Int64s
from fusetui.trace.model.ids import Id

T = TypeVar("T")

EVERYWHERE = (-(2**63), 2**63 - 1)
NOWHERE = (2**63 - 1, -(2**63))
BETWEEN = b"\0"  # Separates the texts of args; it cannot occur in JSON text

Numbered = tuple[Int32s, tuple[bytes, ...]]
"""Of each wanted event of a stretch the index of its args in the texts, -1 for none; and these,
distinct, each the texts of the args, joined by BETWEEN."""


class Stretch(msgspec.Struct, frozen=True, eq=False):
    """The bytes [start, end) of a document, which contain `events` elements of traceEvents."""

    start: int
    end: int
    events: int
    samples: int = 0  # how many of them may hold values: counters and instant events
    places: Int64s | None = None
    """If the bytes do not decode as one list: number, start and end byte of each event."""
    reach: tuple[int, int] = EVERYWHERE
    """Times (ns) before and after all elements that are no slices; EVERYWHERE if that is unknown,
    they hold for all times, or there are pairs; NOWHERE if there are none."""


class Sample(NamedTuple):
    """An event that holds values: a counter, or one of torch's [memory]."""

    is_memory: bool
    name: str
    pid: Id
    tid: Id
    id: str
    ts: bytes  # the number as written
    args: dict[str, Any]


class Text(Protocol):
    """A document that was read."""

    @property
    def at_hand(self) -> bool:
        """Whether any part is available without delay."""

    def problem(self) -> str:
        """Why no part is available any more, in one sentence; "" if it is."""

    def part(self, start: int, end: int) -> Any:
        """The bytes [start, end). Raises TraceError or OSError."""


class Keeper(Protocol):
    """Keeps what was worked out from a document, so that it need not be read again."""

    def recall(self, name: str, kind: type[T]) -> T | None:
        """What was kept by this name; None if nothing was."""

    def keep(self, name: str, found: msgspec.Struct) -> None:
        """Keeps a record of columns and of what msgpack can hold, if there is a place for it."""


class Events(Keeper, Protocol):
    """The events of one document, and what was worked out from them before."""

    keeper: Keeper | None
    """Where what is worked out from them is kept, beside this process."""

    @property
    def own(self) -> Events:
        """Those of the trace itself, without those of captures that it was joined with."""

    @property
    def text(self) -> Text: ...

    @property
    def stretches(self) -> tuple[Stretch, ...]: ...

    def warm(self) -> None:
        """Makes the text available, which may take a second per GB."""

    def element(self, order: int) -> dict[str, Any]:
        """The event at this index of traceEvents; {} if it cannot be read any more.

        Raises IndexError if there is no such index.
        """

    def samples(self, number: int) -> Iterable[tuple[Sample, int]]:
        """The samples of stretch `number` in file order, each with its time in ns."""

    def args(self, number: int, places: Sequence[int], names: tuple[str, ...]) -> Numbered:
        """The args with these names of some elements of stretch `number`.

        `places` count from the first element of the stretch and ascend.
        """
