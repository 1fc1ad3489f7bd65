"""From a path to sides that are shown: what each message of the threads does to the state.

A side that is a part of a trace is never compared: it would differ in what was not read.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from fusetui.trace.cells.counters import Curve
from fusetui.trace.diff.model import Diff
from fusetui.trace.model.columns import Trace
from fusetui.trace.text.printable import printable
from fusetui.tui.layout.insight import Insight
from fusetui.tui.layout.view import Side
from fusetui.tui.state.action import action, nothing, two_traces
from fusetui.tui.state.carry import carried
from fusetui.tui.state.comparison import comparing
from fusetui.tui.state.effects import Compare, Quit, Read, Refuse, StopReading, Summarise
from fusetui.tui.state.overlays import OVERLAY, Chooser
from fusetui.tui.state.session import start
from fusetui.tui.state.state import DIFF, TIMELINE, ListState, Outcome, Reading, State, told


def read(state: State, paths: Sequence[str]) -> Outcome:
    """Open these; what is open stays until they are there."""
    wanted = tuple(paths)
    return replace(state, wanted=wanted, reading=Reading(wanted[0]), hint=""), Read(wanted)


def is_reading(state: State) -> bool:
    return state.reading is not None and state.overlay is None


def stop(state: State) -> Outcome:
    """Read no further, and keep what was read."""
    if state.reading is None:
        return state
    return replace(state, reading=replace(state.reading, stopping=True)), StopReading()


def progressed(state: State, path: str, done: int, total: int) -> State:
    """So many bytes of a file were read."""
    if state.reading is None:
        return state
    return replace(state, reading=replace(state.reading, path=path, done=done, total=total))


def previewed(state: State) -> State:
    """The screen shows what was read so far."""
    if state.reading is None:
        return state
    return replace(state, reading=replace(state.reading, shown=True))


def replaced(state: State, sides: tuple[Side, ...]) -> State:
    """More of the traces that are shown already: what a person looks at stays."""
    session = carried(state.session, sides)
    views = zip(state.session.views, session.views, state.fits, strict=True)
    fits = tuple(now.folds if old.folds == fit else fit for old, now, fit in views)
    return replace(state, session=session, fits=fits)


def opened(state: State, sides: tuple[Side, ...], lines: int) -> Outcome:
    """Other traces than those that are shown; `lines`: for the lanes of each."""
    session = start(sides, lines)
    now = replace(
        state,
        session=session,
        fits=tuple(view.folds for view in session.views),
        paths=state.wanted[: len(sides)],
        page=TIMELINE,
        active=0,
        overlay=None,
        tops=(0,) * len(sides),
        lists={},
        comparison=None,
        prompt=None,
        hint="",
    )
    return compared_anew(replace(now, page=DIFF)) if now.has_diff else now


def compared_anew(state: State) -> Outcome:
    """The sides are compared; the page of the diff says so until it is done."""
    comparison = comparing(state.sides, state.session.views)
    begun = replace(state, comparison=comparison).with_list(DIFF, ListState())
    return begun, Compare(*state.sides)


def compared(state: State, a: Trace, b: Trace, diff: Diff) -> State:
    """The diff is there: both sides count from the steps that were compared.

    It is dropped when the sides were swapped, or others opened, meanwhile.
    """
    if len(state.sides) != 2 or state.sides[0].trace is not a or state.sides[1].trace is not b:
        return state
    session = state.session.realigned(diff)
    comparison = comparing(session.sides, session.views).filled(diff)
    done = replace(state, session=session, comparison=comparison)
    return done.with_list(DIFF, ListState())


def counted(state: State, trace: Trace, curves: tuple[Curve, ...]) -> State:
    """The counters of a trace are known."""
    session = state.session.counted(trace, curves)
    return state if session is state.session else replace(state, session=session)


def explained(state: State, trace: Trace, insight: Insight) -> State:
    """More was found out about a trace."""
    session = state.session.explained(trace, insight)
    return state if session is state.session else replace(state, session=session)


def unpacked(state: State) -> State:
    """The args of slices can be shown now."""
    return replace(state, unpacked=state.unpacked + 1)


def failed(state: State, sentence: str) -> Outcome:
    """A trace could not be read; what is open stays open."""
    if not state.sides:
        return state, Refuse(sentence)
    return told(replace(state, reading=None), printable(sentence))


def finished(state: State, missing: Sequence[str]) -> Outcome:
    """Nothing is read any more; when nothing is open either, there is nothing to do here."""
    state = replace(state, reading=None)
    if state.sides:
        return told(state, f"not read: {printable(' and '.join(missing))}") if missing else state
    return choose(state) if state.must_choose else (state, Quit())


def choose(state: State) -> Outcome:
    """Another of the traces that were named: alone, or beside the one that is open."""
    if not state.sides and state.reading is not None:
        return state
    overlay = Chooser(("...",) * len(state.named))
    over = replace(state, overlay=overlay).with_list(OVERLAY, ListState())
    return over, Summarise(state.named)


def summarised(state: State, index: int, text: str) -> State:
    """What one of the traces that may be chosen is."""
    if not isinstance(state.overlay, Chooser):
        return state
    texts = list(state.overlay.summaries)
    texts[index] = text
    return replace(state, overlay=Chooser(tuple(texts)))


def swap(state: State) -> Outcome:
    """A becomes B, and B becomes A."""
    swapped = replace(
        state, session=state.session.swapped(), paths=state.paths[::-1], tops=state.tops[::-1]
    )
    return compared_anew(swapped) if swapped.has_diff else swapped


STOP = action(
    "stop",
    "Stop reading",
    "escape",
    "and keep what was read of the trace",
    stop,
    where=is_reading,
    needs=nothing,
)
CHOOSE = action(
    "choose",
    "Other traces",
    "o",
    "the other variants or ranks that were named",
    choose,
    needs=nothing,
)
SWAP = action("swap", "Swap the sides", "x", "A becomes B", swap, needs=two_traces)
