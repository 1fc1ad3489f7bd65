"""The ranks of a job: from the list of traces to the page, and from a rank to its worst wait."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from fusetui.trace.ranks.records import JobAnswer, RankRow
from fusetui.trace.ranks.strip import Strip
from fusetui.trace.ranks.summary import base_ns
from fusetui.trace.text.figures import duration
from fusetui.trace.text.printable import printable
from fusetui.tui.layout.moves import over
from fusetui.tui.layout.ranks import SORTS
from fusetui.tui.layout.view import Side
from fusetui.tui.state.action import Run
from fusetui.tui.state.effects import ReadRanks
from fusetui.tui.state.reading import read
from fusetui.tui.state.state import TIMELINE, Outcome, State, told

AROUND = 2  # a wait takes about this fraction of the window


def asked(state: State) -> Outcome:
    """Reads the ranks, unless that was done."""
    if state.job.done >= 0:
        return state
    return replace(state, job=replace(state.job, done=0)), ReadRanks(state.job.paths)


def progressed(state: State, paths: tuple[str, ...], done: int) -> State:
    if state.job.paths != paths:
        return state
    return replace(state, job=replace(state.job, done=done))


def found(state: State, paths: tuple[str, ...], answer: JobAnswer, strip: Strip) -> State:
    """The ranks were read."""
    if state.job.paths != paths:
        return state
    return replace(state, job=replace(state.job, answer=answer, strip=strip))


def failed(state: State, paths: tuple[str, ...], sentence: str) -> State:
    if state.job.paths != paths:
        return state
    return replace(state, job=replace(state.job, problem=printable(sentence)))


def sorted_by(by: int) -> Run:
    """An action that sorts by the next column, or by the one before."""
    names = list(SORTS)

    def run(state: State) -> State:
        at = (names.index(state.job.sort) + by) % len(names)
        return replace(state, job=replace(state.job, sort=names[at]))

    return run


def to_worst_wait(state: State, row: RankRow) -> Outcome:
    """Opens a rank where it waits longest."""
    wait = row.worst_wait
    window = (wait.start_ns, wait.start_ns + wait.wait_ns) if wait else None
    now = replace(state, job=replace(state.job, window=window))
    return arrived(now) if state.paths == (row.path,) else read(now, (row.path,))


def beside_the_last(state: State, row: RankRow) -> Outcome:
    """Opens a rank where it waits longest, beside the rank that it waits for, on one time axis."""
    wait, answer = row.worst_wait, state.job.answer
    if wait is None or answer is None or wait.for_rank == row.rank:
        return told(state, f"rank {row.rank} waits for nobody")
    if wait.for_rank is None:
        return told(state, f"clocks do not tell for which rank rank {row.rank} waits")
    other = next(one for one in answer.ranks if one.rank == wait.for_rank)
    window = wait.start_ns, wait.start_ns + wait.wait_ns
    now = replace(state, job=replace(state.job, window=window, beside=(row, other)))
    paths = (row.path, other.path)
    return arrived(now) if state.paths == paths else read(now, paths)


def arrived(state: State) -> State:
    """Traces were opened: they show what was asked for."""
    job = replace(state.job, window=None, beside=None)
    window, both = state.job.window, state.job.beside
    if window is None or len(state.sides) != (2 if both else 1):
        return state
    session, hint = state.session, ""
    side, (view, *others) = session.sides[0], session.views
    begin, end = (side.begin + time for time in window)
    margin = (end - begin) // AROUND
    views = [over(side, view, begin - margin, end + margin), *others]
    if both:
        later = _later_ns(session.sides, both, as_recorded=_shares_clock(state))
        views[1] = replace(others[0], begin=views[0].begin + later, end=views[0].end + later)
        hint = f"one time axis: {_clocks(state, both)}"
    session = session.go(tuple(views))
    return replace(state, session=session, active=0, page=TIMELINE, hint=hint, job=job)


def _shares_clock(state: State) -> bool:
    return state.job.answer is not None and bool(state.job.answer.clocks.shared)


def _later_ns(sides: Sequence[Side], rows: tuple[RankRow, RankRow], as_recorded: bool) -> int:
    """What to add to times of the first side for the same moment on the second."""
    offsets = [0 if as_recorded else row.offset_ns or 0 for row in rows]
    zeros = [
        side.origin + base_ns(side.trace) - offset
        for side, offset in zip(sides, offsets, strict=True)
    ]
    return zeros[0] - zeros[1]


def _clocks(state: State, rows: tuple[RankRow, RankRow]) -> str:
    """How sure it is that the two windows show the same moments."""
    known = [row.uncertainty_ns for row in rows if row.uncertainty_ns is not None]
    names = f"ranks {rows[0].rank} and {rows[1].rank}"
    if _shares_clock(state):
        return f"{names} share a clock"
    if len(known) < len(rows):
        return f"how far the clocks of {names} are apart is not known"
    return f"the clocks of {names} are known to {duration(sum(known))}"
