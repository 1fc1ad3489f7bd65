"""The guided tour: its steps, with the texts in tour.txt, from which docs/tour.md is
generated; the current step, and the condition for the next."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from fusetui.trace.model.arrays import NO_ROW
from fusetui.trace.model.categories import Role
from fusetui.tui.layout.text_layout import wrap_marked_text
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
    """Return whether the window of the timeline is at most a third of the trace."""
    if not after.sides or after.page != TIMELINE:
        return False
    whole_ns = after.side.end - after.side.begin
    return after.view.span * ZOOMED_PART <= whole_ns


def _has_selected(before: State, after: State, role: Role) -> bool:
    """Return whether a slice of this role is selected in the timeline."""
    return after.page == TIMELINE and _selected_role(after) == role


def _selected_role(state: State) -> int:
    """Return the role of the selected slice; -1 for none."""
    row = state.view.selected if state.sides else -1
    return int(state.side.trace.role[row]) if row != NO_ROW else -1


def _has_changed_kernel(before: State, after: State) -> bool:
    """Return whether the selection went from one kernel to another."""
    if not before.sides or not after.sides:
        return False
    if before.view.selected == after.view.selected:
        return False
    return _selected_role(before) == _selected_role(after) == Role.KERNEL


def _has_changed_hit(before: State, after: State, searched: bool) -> bool:
    """Return whether another hit of the same list is shown than before: of a search
    (`searched`), or of a row of a table."""
    old_hits = before.session.hits
    hits = after.session.hits
    if old_hits is None or hits is None or hits.searched is not searched:
        return False
    return hits.rows is old_hits.rows and hits.at != old_hits.at


def _has_closed_details(before: State, after: State) -> bool:
    """Return whether the details of a slice were open before, and nothing lies over the
    page now."""
    return getattr(before.overlay, "is_slice", False) and not after.overlay


def _has_copied(before: State, after: State) -> bool:
    """Return whether something was copied just now, as the message on the last line
    says."""
    return after.hint != before.hint and after.hint.startswith(COPIED)


def _has_followed_diff(before: State, after: State) -> bool:
    """Return whether a line of the diff was followed to the timeline."""
    return before.page == DIFF and after.page == TIMELINE


def _has_moved_on_page(before: State, after: State, page: str) -> bool:
    """Return whether the cursor has moved to another row of the page with this name.
    Whoever moves there has read what to do."""
    if before.page != page or after.page != page:
        return False
    return before.list_of(page).cursor != after.list_of(page).cursor


def _has_changed_gap(before: State, after: State) -> bool:
    """Return whether the selection went from one gap, a stretch of idle time, to
    another."""
    if not before.sides or not after.sides:
        return False
    gaps = before.view.gap, after.view.gap
    return None not in gaps and gaps[0] != gaps[1]


TEXTS = Path(__file__).with_name("tour.txt").read_text(encoding="utf-8")
"""The title of each step, and what it asks for."""
DONE: tuple[tuple[str, Done], ...] = (
    ("w w", _has_zoomed),
    ("0 J J J J J", partial(_has_selected, role=Role.KERNEL)),
    ("full_stop", _has_changed_kernel),
    ("i escape", _has_closed_details),
    ("left_square_bracket left_square_bracket", partial(_has_selected, role=Role.OP)),
    ("6 j", partial(_has_moved_on_page, page="modules")),
    ("e e", _has_changed_gap),
    ("2 j", partial(_has_moved_on_page, page="tree")),
    ("3 j enter n", partial(_has_changed_hit, searched=False)),
    ("o j b", lambda before, after: after.has_diff),
    ("j enter", _has_followed_diff),
    ("slash g e m m enter n", partial(_has_changed_hit, searched=True)),
    ("y", _has_copied),
    ("q", lambda before, after: False),
)
"""One way to do it, as Textual names keys, and whether it is done."""
PICTURES = ("Read a kernel name", "The longest gaps", "Side by side")
"""The steps of which docs/tour.md shows the screen once they are done."""
OF_TWO = ("Read the diff",)  # those that can be done only beside a second trace


def _make_steps() -> tuple[TourStep, ...]:
    """Return the steps of the tour with their texts. Texts are matched to the steps in
    DONE by their order."""
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


STEPS = _make_steps()


@lru_cache(maxsize=4)
def tour_height(texts: tuple[str, ...], width: int) -> int:
    """Return how many lines the tour takes, the same for every step: the longest text
    and a title. This way nothing jumps between steps."""
    heights = [len(wrap_marked_text(text, width - MARGIN)) for text in texts]
    line_of_title = 1
    return line_of_title + max(heights)


SECTION = "In the tour"


def followed(before: State, after: State) -> State:
    """Return the state with the current step of the tour done, if this change did what
    the step asks. The step stays on the screen, so that there is time to read it and to
    look at what came of it."""
    if after.tour is None or after.is_tour_step_done:
        return after
    # a change that led to this step did not follow it
    if after.tour != before.tour or not STEPS[after.tour].is_done(before, after):
        return after
    return replace(after, is_tour_step_done=True)


def is_tour_shown(state: State) -> bool:
    """Return whether the tour is shown, with nothing over the page."""
    return state.tour is not None and state.overlay is None


def skip(state: State) -> State:
    """Go to the next step of the tour. Without a second trace, steps that need one are
    passed over."""
    step = state.tour or 0
    has_two = len(state.sides) == 2
    for later_step in range(step + 1, len(STEPS)):
        if has_two or STEPS[later_step].title not in OF_TWO:
            return _go_to_step(state, later_step)
    return _go_to_step(state, step)


def back(state: State) -> State:
    """Go back to the step before in the tour."""
    return _go_to_step(state, (state.tour or 0) - 1)


def _go_to_step(state: State, step: int) -> State:
    """Return the state at a step of the tour, or at the nearest one that exists."""
    last_step = len(STEPS) - 1
    step = max(0, min(step, last_step))
    return replace(state, tour=step, is_tour_step_done=False)


ACTIONS = (
    action(
        name="skip",
        title="Next step",
        written=">",
        help="of the tour, even if this one is not done",
        run=skip,
        section=SECTION,
        where=is_tour_shown,
        needs=nothing,
    ),
    action(
        name="back",
        title="Back",
        written="<",
        help="to the step before",
        run=back,
        section=SECTION,
        where=is_tour_shown,
        needs=nothing,
    ),
)
