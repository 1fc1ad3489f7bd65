"""Handles the messages of the reading threads, from opening a path to showing its sides
on the screen. A part of a trace is never compared, because it would differ in what was
not read."""

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
from fusetui.tui.state.offers import Offer
from fusetui.tui.state.session import carried, start
from fusetui.tui.state.state import (
    DIFF,
    Chooser,
    Help,
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
    is_choosing = isinstance(state.overlay, Chooser)
    begun = replace(
        state,
        wanted=wanted,
        reading=Reading(wanted[0]),
        overlay=None if is_choosing else state.overlay,
        hint="",
    )
    return begun, effects.Read(wanted)


def progressed(state: State, **known: Any) -> State:
    """Other fields of the progress of reading."""
    reading = state.reading
    return replace(state, reading=replace(reading, **known)) if reading else state


def stop(state: State) -> Outcome:
    """Stops reading; what was read is kept."""
    return progressed(state, stopping=True), Order.STOP_READING


def replaced(state: State, sides: tuple[Side, ...]) -> State:
    """More of the traces that are shown already: what the user looks at stays. Lanes
    that nobody folded since then are taken to be as first shown."""
    session = carried(state.session, sides)
    fits = []
    for index, fit in enumerate(state.fits):
        is_untouched = state.session.views[index].folds == fit
        fits.append(session.views[index].folds if is_untouched else fit)
    return replace(state, session=session, fits=tuple(fits))


FIRST = State()
NO_OTHERS = "No other trace was named, and none was opened recently"
ANEW = (
    "page",
    "active",
    "overlay",
    "answer_at",
    "kernels",
    "modules_sort",
    "tree",
    "flame",
    "lists",
    "comparison",
    "replay",
    "prompt",
    "hint",
)
"""Fields that are as they were first when other traces are shown."""


def opened(state: State, sides: tuple[Side, ...], lines: int) -> Outcome:
    """Other traces than those that are shown; `lines`: for the lanes of each. Two whole
    traces are compared at once."""
    session = start(sides, lines)
    memory = state.memory
    if memory and memory.trace:  # the memory events of a trace that is no longer shown
        memory = None
    now = replace(
        state,
        **{name: getattr(FIRST, name) for name in ANEW},
        session=session,
        fits=tuple(view.folds for view in session.views),
        paths=state.wanted[: len(sides)],
        tops=(0,) * len(sides),
        memory=memory,
    )
    return compared_anew(replace(now, page=DIFF)) if now.has_diff else now


def compared_anew(state: State) -> Outcome:
    """Starts comparing the sides; until the diff is there, its page says so."""
    comparison = comparing(state.sides, state.session.views)
    begun = replace(state, comparison=comparison).with_list(DIFF)
    a, b = state.sides
    return begun, effects.Compare(a, b, state.paths)


def compared(state: State, a: Trace, b: Trace, diff: Diff) -> State:
    """The diff has arrived: both sides now count from the steps that were compared. It
    is dropped if the sides were swapped, or others were opened, in the meantime."""
    if len(state.sides) != 2:
        return state
    if state.sides[0].trace is not a or state.sides[1].trace is not b:
        return state
    session = state.session.realigned(diff)
    comparison = comparing(session.sides, session.views)
    comparison = replace(comparison, found=lines_of(diff)).at(0)
    return replace(state, session=session, comparison=comparison).with_list(DIFF)


Piece = tuple[Curve, ...] | Insight | dict[Hashable, Any]
"""All counters known by now, or all that is known about where the time went, or what
pages need and would otherwise make when they are opened: see memo.keep_result."""


def learned(state: State, trace: Trace, piece: Piece) -> State:
    """More is known about a trace than its lanes. Of what is kept on the trace, the
    state holds nothing: it is copied then, so that the page is drawn again."""
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
    """The args of a trace can be read now."""
    return replace(state, unpacked=state.unpacked + 1)


def failed(state: State, paths: Sequence[str], sentence: str) -> Outcome:
    """A trace could not be read; what is open stays open."""
    if paths is not state.wanted:
        return state
    if not state.sides:
        return state, effects.Refuse(sentence)
    return told(replace(state, reading=None), printable(sentence))


def finished(state: State, missing: Sequence[str]) -> Outcome:
    """Reading has ended, without these paths. If nothing is open either, a list to
    choose from, if the user chose, else the app ends."""
    state = replace(state, reading=None)
    if state.sides and missing:
        return told(state, f"not read: {printable(' and '.join(missing))}")
    if state.sides:
        return state
    return choose(state) if state.must_choose else (state, Order.QUIT)


def choose(state: State) -> Outcome:
    """Opens one of the traces to choose from: alone, or beside the one that is open."""
    if not state.sides and state.reading is not None:
        return state
    open_paths = set(state.paths)
    others = [offer for offer in state.offers if not open_paths.issuperset(offer.paths)]
    if state.is_open and not others and len(state.offers) < 2:
        return state, effects.Summarize((), known=state.paths, is_alone=True)
    return _choose_named(state)


def _choose_named(state: State) -> Outcome:
    """The traces that were named when the app was started, to choose from."""
    if not state.offers:
        return told(state, NO_OTHERS, "command open FILE opens one")
    summaries = []
    to_summarize = []  # index and path
    for index, offer in enumerate(state.offers):
        summaries.append(offer.about or "...")
        if not offer.about:
            to_summarize.append((index, offer.paths[0]))
    overlay = Chooser(tuple(summaries))
    listed = [path for offer in state.offers for path in offer.paths]
    known = (*state.paths, *listed)
    return overlaid(state, overlay), effects.Summarize(tuple(to_summarize), known)


def recalled(state: State, recent: tuple[Offer, ...], is_alone: bool) -> Outcome:
    """Recent traces are known: they follow those that were named, or are a list of
    their own (`is_alone`)."""
    abouts = tuple(offer.about for offer in recent)
    chooser = state.overlay
    if is_alone:
        if chooser is not None or state.prompt is not None:
            return state
        if not recent:
            return _choose_named(state)
        return overlaid(state, Chooser(abouts, recent=recent, only_recent=True))
    if not isinstance(chooser, Chooser) or chooser.programs or chooser.recent:
        return state
    summaries = (*chooser.summaries, *abouts)
    listed = replace(chooser, summaries=summaries, recent=recent)
    return replace(state, overlay=listed)


def summarized(state: State, index: int, text: str) -> State:
    """The summary of an offer is known; it is shown where the offers are listed."""
    chooser = state.overlay
    if isinstance(chooser, Help) and chooser.before is not None:
        below = summarized(replace(state, overlay=chooser.before), index, text)
        return replace(state, overlay=replace(chooser, before=below.overlay))
    if not isinstance(chooser, Chooser):
        return state
    if not chooser.programs:
        return replace(state, overlay=_with_summary(chooser, index, text))
    if chooser.before is None:
        return state
    before = _with_summary(chooser.before, index, text)
    return replace(state, overlay=replace(chooser, before=before))


def _with_summary(chooser: Chooser, index: int, text: str) -> Chooser:
    """The list with the summary of one of its offers."""
    summaries = list(chooser.summaries)
    summaries[index] = text
    return replace(chooser, summaries=tuple(summaries))


def swap(state: State) -> Outcome:
    """A becomes B, and B becomes A."""
    swapped = replace(
        state,
        session=state.session.swapped(),
        paths=state.paths[::-1],
        tops=state.tops[::-1],
    )
    return compared_anew(swapped) if swapped.has_diff else swapped


def _is_reading(state: State) -> bool:
    """Whether a trace is being read of which a part can be kept, with nothing over the
    page."""
    reading = state.reading
    return reading is not None and not reading.is_whole and state.overlay is None


STOP = action(
    name="stop",
    title="Stop reading",
    written="escape",
    help="and keep what was read of the trace",
    run=stop,
    where=_is_reading,
    needs=nothing,
)
CHOOSE = action(
    name="choose",
    title="Other traces",
    written="o",
    help="the others that were named, and recent ones",
    run=choose,
    needs=nothing,
)
SWAP = action(
    name="swap",
    title="Swap the sides",
    written="x",
    help="A becomes B",
    run=swap,
    needs=two_traces,
)
