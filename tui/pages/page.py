"""What a page is: a name, a key, and four functions of the state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import msgspec

from fusetui.tui.drawing.picture import Picture
from fusetui.tui.state.action import Action
from fusetui.tui.state.state import Outcome, Overlay, Size, SliceDetails, State

NO_MORE = "this row stands for no slice, so there is no more to show"


class Turn(msgspec.Struct, frozen=True):
    """The wheel was turned at a cell, by lines; negative is up."""

    x: int
    lines: int
    shifted: bool = False


class Drag(msgspec.Struct, frozen=True):
    """The mouse was moved from cell to cell with the button down; `ended`: it was let go."""

    x: int
    to: int
    ended: bool


class Pane(msgspec.Struct, frozen=True, eq=False):
    """A part of a page: its picture, its lines, and what the mouse does there."""

    height: int
    picture: Picture
    pointed: Callable[[State, int, int], Outcome] | None = None  # (state, x, y in the pane)
    wheeled: Callable[[State, Turn], Outcome] | None = None
    dragged: Callable[[State, Drag], Outcome] | None = None


class Page(ABC):
    """Keeps nothing itself: everything that it shows is in the State."""

    name: ClassVar[str]
    title: ClassVar[str]
    key: ClassVar[str]
    help: ClassVar[str]
    hints: ClassVar[tuple[str, ...]]
    """The last line of the screen, what matters most first: `down/up line` names two actions, whose
    keys are shown, and says what they do."""
    copies: ClassVar[str] = "name"  # what each line of `copied` is
    actions: ClassVar[tuple[Action, ...]] = ()  # keys of this page alone

    @abstractmethod
    def show(self, state: State, size: Size) -> Sequence[Pane]:
        """The panes from top to bottom; together as high as `size`."""

    def open(self, state: State) -> Outcome:
        """Called when the page comes to the front, after the state names it."""
        return state

    def follow(self, before: State, state: State) -> State:
        """Called when more of the open traces was read: what the user looks at stays."""
        return state

    def scroll(self, before: State, state: State, size: Size) -> State:
        """Called after every change while it is in front: keeps the cursor in sight."""
        return state

    def copied(self, state: State) -> str:
        """What the cursor is on, printable; "" if it is on nothing."""
        return ""

    def subject(self, state: State) -> int:
        """The row of the active side that the page describes, and that Enter shows; -1 for none."""
        return -1

    def described(self, state: State) -> Overlay | str:
        """Everything about what the page describes, or a sentence where there is no more."""
        row = self.subject(state)
        return SliceDetails(state.side, row) if row >= 0 else NO_MORE

    def missing(self, state: State) -> str:
        """Why the page cannot be shown; "" if it can."""
        return ""
