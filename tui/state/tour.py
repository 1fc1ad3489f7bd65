"""The guided tour: its steps, with their texts of tour.txt, from which docs/tour.md is
generated; where a person is in it, and when it goes on."""

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
CLOSE = 3  # a window of at most this part of the trace is zoomed in

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
    if not after.sides or after.page != TIMELINE:
        return False
    return after.view.span * CLOSE <= after.side.end - after.side.begin


def _selected(before: State, after: State, role: Role) -> bool:
    return after.page == TIMELINE and _role(after) == role


def _role(state: State) -> int:
    """That of the selected slice; -1: there is none."""
    row = state.view.selected if state.sides else -1
    return int(state.side.trace.role[row]) if row >= 0 else -1


def _at_another_kernel(before: State, after: State) -> bool:
    moved = (
        bool(before.sides and after.sides)
        and before.view.selected != after.view.selected
    )
    return moved and _role(before) == _role(after) == Role.KERNEL


def _at_hits(before: State, after: State, searched: bool) -> bool:
    """Hits are gone through that are new: of a search, or of the row of a table."""
    hits = after.session.hits
    return (
        hits is not None
        and hits is not before.session.hits
        and hits.searched is searched
    )


TEXTS = Path(__file__).with_name("tour.txt").read_text(encoding="utf-8")
"""The title of each step, and what it asks for."""
DONE: tuple[tuple[str, Done], ...] = (
    ("w w", _has_zoomed),
    ("0 J J J J J", partial(_selected, role=Role.KERNEL)),
    ("full_stop", _at_another_kernel),
    (
        "i escape",
        lambda was, now: getattr(was.overlay, "is_slice", False) and not now.overlay,
    ),
    ("left_square_bracket left_square_bracket", partial(_selected, role=Role.OP)),
    ("6", lambda before, after: after.page == "modules"),
    ("e", lambda before, after: bool(after.sides) and after.view.gap is not None),
    ("2", lambda before, after: after.page == "tree"),
    ("3 j enter", partial(_at_hits, searched=False)),
    ("o j b", lambda before, after: after.has_diff),
    ("j enter", lambda before, after: (before.page, after.page) == (DIFF, TIMELINE)),
    ("slash g e m m enter", partial(_at_hits, searched=True)),
    (
        "y",
        lambda before, after: (
            after.hint != before.hint and after.hint.startswith(COPIED)
        ),
    ),
    ("q", lambda before, after: False),
)
"""One way to do it, as Textual names keys, and whether it is done."""
PICTURES = ("Read a kernel name", "The longest gap", "Side by side")
"""The steps of which docs/tour.md shows the screen once they are done."""
OF_TWO = ("Read the diff",)  # those that can be done only beside a second trace
_PARTS = [text.partition("\n")[::2] for text in TEXTS.strip().split("\n\n")]
STEPS = tuple(
    TourStep(
        title, " ".join(text.split()), tuple(keys.split()), is_done, title in PICTURES
    )
    for (title, text), (keys, is_done) in zip(_PARTS, DONE, strict=True)
)


@lru_cache(maxsize=4)
def tour_height(texts: tuple[str, ...], width: int) -> int:
    """The lines of the longest of these texts with its title: nothing jumps between
    steps."""
    return 1 + max(len(wrapped(text, width - MARGIN)) for text in texts)


SECTION = "In the tour"


def followed(before: State, after: State) -> State:
    """After every change: the next step, once a person has done what the step asks."""
    if after.tour is None or not STEPS[after.tour].is_done(before, after):
        return after
    return _at(after, after.tour + 1)


def is_on(state: State) -> bool:
    return state.tour is not None and state.overlay is None


def skip(state: State) -> State:
    now, are_two = state.tour or 0, len(state.sides) == 2
    later = (
        n for n in range(now + 1, len(STEPS)) if are_two or STEPS[n].title not in OF_TWO
    )
    return _at(state, next(later, now))


def back(state: State) -> State:
    return _at(state, (state.tour or 0) - 1)


def _at(state: State, step: int) -> State:
    return replace(state, tour=max(0, min(step, len(STEPS) - 1)))


ACTIONS = (
    action("skip", "Skip", ">", "this step", skip, SECTION, is_on, nothing),
    action("back", "Back", "<", "to the step before", back, SECTION, is_on, nothing),
)
