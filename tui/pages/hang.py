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
from fusetui.tui.drawing.details import flow_texts
from fusetui.tui.drawing.picture import (
    Rows,
    Said,
    TextPicture,
    folded,
    make_empty_list,
    make_ruled_picture,
    text,
)
from fusetui.tui.drawing.schemes import Styled, choose_glyphs
from fusetui.tui.layout.memory import OverlayLines
from fusetui.tui.pages.page import ListPage, Pane, make_page_table
from fusetui.tui.state import hang
from fusetui.tui.state.action import action, nothing, on
from fusetui.tui.state.hang import NO_DUMPS, cursor_rank, shown_hang, shown_members
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


def import_letters() -> ModuleType:
    """Return the module that draws calls as letters. It is imported on the first call,
    so that an app without dumps starts faster."""
    from fusetui.tui.layout import hang as layout

    return layout


def format_hang_head(shown: HangShown) -> str:
    """Return the line that says which flight-recorder dumps are open: of how many
    ranks, how many files cannot be read, and in which formats."""
    answer = shown.grid.answer
    parts = [f"flight-recorder dumps of {plural(len(answer.ranks), 'rank')}"]
    if answer.unread:
        parts.append(f"{plural(len(answer.unread), 'file')} cannot be read")
    parts.append(f"format {printable(', '.join(answer.versions))}")
    return "   ".join(parts)


