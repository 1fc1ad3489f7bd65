"""The hang page: the collectives of a group by rank and number, from the dumps of the
flight recorder, and why the job hangs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING

from msgspec.structs import replace

from fusetui.text.figures import count, plural
from fusetui.text.printable import printable
from fusetui.trace.model.memo import memo
from fusetui.tui.drawing.picture import (
    Rows,
    Said,
    TextPicture,
    folded,
    no_rows,
    ruled,
    text,
)
from fusetui.tui.drawing.schemes import Styled, glyphs_for
from fusetui.tui.layout.memory import OverlayLines
from fusetui.tui.pages.page import ListPage, Pane, page_table
from fusetui.tui.state import hang
from fusetui.tui.state.action import action, nothing, on
from fusetui.tui.state.hang import NO_DUMPS, hang_of, members_of, rank_here
from fusetui.tui.state.state import HANG, Outcome, Overlay, Size, State

if TYPE_CHECKING:
    from fusetui.analysis.hang.grid import CollectiveGrid
    from fusetui.tables.public import Table
    from fusetui.tui.layout.hang import HangShown

RANK_CELLS = 7  # of a row, with the blank after it
NEWEST_CELLS = 10
MAX_HEADLINES = 5  # lines of the answer above the grid
MIN_DETAILS, MAX_DETAILS = 5, 12  # lines below it, with the rule
NO_COLLECTIVE = "the dumps have no collective"
SELECTED = "selection"  # the token of the selected column


def letters() -> ModuleType:
    """How calls are drawn; imported once dumps are open."""
    from fusetui.tui.layout import hang as layout

    return layout


def hang_head(shown: HangShown) -> str:
    """What is open: how many dumps, and of which versions."""
    answer = shown.grid.answer
    parts = [f"flight-recorder dumps of {plural(len(answer.ranks), 'rank')}"]
    if answer.unread:
        parts.append(f"{plural(len(answer.unread), 'file')} cannot be read")
    parts.append(f"format {printable(', '.join(answer.versions))}")
    return "   ".join(parts)


class HangPage(ListPage):
    """Ranks down, the numbers of collectives across."""

    name, title, key = HANG, "Hang", "7"
    help = "which rank is missing in which collective, by flight-recorder dumps"
    copies = "line"
    hints = (
        "help keys; row-down/row-up rank; hang-before/hang-after collective; "
        "hang-group group; hang-reason the reason; details stack; copy copy"
    )

    def has(self, state: State) -> bool:
        return state.hang is not None

    def why_not(self, state: State) -> str:
        return "" if self.has(state) else NO_DUMPS

    def takes_key(self, state: State) -> bool:
        """Dumps and traces of the same job may be open: then the key turns from one page
        to the other."""
        is_in_front = state.page == HANG
        return self.has(state) and not (is_in_front and state.job.paths)

    def rows(self, state: State) -> Rows:
        """A row for each rank of the group, with a letter for each collective."""
        shown = hang_of(state)
        if not shown.grid.groups:
            return no_rows(NO_COLLECTIVE)
        return Rows(
            identity=shown,
            count=len(shown.progress.members),
            titles=partial(_column_titles, shown),
            format=partial(_rank_row, shown),
        )

    def chosen(self, state: State, index: int) -> Outcome:
        """Enter: all that is known of the call, over the page."""
        rank = members_of(state)[index]
        return replace(state, overlay=_details(hang_of(state), rank))

    def scroll(self, before: State, state: State, size: Size) -> State:
        """Also sideways, so that the selected collective is in sight."""
        state = super().scroll(before, state, size)
        shown = hang_of(state)
        if not shown.grid.groups:
            return state
        visible = shown.in_sight(grid_width(size.width - 1))
        return state if visible is shown else replace(state, hang=visible)

    def above(self, state: State, size: Size) -> Sequence[Pane]:
        """The answer, the group, and what the letters mean."""
        shown = hang_of(state)
        headline = TextPicture(("hang", shown.grid), partial(_headline, shown))
        headline_lines = len(_headline(shown, size.width, MAX_HEADLINES))
        return (
            Pane(min(MAX_HEADLINES, headline_lines), headline),
            Pane(1, text([Said(_group_text(shown), "plain")])),
            Pane(1, text([Said(f" {letters().LEGEND}")])),
        )

    def below(self, state: State, size: Size) -> Sequence[Pane]:
        """What the rank under the cursor did in the selected collective."""
        rank = rank_here(state)
        if rank is None:
            return ()
        shown = hang_of(state)
        rule = glyphs_for(state.ascii_only).rule
        about = partial(_about, shown, rank)
        picture = ruled((shown, rank), _call_title(shown, rank), rule, about)
        height = max(MIN_DETAILS, min(MAX_DETAILS, size.height // 3))
        return (Pane(height, picture),)

    def described(self, state: State) -> Overlay | str:
        """All that is known of the call under the cursor, with the whole stack."""
        rank = rank_here(state)
        return NO_COLLECTIVE if rank is None else _details(hang_of(state), rank)

    def copied(self, state: State) -> str:
        """What the rank under the cursor did in the selected collective."""
        rank = rank_here(state)
        return "" if rank is None else "\n".join(_call_lines(hang_of(state), rank))

    def table(self, state: State, rows: Sequence[int] | None = None) -> Table:
        """The ranks of the group: how far each came, and what it issued last."""
        from fusetui.report.hang import group_name, place_text  # rarely needed

        shown = hang_of(state)
        members = members_of(state)
        listed = range(len(members)) if rows is None else rows
        last = [shown.grid.last_of(members[index]) for index in listed]
        return page_table(
            HANG,
            {
                "group": [group_name(shown.progress.group)] * len(listed),
                "last_operation": [call.operation if call else "" for call in last],
                "last_place": [place_text(call.place) if call else "" for call in last],
            },
            rank=[members[index] for index in listed],
            newest=[_known(shown.progress.newest[index]) for index in listed],
        )


def grid_width(width: int) -> int:
    """The columns of collectives in a row of so many cells."""
    return max(1, width - RANK_CELLS - NEWEST_CELLS)


def _known(number: int) -> int | None:
    """The number of a collective; None where it is not known (negative)."""
    return number if number >= 0 else None


def _column_titles(shown: HangShown, width: int) -> str:
    """The titles of the columns, with the numbers of collectives above theirs."""
    numbers = shown.columns(grid_width(width - 1))
    rank = f"{'rank':>{RANK_CELLS - 1}}"
    newest = f"{'newest':>{NEWEST_CELLS - 1}}"
    return f" {rank} {newest} {letters().ruler(numbers, shown.number)}"


def _rank_row(shown: HangShown, index: int, width: int) -> list[Styled]:
    """The rank of a row, the newest collective that it issued, and a letter for each
    collective in sight."""
    layout = letters()
    rank = shown.progress.members[index]
    newest = _newest_text(shown.progress.newest[index])
    parts: list[Styled] = [
        (f"{rank:>{RANK_CELLS - 1}} ", "plain"),
        (f"{newest:>{NEWEST_CELLS - 1}} ", "plain"),
    ]
    numbers = shown.columns(grid_width(width))
    calls = shown.grid.calls(shown.group, rank, numbers)
    for number, call in zip(numbers, calls, strict=True):
        is_selected = number == shown.number
        token = SELECTED if is_selected else layout.token(call)
        parts.append((layout.letter(call), token))
    return parts


def _newest_text(newest: int) -> str:
    return count(newest) if newest >= 0 else "?"


def _headline(shown: HangShown, width: int, height: int) -> list[Said]:
    """The answer in sentences; what does not fit ends in an ellipsis."""
    sentences = _sentences(shown.grid)
    return folded(sentences, max(width - 2, 20), "plain", " ", most=height)


@memo()
def _sentences(grid: CollectiveGrid) -> tuple[str, ...]:
    """Of a large job they name thousands of ranks: made once, not for each key."""
    from fusetui.report.hang import headline  # only once dumps are open

    return tuple(printable(sentence) for sentence in headline(grid.answer))


def _group_text(shown: HangShown) -> str:
    """The group that is shown, how many members it has, and which collectives the dumps
    still hold; "" where they name no group."""
    from fusetui.report.hang import group_name

    if not shown.grid.groups:
        return ""
    name = printable(group_name(shown.progress.group))
    place = f"{shown.group + 1} of {len(shown.grid.groups)}"
    members = plural(len(shown.progress.members), "member")
    numbers = shown.grid.numbers(shown.group)
    collectives = f"collectives {count(numbers.first)} to {count(numbers.last)}"
    return f" group {name} ({place}), {members}, {collectives}"


def _call_title(shown: HangShown, rank: int) -> str:
    """The rank and the number of the selected collective."""
    return f"rank {rank}, collective {count(shown.number)}"


def _details(shown: HangShown, rank: int) -> Overlay:
    """What one rank did in the selected collective, with the whole stack."""
    lines = (*_call_lines(shown, rank), *_stack(shown, rank))
    return OverlayLines(_call_title(shown, rank), lines)


def _about(shown: HangShown, rank: int, width: int, height: int) -> list[Said]:
    """What one rank did in the selected collective, on at most `height` lines."""
    lines = _call_lines(shown, rank)
    return folded(lines, max(width - 2, 20), "plain", " ", height)


def _call_lines(shown: HangShown, rank: int) -> list[str]:
    """What one rank did in the selected collective: operation, tensors and place; or
    that it did not come, who waits, and what it issued last. Printable."""
    from fusetui.report.hang import call_lines

    grid = shown.grid
    lines = call_lines(
        issued=grid.issued(shown.group, rank, shown.number),
        wait=grid.wait(shown.group, shown.number),
        rank=rank,
        is_known=grid.is_known(shown.group, rank, shown.number),
        last=grid.last_of(rank),
    )
    return [printable(line) for line in lines]


def _stack(shown: HangShown, rank: int) -> list[str]:
    """The frames of the selected call, the innermost first."""
    from fusetui.report.hang import place_text

    frames = shown.grid.stack(shown.group, rank, shown.number)
    return [f"  {printable(place_text(frame))}" for frame in frames]


_action = partial(action, section="In the hang page", where=on(HANG), needs=nothing)


def _by_screens(state: State, screens: int) -> State:
    """So many screens of collectives to the right; negative to the left."""
    return hang.moved(state, screens * grid_width(state.size.width - 1))


def _end(state: State, *, is_last: bool) -> State:
    """The first collective of the group that the dumps still hold, or the newest."""
    shown = hang_of(state)
    numbers = shown.grid.numbers(shown.group)
    number = numbers.last if is_last else numbers.first
    return replace(state, hang=shown.at(number))


HangPage.actions = (
    _action(
        name="hang-before",
        title="Collective before",
        written="left h",
        help="one to the left",
        run=partial(hang.moved, by=-1),
    ),
    _action(
        name="hang-after",
        title="Next collective",
        written="right l",
        help="one to the right",
        run=partial(hang.moved, by=1),
    ),
    _action(
        name="hang-left",
        title="Screen left",
        written="H shift+left",
        help="of collectives",
        run=partial(_by_screens, screens=-1),
    ),
    _action(
        name="hang-right",
        title="Screen right",
        written="L shift+right",
        help="of collectives",
        run=partial(_by_screens, screens=1),
    ),
    _action(
        name="hang-first",
        title="First collective",
        written="0",
        help="that the rings still have",
        run=partial(_end, is_last=False),
    ),
    _action(
        name="hang-newest",
        title="Newest collective",
        written="n",
        help="of the group",
        run=partial(_end, is_last=True),
    ),
    _action(
        name="hang-group",
        title="Next group",
        written="]",
        help="of ranks",
        run=partial(hang.turned, by=1),
    ),
    _action(
        name="hang-group-before",
        title="Group before",
        written="[",
        help="of ranks",
        run=partial(hang.turned, by=-1),
    ),
    _action(
        name="hang-reason",
        title="The reason",
        written="space",
        help="the rank and collective that the answer is about",
        run=hang.at_reason,
    ),
)
PAGE = HangPage()
