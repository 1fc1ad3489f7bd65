"""The answer below the lanes, shown while nothing is selected; each of its rows leads
to a place in the trace."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.analysis.why.model import Why
from fusetui.report.why_answer import answer, format_account_line, format_brief_answer
from fusetui.text.cutting import clip, clip_apart
from fusetui.text.printable import printable
from fusetui.trace.model.arrays import NO_ROW
from fusetui.trace.model.memo import memo
from fusetui.tui.drawing.canvas import Turn
from fusetui.tui.drawing.picture import scroll_to_cursor
from fusetui.tui.drawing.range_lines import format_idle_legend, list_idle_letters
from fusetui.tui.drawing.schemes import (
    CURSOR,
    TEXT,
    Glyphs,
    Styled,
    choose_glyphs,
    draw_share_bar,
)
from fusetui.tui.layout.answer import (
    BETWEEN_CELLS,
    SHARE,
    AnswerAt,
    AnswerList,
    AnswerPage,
    AnswerRow,
    choose_visible_lists,
    explain_missing_result,
    find_target,
    moved,
)
from fusetui.tui.layout.text_layout import wrap_sentence
from fusetui.tui.layout.view import Side
from fusetui.tui.pages import kernels
from fusetui.tui.pages.page import Pane
from fusetui.tui.pages.tree import MODULES
from fusetui.tui.pages.why import WhyPage
from fusetui.tui.state.action import action, format_hints
from fusetui.tui.state.jumping import alike, find_gap, show_gap
from fusetui.tui.state.moving import other_side
from fusetui.tui.state.search import shown
from fusetui.tui.state.state import TIMELINE, State, told

ROOMY_LINES = 9  # of the pane; on so many or fewer there is no account
TIME_CELLS = 8  # of the time of a row
ASIDE_CELLS = 7  # of the share of a row, or of what stands instead
BAR_CELLS = 6
HIDDEN_LISTS_CELLS = 3  # of the number of lists that are not shown
MIN_CELLS_WITH_REASONS = 80  # of a screen: narrower ones rarely show the idle reasons
MIN_CELLS_WITH_BAR = 44  # of a list; narrower ones have no bars


class ListColumns(NamedTuple):
    """The lists that fit side by side on a screen, [lists that are shown]."""

    shown: Sequence[int]  # their indices among all lists
    widths: list[int]  # cells

    @property
    def borders(self) -> list[int]:
        """Cell at which each shown list ends, counted with the blanks after it."""
        end_cells = []
        end_cell = 0
        for cells in self.widths:
            end_cell += cells + BETWEEN_CELLS
            end_cells.append(end_cell)
        return end_cells


class Laid(NamedTuple):
    """How the answer is laid out on a screen of one size."""

    columns: ListColumns
    above: list[Styled]  # the verdict on at most two lines, and the account
    rows: int  # of lists that are seen


class AnswerPicture(msgspec.Struct, frozen=True, eq=False, dict=True):
    """A rule with a title, the verdict, the account, and lists side by side; `at`: the
    cursor."""

    side: Side
    letters: tuple[str, ...]  # what `list_idle_letters` returns for the window above
    found: AnswerPage
    glyphs: Glyphs
    at: AnswerAt | None
    title: str

    def key(self, y: int, width: int, height: int) -> Hashable:
        """Return what a drawn line depends on, as the key of a cache."""
        letters = self.letters if self._is_legend(y, width, height) else None
        what = (self.side, letters, self.found, self.at, self.title)
        return (*what, y, width, height)

    def line(self, y: int, width: int, height: int) -> Sequence[Styled]:
        """Return line `y` of the summary; empty below its last line."""
        if self._is_legend(y, width, height):
            legend = format_idle_legend(self.letters, width, self.glyphs.ellipsis)
            return [(legend, "faint")]
        lines = self._lines(width, height)
        return lines[y] if y < len(lines) else ()

    def _is_legend(self, y: int, width: int, height: int) -> bool:
        """Whether line `y` explains the letters of idle reasons. It is the last line,
        and the only one that changes with the window of the timeline."""
        return y == height - 1 and self._has_legend(width, height)

    def _has_legend(self, width: int, height: int) -> bool:
        """Whether there is a legend on a pane of this size: it needs a high or wide
        one, or a short verdict."""
        if not self.letters:
            return False
        is_large = height > ROOMY_LINES or width >= MIN_CELLS_WITH_REASONS
        return is_large or len(self._verdict_lines(width)) == 1

    def place(self, x: int, y: int, width: int, height: int) -> AnswerAt | None:
        """Return the list and row at cell (x, y). The lines above the lists give row
        -1. The rule and cells below the last row give None."""
        layout = self._lay_out(width, height)
        is_on_rule = y == 0
        if is_on_rule or not layout.columns.shown:
            return None
        lines_above_rows = 2 + len(layout.above)  # the rule, and the titles of lists
        if y < lines_above_rows:
            return AnswerAt()
        if self._is_legend(y, width, height) or y >= height:
            return None
        last_shown = len(layout.columns.shown) - 1
        list_at_x = int(np.searchsorted(layout.columns.borders, x, side="right"))
        # right of all lists, the last one counts
        column = layout.columns.shown[min(list_at_x, last_shown)]
        row = y - lines_above_rows + self._first_row(column, layout.rows)
        if row >= len(self.found.lists[column].entries):
            return None
        return AnswerAt(column, row)

    def _first_row(self, column: int, room: int) -> int:
        """Return the first row that is shown of a list, scrolled to the cursor if that
        is in this list. `room` is how many rows fit."""
        if self.at is None or self.at.column != column:
            return 0
        return scroll_to_cursor(self.at.row, 0, room)

    @memo()
    def _lay_out(self, width: int, height: int) -> Laid:
        """Return how the summary is laid out on a pane of this size: which lists fit,
        the lines above them, and how many rows they have.

        The account of time needs a high pane. The result is kept for each size.
        """
        is_roomy = height > ROOMY_LINES
        lines_above = self._verdict_lines(width)
        account = format_account_line(self.found.why, width - 2) if is_roomy else ""
        if account:
            lines_above.append((f" {account}", "plain"))
        legend_lines = 1 if self._has_legend(width, height) else 0
        other_lines = 2 + len(lines_above) + legend_lines
        return Laid(
            columns=self._columns(width),
            above=lines_above,
            rows=max(0, height - other_lines),
        )

    def _verdict_lines(self, width: int) -> list[Styled]:
        """Return the verdict on at most two lines, drawn with the cursor if the cursor
        is on it."""
        has_cursor = self.at is not None and self.at.row == NO_ROW
        token = "title" + CURSOR if has_cursor else "title"
        lines = _wrap_verdict(self.found.why, width - 2)
        return [(f" {line}", token) for line in lines]

    def _columns(self, width: int) -> ListColumns:
        """Return the lists that fit side by side in `width` cells, with their widths."""
        lists = self.found.lists
        shown_lists = choose_visible_lists(lists, width, self.at)
        are_some_hidden = len(shown_lists) < len(lists)
        counter_cells = HIDDEN_LISTS_CELLS if are_some_hidden else 0
        lists_side_by_side = [lists[index] for index in shown_lists]
        widths = divide_width(lists_side_by_side, width, counter_cells)
        return ListColumns(shown_lists, widths)

    @memo()
    def _lines(self, width: int, height: int) -> list[Sequence[Styled]]:
        """Return all lines of the summary at this size but the legend. They are kept,
        because each line is asked for by itself."""
        layout = self._lay_out(width, height)
        cells_of_bar = bar_cells(width, len(layout.columns.shown))
        lines: list[Sequence[Styled]] = [self._heading(width)]
        lines += [[line] for line in layout.above]
        lines.append(self._titles(layout.columns, cells_of_bar))
        lines += self._join_rows(layout, cells_of_bar)
        return lines

    def _join_rows(self, laid: Laid, bar: int) -> Iterator[list[Styled]]:
        """Yield the lines with the rows of all shown lists, one list beside the other."""
        rows_by_list = []
        for column, cells in zip(laid.columns.shown, laid.columns.widths, strict=True):
            rows_by_list.append(self._rows(column, cells, bar, laid.rows))
        for parts_of_lists in zip(*rows_by_list, strict=True):
            yield [*chain.from_iterable(parts_of_lists)]

    def _heading(self, width: int) -> list[Styled]:
        """Return the rule across the screen, with the title in it."""
        rule = self.glyphs.rule
        title = clip(self.title, width - 5, self.glyphs.ellipsis)
        heading = f"{rule * 3} {title} "
        return [(heading.ljust(width, rule), "faint")]

    def _titles(self, columns: ListColumns, bar: int) -> list[Styled]:
        """Return the line with the titles and units of the lists. The last title is
        followed by the number of lists that do not fit. `bar` is the width of a bar."""
        parts: list[Styled] = []
        for column, cells in zip(columns.shown, columns.widths, strict=True):
            answer_list = self.found.lists[column]
            hidden_text = ""
            is_last = column == columns.shown[-1]
            if is_last:
                cells_before_title = TIME_CELLS + ASIDE_CELLS + 2 + bar
                used_cells = cells_before_title + len(answer_list.title)
                hidden_text = self._count_hidden_lists(columns, cells - used_cells)
            parts += self._draw_list_title(answer_list, cells - len(hidden_text), bar)
            parts.append((hidden_text + " " * BETWEEN_CELLS, "faint"))
        return parts

    def _count_hidden_lists(self, columns: ListColumns, room: int) -> str:
        """Return how many lists do not fit on the screen, such as ` >2 more`. In less
        than the needed `room` in cells it is ` >2`; "" if all lists are shown."""
        hidden_count = len(self.found.lists) - len(columns.shown)
        if not hidden_count:
            return ""
        number = f" {self.glyphs.folded}{hidden_count}"
        with_word = f"{number} more"
        return with_word if len(with_word) <= room else number

    @staticmethod
    def _draw_list_title(shown: AnswerList, cells: int, bar: int) -> list[Styled]:
        """Return the units and the title of one list, `cells` wide. `bar` is the width
        of a bar."""
        time_unit = shown.unit.name.rjust(TIME_CELLS)
        aside_unit = shown.aside.rjust(ASIDE_CELLS)
        units = f"{time_unit} {aside_unit} {' ' * bar}"
        title_cells = cells - len(units)
        title = clip(shown.title, title_cells).ljust(title_cells)
        return [(units, "faint"), (title, "title")]

    def _rows(self, column: int, cells: int, bar: int, room: int) -> list[list[Styled]]:
        """Return `room` rows of one list, each `cells` wide plus the blanks to the next
        list. Rows below the end of the list are blank."""
        answer_list = self.found.lists[column]
        figures_cells = TIME_CELLS + ASIDE_CELLS + 2 + bar
        name_cells = max(1, cells - figures_cells)
        names = self._names(answer_list, name_cells)
        between: Styled = (" " * BETWEEN_CELLS, "plain")
        first_row = self._first_row(column, room)
        stop = min(first_row + room, len(answer_list.entries))
        rows = []
        for row_index in range(first_row, stop):
            name = names[row_index].ljust(name_cells)
            has_cursor = self.at == AnswerAt(column, row_index)
            parts = self._row(
                answer_list, answer_list.entries[row_index], name, bar, has_cursor
            )
            rows.append([*parts, between])
        blank: Styled = (" " * (cells + BETWEEN_CELLS), "plain")
        rows += [[blank]] * (room - len(rows))
        return rows

    def _names(self, shown: AnswerList, cells: int) -> list[str]:
        """Return the names of a list's rows, cut to `cells` cells.

        They are cut so that different names still differ, unless the figure beside the
        time tells the rows apart.
        """
        names = [entry.text for entry in shown.entries]
        if shown.aside == SHARE:
            return clip_apart(names, cells, self.glyphs.ellipsis)
        return [clip(name, cells, self.glyphs.ellipsis) for name in names]

    def _row(
        self,
        shown: AnswerList,
        entry: AnswerRow,
        name: str,
        bar: int,
        has_cursor: bool,
    ) -> list[Styled]:
        """Return the parts of one row: the cursor sign, its time, the figure beside it,
        its bar and its name. A row with the cursor is highlighted."""
        bar_text = ""
        if bar:
            drawn_bar = draw_share_bar(entry.ns, entry.whole_ns, bar - 1, self.glyphs)
            bar_text = f"{drawn_bar} "
        look = entry.kind.token + TEXT if entry.kind else "plain"
        parts = (
            (">" if has_cursor else " ", "strong"),
            (f"{shown.unit.text(entry.ns):>{TIME_CELLS - 1}} ", "plain"),
            (f"{entry.aside:>{ASIDE_CELLS}} ", "faint"),
            (bar_text, "busy"),
            (name, look),
        )
        if has_cursor:
            return [(text, token + CURSOR) for text, token in parts]
        return [*parts]


def _wrap_verdict(why: Why, width: int) -> list[str]:
    """Return the verdict on at most two lines of `width` cells. Where a shorter wording
    saves lines, that is used; the rest is cut."""
    lines = wrap_sentence(printable(answer(why)), width)
    brief = wrap_sentence(printable(format_brief_answer(why)), width)
    if len(brief) < len(lines):
        lines = brief
    if len(lines) > 2:
        without_reason = format_brief_answer(why, with_reason=False)
        lines = wrap_sentence(printable(without_reason), width)
    if len(lines) == 1:
        return [*lines]
    all_but_first = " ".join(lines[1:])
    return [lines[0], clip(all_but_first, width)]


def divide_width(lists: Sequence[AnswerList], width: int, more: int = 0) -> list[int]:
    """Return the widths of lists that stand side by side in `width` cells.

    Cells that one list does not need go to lists that need more, and at last to the
    last list. `more` cells follow the last title. The last cell of the screen stays
    blank.
    """
    if not lists:
        return []
    list_cells = width - 1 - BETWEEN_CELLS * (len(lists) - 1)
    list_cells = max(len(lists), list_cells)
    needs = _measure_needs(lists, bar_cells(width, len(lists)), more)
    equal_part = list_cells // len(lists)
    widths = [min(need, equal_part) for need in needs]
    spare = _share_out_cells(widths, needs, list_cells - sum(widths))
    widths[-1] += spare
    return widths


def _share_out_cells(widths: list[int], needs: Sequence[int], spare: int) -> int:
    """Add spare cells to `widths` (in place) for lists that need more, first to those
    that lack the fewest. Return how many cells are left."""
    missing = [need - cells for need, cells in zip(needs, widths, strict=True)]
    by_missing = sorted(range(len(widths)), key=missing.__getitem__)
    for list_index in by_missing:
        lists_in_need = [cells for cells in missing if cells > 0]
        equal_part = spare // max(1, len(lists_in_need))
        part = min(missing[list_index], equal_part)
        widths[list_index] += part
        missing[list_index] -= part
        spare -= part
    return spare


def _measure_needs(lists: Sequence[AnswerList], bar: int, more: int) -> list[int]:
    """Return for each list the width at which its title and all names are whole. `more`
    cells follow the last title; `bar` is the width of a bar."""
    figure_cells = TIME_CELLS + ASIDE_CELLS + 2 + bar
    needs = []
    for answer_list in lists:
        title_cells = len(answer_list.title)
        if answer_list is lists[-1]:
            title_cells += more
        name_cells = [len(entry.text) for entry in answer_list.entries]
        needs.append(figure_cells + max([title_cells, *name_cells]))
    return needs


def bar_cells(width: int, count: int) -> int:
    """Return how many cells a bar takes in each of `count` lists, with the blank after
    it. It is 0 where the lists are too narrow for bars."""
    list_cells = (width - BETWEEN_CELLS * (count - 1)) // max(1, count)
    return BAR_CELLS + 1 if list_cells >= MIN_CELLS_WITH_BAR else 0


SECTION = "In the summary"
VERDICT_ROW = -1  # of the cursor, above all lists
INSIDE = (
    "answer-down/answer-up row",
    "answer-left/answer-right list",
    "answer-show goes there",
    "answer-leave back to the lanes",
)


def shown_answer(state: State) -> AnswerPage | None:
    """Return the answer that is shown below the lanes of the timeline. It is None until
    it is known, and where something else is shown there."""
    return state.side.insight.answer if _has_answer_pane(state) else None


def _has_answer_pane(state: State) -> bool:
    """Return whether the pane below the lanes is for the summary: the timeline is in
    front without an overlay, and nothing is selected."""
    if state.page != TIMELINE or state.overlay is not None or not state.sides:
        return False
    is_selected = state.view.has_selection or state.view.gap or state.time_range
    return not is_selected


def is_answer_awaited(state: State) -> bool:
    """Return whether the summary will be shown below the lanes once it is computed.

    Keys already go into it, so that a key that is pressed early does what it does
    later. A part of a trace never gets a summary.
    """
    if not _has_answer_pane(state) or state.side.insight.answer is not None:
        return False
    return state.side.trace.report.prefix is None  # of a part there is no answer


def is_inside(state: State) -> bool:
    """Return whether the keys act on the summary below the lanes, also while it is
    being computed."""
    has_answer = shown_answer(state) is not None or is_answer_awaited(state)
    return has_answer and state.answer_at is not None


def is_outside(state: State) -> bool:
    """Return whether the keys act on the lanes above the summary, while that is shown
    or being computed."""
    has_answer = shown_answer(state) is not None or is_answer_awaited(state)
    return has_answer and state.answer_at is None


enter = partial(replace, answer_at=AnswerAt(0, 0), hint="")
leave = partial(replace, answer_at=None, hint="")


def takes_tab(state: State) -> bool:
    """Return whether Tab moves between the lanes and the summary. With two traces, Tab
    leads from the lanes to the other trace instead."""
    return is_inside(state) or (is_outside(state) and len(state.sides) == 1)


def switch_pane(state: State) -> State:
    """Move the keys from the lanes into the summary, or from the summary to the lanes
    of the next trace."""
    return other_side(leave(state)) if state.answer_at else enter(state)


def move_cursor(state: State, columns: int, rows: int) -> State:
    """Move the cursor of the summary by so many lists to the right and rows down. While
    the summary is not known, the place may lie outside of its lists."""
    answer_page = shown_answer(state)
    place = state.answer_at
    if place is None:
        return state
    if answer_page is not None:
        moved_place = moved(answer_page.lists, place, columns, rows)
    else:  # the first move after it is known ends on a row
        column = max(0, place.column + columns)
        row = max(VERDICT_ROW, place.row + rows)
        moved_place = AnswerAt(column, row)
    return replace(state, answer_at=moved_place)


def follow(state: State) -> State:
    """Go to what the row under the cursor of the summary is about, such as a kernel or
    a gap. While the summary is being computed, a message says so."""
    answer_page = shown_answer(state)
    if state.answer_at is None:
        return state
    if answer_page is None:
        reason = explain_missing_result(state.side.trace, "where the time went")
        return told(state, reason)
    return went(state, answer_page, state.answer_at)


def went(state: State, found: AnswerPage, at: AnswerAt) -> State:
    """Go to what a row of the summary is about: a slice, a page, a module, a kernel or
    a gap.

    The cursor stays on that row for when the user comes back.
    """
    state = replace(state, answer_at=at)
    target = find_target(found.lists, at)
    if target.to == "slice":
        return shown(state, alike(state, target.at))
    if target.to == "why":
        return replace(state, page=WhyPage.name, hint="")
    if target.to == "module":
        return MODULES.led_to(replace(state, page=MODULES.name, hint=""), target.at)
    if target.to == "kernel":
        page = kernels.PAGE
        return page.led_to(replace(state, page=page.name, hint=""), target.at)
    gap = find_gap(state.side, found.why.gaps[target.at])
    if gap is None:
        return state
    return told(
        show_gap(state, gap),
        "a gap of the summary",
        "deselect back to the summary",
        "next-gap the next longest",
    )


def make_answer_pane(state: State, height: int) -> Pane | None:
    """Return the pane with the summary, `height` lines high. It is None where details
    of a selection are shown instead."""
    answer_page = shown_answer(state)
    if answer_page is None:
        return None
    width = state.size.width
    glyphs = choose_glyphs(state.ascii_only)
    picture = AnswerPicture(
        side=state.side,
        letters=tuple(list_idle_letters(state.side, state.view, width, glyphs)),
        found=answer_page,
        glyphs=glyphs,
        at=state.answer_at,
        title=_format_title(state),
    )

    def on_click(state: State, x: int, y: int) -> State:
        at = picture.place(x, y, width, height)
        return went(state, picture.found, at) if at else state

    def on_wheel(state: State, turn: Turn) -> State:
        inside = enter(state) if state.answer_at is None else state
        return move_cursor(inside, columns=0, rows=turn.lines)

    return Pane(height, picture, on_click, on_wheel)


def format_awaited_title(state: State) -> str:
    """Return the title above the pane while the summary is being computed: with its
    keys where they act on it, else "nothing selected"."""
    return _format_title(state) if is_inside(state) else "nothing selected"


def _format_title(state: State) -> str:
    """Return the title of the summary, with the keys that act there now."""
    if state.answer_at:
        hints: Sequence[str] = INSIDE
    else:
        enter_keys = "into-answer/next-pane" if takes_tab(state) else "into-answer"
        hints = (f"{enter_keys} to browse", "down/up to select a slice")
    keys = format_hints(hints, state)
    return f"Summary: {keys}" if keys else "Summary"


_inside = partial(action, section=SECTION, where=is_inside)


ACTIONS = (
    action(
        name="into-answer",
        title="Into the summary",
        written="enter",
        help="its rows lead to modules, kernels, gaps",
        run=enter,
        section=SECTION,
        where=is_outside,
    ),
    _inside(
        name="answer-down",
        title="Row down",
        written="j down",
        help="of the list",
        run=partial(move_cursor, columns=0, rows=1),
    ),
    _inside(
        name="answer-up",
        title="Row up",
        written="k up",
        help="the first line is the verdict",
        run=partial(move_cursor, columns=0, rows=-1),
    ),
    _inside(
        name="answer-right",
        title="Next list",
        written="l right",
        help="to the right",
        run=partial(move_cursor, columns=1, rows=0),
    ),
    _inside(
        name="answer-left",
        title="Previous list",
        written="h left",
        help="to the left",
        run=partial(move_cursor, columns=-1, rows=0),
    ),
    _inside(
        name="answer-show",
        title="Go there",
        written="enter",
        help="module, kernel, gap or verdict",
        run=follow,
    ),
    _inside(
        name="answer-leave",
        title="Back to the lanes",
        written="escape",
        help="the keys act on them again",
        run=leave,
    ),
    action(
        name="next-pane",
        title="Next pane",
        written="tab",
        help="the summary, the lanes; of two traces, the other one",
        run=switch_pane,
        section=SECTION,
        where=takes_tab,
    ),
)
