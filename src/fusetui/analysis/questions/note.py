"""The notes of a trace about its origin, which must accompany its figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

import msgspec

from fusetui.text.figures import duration, window
from fusetui.text.printable import printable
from fusetui.trace.model.columns import Trace

RECONSTRUCTED: Final = "reconstructed"
"""The top-level key of a trace that was not recorded; its value says where it comes
from."""

CUT_FROM: Final = "cut_from"
"""The top-level key of a trace that was cut out of another: a Whole."""

MAX_TEXT_CHARACTERS: Final = 300
Time = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
"""A time in ns."""


class Whole(msgspec.Struct, frozen=True):
    """Times in ns from the first slice of the whole trace."""

    file: str
    from_ns: Time
    to_ns: Time
    of_ns: Time  # how long the whole lasts
    launch_latency_usual_ns: dict[str, Time] = {}
    """In the whole trace, by the number of the device as text."""


def note_of(trace: Trace) -> str:
    """A printable line that says that the trace is reconstructed, not recorded, or a
    part of a longer one; else "". Any output with figures of the trace must include
    it."""
    return " ".join(_notes(trace))


def _notes(trace: Trace) -> Iterator[str]:
    """The sentences of `note_of`."""
    origin = trace.keys.get(RECONSTRUCTED)
    if isinstance(origin, str):
        yield printable(origin)[:MAX_TEXT_CHARACTERS]
    whole = whole_of(trace)
    if whole:
        file = printable(whole.file or "a trace")[:MAX_TEXT_CHARACTERS]
        times = window(whole.from_ns, whole.to_ns)
        lasts = duration(whole.of_ns)
        yield f"This trace is the part {times} of {file}, which lasts {lasts}."


def whole_of(trace: Trace) -> Whole | None:
    """What a trace is a part of; None if it is whole."""
    try:
        return msgspec.convert(trace.keys.get(CUT_FROM), Whole)
    except msgspec.ValidationError:
        return None
