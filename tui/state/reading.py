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
from fusetui.tui.state.action import action, nothing, why_no_second_trace
from fusetui.tui.state.comparison import make_diff_lines, start_comparison
from fusetui.tui.state.moving import changed
from fusetui.tui.state.offers import Offer
from fusetui.tui.state.session import carry_session, start
from fusetui.tui.state.state import (
    DIFF,
    Chooser,
    Help,
    Order,
    Outcome,
    Reading,
    State,
    open_overlay,
    told,
)


def read(state: State, paths: Sequence[str]) -> Outcome:
    """Return the state and the effect that reads these traces. What is open stays until
    they are read; a list of choices is closed."""
    wanted = tuple(paths)
    is_choosing = isinstance(state.overlay, Chooser)
    reading_state = replace(
        state,
        wanted=wanted,
        reading=Reading(wanted[0]),
        overlay=None if is_choosing else state.overlay,
        hint="",
    )
    return reading_state, effects.Read(wanted)


def progressed(state: State, **known: Any) -> State:
    """Return the state with new fields of the progress of reading. It is unchanged
    while nothing is read."""
    reading = state.reading
    return replace(state, reading=replace(reading, **known)) if reading else state


def stop(state: State) -> Outcome:
    """Stop reading. What was read so far is kept."""
    return progressed(state, stopping=True), Order.STOP_READING


def replaced(state: State, sides: tuple[Side, ...]) -> State:
    """Return the state with longer parts of the same traces in place of those shown.
    What the user looks at stays.

    Folds that the user did not change count as the first ones again.
    """
    session = carry_session(state.session, sides)
    first_folds = []
    for index, fit in enumerate(state.fits):
        is_untouched = state.session.views[index].folds == fit
        first_folds.append(session.views[index].folds if is_untouched else fit)
    return replace(state, session=session, fits=tuple(first_folds))


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
    """Return the state with other traces than before, as first shown. `lines` is the
    height for the lanes of each. Two whole traces are compared at once."""
    session = start(sides, lines)
    memory = state.memory
    if memory and memory.trace:  # the memory events of a trace that is no longer shown
        memory = None
    opened_state = replace(
        state,
        **{name: getattr(FIRST, name) for name in ANEW},
        session=session,
        fits=tuple(view.folds for view in session.views),
        paths=state.wanted[: len(sides)],
        tops=(0,) * len(sides),
        memory=memory,
    )
    if opened_state.has_diff:
        return compare_again(replace(opened_state, page=DIFF))
    return opened_state


def compare_again(state: State) -> Outcome:
    """Return the state and the effect that compares both sides. Until the diff is
    there, its page says that it is worked on."""
    comparison = start_comparison(state.sides, state.session.views)
    comparing_state = replace(state, comparison=comparison).with_list(DIFF)
    a, b = state.sides
    return comparing_state, effects.Compare(a, b, state.paths)


def accept_diff(state: State, a: Trace, b: Trace, diff: Diff) -> State:
    """Return the state with a diff that has arrived. Both sides then count time from
    the steps that were compared.

    The diff is dropped if its traces are no longer the ones shown as A and B.
    """
    if len(state.sides) != 2:
        return state
    if state.sides[0].trace is not a or state.sides[1].trace is not b:
        return state
    session = state.session.realigned(diff)
    comparison = start_comparison(session.sides, session.views)
    comparison = replace(comparison, found=make_diff_lines(diff)).at(0)
    return replace(state, session=session, comparison=comparison).with_list(DIFF)


Piece = tuple[Curve, ...] | Insight | dict[Hashable, Any]
"""All counters known by now, or all that is known about where the time went, or what
pages need and would otherwise make when they are opened: see memo.keep_result."""


def accept_answer(state: State, trace: Trace, piece: Piece) -> State:
    """Return the state with something new that is known about a trace: counters, an
    insight, or results to keep.

    Results in a dict are kept with the trace itself. The state is then only copied, so
    that the page is drawn again.
    """
    if isinstance(piece, dict):
        for key, result in piece.items():
            keep_result(trace, key, result)
        return replace(state)
    if isinstance(piece, tuple):
        return changed(state, state.session.known(trace, counters=piece))
    informed_state = changed(state, state.session.known(trace, insight=piece))
    if informed_state is state or informed_state.comparison is None:
        return informed_state
    return replace(
        informed_state, comparison=informed_state.comparison.known(trace, insight=piece)
    )


