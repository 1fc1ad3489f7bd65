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
"""The top-level key of a trace that was cut out of another: a WholeTrace."""

MAX_TEXT_CHARACTERS: Final = 300
Time = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
"""A time in ns."""


class WholeTrace(msgspec.Struct, frozen=True):
    """Times in ns from the first slice of the whole trace."""

    file: str
    from_ns: Time
    to_ns: Time
    of_ns: Time  # how long the whole lasts
    launch_latency_usual_ns: dict[str, Time] = {}
    """In the whole trace, by the number of the device as text."""


def note_of(trace: Trace) -> str:
    """Return a note if a trace is not a complete recording, else "".

    The note says that the trace is reconstructed, or that it is a part of a longer one.
    It has one printable line. Any output with figures of the trace must include it.
    """
    return " ".join(_list_note_sentences(trace))


def _list_note_sentences(trace: Trace) -> Iterator[str]:
    """Yield the sentences that say in what way a trace is not a complete recording;
    none if it is one."""
    origin = trace.keys.get(RECONSTRUCTED)
    if isinstance(origin, str):
        yield printable(origin)[:MAX_TEXT_CHARACTERS]
    whole_trace = find_whole_trace(trace)
    if whole_trace is not None:
        file = printable(whole_trace.file or "a trace")[:MAX_TEXT_CHARACTERS]
        times = window(whole_trace.from_ns, whole_trace.to_ns)
        lasts = duration(whole_trace.of_ns)
        yield f"This trace is the part {times} of {file}, which lasts {lasts}."


def find_whole_trace(trace: Trace) -> WholeTrace | None:
    """Return the trace that this one is a part of, with its file and times; None if
    this one is whole."""
    try:
        return msgspec.convert(trace.keys.get(CUT_FROM), WholeTrace)
    except msgspec.ValidationError:
        return None
