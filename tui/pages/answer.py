"""The answer below the lanes, while nothing is selected: each of its rows leads
somewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from functools import partial

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
    BETWEEN,
    SHARE,
    AnswerAt,
    AnswerList,
    AnswerPage,
    fitting,
    moved,
    way_of,
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

ROOMY = 9  # lines; with fewer there is no account
FIGURE, ASIDE, BAR = 8, 7, 6  # cells
MORE = 3  # cells of the number of lists that are not shown
WITH_BAR = 44  # cells of a list; narrower ones have no bars


Laid = tuple[Sequence[int], list[int], list[Styled], list[str], int]
"""On a screen of one size: the lists that are shown, their widths, the verdict on at
most two lines and the account, `s sync` for each reason, the longest first, how many
rows of lists are seen."""


class AnswerPicture(msgspec.Struct, frozen=True, eq=False, dict=True):
    """A rule with a title, the verdict, the account, and lists side by side; `at`: the
    cursor."""

    side: Side
    found: AnswerPage
    glyphs: Glyphs
    at: AnswerAt | None
    title: str

    def key(self, y: int, width: int, height: int) -> Hashable:
        return self.side, self.found, self.at, self.title, y, width, height

    def line(self, y: int, width: int, height: int) -> Sequence[Styled]:
        found = self._lines(width, height)
        return found[y] if y < len(found) else ()

    def place(self, x: int, y: int, width: int, height: int) -> AnswerAt | None:
        """The row at a cell, None beside them."""
        shown, widths, said, letters, room = self._laid(width, height)
        row = y - 2 - len(said)
        if y == 0 or not shown:
            return None
        if row < 0:
            return AnswerAt()
        ends = np.cumsum(widths) + BETWEEN * np.arange(1, len(shown) + 1)
        column = shown[min(int(np.searchsorted(ends, x, side="right")), len(shown) - 1)]
        row += self._top(column, room)
        is_there = y < height - bool(letters) and row < len(
            self.found.lists[column].entries
        )
        return AnswerAt(column, row) if is_there else None

    def _top(self, column: int, room: int) -> int:
        """The first row of a list that is seen."""
        at = self.at
        return scrolled(at.row, 0, room) if at and at.column == column else 0

    @memo()
    def _laid(self, width: int, height: int) -> Laid:
        lists, why, is_roomy = self.found.lists, self.found.why, height > ROOMY
        shown = fitting(lists, width, self.at)
        widths = widths_of(
            [lists[n] for n in shown], width, MORE * (len(shown) < len(lists))
        )
        token = "title" + CURSOR * (self.at is not None and self.at.row < 0)
        said = [(f" {text}", token) for text in _verdict(why, width - 2)]
        sums: Counter[str] = Counter()
        for one in self.side.insight.idle or ():
            sums.update({reason.name: int(reason.before[-1]) for reason in one.reasons})
        reasons = sums.most_common() if is_roomy or len(said) == 1 else []
        letters = [f"{IDLE[name].letter} {IDLE[name].short}" for name, _ in reasons]
        account = account_line(why, width - 2) if is_roomy else ""
        said += [(f" {account}", "plain")] if account else []
        return (
            shown,
            widths,
            said,
            letters,
            max(0, height - 2 - len(said) - bool(letters)),
        )

    @memo()
    def _lines(self, width: int, height: int) -> list[Sequence[Styled]]:
        """All lines of a size, of which each is asked for by itself."""
        (shown, widths, said, letters, room), rule = (
            self._laid(width, height),
            self.glyphs.rule,
        )
        title, bar = (
            clip(self.title, width - 5, self.glyphs.ellipsis),
            bar_cells(width, len(shown)),
        )
        lines: list[Sequence[Styled]] = [
            [(f"{rule * 3} {title} ".ljust(width, rule), "faint")]
        ]
        lines += [*([text] for text in said), self._titles(shown, widths, bar)]
        blocks = [
            self._rows(*one, bar, room) for one in zip(shown, widths, strict=True)
        ]
        lines += [
            [part for parts in row for part in parts]
            for row in zip(*blocks, strict=True)
        ]
        text = joined(["idle because:", *letters], width - 1)
        return [*lines, [(f" {text}", "faint")]] if letters else lines

    def _titles(
        self, shown: Sequence[int], widths: Sequence[int], bar: int
    ) -> list[Styled]:
        """Those of the lists, with faint units; the last one counts the lists that do
        not fit."""
        hidden, parts = len(self.found.lists) - len(shown), list[Styled]()
        for column, cells in zip(shown, widths, strict=True):
            one = self.found.lists[column]
            more = (
                f" {self.glyphs.folded}{hidden}"
                if hidden and column == shown[-1]
                else ""
            )
            units = f"{one.unit.name:>{FIGURE}} {one.aside:>{ASIDE}} {' ' * bar}"
            left = cells - len(units) - len(more)
            parts += [(units, "faint"), (clip(one.title, left).ljust(left), "title")]
            parts.append((more.ljust(len(more) + BETWEEN), "faint"))
        return parts

    def _rows(self, column: int, cells: int, bar: int, room: int) -> list[list[Styled]]:
        """The rows of one list that are seen, blank below its end."""
        found, top, at = self.found.lists[column], self._top(column, room), self.at
        left = max(1, cells - FIGURE - ASIDE - 2 - bar)
        names, ellipsis = [one.text for one in found.entries], self.glyphs.ellipsis
        apart = clip_apart(names, left, ellipsis)
        if found.aside != SHARE:  # what stands aside tells them apart
            apart = [clip(name, left, ellipsis) for name in names]
        here, rows = at.row if at and at.column == column else -1, list[list[Styled]]()
        for n, entry in [*enumerate(found.entries)][top : top + room]:
            share = (
                share_bar(entry.ns, entry.whole_ns, bar - 1, self.glyphs) + " "
                if bar
                else ""
            )
            parts = (
                (">" if n == here else " ", "strong"),
                (f"{found.unit.text(entry.ns):>{FIGURE - 1}} ", "plain"),
                (f"{entry.aside:>{ASIDE}} ", "faint"),
                (share, "busy"),
                (
                    apart[n].ljust(left),
                    entry.kind.token + TEXT if entry.kind else "plain",
                ),
            )
            row = [(text, token + CURSOR * (n == here)) for text, token in parts]
            rows.append([*row, (" " * BETWEEN, "plain")])
        empty: list[Styled] = [(" " * (cells + BETWEEN), "plain")]
        return [*rows, *[empty] * (room - len(rows))]


def _verdict(why: Why, width: int) -> list[str]:
    """The first sentence of the answer, in fewer words if that takes fewer lines; two
    at most."""
    texts = answer(why), brief_answer(why), brief_answer(why, with_reason=False)
    whole, brief, least = (sentence_lines(printable(text), width) for text in texts)
    shown = brief if len(brief) < len(whole) else whole
    first, *more = least if len(shown) > 2 else shown
    return [first, clip(" ".join(more), width)] if more else [first]


def widths_of(lists: Sequence[AnswerList], width: int, more: int = 0) -> list[int]:
    """The cells of lists side by side: what one does not need goes to those that need
    more. `more` cells follow the last title; the last cell of the screen stays
    blank."""
    if not lists:
        return []
    whole = max(len(lists), width - 1 - BETWEEN * (len(lists) - 1))
    equal, others = (
        whole // len(lists),
        FIGURE + ASIDE + 2 + bar_cells(width, len(lists)),
    )
    longest = (
        max((len(entry.text) for entry in one.entries), default=0) for one in lists
    )
    titles = (len(one.title) + more * (one is lists[-1]) for one in lists)
    needs = [others + max(cells) for cells in zip(longest, titles, strict=True)]
    found = [min(need, equal) for need in needs]
    spare = whole - sum(found)
    for n in sorted(range(len(lists)), key=lambda n: needs[n] - found[n]):
        wanting = sum(needs[m] > found[m] for m in range(len(lists)))
        given = min(needs[n] - found[n], spare // max(1, wanting))
        found[n] += given
        spare -= given
    found[-1] += spare
    return found


def bar_cells(width: int, count: int) -> int:
    """The cells that a bar takes in each of so many lists, the blank after it
    included."""
    each = (width - BETWEEN * (count - 1)) // max(1, count)
    return BAR + 1 if each >= WITH_BAR else 0


SECTION = "In the answer"
INSIDE = (
    "answer-down/answer-up row",
    "answer-left/answer-right list",
    "answer-show goes there",
    "answer-leave back to the lanes",
)


def answer_of(state: State) -> AnswerPage | None:
    """The answer that stands below the lanes; None where something else does."""
    if state.page != TIMELINE or state.overlay is not None or not state.sides:
        return None
    is_other = state.view.selected >= 0 or state.view.gap or state.time_range
    return None if is_other else state.side.insight.answer


def is_inside(state: State, inside: bool = True) -> bool:
    """Whether the keys act on the answer, or else on the lanes above it."""
    return answer_of(state) is not None and (state.answer_at is not None) is inside


is_outside = partial(is_inside, inside=False)
enter = partial(replace, answer_at=AnswerAt(0, 0), hint="")
leave = partial(replace, answer_at=None, hint="")


def takes_tab(state: State) -> bool:
    """Of two traces Tab leads to the other one instead."""
    return is_inside(state) or (is_outside(state) and len(state.sides) == 1)


def next_pane(state: State) -> State:
    return other_side(leave(state)) if state.answer_at else enter(state)


def move(state: State, columns: int, rows: int) -> State:
    found, at = answer_of(state), state.answer_at
    if found is None or at is None:
        return state
    return replace(state, answer_at=moved(found.lists, at, columns, rows))


def follow(state: State) -> State:
    found, at = answer_of(state), state.answer_at
    return went(state, found, at) if found and at else state


def went(state: State, found: AnswerPage, at: AnswerAt) -> State:
    """To what a row is about; the cursor is on that row when the person comes back."""
    state = replace(state, answer_at=at)
    to, place = way_of(found.lists, at)
    if to == "slice":
        return shown(state, alike(state, place))
    if to == "why":
        return replace(state, page=WhyPage.name, hint="")
    if to in ("module", "kernel"):
        page = MODULES if to == "module" else kernels.PAGE
        return page.led_to(replace(state, page=page.name, hint=""), place)
    gap = place_of_gap(state.side, found.why.gaps[place])
    keys = ("deselect back to the answer", "next-gap the next longest")
    return told(at_gap(state, gap), "a gap of the answer", *keys) if gap else state


def answer_pane(state: State, height: int) -> Pane | None:
    """The answer on so many lines; None where something else stands."""
    if (found := answer_of(state)) is None:
        return None
    glyphs, title, width = glyphs_for(state.ascii_only), _title(state), state.size.width
    picture = AnswerPicture(state.side, found, glyphs, state.answer_at, title)

    def pointed(state: State, x: int, y: int) -> State:
        at = picture.place(x, y, width, height)
        return went(state, picture.found, at) if at else state

    def wheeled(state: State, turn: Turn) -> State:
        return move(enter(state) if state.answer_at is None else state, 0, turn.lines)

    return Pane(height, picture, pointed, wheeled)


def _title(state: State) -> str:
    into = "into-answer/next-pane" if takes_tab(state) else "into-answer"
    outside = f"{into} to browse", "down/up to select a slice"
    keys = hints_text(INSIDE if state.answer_at else outside, state)
    return f"Summary: {keys}" if keys else "Summary"


_inside = partial(action, section=SECTION, where=is_inside)
_by = partial(partial, move)
_TOP = "the first line is the verdict"
_INTO = "its rows lead to modules, kernels, gaps"
_NEXT = "the answer, the lanes; of two traces, the other one"

ACTIONS = (
    action(
        "into-answer", "Into the answer", "enter", _INTO, enter, SECTION, is_outside
    ),
    _inside("answer-down", "Row down", "j down", "of the list", _by(columns=0, rows=1)),
    _inside("answer-up", "Row up", "k up", _TOP, _by(columns=0, rows=-1)),
    _inside(
        "answer-right", "Next list", "l right", "to the right", _by(columns=1, rows=0)
    ),
    _inside(
        "answer-left", "Previous list", "h left", "to the left", _by(columns=-1, rows=0)
    ),
    _inside(
        "answer-show", "Go there", "enter", "module, kernel, gap or verdict", follow
    ),
    _inside(
        "answer-leave",
        "Back to the lanes",
        "escape",
        "the keys act on them again",
        leave,
    ),
    action("next-pane", "Next pane", "tab", _NEXT, next_pane, SECTION, takes_tab),
)
