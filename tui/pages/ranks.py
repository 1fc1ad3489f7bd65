"""The ranks page: which rank of a job is late, which ranks wait for it, and when."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from fusetui.analysis.questions.process_groups import infer_rank, read_world_size
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
    make_empty_list,
    make_ruled_picture,
    style_row,
)
from fusetui.tui.drawing.schemes import Styled, choose_glyphs
from fusetui.tui.layout.lanes import find_lanes_to_hide
from fusetui.tui.layout.moves import over, select
from fusetui.tui.layout.text_layout import ListColumn, room, titles
from fusetui.tui.pages.page import ListPage, Pane, cycle_name, sort_actions
from fusetui.tui.state.action import action, on
from fusetui.tui.state.offers import RANK_SORTS, RankedJob
from fusetui.tui.state.reading import read
from fusetui.tui.state.screen import head_height, page_size
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
    from fusetui.trace.model.columns import Trace
    from fusetui.tui.layout.view import Side, View


MARGIN_PART = 2  # on each side of a wait, the window shows this part of its length


def known(state: State, paths: tuple[str, ...], **fields: Any) -> State:
    """Return the state with new fields of the job that has these traces. It is
    unchanged if another job is open by now."""
    if state.job.paths != paths:
        return state
    return replace(state, job=replace(state.job, **fields))


def open_beside_late_rank(state: State) -> Outcome:
    """Open the trace of the rank under the cursor at its longest wait, beside the rank
    that it waits for. Both share one time axis; messages say where there is no such
    wait."""
    row = _cursor_row(state)
    if row is None:
        return state
    wait = row.worst_wait
    if wait is None:
        return told(state, f"rank {row.rank} waits for nobody")
    if wait.for_rank is None:
        sentence = f"clocks do not determine for which rank rank {row.rank} waits"
        return told(state, sentence)
    awaited_rank = [other for other in state.job.rows() if other.rank == wait.for_rank]
    return _open_ranks(state, wait, [row, *awaited_rank])


def open_beside_others(state: State) -> Outcome:
    """Open the trace of the rank under the cursor at its longest wait, with other ranks
    below it on one time axis.

    If it waits for nobody, the rank that waits longest for it is shown instead. The
    rank that is waited for comes first below, then the others in the order of the list.
    """
    row = _cursor_row(state)
    if row is None:
        return state
    waiting = row if row.worst_wait else _find_longest_waiting(state, row.rank)
    if waiting is None or waiting.worst_wait is None:
        sentence = f"rank {row.rank} waits for nobody, and nobody waits longest for it"
        return told(state, sentence)
    wait = waiting.worst_wait
    all_rows = state.job.rows()
    awaited_rank = [other for other in all_rows if other.rank == wait.for_rank]
    by_interest = _drop_repeated_ranks([waiting, *awaited_rank, row, *all_rows])
    shown_ranks = by_interest[: _count_ranks_that_fit(state)]
    return _open_ranks(state, wait, shown_ranks, only_streams=True)


def _drop_repeated_ranks(rows: Sequence[RankRow]) -> list[RankRow]:
    """Return the rows in their order, with each rank only once."""
    by_rank: dict[int, RankRow] = {}
    for row in rows:
        by_rank.setdefault(row.rank, row)
    return list(by_rank.values())


def _find_longest_waiting(state: State, rank: int) -> RankRow | None:
    """Return the rank whose longest wait is for `rank`; of several, the one that waits
    longest. None where no rank waits for it like that."""
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


def _count_ranks_that_fit(state: State) -> int:
    """Return how many ranks fit below each other in the timeline, at least two."""
    lines_below = details_height(state.size.height)
    free_lines = page_size(state).height + head_height(state) - lines_below
    return max(2, free_lines // RANK_LINES)


def _cursor_row(state: State) -> RankRow | None:
    """Return the rank under the cursor, or None where the list has no such row."""
    rows = state.job.rows()
    cursor = state.list_of(RANKS).cursor
    return rows[cursor] if 0 <= cursor < len(rows) else None


def _open_ranks(
    state: State, wait: WorstWait, rows: Sequence[RankRow], only_streams: bool = False
) -> Outcome:
    """Open the traces of these ranks, the first one at its wait. If they are open
    already, only what is shown of them changes."""
    job = replace(
        state.job,
        window=(wait.start_ns, wait.start_ns + wait.wait_ns),
        wanted=tuple(rows),
        only_streams=only_streams,
    )
    opening_state = replace(state, job=job)
    paths = tuple(row.path for row in rows)
    if state.paths == paths:
        return arrived(opening_state)
    return read(opening_state, paths)


def are_wanted(state: State) -> bool:
    """Return whether the open traces are those of the ranks that were asked for."""
    return state.paths == tuple(row.path for row in state.job.wanted)


def arrived(state: State) -> State:
    """Return the state after traces were opened. If they are the ranks that were asked
    for, all show the moment of the wait, and the collective is selected."""
    job = state.job
    sides = state.session.sides
    # what was asked for is done, or no longer wanted
    job_after = replace(job, window=None, wanted=(), only_streams=False)
    if job.window is None or not are_wanted(state):
        return replace(state, job=job_after)
    views = _align_views(state, job.window)
    views[0] = _select_waiting_collective(sides[0], views[0], job.window)
    if job.only_streams:
        views = _hide_other_lanes(sides, views)
    hint = ""
    if len(views) > 1:
        clock_sentence = _describe_clocks(job.wanted, _shares_clock(job))
        hint = f"one time axis: {clock_sentence}"
    session = state.session.go(tuple(views))
    return replace(
        state, session=session, active=0, page=TIMELINE, hint=hint, job=job_after
    )


def _align_views(state: State, window: tuple[int, int]) -> list[View]:
    """Return a view of each side that shows the same moments: a window and a margin.
    The window is [begin, end) in ns from the begin of the first side; clocks of the
    ranks are matched."""
    first = _view_around(state.session.sides[0], state.session.views[0], window)
    clock_zeros = _find_clock_zeros(state)
    views = [first]
    for view, zero in zip(state.session.views[1:], clock_zeros[1:], strict=True):
        shift_ns = clock_zeros[0] - zero
        begin = first.begin + shift_ns
        views.append(replace(view, begin=begin, end=begin + first.span))
    return views


def _view_around(side: Side, view: View, window: tuple[int, int]) -> View:
    """Return a view of a window and a margin around it. The window is in ns from the
    begin of the side."""
    begin = side.begin + window[0]
    end = side.begin + window[1]
    margin = (end - begin) // MARGIN_PART
    return over(side, view, begin - margin, end + margin)


def _select_waiting_collective(side: Side, view: View, window: tuple[int, int]) -> View:
    """Return the view with the collective selected that runs longest in the window of a
    wait. Without one there, the view is unchanged. The window is in ns from the begin
    of the side."""
    trace = side.trace
    first_ns = side.origin + side.begin
    collectives = trace.rows_named(is_collective, Role.KERNEL)
    begins = np.maximum(trace.start[collectives], first_ns + window[0])
    ends = np.minimum(trace.end[collectives], first_ns + window[1])
    ns_in_window = ends - begins
    if ns_in_window.max(initial=0) <= 0:
        return view
    return select(side, view, int(collectives[ns_in_window.argmax()]))


def _find_clock_zeros(state: State) -> list[int]:
    """Return the moment from which the times of each side count, in ns since 1970. All
    are by the clock of one rank."""
    shares_clock = _shares_clock(state.job)
    zeros = []
    for side, row in zip(state.session.sides, state.job.wanted, strict=True):
        offset_ns = 0 if shares_clock else row.offset_ns or 0
        zeros.append(side.origin + side.trace.epoch_ns - offset_ns)
    return zeros


def _shares_clock(job: RankedJob) -> bool:
    """Return whether all ranks of the job have one clock."""
    return job.answer is not None and bool(job.answer.clocks.shared)


def _hide_other_lanes(sides: Sequence[Side], views: Sequence[View]) -> list[View]:
    """Return the views with all lanes hidden except GPU streams."""
    with_streams = []
    for side, view in zip(sides, views, strict=True):
        streams_alone = replace(view.arranged, hidden=find_lanes_to_hide(side.lanes))
        with_streams.append(replace(view, arranged=streams_alone))
    return with_streams


def _describe_clocks(rows: Sequence[RankRow], are_shared: bool) -> str:
    """Return a phrase that says how surely the windows of several ranks show the same
    moments."""
    *other_ranks, last_rank = (str(row.rank) for row in rows)
    names = f"ranks {', '.join(other_ranks)} and {last_rank}"
    if are_shared:
        return f"{names} share a clock"
    uncertainties = [
        row.uncertainty_ns for row in rows if row.uncertainty_ns is not None
    ]
    if len(uncertainties) < len(rows):
        return f"the clock offset of {names} is unknown"
    # two ranks may be apart by the sum of what both are uncertain by
    largest_two = sorted(uncertainties)[-2:]
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
MIN_RANKS = 2  # of a job whose ranks can be compared
NO_JOB = (
    "Not a multi-rank job: page 7 needs a trace of each rank: fusetui ranks PATH..."
)
OPEN_ALL = 'For all: fusetui open FOLDER, then "all ranks"'
STANDS_OUT = "*"


def _describe_single_rank(trace: Trace) -> str:
    """Return a sentence that says why the page is empty beside one open trace: it is of
    one rank of a job, or of no job with several ranks."""
    ranks = read_world_size(trace.keys)
    if ranks < MIN_RANKS:
        return NO_JOB
    rank = infer_rank(trace.keys, trace.report.path).rank
    number = f"rank {rank}" if rank >= 0 else "one rank"
    return f"This trace is {number} of {count(ranks)}. {OPEN_ALL}"


def _sort_by_next(state: State, by: int) -> State:
    """Sort the ranks by the next column (`by` 1) or the one before (-1)."""
    sort = cycle_name([*RANK_SORTS], state.job.sort, by)
    return replace(state, job=replace(state.job, sort=sort))


_action = partial(action, section="In the ranks", where=on(RANKS))


class RanksPage(ListPage):
    """Enter opens a rank where it waits longest."""

    name, title, key = RANKS, "Ranks", "7"
    help = "which rank of a job is late, and which ranks wait for it"
    hints = (
        "help help; row-down/row-up move; show open its longest wait; "
        "ranks-beside beside whom it waits for; ranks-others beside others; "
        "ranks-sort-right/ranks-sort-left sort; copy copy"
    )
    actions = (
        *sort_actions(_action, "ranks-", _sort_by_next, "> s"),
        _action(
            name="ranks-beside",
            title="Open beside the rank it waits for",
            written="b",
            help="at its longest wait, on one time axis",
            run=open_beside_late_rank,
        ),
        _action(
            name="ranks-others",
            title="Open beside other ranks",
            written="B",
            help="as many as fit on the screen, on one time axis",
            run=open_beside_others,
        ),
    )

    def open(self, state: State) -> Outcome:
        """Return the state and, when the page is first opened, the effect that reads
        the ranks of the job."""
        if state.job.done >= 0:
            return state
        asked_state = replace(state, job=replace(state.job, done=0))
        return asked_state, ReadRanks(state.job.paths)

    def missing(self, state: State) -> str:
        """Return a sentence that says no job of several ranks is open, or "" where one
        is."""
        if state.job.paths:
            return ""
        return _describe_single_rank(state.side.trace) if state.sides else NO_JOB

    def rows(self, state: State) -> Rows:
        """Return a row for each rank, in the order of the chosen column. While ranks
        are read, one line says how many are done."""
        job = state.job
        if job.answer is None:
            total = plural(len(job.paths), "rank")
            reading = f"reading {total}: {max(job.done, 0)}"
            return make_empty_list(job.problem or reading)
        ranks = job.rows()
        unit = unit_of(row.step_ns for row in ranks)
        columns = [_add_unit(column, job.sort, unit) for column in COLUMNS]
        levels = choose_glyphs(state.ascii_only).levels
        return Rows(
            identity=job,
            count=len(ranks),
            titles=partial(titles, columns),
            format=partial(_draw_rank_row, job, ranks, unit, levels),
        )

    def chosen(self, state: State, index: int) -> Outcome:
        """Carry out Enter: open the trace of the rank at its longest wait."""
        row = state.job.rows()[index]
        if row.worst_wait is None:
            return told(state, f"rank {row.rank} waits for nobody")
        return _open_ranks(state, row.worst_wait, [row])

    def above(self, state: State, size: Size) -> Sequence[Pane]:
        """Return the pane above the table, with the answer to which rank is late, as
        high as the table allows."""
        answer = state.job.answer
        if answer is None:
            return ()
        table_lines = len(state.job.rows()) + 1
        line_limit = max(MIN_ABOVE_LINES, size.height - BELOW_LINES - table_lines)
        draw_head = partial(_draw_answer, answer)
        height = len(draw_head(size.width, line_limit))
        return (Pane(height, TextPicture(("above", answer), draw_head)),)

    def below(self, state: State, size: Size) -> Sequence[Pane]:
        """Return the pane below the table, with a few lines about the rank under the
        cursor."""
        answer = state.job.answer
        row = self.under_cursor(state, state.job.rows())
        if answer is None or row is None:
            return ()
        rule = choose_glyphs(state.ascii_only).rule
        draw_details = partial(_describe_rank, answer, row)
        picture = make_ruled_picture(
            (answer, row.rank), f"rank {row.rank}", rule, draw_details
        )
        return (Pane(BELOW_LINES, picture),)

    def table(self, state: State, rows: Sequence[int] | None = None) -> Table | None:
        """Return the ranks as a table to save, with the columns of `fusetui ranks
        --format` and the order of the page. None until the ranks are read."""
        if state.job.answer is None:
            return None
        from fusetui.tables.sources import ranks_table  # rarely needed

        ranks = state.job.rows()
        chosen = ranks if rows is None else [ranks[row] for row in rows]
        return ranks_table(replace(state.job.answer, ranks=tuple(chosen)))


def _add_unit(column: ListColumn, sort: str, unit: Unit) -> ListColumn:
    """Return a column with the unit of its times in the title. The column by which the
    rows are sorted gets a star."""
    has_times = column.title not in ("", "rank", "last")
    title = column.title or STRIP_TITLE
    if has_times:
        title += f" {unit.name}"
    if column.title == sort:
        title += STANDS_OUT
    elif has_times:
        title += " "  # figures that stand out have a star there
    return replace(column, title=title)


def _draw_rank_row(
    job: RankedJob,
    ranks: Sequence[RankRow],
    unit: Unit,
    levels: str,
    index: int,
    width: int,
) -> list[Styled]:
    """Return the row of one rank, with times in `unit`. A rank that stands out, or
    whose file is damaged, is highlighted."""
    row = ranks[index]
    strip = _draw_strip(job, row, room(COLUMNS, width), levels)
    token = "warning" if row.outliers or row.damage else "plain"
    return style_row(COLUMNS, [*_format_rank(row, unit), strip], width, token)


def _format_rank(row: RankRow, unit: Unit) -> list[str]:
    """Return the texts in the columns of a rank, except the strip of its waits. Times
    are in `unit`."""
    last_text = f"{count(row.last_count)}/{count(row.collectives)}"
    texts = [str(row.rank), last_text]
    for column in COLUMNS[2:-1]:
        texts.append(_format_figure(row, RANK_SORTS[column.title], unit))
    return texts


def _format_figure(row: RankRow, field: str, unit: Unit) -> str:
    """Return one time of a rank per step, in `unit`. `field` is the name of its field.

    A star follows where the rank stands out among the others. An unknown time is "-".
    """
    mark = STANDS_OUT if field in row.outliers else " "
    ns: int | None = getattr(row, field)
    if ns is None:
        return f"-{mark}"
    if field in ("caused_ns", "waited_ns"):  # these are sums over all steps
        ns //= max(row.steps, 1)
    return f"{unit.text(ns)}{mark}"


def _draw_strip(job: RankedJob, row: RankRow, width: int, levels: str) -> str:
    """Return a strip of bars for the waits of a rank: one cell for each step, or for
    several. Higher bars are longer waits."""
    if job.strip is None:
        return ""
    top_level = len(levels) - 1
    cells = []
    for share in job.strip.measure_shares(row.rank, width):
        # a short wait still shows
        least_level = 1 if share > 0 else 0
        cells.append(levels[max(round(top_level * share), least_level)])
    return "".join(cells)


def _draw_answer(answer: JobAnswer, width: int, height: int) -> list[Said]:
    """Return the sentences that say which rank is late and who waits, on at most
    `height` lines."""
    from fusetui.report import ranks_words as say  # rarely needed, with many modules

    answer_sentences = [
        *say.describe_given(answer),
        say.describe_clocks(answer),
        *say.describe_verdict(answer),
    ]
    return _wrap_sentences(answer_sentences, width, height)


def _describe_rank(
    answer: JobAnswer, row: RankRow, width: int, height: int
) -> list[Said]:
    """Return sentences about one rank: why others wait for it, for whom it waits, and
    what is damaged in its file. They take at most `height` lines."""
    from fusetui.report import ranks_words as say

    sentences = []
    for straggler in answer.stragglers:
        if straggler.rank == row.rank:
            sentences.append(say.describe_straggler(answer, straggler))
    sentences += say.describe_longest_wait(row)
    sentences += row.damage
    return _wrap_sentences(sentences, width, height)


def _wrap_sentences(sentences: Sequence[str], width: int, height: int) -> list[Said]:
    """Return sentences wrapped to `width` cells, on at most `height` lines."""
    text_width = max(width - 2, 20)
    return folded(map(printable, sentences), text_width, before=" ", most=height)
