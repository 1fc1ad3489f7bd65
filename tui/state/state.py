"""The state of the app: everything that the screen shows is drawn from one State."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from fusetui.tui.layout.view import Side, View
from fusetui.tui.state.comparison import Comparison
from fusetui.tui.state.effects import Effect
from fusetui.tui.state.overlays import Overlay
from fusetui.tui.state.prompts import Prompt
from fusetui.tui.state.session import Session

TIMELINE, DIFF = "timeline", "diff"
"""The pages that the state itself leads to; all others are known to the registry alone."""


class Size(msgspec.Struct, frozen=True):
    """Of the screen, or of what a page has of it: cells and lines."""

    width: int = 0
    height: int = 0


class Reading(msgspec.Struct, frozen=True):
    """How far reading came."""

    path: str
    done: int = 0  # bytes
    total: int = 0
    shown: bool = False  # what was read so far is on the screen
    stopping: bool = False


class Opened(msgspec.Struct, frozen=True, eq=False):
    """Which nodes of a tree are open, bool [nodes], and which are therefore in sight."""

    nodes: NDArray[np.bool_]
    shown: NDArray[np.intp]


class ListState(msgspec.Struct, frozen=True):
    """Where the cursor of a list is, and which row is the first on the screen."""

    cursor: int = 0
    top: int = 0
    opened: Opened | None = None


class State(msgspec.Struct, frozen=True, eq=False):
    """Frozen: every change is a function from one State to the next."""

    session: Session = Session()
    page: str = TIMELINE
    active: int = 0  # the side that keys act on
    tops: tuple[int, ...] = (0, 0)  # of each side: the first line of its lanes on the screen
    fits: tuple[tuple[int, ...], ...] = ()  # of each side: the folds that its screen asked for
    lists: Mapping[str, ListState] = {}  # by the name of the page, and OVERLAY
    comparison: Comparison | None = None
    named: tuple[str, ...] = ()  # the paths that may be chosen from
    wanted: tuple[str, ...] = ()  # what is read, or was read last
    paths: tuple[str, ...] = ()  # what is open
    reading: Reading | None = None
    unpacked: int = 0  # how often args became readable
    prompt: Prompt | None = None
    overlay: Overlay | None = None
    hint: str = ""  # "": the keys of the page
    must_choose: bool = False  # nothing was named to be opened: a person chooses
    size: Size = Size()
    ascii_only: bool = False
    colorless: bool = False  # NO_COLOR: all is drawn in shades of gray

    @property
    def sides(self) -> tuple[Side, ...]:
        return self.session.sides

    @property
    def side(self) -> Side:
        """The active one."""
        return self.session.sides[self.active]

    @property
    def view(self) -> View:
        """That of the active side."""
        return self.session.views[self.active]

    @property
    def has_diff(self) -> bool:
        """Are there two sides, and both whole: a part would differ in what was not read."""
        return len(self.sides) == 2 and not any(s.trace.report.prefix for s in self.sides)

    def list_of(self, name: str) -> ListState:
        return self.lists.get(name, ListState())

    def with_list(self, name: str, now: ListState) -> State:
        return replace(self, lists={**self.lists, name: now})


Outcome = State | tuple[State, Effect]
"""What an action gives: the next state, and an effect where it asks for one."""


def told(state: State, sentence: str) -> State:
    """One sentence on the last line."""
    return replace(state, hint=sentence)
