"""The flame page: the ops, modules or Python frames of the program, as wide as their
time."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from fusetui.text.cutting import clip
from fusetui.text.figures import duration, percent, plural
from fusetui.text.printable import printable
from fusetui.trace.model.memo import kept_result, memo
from fusetui.tui.drawing.lane_lines import chosen_slice, filled_slice
from fusetui.tui.drawing.picture import Said, ruled, text
from fusetui.tui.drawing.schemes import Glyphs, Styled, glyphs_for
from fusetui.tui.layout.answer import working
from fusetui.tui.layout.flame import TIMES, TREES, WHOLE, Flame, FlameView, flame_of
from fusetui.tui.layout.op_tree import FRAMES, call_tree
from fusetui.tui.layout.view import Side
from fusetui.tui.pages.page import MOST_COPIED, Page, Pane, next_of
from fusetui.tui.pages.tree import awaited
from fusetui.tui.state import search
from fusetui.tui.state.action import action, on
from fusetui.tui.state.state import Outcome, Size, State, told

ABOVE = 2  # lines above that of the cursor, where there are more levels than lines
NAME = "flame"
BELOW = 4  # lines about the node under the cursor, the rule included
WHAT = {
    "ops": "ops by call path",
    "modules": "modules",
    "frames": "Python frames by call path",
}
TIME = {"GPU": "GPU time launched by", "CPU": "time on the CPU of"}


class FlamePicture(msgspec.Struct, frozen=True, eq=False):
    """The levels within `root`; the cursor is on `at`, and the levels below it are in
    sight."""

    flame: Flame
    root: int
    at: int
    glyphs: Glyphs

    def key(self, y: int, width: int, height: int) -> Hashable:
        level = self._level(y, height)
        here = (
            self.at
            if self.at != WHOLE and self.flame.tree.level[self.at] == level
            else WHOLE
        )
        return self.flame, self.root, level, here, width

    def line(self, y: int, width: int, height: int) -> Sequence[Styled]:
        parts: list[Styled] = []
        x, tree = 0, self.flame.tree
        for node, begin, end in self.flame.in_sight(
            self.root, self._level(y, height), width
        ):
            if begin > x:
                parts.append((" " * (begin - x), "plain"))
            text, size = tree.label(node), end - begin
            if node == self.at:
                parts.append(chosen_slice(text, size, self.glyphs))
            else:
                beside = begin == x and bool(parts)
                parts.append(
                    filled_slice(text, size, tree.kind(node), beside, self.glyphs)
                )
            x = end
        return parts

    def node_at(self, x: int, y: int, width: int, height: int) -> int:
        """The node at a cell; WHOLE beside them."""
        seen = self.flame.in_sight(self.root, self._level(y, height), width)
        return next((node for node, begin, end in seen if begin <= x < end), WHOLE)

    def _level(self, y: int, height: int) -> int:
        first = self.flame.first_level(self.root)
        if self.at == WHOLE:
            return first + y
        above = int(self.flame.tree.level[self.at]) - first - ABOVE
        return first + y + max(0, min(above, self.flame.depth(self.root) - height))


class FlamePage(Page):
    """Of each block the largest part lies at the left, whatever its place in time."""

    name, title, key = NAME, "Flame", "8"
    help = "flame graph of ops, modules or Python frames"
    hints = (
        "help keys; flame-in/flame-out in and out; flame-left/flame-right beside; "
        "flame-zoom/flame-back zoom; flame-show go to longest; "
        "flame-tree ops, modules, frames; flame-time GPU or CPU time; copy copy"
    )

    def open(self, state: State) -> State:
        return replace(state, flame=FlameView(state.flame.tree, state.flame.time))

    def follow(self, before: State, state: State) -> State:
        return self.open(state)

    def show(self, state: State, size: Size) -> Sequence[Pane]:
        view, said = state.flame, flame_or_why(state)
        title = f" {TIME[time_of(state)]} {WHAT[view.tree]}"
        if isinstance(said, str):
            return (
                Pane(1, text([Said(title, "title")])),
                Pane(1, text([Said(f" {said}")])),
            )
        flame, (_, at) = said, here(state)
        inside = f"   in {flame.tree.label(view.root)}" if view.root != WHOLE else ""
        title += f": {duration(flame.whole_ns)}{inside}"
        height = max(1, size.height - 1 - BELOW)
        glyphs = glyphs_for(state.ascii_only, state.colorless)
        picture = FlamePicture(flame, view.root, at, glyphs)

        def pointed(state: State, x: int, y: int) -> State:
            node = picture.node_at(x, y, size.width, height)
            if node == at:
                return zoom(state)
            return state if node == WHOLE else turned(state, at=node)

        return (
            Pane(1, text([Said(title, "title")])),
            Pane(height, picture, pointed),
            Pane(
                BELOW, ruled((flame, at), "", glyphs.rule, partial(_about, flame, at))
            ),
        )

    def subject(self, state: State) -> int:
        flame, at = here(state)
        return int(flame.tree.row[at]) if flame and at != WHOLE else -1

    def copied(self, state: State) -> str:
        flame, at = here(state)
        if flame is None or at == WHOLE:
            return ""
        return clip(
            printable(" > ".join(map(flame.tree.label, flame.path(at)))), MOST_COPIED
        )


def flame_or_why(state: State) -> Flame | str:
    """What is drawn, or why it cannot be yet."""
    side, tree, time = state.side, state.flame.tree, time_of(state)
    if tree == "modules" and side.insight.answer is None:
        return working(side.trace, "the modules")
    if tree == "frames" and kept_result(side.trace, FRAMES) is None:
        return working(side.trace, "the Python frames")
    if tree == "ops" and (said := awaited(state, "path")):
        return said
    flame = _flame(side, tree, time)
    return flame if flame.whole_ns else f"{TIME[time]} {WHAT[tree]}: none"


@memo(6)
def _flame(side: Side, tree: str, time: str) -> Flame:
    if tree == "modules" and side.insight.answer:
        return flame_of(side.insight.answer.modules, time)
    if tree == "frames":
        return flame_of(kept_result(side.trace, FRAMES), time)
    return flame_of(call_tree(side.trace), time)


def time_of(state: State) -> str:
    """The time that is drawn: that of the GPU, if there is any, until a person
    chooses."""
    return state.flame.time or TIMES[not len(state.side.trace.gpu_rows)]


def here(state: State) -> tuple[Flame | None, int]:
    """What is drawn, and the node that the keys act on."""
    flame, view = flame_or_why(state), state.flame
    if isinstance(flame, str):
        return None, WHOLE
    return flame, view.at if view.at != WHOLE else flame.fork(view.root)


def turned(state: State, **fields: Any) -> State:
    """Another tree or time, or another node as wide as the screen or under the
    cursor."""
    return replace(state, flame=replace(state.flame, **fields), hint="")


def zoom(state: State) -> State:
    _, at = here(state)
    return turned(state, root=at, at=at)


def back(state: State) -> State:
    """What is around it becomes as wide as the screen."""
    (flame, _), view = here(state), state.flame
    if flame is None or view.root == WHOLE:
        return state
    root, parent = int(flame.tree.parent[view.root]), flame.tree.parent
    while root != WHOLE and flame.amount[root] == flame.amount[view.root]:
        root = int(parent[root])  # one of the same width looks the same
    if root != WHOLE and flame.amount[root] == flame.whole_ns:
        root = WHOLE
    return turned(state, root=root, at=view.root)


def inward(state: State) -> State:
    flame, at = here(state)
    return turned(state, at=flame.largest(at)) if flame else state


def outward(state: State) -> State:
    flame, at = here(state)
    parent = (
        int(flame.tree.parent[at])
        if flame and at not in (WHOLE, state.flame.root)
        else WHOLE
    )
    return state if parent == WHOLE else turned(state, at=parent)


def beside(state: State, by: int) -> State:
    flame, at = here(state)
    if flame is None or at == WHOLE:
        return state
    return turned(state, at=flame.beside(at, by, state.flame.root, state.size.width))


def show(state: State) -> Outcome:
    if (row := FlamePage().subject(state)) >= 0:
        return search.shown_row(state, row)
    return told(state, "No slice to show here.")


def next_tree(state: State) -> State:
    return turned(state, tree=next_of(TREES, state.flame.tree), root=WHOLE, at=WHOLE)


def next_time(state: State) -> State:
    return turned(state, time=next_of(TIMES, time_of(state)), root=WHOLE, at=WHOLE)


def _about(flame: Flame, at: int, *_: int) -> list[Said]:
    """The node under the cursor, and what it lies in."""
    if at == WHOLE:
        return []
    amount, tree = int(flame.amount[at]), flame.tree
    inner = sum(int(flame.amount[child]) for child in flame.children(at))
    parts = [f"total {duration(amount)} ({percent(amount, flame.whole_ns)})"]
    parts.append(f"self {duration(max(0, amount - inner))}")
    if tree.row[at] >= 0:
        calls = tree.figures["count" if "count" in tree.figures else "calls"]
        parts.append(plural(int(calls[at]), "call"))
    around = " < ".join(map(tree.label, flame.path(at)[-2::-1]))
    return [
        Said(f" {tree.label(at)}", "plain"),
        Said(" " + "   ".join(parts)),
        Said(f" in {around}" if around else ""),
    ]


_action = partial(action, section="In the flame graph", where=on(NAME))
_left, _right = partial(beside, by=-1), partial(beside, by=1)
FlamePage.actions = (
    _action("flame-in", "Into", "down j", "the largest part of the block", inward),
    _action("flame-out", "Out", "up k", "to the block around it", outward),
    _action("flame-left", "Block at the left", "left h", "of the same level", _left),
    _action(
        "flame-right", "Block at the right", "right l", "of the same level", _right
    ),
    _action("flame-zoom", "Zoom in", "space", "the block as wide as the screen", zoom),
    _action("flame-back", "Zoom out", "escape", "to what is around it", back),
    _action("flame-show", "Show", "enter", "the longest call, in the timeline", show),
    _action(
        "flame-tree", "Other tree", "t", "ops, modules or Python frames", next_tree
    ),
    _action("flame-time", "Other time", "> <", "GPU or CPU", next_time),
)