def unpacked(state: State) -> State:
    """Return the state after the args of a trace became readable. Its count makes
    everything that shows args be drawn again."""
    return replace(state, unpacked=state.unpacked + 1)


def failed(state: State, paths: Sequence[str], sentence: str) -> Outcome:
    """Return the state after a trace could not be read: a message, or the end of the
    app where nothing is open. A request that was replaced meanwhile is ignored."""
    if paths is not state.wanted:
        return state
    if not state.sides:
        return state, effects.Refuse(sentence)
    return told(replace(state, reading=None), printable(sentence))


def finished(state: State, missing: Sequence[str]) -> Outcome:
    """Return the state after reading has ended without the paths in `missing`.

    If nothing is open then, the user gets the list of choices. If paths to open were
    named at the start, the app ends instead.
    """
    state = replace(state, reading=None)
    if state.sides and missing:
        return told(state, f"not read: {printable(' and '.join(missing))}")
    if state.sides:
        return state
    return choose(state) if state.must_choose else (state, Order.QUIT)


def choose(state: State) -> Outcome:
    """Open the list of traces to choose from. With nothing else to name, recent traces
    are looked up first."""
    if not state.sides and state.reading is not None:
        return state
    open_paths = set(state.paths)
    other_offers = [
        offer for offer in state.offers if not open_paths.issuperset(offer.paths)
    ]
    if state.is_open and not other_offers and len(state.offers) < 2:
        return state, effects.Summarize((), known=state.paths, is_alone=True)
    return _choose_named(state)


def _choose_named(state: State) -> Outcome:
    """Open the list of traces that were named at the start. Those without a summary get
    one in the background."""
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
    return open_overlay(state, overlay), effects.Summarize(tuple(to_summarize), known)


def accept_recent(state: State, recent: tuple[Offer, ...], is_alone: bool) -> Outcome:
    """Return the state with recent traces, which follow the choices in the open list.
    With `is_alone` they are a list of their own."""
    abouts = tuple(offer.about for offer in recent)
    chooser = state.overlay
    if is_alone:
        if chooser is not None or state.prompt is not None:
            return state
        if not recent:
            return _choose_named(state)
        return open_overlay(state, Chooser(abouts, recent=recent, only_recent=True))
    if not isinstance(chooser, Chooser) or chooser.programs or chooser.recent:
        return state
    summaries = (*chooser.summaries, *abouts)
    longer_list = replace(chooser, summaries=summaries, recent=recent)
    return replace(state, overlay=longer_list)


def accept_summary(state: State, index: int, text: str) -> State:
    """Return the state with the summary of choice number `index`, also in a list that
    lies below the keys or below a list of programs."""
    chooser = state.overlay
    if isinstance(chooser, Help) and chooser.before is not None:
        state_below = accept_summary(
            replace(state, overlay=chooser.before), index, text
        )
        return replace(state, overlay=replace(chooser, before=state_below.overlay))
    if not isinstance(chooser, Chooser):
        return state
    if not chooser.programs:
        return replace(state, overlay=_replace_summary(chooser, index, text))
    if chooser.before is None:
        return state
    list_below = _replace_summary(chooser.before, index, text)
    return replace(state, overlay=replace(chooser, before=list_below))


def _replace_summary(chooser: Chooser, index: int, text: str) -> Chooser:
    """Return the list of choices with another summary for one of them."""
    summaries = list(chooser.summaries)
    summaries[index] = text
    return replace(chooser, summaries=tuple(summaries))


def swap(state: State) -> Outcome:
    """Exchange sides A and B, and compare them again where both are whole traces."""
    swapped = replace(
        state,
        session=state.session.swapped(),
        paths=state.paths[::-1],
        tops=state.tops[::-1],
        fits=state.fits[::-1],
    )
    return compare_again(swapped) if swapped.has_diff else swapped


def _is_reading(state: State) -> bool:
    """Return whether a trace is being read of which a part can be kept, with nothing
    over the page."""
    reading = state.reading
    return reading is not None and not reading.is_whole and state.overlay is None


STOP = action(
    name="stop",
    title="Stop reading",
    written="escape",
    help="and keep the part that was read",
    run=stop,
    where=_is_reading,
    needs=nothing,
)
CHOOSE = action(
    name="choose",
    title="Other traces",
    written="o",
    help="from the command line, and recent ones",
    run=choose,
    needs=nothing,
)
SWAP = action(
    name="swap",
    title="Swap the sides",
    written="x",
    help="A becomes B",
    run=swap,
    needs=why_no_second_trace,
)