class HangPage(ListPage):
    """Ranks down, the numbers of collectives across."""

    name, title, key = HANG, "Hang", "7"
    help = "which rank is missing in which collective, from flight-recorder dumps"
    copies = "line"
    hints = (
        "help help; row-down/row-up rank; hang-before/hang-after collective; "
        "hang-group group; hang-reason the reason; details stack; copy copy"
    )

    def has(self, state: State) -> bool:
        """Return whether flight-recorder dumps are open."""
        return state.hang is not None

    def why_not(self, state: State) -> str:
        """Return why the page cannot be shown, or "" if it can: no flight-recorder
        dumps are open."""
        return "" if self.has(state) else NO_DUMPS

    def takes_key(self, state: State) -> bool:
        """Return whether the key of the page brings it to the front.

        The page of ranks has the same key. Where traces of a job are open too, the key
        switches between both pages.
        """
        is_in_front = state.page == HANG
        return self.has(state) and not (is_in_front and state.job.paths)

    def rows(self, state: State) -> Rows:
        """Return a row for each rank of the group, with a letter for each collective:
        what the rank did in it."""
        shown = shown_hang(state)
        if not shown.grid.groups:
            return make_empty_list(NO_COLLECTIVE)
        return Rows(
            identity=shown,
            count=len(shown.progress.members),
            titles=partial(_format_column_titles, shown),
            format=partial(_draw_rank_row, shown),
            are_counted=False,  # the titles are a ruler as wide as the screen
        )

    def chosen(self, state: State, index: int) -> Outcome:
        """Carry out Enter: show all that is known of the rank's call in the selected
        collective."""
        rank = shown_members(state)[index]
        return replace(state, overlay=_make_call_overlay(shown_hang(state), rank))

    def scroll(self, before: State, state: State, size: Size) -> State:
        """Return the state scrolled down to the cursor and sideways to the selected
        collective."""
        state = super().scroll(before, state, size)
        shown = shown_hang(state)
        if not shown.grid.groups:
            return state
        scrolled_view = shown.in_sight(count_grid_columns(size.width - 1))
        return state if scrolled_view is shown else replace(state, hang=scrolled_view)

    def above(self, state: State, size: Size) -> Sequence[Pane]:
        """Return the panes above the grid: the answer to why the job hangs, the group,
        and what the letters mean."""
        shown = shown_hang(state)
        headline = TextPicture(("hang", shown.grid), partial(_draw_headline, shown))
        headline_lines = len(_draw_headline(shown, size.width, MAX_HEADLINES))
        legend = _fold_legend(import_letters().LEGEND, size.width)
        return (
            Pane(min(MAX_HEADLINES, headline_lines), headline),
            Pane(1, text([Said(_describe_group(shown), "plain")])),
            Pane(len(legend), text(legend)),
        )

    def below(self, state: State, size: Size) -> Sequence[Pane]:
        """Return the pane below the grid, about what the rank under the cursor did in
        the selected collective."""
        rank = cursor_rank(state)
        if rank is None:
            return ()
        shown = shown_hang(state)
        rule = choose_glyphs(state.ascii_only).rule
        title = _format_call_title(shown, rank)
        draw_details = partial(_draw_call, shown, rank)
        picture = make_ruled_picture((shown, rank), title, rule, draw_details)
        height = max(MIN_DETAILS, min(MAX_DETAILS, size.height // 3))
        return (Pane(height, picture),)

    def described(self, state: State) -> Overlay | str:
        """Return the overlay with all that is known of the call under the cursor, and
        its whole stack. Without a collective it is a sentence."""
        rank = cursor_rank(state)
        if rank is None:
            return NO_COLLECTIVE
        return _make_call_overlay(shown_hang(state), rank)

    def copied(self, state: State) -> str:
        """Return the lines about the call under the cursor; "" for none."""
        rank = cursor_rank(state)
        if rank is None:
            return ""
        return "\n".join(_describe_call(shown_hang(state), rank))

    def table(self, state: State, rows: Sequence[int] | None = None) -> Table:
        """Return the ranks of the group as a table to save: the newest collective of
        each, and what it issued last. `rows` selects rows of the grid; None takes all.
        """
        from fusetui.report.hang import format_frame, name_group  # rarely needed

        shown = shown_hang(state)
        members = shown_members(state)
        ranks = []
        newest = []
        last_operations = []
        last_places = []
        for index in range(len(members)) if rows is None else rows:
            rank = members[index]
            last_call = shown.grid.find_last_issued(rank)
            ranks.append(rank)
            newest.append(_none_if_unknown(shown.progress.newest[index]))
            last_operations.append(last_call.operation if last_call else "")
            last_places.append(format_frame(last_call.place) if last_call else "")
        texts = {
            "group": [name_group(shown.progress.group)] * len(ranks),
            "last_operation": last_operations,
            "last_place": last_places,
        }
        return make_page_table(HANG, texts, rank=ranks, newest=newest)


def count_grid_columns(width: int) -> int:
    """Return how many collectives fit side by side in a row of `width` cells, at least
    one."""
    return max(1, width - RANK_CELLS - NEWEST_CELLS)


def _none_if_unknown(number: int) -> int | None:
    """Return the number of a collective, or None for a negative one, which is unknown."""
    return number if number >= 0 else None


def _format_column_titles(shown: HangShown, width: int) -> str:
    """Return the line of titles above the grid, with the numbers of the collectives in
    sight."""
    numbers = shown.columns(count_grid_columns(width - 1))
    rank_title = f"{'rank':>{RANK_CELLS - 1}}"
    newest_title = f"{'newest':>{NEWEST_CELLS - 1}}"
    return (
        f" {rank_title} {newest_title} {import_letters().ruler(numbers, shown.number)}"
    )


def _draw_rank_row(shown: HangShown, index: int, width: int) -> list[Styled]:
    """Return the row of one rank: its number, the newest collective that it issued, and
    a letter for each collective in sight. The selected collective is highlighted."""
    layout = import_letters()
    rank = shown.progress.members[index]
    newest_text = _format_newest(shown.progress.newest[index])
    parts: list[Styled] = [
        (f"{rank:>{RANK_CELLS - 1}} ", "plain"),
        (f"{newest_text:>{NEWEST_CELLS - 1}} ", "plain"),
    ]
    numbers = shown.columns(count_grid_columns(width))
    calls = shown.grid.list_calls(shown.group, rank, numbers)
    for number, call in zip(numbers, calls, strict=True):
        is_selected = number == shown.number
        token = SELECTED if is_selected else layout.token(call)
        parts.append((layout.choose_letter(call), token))
    return parts


def _format_newest(newest: int) -> str:
    """Return the number of the newest collective as text; "?" where it is unknown."""
    return count(newest) if newest >= 0 else "?"


def _draw_headline(shown: HangShown, width: int, height: int) -> list[Said]:
    """Return the answer to why the job hangs, wrapped to at most `height` lines; what
    does not fit ends in an ellipsis."""
    sentences = _answer_sentences(shown.grid)
    return folded(sentences, max(width - 2, 20), "plain", " ", most=height)


@memo()
def _answer_sentences(grid: CollectiveGrid) -> tuple[str, ...]:
    """Return the sentences that answer why the job hangs. They are kept, because those
    of a large job name thousands of ranks."""
    from fusetui.report.hang import headline  # only once dumps are open

    return tuple(printable(sentence) for sentence in headline(grid.answer))


def _fold_legend(legend: str, width: int) -> list[Said]:
    """Return the meanings of the letters of the grid on as many lines as they need; no
    meaning is broken over two lines."""
    return [Said(f" {line}") for line in flow_texts(legend.split("  "), width - 1)]


def _describe_group(shown: HangShown) -> str:
    """Return the line about the shown group: its name, its members, and the collectives
    that the dumps still hold. It is "" where the dumps name no group."""
    from fusetui.report.hang import name_group

    if not shown.grid.groups:
        return ""
    name = printable(name_group(shown.progress.group))
    place_of_group = f"{shown.group + 1} of {len(shown.grid.groups)}"
    members = plural(len(shown.progress.members), "member")
    number_range = shown.grid.number_range(shown.group)
    collectives = (
        f"collectives {count(number_range.first)} to {count(number_range.last)}"
    )
    return f" group {name} ({place_of_group}), {members}, {collectives}"


def _format_call_title(shown: HangShown, rank: int) -> str:
    """Return the title of the details: the rank and the number of the selected
    collective."""
    return f"rank {rank}, collective {count(shown.number)}"


def _make_call_overlay(shown: HangShown, rank: int) -> Overlay:
    """Return an overlay about what one rank did in the selected collective, with the
    whole stack."""
    lines = (*_describe_call(shown, rank), *_list_stack_frames(shown, rank))
    return OverlayLines(_format_call_title(shown, rank), lines)


def _draw_call(shown: HangShown, rank: int, width: int, height: int) -> list[Said]:
    """Return the lines about what one rank did in the selected collective, wrapped, at
    most `height` of them."""
    lines = _describe_call(shown, rank)
    return folded(lines, max(width - 2, 20), "plain", " ", height)


def _describe_call(shown: HangShown, rank: int) -> list[str]:
    """Return printable lines about what one rank did in the selected collective.

    They give the operation, tensors and place. If the rank did not come, they say who
    waits and what the rank issued last.
    """
    from fusetui.report.hang import describe_call

    grid = shown.grid
    lines = describe_call(
        issued=grid.find_issued(shown.group, rank, shown.number),
        wait=grid.find_wait(shown.group, shown.number),
        rank=rank,
        is_known=grid.is_known(shown.group, rank, shown.number),
        last=grid.find_last_issued(rank),
    )
    return [printable(line) for line in lines]


def _list_stack_frames(shown: HangShown, rank: int) -> list[str]:
    """Return the call stack of the selected collective, one line for each frame, the
    innermost first."""
    from fusetui.report.hang import format_frame

    frames = shown.grid.find_stack(shown.group, rank, shown.number)
    return [f"  {printable(format_frame(frame))}" for frame in frames]


_action = partial(action, section="In the hang page", where=on(HANG), needs=nothing)


def _move_by_screens(state: State, screens: int) -> State:
    """Select the collective so many screens to the right, to the left where negative."""
    return hang.moved(state, screens * count_grid_columns(state.size.width - 1))


def _go_to_end(state: State, *, is_last: bool) -> State:
    """Select the first collective that the dumps still hold of the group, or the newest
    (`is_last`)."""
    shown = shown_hang(state)
    numbers = shown.grid.number_range(shown.group)
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
        run=partial(_move_by_screens, screens=-1),
    ),
    _action(
        name="hang-right",
        title="Screen right",
        written="L shift+right",
        help="of collectives",
        run=partial(_move_by_screens, screens=1),
    ),
    _action(
        name="hang-first",
        title="First collective",
        written="0",
        help="that the ring buffers still contain",
        run=partial(_go_to_end, is_last=False),
    ),
    _action(
        name="hang-newest",
        title="Newest collective",
        written="n",
        help="of the group",
        run=partial(_go_to_end, is_last=True),
    ),
    _action(
        name="hang-group",
        title="Next group",
        written="]",
        help="of ranks",
        run=partial(hang.show_next_group, by=1),
    ),
    _action(
        name="hang-group-before",
        title="Group before",
        written="[",
        help="of ranks",
        run=partial(hang.show_next_group, by=-1),
    ),
    _action(
        name="hang-reason",
        title="The reason",
        written="space",
        help="the rank and collective that the answer reports",
        run=hang.go_to_reason,
    ),
)
PAGE = HangPage()
