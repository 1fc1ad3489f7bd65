"""The ranks of a job: from the list of traces to the page, and from a rank to its worst wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from fusetui.text.figures import duration
from fusetui.tui.layout.lanes import but_streams
from fusetui.tui.layout.moves import over
from fusetui.tui.layout.view import Side
from fusetui.tui.state.reading import read
from fusetui.tui.state.state import TIMELINE, Outcome, ReadRanks, State, told

if TYPE_CHECKING:
    from fusetui.analysis.ranks.model import JobAnswer, RankRow, WorstWait

AROUND = 2  # a wait takes about this fraction of the window


def asked(state: State) -> Outcome:
    """Reads the ranks, unless that was done."""
    if state.job.done >= 0:
        return state
    return replace(state, job=replace(state.job, done=0)), ReadRanks(state.job.paths)


def known(state: State, paths: tuple[str, ...], **fields: Any) -> State:
    """More is known of the job with these traces: fields of Job."""
    if state.job.paths != paths:
        return state
    return replace(state, job=replace(state.job, **fields))


def to_worst_wait(state: State, row: RankRow) -> Outcome:
    """Opens a rank where it waits longest."""
    return _opening(state, row.worst_wait, [row])


def beside_the_last(state: State, row: RankRow) -> Outcome:
    """Opens a rank where it waits longest, beside the rank that it waits for, on one time axis."""
    wait, answer = row.worst_wait, state.job.answer
    if wait is None or answer is None:
        return told(state, f"rank {row.rank} waits for nobody")
    if wait.for_rank is None:
        return told(state, f"clocks do not tell for which rank rank {row.rank} waits")
    return _opening(state, wait, [row, *_of_rank(answer, wait.for_rank)])


def beside_others(state: State, row: RankRow, most: int) -> Outcome:
    """Opens a rank where it waits longest, or else where another waits longest for it; below it the
    rank that is waited for, and then the others in the order of the list, on one time axis."""
    answer = state.job.answer
    waiting = row if row.worst_wait else _longest_wait_for(state, row)
    if answer is None or waiting is None or waiting.worst_wait is None:
        return told(state, f"rank {row.rank} waits for nobody, and nobody waits longest for it")
    wait = waiting.worst_wait
    rows = (waiting, *_of_rank(answer, wait.for_rank), row, *state.job.rows())
    shown = list({one.rank: one for one in rows}.values())[:most]
    return _opening(state, wait, shown, only_streams=True)


def _of_rank(answer: JobAnswer, rank: int | None) -> list[RankRow]:
    return [one for one in answer.ranks if one.rank == rank]


def _longest_wait_for(state: State, row: RankRow) -> RankRow | None:
    """The rank whose longest wait is for this one."""
    waits = [(one.worst_wait, one) for one in state.job.rows()]
    lengths = [(wait.wait_ns, one) for wait, one in waits if wait and wait.for_rank == row.rank]
    return max(lengths, key=lambda found: found[0])[1] if lengths else None


def _opening(
    state: State, wait: WorstWait | None, rows: Sequence[RankRow], only_streams: bool = False
) -> Outcome:
    """Opens the traces of these ranks, the first where it waits."""
    window = (wait.start_ns, wait.start_ns + wait.wait_ns) if wait else None
    job = replace(state.job, window=window, wanted=tuple(rows), only_streams=only_streams)
    now, paths = replace(state, job=job), tuple(row.path for row in rows)
    return arrived(now) if state.paths == paths else read(now, paths)


def are_wanted(state: State) -> bool:
    """Whether the traces that are open are those of the ranks that were asked for."""
    return state.paths == tuple(row.path for row in state.job.wanted)


def arrived(state: State) -> State:
    """Traces were opened: those of the ranks that were asked for show what was asked for."""
    job = replace(state.job, window=None, wanted=(), only_streams=False)
    window, rows = state.job.window, state.job.wanted
    if window is None or not are_wanted(state):
        return replace(state, job=job)
    session, hint = state.session, ""
    side, (view, *others) = session.sides[0], session.views
    begin, end = (side.begin + time for time in window)
    margin = (end - begin) // AROUND
    first = over(side, view, begin - margin, end + margin)
    if others:
        later = _later_ns(session.sides, rows, as_recorded=_shares_clock(state))
        others = [
            replace(view, begin=first.begin + ns, end=first.end + ns)
            for view, ns in zip(others, later, strict=True)
        ]
        hint = f"one time axis: {_clocks(state, rows)}"
    shown = [first, *others]
    if state.job.only_streams:
        shown = [
            replace(view, arranged=replace(view.arranged, hidden=but_streams(side.lanes)))
            for side, view in zip(session.sides, shown, strict=True)
        ]
    session = session.go(tuple(shown))
    return replace(state, session=session, active=0, page=TIMELINE, hint=hint, job=job)


def _shares_clock(state: State) -> bool:
    return state.job.answer is not None and bool(state.job.answer.clocks.shared)


def _later_ns(sides: Sequence[Side], rows: Sequence[RankRow], as_recorded: bool) -> list[int]:
    """What to add to times of the first side for the same moment on each of the others."""
    first, *others = [
        side.origin + side.trace.epoch_ns - (0 if as_recorded else row.offset_ns or 0)
        for side, row in zip(sides, rows, strict=True)
    ]
    return [first - zero for zero in others]


def _clocks(state: State, rows: Sequence[RankRow]) -> str:
    """How sure it is that the windows show the same moments."""
    known = [row.uncertainty_ns for row in rows if row.uncertainty_ns is not None]
    *others, last = (str(row.rank) for row in rows)
    names = f"ranks {', '.join(others)} and {last}"
    if _shares_clock(state):
        return f"{names} share a clock"
    if len(known) < len(rows):
        return f"how far the clocks of {names} are apart is not known"
    return f"the clocks of {names} are known to {duration(sum(sorted(known)[-2:]))}"
