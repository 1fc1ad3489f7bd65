"""The guided tour: its steps, with the texts in tour.txt, from which docs/tour.md is
generated; the current step, and the condition for the next."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from fusetui.trace.model.categories import Role
from fusetui.tui.layout.text_layout import wrapped
from fusetui.tui.state.action import action, nothing
from fusetui.tui.state.state import COPIED, DIFF, TIMELINE, State

LESSONS = ("mlp-eager", "mlp-compiled")  # that of the tour, and the one beside it
MARGIN = 2  # cells of a line beside the text
ZOOMED_PART = 3  # a window of at most this part of the trace is zoomed in

Done = Callable[[State, State], bool]  # (before a change, after it): is a step done


class TourStep(msgspec.Struct, frozen=True):
    """One instruction; its text names actions between backticks: see
    action.with_keys."""

    title: str
    text: str
    keys: tuple[str, ...]  # one way to do it, as Textual names keys
    is_done: Done
    picture: bool  # docs/tour.md shows the screen once it is done


def _has_zoomed(before: State, after: State) -> bool:
    """The window of the timeline is short beside the trace."""
    if not after.sides or after.page != TIMELINE:
        return False
    whole = after.side.end - after.side.begin
    return after.view.span * ZOOMED_PART <= whole


def _selected(before: State, after: State, role: Role) -> bool:
    return after.page == TIMELINE and _role(after) == role


def _role(state: State) -> int:
    """The role of the selected slice; -1 for none."""
    row = state.view.selected if state.sides else -1
    return int(state.side.trace.role[row]) if row >= 0 else -1


def _at_another_kernel(before: State, after: State) -> bool:
    """Another kernel is selected than before."""
    if not before.sides or not after.sides:
        return False
    if before.view.selected == after.view.selected:
        return False
    return _role(before) == _role(after) == Role.KERNEL


def _at_next_hit(before: State, after: State, searched: bool) -> bool:
    """Another hit is shown than before: of a search, or of the row of a table."""
    old_hits = before.session.hits
    hits = after.session.hits
    if old_hits is None or hits is None or hits.searched is not searched:
        return False
    return hits.rows is old_hits.rows and hits.at != old_hits.at


def _has_closed_details(before: State, after: State) -> bool:
    """Everything about a slice was over the page, and nothing is now."""
    return getattr(before.overlay, "is_slice", False) and not after.overlay


def _has_copied(before: State, after: State) -> bool:
    return after.hint != before.hint and after.hint.startswith(COPIED)


def _shows_line_of_diff(before: State, after: State) -> bool:
    """A line of the diff was followed to the timeline."""
    return before.page == DIFF and after.page == TIMELINE


def _has_moved_on_page(before: State, after: State, page: str) -> bool:
    """Another row of the page is under the cursor: whoever moves has read what to do
    there."""
    if before.page != page or after.page != page:
        return False
    return before.list_of(page).cursor != after.list_of(page).cursor


def _at_next_gap(before: State, after: State) -> bool:
    """Another gap is selected than before."""
    if not before.sides or not after.sides:
        return False
    gaps = before.view.gap, after.view.gap
    return None not in gaps and gaps[0] != gaps[1]


TEXTS = Path(__file__).with_name("tour.txt").read_text(encoding="utf-8")
"""The title of each step, and what it asks for."""
DONE: tuple[tuple[str, Done], ...] = (
    ("w w", _has_zoomed),
    ("0 J J J J J", partial(_selected, role=Role.KERNEL)),
    ("full_stop", _at_another_kernel),
    ("i escape", _has_closed_details),
    ("left_square_bracket left_square_bracket", partial(_selected, role=Role.OP)),
    ("6 j", partial(_has_moved_on_page, page="modules")),
    ("e e", _at_next_gap),
    ("2 j", partial(_has_moved_on_page, page="tree")),
    ("3 j enter n", partial(_at_next_hit, searched=False)),
    ("o j b", lambda before, after: after.has_diff),
    ("j enter", _shows_line_of_diff),
    ("slash g e m m enter n", partial(_at_next_hit, searched=True)),
    ("y", _has_copied),
    ("q", lambda before, after: False),
)
"""One way to do it, as Textual names keys, and whether it is done."""
PICTURES = ("Read a kernel name", "The longest gaps", "Side by side")
"""The steps of which docs/tour.md shows the screen once they are done."""
OF_TWO = ("Read the diff",)  # those that can be done only beside a second trace


def _steps() -> tuple[TourStep, ...]:
    """The steps with their texts, which are in the order of DONE."""
    steps = []
    for text, (keys, is_done) in zip(TEXTS.strip().split("\n\n"), DONE, strict=True):
        title, _, body = text.partition("\n")
        steps.append(
            TourStep(
                title=title,
                text=" ".join(body.split()),
                keys=tuple(keys.split()),
                is_done=is_done,
                picture=title in PICTURES,
            )
        )
    return tuple(steps)


STEPS = _steps()


@lru_cache(maxsize=4)
def tour_height(texts: tuple[str, ...], width: int) -> int:
    """The lines of the longest of these texts with its title: nothing jumps between
    steps."""
    heights = [len(wrapped(text, width - MARGIN)) for text in texts]
    line_of_title = 1
    return line_of_title + max(heights)


SECTION = "In the tour"


def followed(before: State, after: State) -> State:
    """After every change: the next step, once a person has done what the step asks."""
    if after.tour is None or not STEPS[after.tour].is_done(before, after):
        return after
    return _at(after, after.tour + 1)


def is_on(state: State) -> bool:
    """Whether the tour is shown."""
    return state.tour is not None and state.overlay is None


def skip(state: State) -> State:
    """To the next step; without a second trace, to the next that can be done."""
    step = state.tour or 0
    has_two = len(state.sides) == 2
    for later in range(step + 1, len(STEPS)):
        if has_two or STEPS[later].title not in OF_TWO:
            return _at(state, later)
    return _at(state, step)


def back(state: State) -> State:
    """To the step before."""
    return _at(state, (state.tour or 0) - 1)


def _at(state: State, step: int) -> State:
    """At a step, or at the nearest one."""
    last = len(STEPS) - 1
    return replace(state, tour=max(0, min(step, last)))


ACTIONS = (
    action(
        name="skip",
        title="Skip",
        written=">",
        help="this step",
        run=skip,
        section=SECTION,
        where=is_on,
        needs=nothing,
    ),
    action(
        name="back",
        title="Back",
        written="<",
        help="to the step before",
        run=back,
        section=SECTION,
        where=is_on,
        needs=nothing,
    ),
)
