"""The answer below the lanes, shown while nothing is selected; each of its rows leads
to a place in the trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.analysis.why.model import IDLE, Why
from fusetui.report.why_answer import account_line, answer, brief_answer
from fusetui.text.cutting import clip, clip_apart, joined
from fusetui.text.printable import printable
from fusetui.trace.model.memo import memo
from fusetui.tui.drawing.canvas import Turn
from fusetui.tui.drawing.picture import scrolled
from fusetui.tui.drawing.schemes import (
    CURSOR,
    TEXT,
    Glyphs,
    Styled,
    glyphs_for,
    share_bar,
)
from fusetui.tui.layout.answer import (
    BETWEEN_CELLS,
    SHARE,
    AnswerAt,
    AnswerList,
    AnswerPage,
    AnswerRow,
    fitting,
    moved,
    way_of,
    working,
)
from fusetui.tui.layout.text_layout import sentence_lines
from fusetui.tui.layout.view import Side
from fusetui.tui.pages import kernels
from fusetui.tui.pages.page import Pane
from fusetui.tui.pages.tree import MODULES
from fusetui.tui.pages.why import WhyPage
from fusetui.tui.state.action import action, hints_text
from fusetui.tui.state.jumping import alike, at_gap, place_of_gap
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
        """The cell behind each list and the blanks after it."""
        borders = []
        border = 0
        for cells in self.widths:
            border += cells + BETWEEN_CELLS
            borders.append(border)
        return borders


class Laid(NamedTuple):
    """How the answer is laid out on a screen of one size."""

    columns: ListColumns
    above: list[Styled]  # the verdict on at most two lines, and the account
    reasons: list[str]  # `s sync` for each reason of idle time, the longest first
    rows: int  # of lists that are seen


class AnswerPicture(msgspec.Struct, frozen=True, eq=False, dict=True):
    """A rule with a title, the verdict, the account, and lists side by side; `at`: the
    cursor."""

    side: Side
    found: AnswerPage
    glyphs: Glyphs
    at: AnswerAt | None
    title: str

    def key(self, y: int, width: int, height: int) -> Hashable:
        """What a line depends on."""
        return self.side, self.found, self.at, self.title, y, width, height

    def line(self, y: int, width: int, height: int) -> Sequence[Styled]:
        """Line `y`; empty below the last one."""
        lines = self._lines(width, height)
        return lines[y] if y < len(lines) else ()

    def place(self, x: int, y: int, width: int, height: int) -> AnswerAt | None:
        """The row at a cell, row -1 on the lines above the lists; None on the rule and
        below the last row."""
        laid = self._laid(width, height)
        if y == 0 or not laid.columns.shown:
            return None
        lines_above_rows = 2 + len(laid.above)  # the rule, and the titles of the lists
        if y < lines_above_rows:
            return AnswerAt()
        if laid.reasons and y == height - 1:
            return None
        right_of = int(np.searchsorted(laid.columns.borders, x, side="right"))
        column = laid.columns.shown[min(right_of, len(laid.columns.shown) - 1)]
        row = y - lines_above_rows + self._top(column, laid.rows)
        if y >= height or row >= len(self.found.lists[column].entries):
            return None
        return AnswerAt(column, row)

    def _top(self, column: int, room: int) -> int:
        """The first row of a list that is seen, where `room` rows are."""
        if self.at is None or self.at.column != column:
            return 0
        return scrolled(self.at.row, 0, room)

    @memo()
    def _laid(self, width: int, height: int) -> Laid:
        """How everything is laid out on a pane of this size."""
        is_roomy = height > ROOMY_LINES
        above = self._verdict_lines(width)
        has_room = is_roomy or len(above) == 1 or width >= MIN_CELLS_WITH_REASONS
        reasons = self._idle_reasons() if has_room else []
        account = account_line(self.found.why, width - 2) if is_roomy else ""
        if account:
            above.append((f" {account}", "plain"))
        others = 2 + len(above) + (1 if reasons else 0)
        return Laid(
            columns=self._columns(width),
            above=above,
            reasons=reasons,
            rows=max(0, height - others),
        )

    def _verdict_lines(self, width: int) -> list[Styled]:
        """The verdict on at most two lines, which may have the cursor."""
        has_cursor = self.at is not None and self.at.row < 0
        token = "title" + CURSOR if has_cursor else "title"
        lines = _verdict(self.found.why, width - 2)
        return [(f" {line}", token) for line in lines]

    def _columns(self, width: int) -> ListColumns:
        """The lists that fit in `width` cells."""
        lists = self.found.lists
        shown = fitting(lists, width, self.at)
        more = HIDDEN_LISTS_CELLS if len(shown) < len(lists) else 0
        return ListColumns(shown, widths_of([lists[n] for n in shown], width, more))

    def _idle_reasons(self) -> list[str]:
        """The letter and the short name of each reason why a device was idle, the
        longest first."""
        ns_by_reason: Counter[str] = Counter()
        for idle in self.side.insight.idle or ():
            for reason in idle.reasons:
                ns_by_reason[reason.name] += int(reason.before[-1])
        names = [name for name, _ in ns_by_reason.most_common()]
        return [f"{IDLE[name].letter} {IDLE[name].short}" for name in names]

    @memo()
    def _lines(self, width: int, height: int) -> list[Sequence[Styled]]:
        """All lines of a size, of which each is asked for by itself."""
        laid = self._laid(width, height)
        bar = bar_cells(width, len(laid.columns.shown))
        lines: list[Sequence[Styled]] = [self._heading(width)]
        lines += [[line] for line in laid.above]
        lines.append(self._titles(laid.columns, bar))
        lines += self._rows_of_lists(laid, bar)
        if laid.reasons:
            reasons = joined(["idle reasons:", *laid.reasons], width - 1)
            lines.append([(f" {reasons}", "faint")])
        return lines

    def _rows_of_lists(self, laid: Laid, bar: int) -> Iterator[list[Styled]]:
        """The rows of all lists that are shown, one beside the other."""
        blocks = []
        for column, cells in zip(laid.columns.shown, laid.columns.widths, strict=True):
            blocks.append(self._rows(column, cells, bar, laid.rows))
        for parts_of_lists in zip(*blocks, strict=True):
            yield [*chain.from_iterable(parts_of_lists)]

    def _heading(self, width: int) -> list[Styled]:
        """The rule with the title."""
        rule = self.glyphs.rule
        title = clip(self.title, width - 5, self.glyphs.ellipsis)
        heading = f"{rule * 3} {title} "
        return [(heading.ljust(width, rule), "faint")]

    def _titles(self, columns: ListColumns, bar: int) -> list[Styled]:
        """The titles of the lists, with faint units; the last one counts the lists that
        do not fit. `bar`: the cells of a bar."""
        hidden = len(self.found.lists) - len(columns.shown)
        parts: list[Styled] = []
        for column, cells in zip(columns.shown, columns.widths, strict=True):
            shown = self.found.lists[column]
            more = ""
            if hidden and column == columns.shown[-1]:
                more = f" {self.glyphs.folded}{hidden}"
                with_word = f"{more} more"
                needed = TIME_CELLS + ASIDE_CELLS + 2 + bar + len(shown.title)
                if needed + len(with_word) <= cells:
                    more = with_word
            parts += self._list_title(shown, cells - len(more), bar)
            parts.append((more + " " * BETWEEN_CELLS, "faint"))
        return parts

    @staticmethod
    def _list_title(shown: AnswerList, cells: int, bar: int) -> list[Styled]:
        """The units and the title of a list, in so many cells."""
        time_unit = shown.unit.name.rjust(TIME_CELLS)
        aside_unit = shown.aside.rjust(ASIDE_CELLS)
        units = f"{time_unit} {aside_unit} {' ' * bar}"
        title_cells = cells - len(units)
        title = clip(shown.title, title_cells).ljust(title_cells)
        return [(units, "faint"), (title, "title")]

    def _rows(self, column: int, cells: int, bar: int, room: int) -> list[list[Styled]]:
        """The `room` rows of one list that are seen, `cells` wide and the blanks to the
        next list; blank below its end."""
        shown = self.found.lists[column]
        figures_cells = TIME_CELLS + ASIDE_CELLS + 2 + bar
        name_cells = max(1, cells - figures_cells)
        names = self._names(shown, name_cells)
        between: Styled = (" " * BETWEEN_CELLS, "plain")
        top = self._top(column, room)
        stop = min(top + room, len(shown.entries))
        rows = []
        for n in range(top, stop):
            name = names[n].ljust(name_cells)
            has_cursor = self.at == AnswerAt(column, n)
            parts = self._row(shown, shown.entries[n], name, bar, has_cursor)
            rows.append([*parts, between])
        blank: Styled = (" " * (cells + BETWEEN_CELLS), "plain")
        rows += [[blank]] * (room - len(rows))
        return rows

    def _names(self, shown: AnswerList, cells: int) -> list[str]:
        """The name of each row, cut to so many cells such that different names still
        differ; unless what stands beside the time tells them apart."""
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
        """The parts of a row: the cursor, its time, what stands beside it, its bar and
        its name."""
        share = ""
        if bar:
            share = share_bar(entry.ns, entry.whole_ns, bar - 1, self.glyphs) + " "
        look = entry.kind.token + TEXT if entry.kind else "plain"
        parts = (
            (">" if has_cursor else " ", "strong"),
            (f"{shown.unit.text(entry.ns):>{TIME_CELLS - 1}} ", "plain"),
            (f"{entry.aside:>{ASIDE_CELLS}} ", "faint"),
            (share, "busy"),
            (name, look),
        )
        if has_cursor:
            return [(text, token + CURSOR) for text, token in parts]
        return [*parts]


def _verdict(why: Why, width: int) -> list[str]:
    """The first sentence of the answer on at most two lines of `width` cells, in fewer
    words if that takes fewer lines."""
    full = sentence_lines(printable(answer(why)), width)
    brief = sentence_lines(printable(brief_answer(why)), width)
    lines = brief if len(brief) < len(full) else full
    if len(lines) > 2:
        without_reason = brief_answer(why, with_reason=False)
        lines = sentence_lines(printable(without_reason), width)
    first, *others = lines
    return [first, clip(" ".join(others), width)] if others else [first]


def widths_of(lists: Sequence[AnswerList], width: int, more: int = 0) -> list[int]:
    """The cells of lists side by side in `width` cells: what one does not need goes to
    those that need more. `more` cells follow the last title; the last cell of the
    screen stays blank."""
    if not lists:
        return []
    room = width - 1 - BETWEEN_CELLS * (len(lists) - 1)
    room = max(len(lists), room)
    needs = _needed_cells(lists, bar_cells(width, len(lists)), more)
    equal_part = room // len(lists)
    widths = [min(need, equal_part) for need in needs]
    spare = _spread_spare(widths, needs, room - sum(widths))
    widths[-1] += spare
    return widths


def _spread_spare(widths: list[int], needs: Sequence[int], spare: int) -> int:
    """Gives spare cells to lists that need more, in place, first to those that need the
    fewest; returns what is left."""
    missing = [need - cells for need, cells in zip(needs, widths, strict=True)]
    for n in sorted(range(len(widths)), key=missing.__getitem__):
        wanting = sum(cells > 0 for cells in missing)
        equal_part = spare // max(1, wanting)
        part = min(missing[n], equal_part)
        widths[n] += part
        missing[n] -= part
        spare -= part
    return spare


def _needed_cells(lists: Sequence[AnswerList], bar: int, more: int) -> list[int]:
    """The cells in which each list shows its title and all its names in full. `more`
    cells follow the last title; `bar`: the cells of a bar."""
    needs = []
    for answer_list in lists:
        title = len(answer_list.title)
        if answer_list is lists[-1]:
            title += more
        longest_name = max(
            (len(entry.text) for entry in answer_list.entries), default=0
        )
        figures = TIME_CELLS + ASIDE_CELLS + 2 + bar
        needs.append(figures + max(longest_name, title))
    return needs


def bar_cells(width: int, count: int) -> int:
    """The cells that a bar takes in each of so many lists, the blank after it
    included; 0 where there is no room for bars."""
    list_cells = (width - BETWEEN_CELLS * (count - 1)) // max(1, count)
    return BAR_CELLS + 1 if list_cells >= MIN_CELLS_WITH_BAR else 0


SECTION = "In the summary"
INSIDE = (
    "answer-down/answer-up row",
    "answer-left/answer-right list",
    "answer-show goes there",
    "answer-leave back to the lanes",
)


def answer_of(state: State) -> AnswerPage | None:
    """The answer that stands below the lanes; None where something else does, or until
    it is known."""
    return state.side.insight.answer if _has_its_place(state) else None


def _has_its_place(state: State) -> bool:
    """Whether the pane below the lanes is that of the answer: nothing is selected."""
    if state.page != TIMELINE or state.overlay is not None or not state.sides:
        return False
    is_selected = state.view.selected >= 0 or state.view.gap or state.time_range
    return not is_selected


def is_awaited(state: State) -> bool:
    """Whether the answer will be shown below the lanes once it is computed. Keys go
    into it before, so that one that is pressed early does what it does later."""
    if not _has_its_place(state) or state.side.insight.answer is not None:
        return False
    return state.side.trace.report.prefix is None  # of a part there is no answer


def is_inside(state: State) -> bool:
    """Whether the keys act on the answer below the lanes."""
    is_there = answer_of(state) is not None or is_awaited(state)
    return is_there and state.answer_at is not None


def is_outside(state: State) -> bool:
    """Whether the keys act on the lanes above the answer."""
    is_there = answer_of(state) is not None or is_awaited(state)
    return is_there and state.answer_at is None


enter = partial(replace, answer_at=AnswerAt(0, 0), hint="")
leave = partial(replace, answer_at=None, hint="")


def takes_tab(state: State) -> bool:
    """Of two traces Tab leads to the other one instead."""
    return is_inside(state) or (is_outside(state) and len(state.sides) == 1)


def next_pane(state: State) -> State:
    """From the lanes into the answer; from it to the lanes of the next side."""
    return other_side(leave(state)) if state.answer_at else enter(state)


def move(state: State, columns: int, rows: int) -> State:
    """The cursor so many lists to the right and rows down."""
    answer_page = answer_of(state)
    before = state.answer_at
    if before is None:
        return state
    if answer_page is None:  # the first move after it is known ends on a row
        at = AnswerAt(max(0, before.column + columns), max(-1, before.row + rows))
    else:
        at = moved(answer_page.lists, before, columns, rows)
    return replace(state, answer_at=at)


def follow(state: State) -> State:
    """To what the row under the cursor is about."""
    answer_page = answer_of(state)
    if state.answer_at is None:
        return state
    if answer_page is None:
        return told(state, working(state.side.trace, "where the time went"))
    return went(state, answer_page, state.answer_at)


def went(state: State, found: AnswerPage, at: AnswerAt) -> State:
    """To what a row is about; the cursor is on that row when the person comes back."""
    state = replace(state, answer_at=at)
    way = way_of(found.lists, at)
    if way.to == "slice":
        return shown(state, alike(state, way.at))
    if way.to == "why":
        return replace(state, page=WhyPage.name, hint="")
    if way.to == "module":
        return MODULES.led_to(replace(state, page=MODULES.name, hint=""), way.at)
    if way.to == "kernel":
        page = kernels.PAGE
        return page.led_to(replace(state, page=page.name, hint=""), way.at)
    gap = place_of_gap(state.side, found.why.gaps[way.at])
    if gap is None:
        return state
    return told(
        at_gap(state, gap),
        "a gap of the summary",
        "deselect back to the summary",
        "next-gap the next longest",
    )


def answer_pane(state: State, height: int) -> Pane | None:
    """The answer on so many lines; None where something else stands."""
    answer_page = answer_of(state)
    if answer_page is None:
        return None
    width = state.size.width
    picture = AnswerPicture(
        side=state.side,
        found=answer_page,
        glyphs=glyphs_for(state.ascii_only),
        at=state.answer_at,
        title=_title(state),
    )

    def pointed(state: State, x: int, y: int) -> State:
        at = picture.place(x, y, width, height)
        return went(state, picture.found, at) if at else state

    def wheeled(state: State, turn: Turn) -> State:
        inside = enter(state) if state.answer_at is None else state
        return move(inside, columns=0, rows=turn.lines)

    return Pane(height, picture, pointed, wheeled)


def awaited_title(state: State) -> str:
    """What stands above the pane while the answer is awaited: that the keys act on it,
    where they do."""
    return _title(state) if is_inside(state) else "nothing selected"


def _title(state: State) -> str:
    """The title of the answer, with what keys do there."""
    if state.answer_at:
        keys = hints_text(INSIDE, state)
    else:
        into = "into-answer/next-pane" if takes_tab(state) else "into-answer"
        keys = hints_text((f"{into} to browse", "down/up to select a slice"), state)
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
        run=partial(move, columns=0, rows=1),
    ),
    _inside(
        name="answer-up",
        title="Row up",
        written="k up",
        help="the first line is the verdict",
        run=partial(move, columns=0, rows=-1),
    ),
    _inside(
        name="answer-right",
        title="Next list",
        written="l right",
        help="to the right",
        run=partial(move, columns=1, rows=0),
    ),
    _inside(
        name="answer-left",
        title="Previous list",
        written="h left",
        help="to the left",
        run=partial(move, columns=-1, rows=0),
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
        run=next_pane,
        section=SECTION,
        where=takes_tab,
    ),
)
