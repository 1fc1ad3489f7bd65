"""The ranks page: which rank of a job is late, who waits for it, and when."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from fusetui.text.figures import Unit, count, duration, plural, unit_of
from fusetui.text.printable import printable
from fusetui.tui.drawing.details import details_height
from fusetui.tui.drawing.picture import (
    Rows,
    Said,
    TextPicture,
    folded,
    no_rows,
    row_parts,
    ruled,
)
from fusetui.tui.drawing.schemes import Styled, glyphs_for
from fusetui.tui.layout.lanes import but_streams
from fusetui.tui.layout.moves import over
from fusetui.tui.layout.text_layout import ListColumn, room, titles
from fusetui.tui.pages.page import ListPage, Pane, next_of, sort_actions
from fusetui.tui.state.action import action, on
from fusetui.tui.state.offers import RANK_SORTS, RankedJob
from fusetui.tui.state.reading import read
from fusetui.tui.state.screen import body, head_height
from fusetui.tui.state.state import (
    RANKS,
    TIMELINE,
    Outcome,
    ReadRanks,
    Size,
    State,
    told,
)

if TYPE_CHECKING:
    from fusetui.analysis.ranks.model import JobAnswer, RankRow, WorstWait
    from fusetui.tables.public import Table


AROUND = 2  # a wait takes about this fraction of the window


def known(state: State, paths: tuple[str, ...], **fields: Any) -> State:
    """More is known of the job with these traces: fields of Job."""
    is_same = state.job.paths == paths
    return replace(state, job=replace(state.job, **fields)) if is_same else state


def beside_the_last(state: State) -> Outcome:
    """Opens a rank where it waits longest, beside the rank that it waits for, on one
    time axis."""
    if (row := _row(state)) is None:
        return state
    if (wait := row.worst_wait) is None:
        return told(state, f"rank {row.rank} waits for nobody")
    if wait.for_rank is None:
        return told(
            state, f"clocks do not determine for which rank rank {row.rank} waits"
        )
    others = [one for one in state.job.rows() if one.rank == wait.for_rank]
    return _opening(state, wait, [row, *others])


def beside_others(state: State) -> Outcome:
    """Opens a rank where it waits longest, or else where another waits longest for it;
    below it the rank that is waited for, and then the others in the order of the list,
    on one time axis."""
    if (row := _row(state)) is None:
        return state
    known, waiting = state.job.rows(), row
    if row.worst_wait is None:
        waits = [(one.worst_wait, one) for one in known if one.worst_wait]
        for_it = (
            (wait.wait_ns, one) for wait, one in waits if wait.for_rank == row.rank
        )
        _, waiting = max(for_it, key=lambda found: found[0], default=(0, row))
    if (wait := waiting.worst_wait) is None:
        return told(
            state, f"rank {row.rank} waits for nobody, and nobody waits longest for it"
        )
    rows = (waiting, *(one for one in known if one.rank == wait.for_rank), row, *known)
    lines = body(state).height + head_height(state) - details_height(state.size.height)
    shown = list({one.rank: one for one in rows}.values())[: max(2, lines // LINES)]
    return _opening(state, wait, shown, only_streams=True)


def _row(state: State) -> RankRow | None:
    return dict(enumerate(state.job.rows())).get(state.list_of(RANKS).cursor)


def _opening(
    state: State, wait: WorstWait, rows: Sequence[RankRow], only_streams: bool = False
) -> Outcome:
    """Opens the traces of these ranks, the first where it waits."""
    window = wait.start_ns, wait.start_ns + wait.wait_ns
    job = replace(
        state.job, window=window, wanted=tuple(rows), only_streams=only_streams
    )
    now, paths = replace(state, job=job), tuple(row.path for row in rows)
    return arrived(now) if state.paths == paths else read(now, paths)


def are_wanted(state: State) -> bool:
    """Whether the traces that are open are those of the ranks that were asked for."""
    return state.paths == tuple(row.path for row in state.job.wanted)


def arrived(state: State) -> State:
    """Traces were opened: those of the ranks that were asked for show what was asked
    for."""
    job = replace(state.job, window=None, wanted=(), only_streams=False)
    window, rows = state.job.window, state.job.wanted
    if window is None or not are_wanted(state):
        return replace(state, job=job)
    session = state.session
    side, (view, *others) = session.sides[0], session.views
    begin, end = (side.begin + time for time in window)
    margin = (end - begin) // AROUND
    first = over(side, view, begin - margin, end + margin)
    shares_clock = state.job.answer is not None and bool(state.job.answer.clocks.shared)
    shown, hint = (
        [first],
        f"one time axis: {_clocks(rows, shares_clock)}" if others else "",
    )
    zeros = [  # the moments from which the times of the sides count, by one clock
        side.origin + side.trace.epoch_ns - (0 if shares_clock else row.offset_ns or 0)
        for side, row in zip(session.sides, rows, strict=True)
    ]
    for view, zero in zip(others, zeros[1:], strict=True):
        later = zeros[0] - zero
        shown.append(replace(view, begin=first.begin + later, end=first.end + later))
    if state.job.only_streams:
        hidden = [but_streams(side.lanes) for side in session.sides]
        both = zip(shown, hidden, strict=True)
        shown = [replace(v, arranged=replace(v.arranged, hidden=n)) for v, n in both]
    session = session.go(tuple(shown))
    return replace(state, session=session, active=0, page=TIMELINE, hint=hint, job=job)


def _clocks(rows: Sequence[RankRow], are_shared: bool) -> str:
    """How sure it is that the windows show the same moments."""
    known = [row.uncertainty_ns for row in rows if row.uncertainty_ns is not None]
    *others, last = (str(row.rank) for row in rows)
    names = f"ranks {', '.join(others)} and {last}"
    if are_shared:
        return f"{names} share a clock"
    if len(known) < len(rows):
        return f"the clock offset of {names} is unknown"
    return f"the clocks of {names} are known to {duration(sum(sorted(known)[-2:]))}"


COLUMNS = (
    ListColumn("rank", 6),
    ListColumn("last", 10, from_width=60),
    ListColumn("others wait", 15),
    ListColumn("waits", 10),
    ListColumn("wall", 10),
    ListColumn("compute", 11, from_width=90),
    ListColumn("comm", 10, from_width=100),
    ListColumn("idle", 10, from_width=110),
    ListColumn("", 0, left=True),
)
STRIP = "waits of each step"
LINES = 6  # that a rank beside others takes, with its line of the head
# lines of the panes around the table, the upper one if the table fills it
ABOVE, BELOW = 4, 6
NO_JOB = "Not a multi-rank job. To compare ranks: fusetui ranks PATH..."
STANDS_OUT = "*"


def _sort(state: State, by: int) -> State:
    return replace(
        state, job=replace(state.job, sort=next_of([*RANK_SORTS], state.job.sort, by))
    )


_action = partial(action, section="In the ranks", where=on(RANKS))
_AXIS = "at its longest wait, on one time axis"
_MANY = "as many as the screen has room for, on one time axis"


class RanksPage(ListPage):
    """Enter opens a rank where it waits longest."""

    name, title, key = RANKS, "Ranks", "7"
    is_table = True
    help = "which rank of a job is late, and who waits for it"
    hints = (
        "help keys; row-down/row-up move; show open its longest wait; "
        "ranks-beside beside whom it waits for; ranks-others beside others; "
        "ranks-sort-right/ranks-sort-left sort; copy copy"
    )
    actions = (
        *sort_actions(_action, "ranks-", _sort, "> s"),
        _action(
            "ranks-beside",
            "Open beside the rank it waits for",
            "b",
            _AXIS,
            beside_the_last,
        ),
        _action("ranks-others", "Open beside other ranks", "B", _MANY, beside_others),
    )

    def open(self, state: State) -> Outcome:
        if state.job.done >= 0:
            return state
        return replace(state, job=replace(state.job, done=0)), ReadRanks(
            state.job.paths
        )

    def missing(self, state: State) -> str:
        return "" if state.job.paths else NO_JOB

    def rows(self, state: State) -> Rows:
        job = state.job
        if job.answer is None:
            reading = f"reading {plural(len(job.paths), 'rank')}: {max(job.done, 0)}"
            return no_rows(job.problem or reading)
        found, glyphs = job.rows(), glyphs_for(state.ascii_only)
        unit = unit_of(row.step_ns for row in found)
        columns = [_titled(column, job.sort, unit) for column in COLUMNS]

        def row(index: int, width: int) -> list[Styled]:
            strip = _strip(job, found[index], room(COLUMNS, width), glyphs.levels)
            token = (
                "warning" if found[index].outliers or found[index].damage else "plain"
            )
            return row_parts(
                COLUMNS, [*_texts(found[index], unit), strip], width, token
            )

        return Rows(job, len(found), lambda width: titles(columns, width), row)

    def chosen(self, state: State, index: int) -> Outcome:
        found = state.job.rows()[index]
        if found.worst_wait is None:
            return told(state, f"rank {found.rank} waits for nobody")
        return _opening(state, found.worst_wait, [found])

    def above(self, state: State, size: Size) -> Sequence[Pane]:
        if (answer := state.job.answer) is None:
            return ()
        most = max(ABOVE, size.height - BELOW - len(state.job.rows()) - 1)
        head = partial(_head, answer)
        return (
            Pane(len(head(size.width, most)), TextPicture(("above", answer), head)),
        )

    def below(self, state: State, size: Size) -> Sequence[Pane]:
        row, answer = self.under_cursor(state, state.job.rows()), state.job.answer
        if answer is None or row is None:
            return ()
        rule, about = glyphs_for(state.ascii_only).rule, partial(_about, answer, row)
        return (
            Pane(BELOW, ruled((answer, row.rank), f"rank {row.rank}", rule, about)),
        )

    def table(self, state: State, rows: Sequence[int] | None = None) -> Table | None:
        """As `fusetui ranks --format` has it, in the order of the page."""
        if state.job.answer is None:
            return None
        from fusetui.tables.sources import ranks_table  # rarely needed

        listed = state.job.rows()
        shown = listed if rows is None else [listed[row] for row in rows]
        return ranks_table(replace(state.job.answer, ranks=tuple(shown)))


def _titled(column: ListColumn, sort: str, unit: Unit) -> ListColumn:
    of = f" {unit.name}" if column.title not in ("", "rank", "last") else ""
    mark = STANDS_OUT if column.title == sort else " " if of else ""
    return replace(column, title=f"{column.title or STRIP}{of}{mark}")


def _texts(row: RankRow, unit: Unit) -> list[str]:
    def figure(name: str) -> str:
        value: int | None = getattr(row, name)
        steps = max(row.steps, 1) if name in ("caused_ns", "waited_ns") else 1
        mark = STANDS_OUT if name in row.outliers else " "
        return f"{'-' if value is None else unit.text(value // steps)}{mark}"

    times = [figure(RANK_SORTS[column.title]) for column in COLUMNS[2:-1]]
    return [str(row.rank), f"{count(row.last_count)}/{count(row.collectives)}", *times]


def _strip(job: RankedJob, row: RankRow, width: int, levels: str) -> str:
    """A cell per step, or for several: the higher, the longer it waited there."""
    if job.strip is None:
        return ""
    shares, top = job.strip.shares(row.rank, width), len(levels) - 1
    return "".join(levels[max(round(top * share), int(share > 0))] for share in shares)


def _head(answer: JobAnswer, width: int, height: int) -> list[Said]:
    from fusetui.report import ranks_words as say  # rarely needed, with many modules

    text = [*say.headline(answer), say.clocks_text(answer), *say.verdict_lines(answer)]
    return _wrapped(text, width, height)


def _about(answer: JobAnswer, row: RankRow, width: int, height: int) -> list[Said]:
    """Why others wait for it, else for whom it waits."""
    from fusetui.report import ranks_words as say

    late = [
        say.straggler_text(answer, one)
        for one in answer.stragglers
        if one.rank == row.rank
    ]
    return _wrapped([*late, *say.wait_text(row), *row.damage], width, height)


def _wrapped(sentences: Sequence[str], width: int, height: int) -> list[Said]:
    return folded(
        map(printable, sentences), max(width - 2, 20), before=" ", most=height
    )
