"""From a path to sides on the screen: how each message of the threads changes the
state. A part of a trace is never compared, because it would differ in what was not
read."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from msgspec.structs import replace

from fusetui.analysis.diff.model import Diff
from fusetui.text.printable import printable
from fusetui.trace.layout.counters import Curve
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.memo import keep_result
from fusetui.tui.layout.answer import Insight
from fusetui.tui.layout.view import Side
from fusetui.tui.state import state as effects
from fusetui.tui.state.action import action, nothing, two_traces
from fusetui.tui.state.comparison import comparing, lines_of
from fusetui.tui.state.moving import changed
from fusetui.tui.state.session import carried, start
from fusetui.tui.state.state import (
    DIFF,
    Chooser,
    Order,
    Outcome,
    Reading,
    State,
    overlaid,
    told,
)


def read(state: State, paths: Sequence[str]) -> Outcome:
    """Opens these traces; what is open stays until they are read, except a list to
    choose from."""
    wanted = tuple(paths)
    overlay = None if isinstance(state.overlay, Chooser) else state.overlay
    begun = replace(
        state, wanted=wanted, reading=Reading(wanted[0]), overlay=overlay, hint=""
    )
    return begun, effects.Read(wanted)


def progressed(state: State, **known: Any) -> State:
    reading = state.reading
    return replace(state, reading=replace(reading, **known)) if reading else state


def stop(state: State) -> Outcome:
    return progressed(state, stopping=True), Order.STOP_READING


def replaced(state: State, sides: tuple[Side, ...]) -> State:
    """More of the traces that are shown already: what the user looks at stays."""
    session = carried(state.session, sides)
    views = zip(state.session.views, session.views, state.fits, strict=True)
    fits = tuple(now.folds if old.folds == fit else fit for old, now, fit in views)
    return replace(state, session=session, fits=fits)


FIRST = State()
ANEW = (
    *(
        "page",
        "active",
        "overlay",
        "answer_at",
        "kernels",
        "modules_sort",
        "tree",
        "flame",
    ),
    *("lists", "comparison", "replay", "prompt", "hint"),
)
"""Fields that are as they were first when other traces are shown."""


def opened(state: State, sides: tuple[Side, ...], lines: int) -> Outcome:
    """Other traces than those that are shown; `lines`: for the lanes of each."""
    session = start(sides, lines)
    now = replace(
        state,
        **{name: getattr(FIRST, name) for name in ANEW},
        session=session,
        fits=tuple(view.folds for view in session.views),
        paths=state.wanted[: len(sides)],
        tops=(0,) * len(sides),
        memory=None if state.memory and state.memory.trace else state.memory,
    )
    return compared_anew(replace(now, page=DIFF)) if now.has_diff else now


def compared_anew(state: State) -> Outcome:
    """Starts comparing the sides; until the diff is there, its page says so."""
    begun = replace(state, comparison=comparing(state.sides, state.session.views))
    return begun.with_list(DIFF), effects.Compare(
        state.sides[0], state.sides[1], state.paths
    )


def compared(state: State, a: Trace, b: Trace, diff: Diff) -> State:
    """The diff has arrived: both sides now count from the steps that were compared. It
    is dropped if the sides were swapped, or others were opened, in the meantime."""
    if (
        len(state.sides) != 2
        or state.sides[0].trace is not a
        or state.sides[1].trace is not b
    ):
        return state
    session = state.session.realigned(diff)
    comparison = replace(
        comparing(session.sides, session.views), found=lines_of(diff)
    ).at(0)
    return replace(state, session=session, comparison=comparison).with_list(DIFF)


Piece = tuple[Curve, ...] | Insight | dict[Hashable, Any]
"""All counters known by now, or all that is known about where the time went, or what
pages need and would otherwise make when they are opened: see memo.keep_result."""


def learned(state: State, trace: Trace, piece: Piece) -> State:
    """More is known about a trace than its lanes."""
    if isinstance(piece, dict):
        for key, result in piece.items():
            keep_result(trace, key, result)
        return replace(state)
    if isinstance(piece, tuple):
        return changed(state, state.session.known(trace, counters=piece))
    now = changed(state, state.session.known(trace, insight=piece))
    if now is state or now.comparison is None:
        return now
    return replace(now, comparison=now.comparison.known(trace, insight=piece))


def unpacked(state: State) -> State:
    return replace(state, unpacked=state.unpacked + 1)


def failed(state: State, paths: Sequence[str], sentence: str) -> Outcome:
    """A trace could not be read; what is open stays open."""
    if paths is not state.wanted:
        return state
    if not state.sides:
        return state, effects.Refuse(sentence)
    return told(replace(state, reading=None), printable(sentence))


def finished(state: State, missing: Sequence[str]) -> Outcome:
    """Reading has ended; if nothing is open either, the app ends."""
    state = replace(state, reading=None)
    if state.sides:
        return (
            told(state, f"not read: {printable(' and '.join(missing))}")
            if missing
            else state
        )
    return choose(state) if state.must_choose else (state, Order.QUIT)


def choose(state: State) -> Outcome:
    """Opens one of the traces to choose from: alone, or beside the one that is open."""
    if not state.sides and state.reading is not None:
        return state
    if state.memory and not state.offers:
        return told(
            state, "no trace was named to choose from", "command open FILE opens one"
        )
    overlay = Chooser(tuple(offer.about or "..." for offer in state.offers))
    wanted = (
        (at, offer.paths[0]) for at, offer in enumerate(state.offers) if not offer.about
    )
    return overlaid(state, overlay), effects.Summarize(tuple(wanted))


def summarized(state: State, index: int, text: str) -> State:
    """The summary of an offer is known; it is shown where the offers are listed."""
    shown = state.overlay
    if not isinstance(shown, Chooser):
        return state
    if not shown.programs:
        return replace(state, overlay=_with_summary(shown, index, text))
    if shown.before is None:
        return state
    before = _with_summary(shown.before, index, text)
    return replace(state, overlay=replace(shown, before=before))


def _with_summary(shown: Chooser, index: int, text: str) -> Chooser:
    texts = shown.summaries
    return replace(shown, summaries=(*texts[:index], text, *texts[index + 1 :]))


def swap(state: State) -> Outcome:
    swapped = replace(state, session=state.session.swapped())
    swapped = replace(swapped, paths=state.paths[::-1], tops=state.tops[::-1])
    return compared_anew(swapped) if swapped.has_diff else swapped


_OTHERS = "the other variants or ranks that were named"
STOP = action(
    *("stop", "Stop reading", "escape", "and keep what was read of the trace", stop),
    where=lambda s: (
        s.reading is not None and not s.reading.is_whole and s.overlay is None
    ),
    needs=nothing,
)
CHOOSE = action("choose", "Other traces", "o", _OTHERS, choose, needs=nothing)
SWAP = action("swap", "Swap the sides", "x", "A becomes B", swap, needs=two_traces)
