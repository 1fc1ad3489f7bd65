"""The ranks page: which rank of a job is late, which ranks wait for it, and when."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from fusetui.gpu.kinds import is_collective
from fusetui.text.figures import Unit, count, duration, plural, unit_of
from fusetui.text.printable import printable
from fusetui.trace.model.categories import Role
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
from fusetui.tui.layout.moves import over, select
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
    from fusetui.tui.layout.view import Side, View


MARGIN_PART = 2  # on each side of a wait, the window shows this part of its length


def known(state: State, paths: tuple[str, ...], **fields: Any) -> State:
    """More is known of the job with these traces: fields of RankedJob. The state as it
    was, if another job is open by now."""
    if state.job.paths != paths:
        return state
    return replace(state, job=replace(state.job, **fields))


def beside_the_last(state: State) -> Outcome:
    """Opens a rank where it waits longest, beside the rank that it waits for, on one
    time axis."""
    row = _row(state)
    if row is None:
        return state
    wait = row.worst_wait
    if wait is None:
        return told(state, f"rank {row.rank} waits for nobody")
    if wait.for_rank is None:
        unknown = f"clocks do not determine for which rank rank {row.rank} waits"
        return told(state, unknown)
    late = [other for other in state.job.rows() if other.rank == wait.for_rank]
    return _opening(state, wait, [row, *late])


def beside_others(state: State) -> Outcome:
    """Opens a rank where it waits longest, or else where another waits longest for it;
    below it the rank that is waited for, and then the others in the order of the list,
    on one time axis."""
    row = _row(state)
    if row is None:
        return state
    waiting = row if row.worst_wait else _longest_waiting_for(state, row.rank)
    if waiting is None or waiting.worst_wait is None:
        return told(
            state, f"rank {row.rank} waits for nobody, and nobody waits longest for it"
        )
    wait = waiting.worst_wait
    rows = state.job.rows()
    late = [other for other in rows if other.rank == wait.for_rank]
    shown = _each_once([waiting, *late, row, *rows])[: _ranks_on_screen(state)]
    return _opening(state, wait, shown, only_streams=True)


def _each_once(rows: Sequence[RankRow]) -> list[RankRow]:
    """The rows in their order, those of one rank once."""
    by_rank: dict[int, RankRow] = {}
    for row in rows:
        by_rank.setdefault(row.rank, row)
    return list(by_rank.values())


def _longest_waiting_for(state: State, rank: int) -> RankRow | None:
    """The rank whose longest wait is for this one, of several that which waits longest;
    None for none."""
    longest_ns = 0
    waiting = None
    for row in state.job.rows():
        wait = row.worst_wait
        if wait is None or wait.for_rank != rank:
            continue
        if waiting is None or wait.wait_ns > longest_ns:
            longest_ns = wait.wait_ns
            waiting = row
    return waiting


def _ranks_on_screen(state: State) -> int:
    """How many ranks there is room for, one below the other; at least two."""
    lines = body(state).height + head_height(state)
    lines -= details_height(state.size.height)
    return max(2, lines // RANK_LINES)


def _row(state: State) -> RankRow | None:
    """The rank under the cursor; None where the list has no such row."""
    rows = state.job.rows()
    cursor = state.list_of(RANKS).cursor
    return rows[cursor] if 0 <= cursor < len(rows) else None


def _opening(
    state: State, wait: WorstWait, rows: Sequence[RankRow], only_streams: bool = False
) -> Outcome:
    """Opens the traces of these ranks, the first where it waits."""
    job = replace(
        state.job,
        window=(wait.start_ns, wait.start_ns + wait.wait_ns),
        wanted=tuple(rows),
        only_streams=only_streams,
    )
    now = replace(state, job=job)
    paths = tuple(row.path for row in rows)
    return arrived(now) if state.paths == paths else read(now, paths)


def are_wanted(state: State) -> bool:
    """Whether the traces that are open are those of the ranks that were asked for."""
    return state.paths == tuple(row.path for row in state.job.wanted)


def arrived(state: State) -> State:
    """Traces were opened: those of the ranks that were asked for show what was asked
    for."""
    job = replace(state.job, window=None, wanted=(), only_streams=False)
    if state.job.window is None or not are_wanted(state):
        return replace(state, job=job)
    views = _views_of_one_moment(state, state.job.window)
    views[0] = _with_wait_selected(state.session.sides[0], views[0], state.job.window)
    if state.job.only_streams:
        views = _only_streams(state.session.sides, views)
    hint = ""
    if len(views) > 1:
        clocks = _clocks(state.job.wanted, _shares_clock(state.job))
        hint = f"one time axis: {clocks}"
    session = state.session.go(tuple(views))
    return replace(state, session=session, active=0, page=TIMELINE, hint=hint, job=job)


def _views_of_one_moment(state: State, window: tuple[int, int]) -> list[View]:
    """A view of each side that shows a window and a margin, [begin, end) in ns from the
    begin of the first side; by the clocks of the ranks, all show the same moments."""
    first = _view_with_margin(state.session.sides[0], state.session.views[0], window)
    zeros = _zeros_by_one_clock(state)
    views = [first]
    for view, zero in zip(state.session.views[1:], zeros[1:], strict=True):
        shift = zeros[0] - zero
        begin = first.begin + shift
        views.append(replace(view, begin=begin, end=begin + first.span))
    return views


def _view_with_margin(side: Side, view: View, window: tuple[int, int]) -> View:
    """A view over a window, in ns from the begin of the side, and a margin."""
    begin = side.begin + window[0]
    end = side.begin + window[1]
    margin = (end - begin) // MARGIN_PART
    return over(side, view, begin - margin, end + margin)


def _with_wait_selected(side: Side, view: View, window: tuple[int, int]) -> View:
    """A view with the collective of a wait selected: the kernel of a collective that
    runs longest in the window of the wait, if any does. The window is in ns from the
    begin of the side."""
    trace = side.trace
    first_ns = side.origin + side.begin
    collectives = trace.rows_named(is_collective, Role.KERNEL)
    begins = np.maximum(trace.start[collectives], first_ns + window[0])
    ends = np.minimum(trace.end[collectives], first_ns + window[1])
    ns_in_window = ends - begins
    if ns_in_window.max(initial=0) <= 0:
        return view
    return select(side, view, int(collectives[ns_in_window.argmax()]))


def _zeros_by_one_clock(state: State) -> list[int]:
    """The moment from which the times of each side count, in ns since 1970 by the clock
    of one rank."""
    shares_clock = _shares_clock(state.job)
    zeros = []
    for side, row in zip(state.session.sides, state.job.wanted, strict=True):
        offset_ns = 0 if shares_clock else row.offset_ns or 0
        zeros.append(side.origin + side.trace.epoch_ns - offset_ns)
    return zeros


def _shares_clock(job: RankedJob) -> bool:
    """Whether the ranks have one clock."""
    return job.answer is not None and bool(job.answer.clocks.shared)


def _only_streams(sides: Sequence[Side], views: Sequence[View]) -> list[View]:
    """The views with all lanes hidden but those of GPU streams."""
    with_streams = []
    for side, view in zip(sides, views, strict=True):
        arranged = replace(view.arranged, hidden=but_streams(side.lanes))
        with_streams.append(replace(view, arranged=arranged))
    return with_streams


def _clocks(rows: Sequence[RankRow], are_shared: bool) -> str:
    """How sure it is that the windows show the same moments."""
    *others, last = (str(row.rank) for row in rows)
    names = f"ranks {', '.join(others)} and {last}"
    if are_shared:
        return f"{names} share a clock"
    known = [row.uncertainty_ns for row in rows if row.uncertainty_ns is not None]
    if len(known) < len(rows):
        return f"the clock offset of {names} is unknown"
    # two ranks may be apart by the sum of what both are uncertain by
    largest_two = sorted(known)[-2:]
    return f"the clocks of {names} are known to {duration(sum(largest_two))}"


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
STRIP_TITLE = "waits of each step"
RANK_LINES = 6  # that a rank beside others takes, with its line of the head
MIN_ABOVE_LINES = 4  # of the pane above the table
BELOW_LINES = 6  # of the pane below it
NO_JOB = (
    "Not a multi-rank job: page 7 needs a trace of each rank: fusetui ranks PATH..."
)
STANDS_OUT = "*"


def _sort(state: State, by: int) -> State:
    """Sorted by the next column, or for -1 by the one before."""
    sort = next_of([*RANK_SORTS], state.job.sort, by)
    return replace(state, job=replace(state.job, sort=sort))


_action = partial(action, section="In the ranks", where=on(RANKS))


class RanksPage(ListPage):
    """Enter opens a rank where it waits longest."""

    name, title, key = RANKS, "Ranks", "7"
    help = "which rank of a job is late, and who waits for it"
    hints = (
        "help keys; row-down/row-up move; show open its longest wait; "
        "ranks-beside beside whom it waits for; ranks-others beside others; "
        "ranks-sort-right/ranks-sort-left sort; copy copy"
    )
    actions = (
        *sort_actions(_action, "ranks-", _sort, "> s"),
        _action(
            name="ranks-beside",
            title="Open beside the rank it waits for",
            written="b",
            help="at its longest wait, on one time axis",
            run=beside_the_last,
        ),
        _action(
            name="ranks-others",
            title="Open beside other ranks",
            written="B",
            help="as many as the screen has room for, on one time axis",
            run=beside_others,
        ),
    )

    def open(self, state: State) -> Outcome:
        """Has the ranks read when the page is first opened."""
        if state.job.done >= 0:
            return state
        now = replace(state, job=replace(state.job, done=0))
        return now, ReadRanks(state.job.paths)

    def missing(self, state: State) -> str:
        return "" if state.job.paths else NO_JOB

    def rows(self, state: State) -> Rows:
        """A row for each rank, in the order of the column that is chosen."""
        job = state.job
        if job.answer is None:
            total = plural(len(job.paths), "rank")
            reading = f"reading {total}: {max(job.done, 0)}"
            return no_rows(job.problem or reading)
        ranks = job.rows()
        unit = unit_of(row.step_ns for row in ranks)
        titled = [_titled(column, job.sort, unit) for column in COLUMNS]
        levels = glyphs_for(state.ascii_only).levels
        return Rows(
            identity=job,
            count=len(ranks),
            titles=partial(titles, titled),
            format=partial(_rank_row, job, ranks, unit, levels),
        )

    def chosen(self, state: State, index: int) -> Outcome:
        """Enter: opens the rank where it waits longest."""
        row = state.job.rows()[index]
        if row.worst_wait is None:
            return told(state, f"rank {row.rank} waits for nobody")
        return _opening(state, row.worst_wait, [row])

    def above(self, state: State, size: Size) -> Sequence[Pane]:
        """The answer, with as many lines as the table leaves."""
        answer = state.job.answer
        if answer is None:
            return ()
        table_lines = len(state.job.rows()) + 1
        most = max(MIN_ABOVE_LINES, size.height - BELOW_LINES - table_lines)
        head = partial(_head, answer)
        height = len(head(size.width, most))
        return (Pane(height, TextPicture(("above", answer), head)),)

    def below(self, state: State, size: Size) -> Sequence[Pane]:
        """A few lines about the rank under the cursor."""
        answer = state.job.answer
        row = self.under_cursor(state, state.job.rows())
        if answer is None or row is None:
            return ()
        rule = glyphs_for(state.ascii_only).rule
        about = partial(_about, answer, row)
        picture = ruled((answer, row.rank), f"rank {row.rank}", rule, about)
        return (Pane(BELOW_LINES, picture),)

    def table(self, state: State, rows: Sequence[int] | None = None) -> Table | None:
        """As `fusetui ranks --format` has it, in the order of the page."""
        if state.job.answer is None:
            return None
        from fusetui.tables.sources import ranks_table  # rarely needed

        ranks = state.job.rows()
        chosen = ranks if rows is None else [ranks[row] for row in rows]
        return ranks_table(replace(state.job.answer, ranks=tuple(chosen)))


def _titled(column: ListColumn, sort: str, unit: Unit) -> ListColumn:
    """A column with the unit of its times; that by which the rows are sorted has a
    star."""
    has_times = column.title not in ("", "rank", "last")
    title = column.title or STRIP_TITLE
    if has_times:
        title += f" {unit.name}"
    if column.title == sort:
        title += STANDS_OUT
    elif has_times:
        title += " "  # figures that stand out have a star there
    return replace(column, title=title)


def _rank_row(
    job: RankedJob,
    ranks: Sequence[RankRow],
    unit: Unit,
    levels: str,
    index: int,
    width: int,
) -> list[Styled]:
    """The row of one of the ranks, its times in `unit`."""
    row = ranks[index]
    strip = _strip(job, row, room(COLUMNS, width), levels)
    token = "warning" if row.outliers or row.damage else "plain"
    return row_parts(COLUMNS, [*_texts(row, unit), strip], width, token)


def _texts(row: RankRow, unit: Unit) -> list[str]:
    """What stands in the columns of a rank, but for the strip; times in `unit`."""
    last = f"{count(row.last_count)}/{count(row.collectives)}"
    texts = [str(row.rank), last]
    for column in COLUMNS[2:-1]:
        texts.append(_figure(row, RANK_SORTS[column.title], unit))
    return texts


def _figure(row: RankRow, field: str, unit: Unit) -> str:
    """A time of a rank, which is the field of this name, per step; with a star where it
    stands out among the ranks, `-` where it is not known."""
    mark = STANDS_OUT if field in row.outliers else " "
    ns: int | None = getattr(row, field)
    if ns is None:
        return f"-{mark}"
    if field in ("caused_ns", "waited_ns"):  # these are sums over all steps
        ns //= max(row.steps, 1)
    return f"{unit.text(ns)}{mark}"


def _strip(job: RankedJob, row: RankRow, width: int, levels: str) -> str:
    """A cell per step, or for several: the higher, the longer it waited there."""
    if job.strip is None:
        return ""
    top = len(levels) - 1
    cells = []
    for share in job.strip.shares(row.rank, width):
        least = 1 if share > 0 else 0
        cells.append(levels[max(round(top * share), least)])
    return "".join(cells)


def _head(answer: JobAnswer, width: int, height: int) -> list[Said]:
    """The answer in sentences, on at most `height` lines."""
    from fusetui.report import ranks_words as say  # rarely needed, with many modules

    text = [*say.headline(answer), say.clocks_text(answer), *say.verdict_lines(answer)]
    return _wrapped(text, width, height)


def _about(answer: JobAnswer, row: RankRow, width: int, height: int) -> list[Said]:
    """Why others wait for a rank, for whom it waits, and what of its file is
    damaged."""
    from fusetui.report import ranks_words as say

    sentences = []
    for straggler in answer.stragglers:
        if straggler.rank == row.rank:
            sentences.append(say.straggler_text(answer, straggler))
    sentences += say.wait_text(row)
    sentences += row.damage
    return _wrapped(sentences, width, height)


def _wrapped(sentences: Sequence[str], width: int, height: int) -> list[Said]:
    """Sentences on at most `height` lines."""
    text_width = max(width - 2, 20)
    return folded(map(printable, sentences), text_width, before=" ", most=height)
