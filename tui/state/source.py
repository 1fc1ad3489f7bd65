"""Requests and shows the source of a slice in a compiled region."""

from __future__ import annotations

from msgspec.structs import replace

from fusetui.text.printable import printable
from fusetui.tui.layout.text_layout import SourceShown
from fusetui.tui.state.state import (
    Details,
    Outcome,
    ReadSource,
    State,
    open_overlay,
    told,
)

NOT_COMPILED = (
    "this slice belongs to no compiled region: the key is for kernels and ops of "
    "torch.compile"
)
NO_SLICE = "select a kernel or an op of a compiled region first"
LOOKING = "looking for its source in the compile log"


def asked(state: State, details: Details | None) -> Outcome:
    """Return the state and the effect that looks for the source of a slice. Without a
    slice, the state has a message."""
    if details is None or not isinstance(details.about, int):
        return told(state, NO_SLICE)
    return told(state, LOOKING), ReadSource(details.side, details.about)


def arrived(state: State, shown: SourceShown | None) -> State:
    """Return the state with the source over the page. None means that the slice belongs
    to no compiled region. Nothing is shown over another overlay."""
    if shown is None:
        return told(state, NOT_COMPILED)
    if state.overlay is not None:
        return state
    return open_overlay(replace(state, hint=""), shown)


def failed(state: State, sentence: str) -> State:
    """Return the state with a message about a compile log that cannot be read."""
    return told(state, printable(sentence))
