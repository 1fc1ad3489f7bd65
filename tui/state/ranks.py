"""The ranks of a job: from the list of traces to the page, and from a rank to its worst wait."""

from __future__ import annotations

from msgspec.structs import replace

from fusetui.trace.ranks.records import JobAnswer, RankRow
from fusetui.trace.ranks.strip import Strip
from fusetui.trace.text.printable import printable
from fusetui.tui.layout.moves import over
from fusetui.tui.layout.ranks import SORTS
from fusetui.tui.state.action import Run
from fusetui.tui.state.effects import ReadRanks
from fusetui.tui.state.reading import read
from fusetui.tui.state.state import TIMELINE, Outcome, State

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


def arrived(state: State) -> State:
    """A trace was opened: it shows what was asked for."""
    window = state.job.window
    if window is None or len(state.sides) != 1:
        return state
    begin, end = window
    margin = (end - begin) // AROUND
    view = over(state.side, state.view, begin - margin, end + margin)
    session = state.session.windowed(0, view)
    job = replace(state.job, window=None)
    return replace(state, session=session, page=TIMELINE, hint="", job=job)
