"""The ranks page: which rank of a job is late, who waits for it, and when."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from fusetui.text.figures import Unit, count, plural, unit_of
from fusetui.text.printable import printable
from fusetui.tui.drawing.details import details_height
from fusetui.tui.drawing.picture import (
    Make,
    Rows,
    Said,
    TextPicture,
    cut,
    no_rows,
    row_parts,
    ruled,
)
from fusetui.tui.drawing.schemes import Styled, glyphs_for
from fusetui.tui.layout.text_layout import ListColumn, room, sentence_lines, titles
from fusetui.tui.pages.page import ListPage, Pane, next_of, sort_actions
from fusetui.tui.state import ranks
from fusetui.tui.state.action import action, on
from fusetui.tui.state.screen import body, head_height
from fusetui.tui.state.state import RANK_SORTS, Outcome, RankedJob, Size, State, told

if TYPE_CHECKING:
    from fusetui.analysis.ranks.model import JobAnswer, RankRow
    from fusetui.tables.public import Table

NAME = "ranks"
COLUMNS = (
    ListColumn("rank", 6),
    ListColumn("last", 10, from_width=60),
    ListColumn("others wait", 15),
    ListColumn("waits", 10),
    ListColumn("step", 10),
    ListColumn("compute", 11, from_width=90),
    ListColumn("comm", 10, from_width=100),
    ListColumn("idle", 10, from_width=110),
    ListColumn("", 0, left=True),
)
STRIP = "waits of each step"
LINES = 6  # that a rank beside others takes, with its line of the head
ABOVE, BELOW = 4, 6  # lines of the panes around the table, the upper one if the table fills it
NO_JOB = "these files are not named as ranks are: fusetui ranks PATH... reads any"
STANDS_OUT = "*"


def _row(state: State) -> RankRow | None:
    """The rank under the cursor."""
    return dict(enumerate(state.job.rows())).get(state.list_of(NAME).cursor)


def _beside(state: State) -> Outcome:
    return ranks.beside_the_last(state, row) if (row := _row(state)) else state


def _others(state: State) -> Outcome:
    lines = body(state).height + head_height(state) - details_height(state.size.height)
    most = max(2, lines // LINES)
    return ranks.beside_others(state, row, most) if (row := _row(state)) else state


def _sort(state: State, by: int) -> State:
    return replace(state, job=replace(state.job, sort=next_of([*RANK_SORTS], state.job.sort, by)))


_action = partial(action, section="In the ranks", where=on(NAME))
_AXIS = "at its longest wait, on one time axis"
_MANY = "as many as the screen has room for, on one time axis"


class RanksPage(ListPage):
    """Enter opens a rank where it waits longest."""

    name = NAME
    title = "Ranks"
    key = "7"
    is_table = True
    help = "which rank of a job is late, and who waits for it"
    hints = (
        "help keys; row-down/row-up move; show open its longest wait; "
        "ranks-beside beside whom it waits for; ranks-others beside others; "
        "ranks-sort-right/ranks-sort-left sort; copy copy"
    )
    actions = (
        *sort_actions(_action, "ranks-", _sort, "> s"),
        _action("ranks-beside", "Open beside the rank it waits for", "b", _AXIS, _beside),
        _action("ranks-others", "Open beside other ranks", "B", _MANY, _others),
    )

    def open(self, state: State) -> Outcome:
        return ranks.asked(state)

    def missing(self, state: State) -> str:
        return "" if state.job.paths else NO_JOB

    def rows(self, state: State) -> Rows:
        job = state.job
        if job.answer is None:
            said = job.problem or f"reading {plural(len(job.paths), 'rank')}: {max(job.done, 0)}"
            return no_rows(said)
        found = job.rows()
        glyphs = glyphs_for(state.ascii_only)
        unit = unit_of(row.step_ns for row in found)
        columns = [_titled(column, job.sort, unit) for column in COLUMNS]

        def row(index: int, width: int) -> list[Styled]:
            strip = _strip(job, found[index], room(COLUMNS, width), glyphs.levels)
            token = "warning" if found[index].outliers or found[index].damage else "plain"
            return row_parts(COLUMNS, [*_texts(found[index], unit), strip], width, token)

        return Rows(job, len(found), lambda width: titles(columns, width), row)

    def chosen(self, state: State, index: int) -> Outcome:
        found = state.job.rows()[index]
        if found.worst_wait is None:
            return told(state, f"rank {found.rank} waits for nobody")
        return ranks.to_worst_wait(state, found)

    def above(self, state: State, size: Size) -> Sequence[Pane]:
        answer = state.job.answer
        if answer is None:
            return ()
        free = size.height - BELOW - len(state.job.rows()) - 1
        height = len(_head(answer)(size.width, max(ABOVE, free)))
        return (Pane(height, TextPicture(("above", answer), _head(answer))),)

    def below(self, state: State, size: Size) -> Sequence[Pane]:
        found, answer = state.job.rows(), state.job.answer
        if answer is None or not found:
            return ()
        row = found[min(state.list_of(NAME).cursor, len(found) - 1)]
        rule = glyphs_for(state.ascii_only).rule

        def lines(width: int, height: int) -> list[Said]:
            return _wrapped(_about(answer, row), width, height)

        return (Pane(BELOW, ruled((answer, row.rank), f"rank {row.rank}", rule, lines)),)

    def table(self, state: State, rows: Sequence[int] | None = None) -> Table | None:
        """As `fusetui ranks --format` has it, in the order of the page."""
        if state.job.answer is None:
            return None
        from fusetui.tables.sources import ranks_table  # rarely needed

        listed = state.job.rows()
        shown = listed if rows is None else [listed[row] for row in rows]
        return ranks_table(replace(state.job.answer, ranks=tuple(shown)))


def _titled(column: ListColumn, sort: str, unit: Unit) -> ListColumn:
    title = column.title or STRIP
    of = f" {unit.name}" if column.title not in ("", "rank", "last") else ""
    mark = STANDS_OUT if column.title == sort else " " if of else ""
    return ListColumn(f"{title}{of}{mark}", column.width, column.left, column.from_width)


def _texts(row: RankRow, unit: Unit) -> list[str]:
    def figure(name: str, steps: int = 1) -> str:
        value: int | None = getattr(row, name)
        mark = STANDS_OUT if name in row.outliers else " "
        return f"{'-' if value is None else unit.text(value // max(steps, 1))}{mark}"

    return [
        str(row.rank),
        f"{count(row.last_count)}/{count(row.collectives)}",
        figure("caused_ns", row.steps),
        figure("waited_ns", row.steps),
        figure("step_ns"),
        figure("compute_ns"),
        figure("exposed_comm_ns"),
        figure("idle_ns"),
    ]


def _strip(job: RankedJob, row: RankRow, width: int, levels: str) -> str:
    """A cell per step, or for several: the higher, the longer it waited there."""
    if job.strip is None:
        return ""
    top = len(levels) - 1
    shares = job.strip.shares(row.rank, width)
    return "".join(levels[max(round(top * share), 1 if share > 0 else 0)] for share in shares)


def _head(answer: JobAnswer) -> Make:
    def lines(width: int, height: int) -> list[Said]:
        from fusetui.report import ranks_words as say  # rarely needed, with many modules

        text = [*say.headline(answer), say.clocks_text(answer), *say.verdict_lines(answer)]
        return _wrapped(text, width, height)

    return lines


def _about(answer: JobAnswer, row: RankRow) -> list[str]:
    """Why others wait for it, else for whom it waits."""
    from fusetui.report import ranks_words as say

    late = [say.straggler_text(answer, one) for one in answer.stragglers if one.rank == row.rank]
    return [*late, *say.wait_text(row), *row.damage]


def _wrapped(sentences: Sequence[str], width: int, height: int) -> list[Said]:
    wrapped = (sentence_lines(printable(one), max(width - 2, 20)) for one in sentences)
    return [*cut([Said(f" {line}") for lines in wrapped for line in lines], height)]
