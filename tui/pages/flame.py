"""The flame page: the ops, modules or Python frames of the program, as wide as their time."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.text.figures import duration, percent, plural
from fusetui.trace.model.memo import kept_on, memo
from fusetui.tui.drawing.glyphs import Glyphs, glyphs_for
from fusetui.tui.drawing.lane_lines import chosen_slice, filled_slice
from fusetui.tui.drawing.picture import Said, TextPicture, ruled, text
from fusetui.tui.drawing.schemes import Styled
from fusetui.tui.layout.answer import working
from fusetui.tui.layout.call_tree import FRAMES, call_tree
from fusetui.tui.layout.flame import (
    TIMES,
    TREES,
    WHOLE,
    Flame,
    FlameView,
    flame_of_calls,
    flame_of_modules,
)
from fusetui.tui.layout.view import Side
from fusetui.tui.pages.page import Page, Pane
from fusetui.tui.pages.tree import awaited
from fusetui.tui.state import search
from fusetui.tui.state.action import Run, action, on
from fusetui.tui.state.copying import names_text
from fusetui.tui.state.session import Hits
from fusetui.tui.state.state import Outcome, Size, State, told

ABOVE = 2  # lines above that of the cursor, where there are more levels than lines


class FlamePicture(msgspec.Struct, frozen=True, eq=False):
    """The levels within `root`; the cursor is on `at`, and the levels below it are in sight."""

    flame: Flame
    root: int
    at: int
    glyphs: Glyphs

    def key(self, y: int, width: int, height: int) -> Hashable:
        level = self._level(y, height)
        here = self.at if self.at != WHOLE and self.flame.level[self.at] == level else WHOLE
        return self.flame, self.root, level, here, width

    def line(self, y: int, width: int, height: int) -> Sequence[Styled]:
        nodes, first, last = self.flame.in_sight(self.root, self._level(y, height), width)
        parts: list[Styled] = []
        x = 0
        for node, begin, end in zip(nodes.tolist(), first.tolist(), last.tolist(), strict=True):
            if begin > x:
                parts.append((" " * (begin - x), "plain"))
            text, size = self.flame.text(node), end - begin
            if node == self.at:
                parts.append(chosen_slice(text, size, self.glyphs))
            else:
                beside = begin == x and bool(parts)
                parts.append(filled_slice(text, size, self.flame.kind(node), beside, self.glyphs))
            x = end
        return parts

    def node_at(self, x: int, y: int, width: int, height: int) -> int:
        """The node at a cell; WHOLE beside them."""
        nodes, first, last = self.flame.in_sight(self.root, self._level(y, height), width)
        columns = zip(nodes.tolist(), first.tolist(), last.tolist(), strict=True)
        return next((node for node, begin, end in columns if begin <= x < end), WHOLE)

    def _level(self, y: int, height: int) -> int:
        """The level on a line."""
        first = self.flame.first_level(self.root)
        if self.at == WHOLE:
            return first + y
        above = int(self.flame.level[self.at]) - first - ABOVE
        return first + y + max(0, min(above, self.flame.depth(self.root) - height))


NAME = "flame"
BELOW = 4  # lines about the node under the cursor, the rule included
WHAT = {"ops": "ops by call path", "modules": "modules", "frames": "Python frames by call path"}
TIME = {"GPU": "GPU time launched by", "CPU": "time on the CPU of"}


class FlamePage(Page):
    """Of each block the largest part lies at the left, whatever its place in time."""

    name = NAME
    title = "Flame"
    key = "8"
    help = "flame graph of ops, modules or Python frames"
    hints = (
        "help keys",
        "flame-in/flame-out in and out",
        "flame-left/flame-right beside",
        "flame-zoom/flame-back zoom",
        "flame-show show the longest",
        "flame-tree ops, modules, frames",
        "flame-time GPU or CPU time",
        "copy copy",
    )

    def open(self, state: State) -> State:
        return replace(state, flame=FlameView(state.flame.tree, state.flame.time))

    def follow(self, before: State, state: State) -> State:
        """More of the trace has another tree."""
        return self.open(state)

    def show(self, state: State, size: Size) -> Sequence[Pane]:
        flame, at = flame_of(state), cursor(state)
        height = max(1, size.height - 1 - BELOW)
        if isinstance(flame, str):
            return (Pane(1, text([_title(state, None)])), Pane(1, text([Said(f" {flame}")])))
        picture = FlamePicture(
            flame, state.flame.root, at, glyphs_for(state.ascii_only, state.colorless)
        )

        def pointed(state: State, x: int, y: int) -> State:
            node = picture.node_at(x, y, size.width, height)
            if node == at:
                return zoom(state)
            return state if node == WHOLE else moved(state, node)

        return (
            Pane(1, text([_title(state, flame)])),
            Pane(height, picture, pointed),
            Pane(BELOW, _about(state, flame, at)),
        )

    def subject(self, state: State) -> int:
        flame, at = flame_of(state), cursor(state)
        return -1 if isinstance(flame, str) or at == WHOLE else int(flame.row[at])

    def copied(self, state: State) -> str:
        """The path of the node under the cursor."""
        flame, at = flame_of(state), cursor(state)
        if isinstance(flame, str) or at == WHOLE:
            return ""
        return names_text([" > ".join(flame.text(node) for node in flame.path(at))])


def flame_of(state: State) -> Flame | str:
    """What is drawn, or why it cannot be yet."""
    side, tree, time = state.side, state.flame.tree, time_of(state)
    if tree == "modules" and side.insight.answer is None:
        return working(side.trace, "the modules")
    if tree == "frames" and FRAMES not in kept_on(side.trace):
        return working(side.trace, "the Python frames")
    if tree == "ops" and (said := awaited(state, "path")):
        return said
    flame = _flame(side, tree, time)
    return flame if flame.whole_ns else f"there is no {TIME[time]} {WHAT[tree]}"


@memo(6)
def _flame(side: Side, tree: str, time: str) -> Flame:
    if tree == "modules" and side.insight.answer:
        return flame_of_modules(side.insight.answer.modules, time)
    calls = kept_on(side.trace)[FRAMES] if tree == "frames" else side.once(call_tree)
    return flame_of_calls(calls, time)


def time_of(state: State) -> str:
    """The time that is drawn: that of the GPU, if there is any, until a person chooses."""
    return state.flame.time or TIMES[not len(state.side.trace.gpu_rows)]


def cursor(state: State) -> int:
    """The node that the keys act on."""
    flame, view = flame_of(state), state.flame
    if isinstance(flame, str):
        return WHOLE
    return view.at if view.at != WHOLE else flame.fork(view.root)


def moved(state: State, node: int) -> State:
    return replace(state, flame=replace(state.flame, at=node), hint="")


def zoom(state: State) -> State:
    """The node under the cursor becomes as wide as the screen."""
    at = cursor(state)
    return replace(state, flame=replace(state.flame, root=at, at=at), hint="")


def back(state: State) -> State:
    """What is around it becomes as wide as the screen."""
    flame, view = flame_of(state), state.flame
    if isinstance(flame, str) or view.root == WHOLE:
        return state
    root = int(flame.parent[view.root])
    while root != WHOLE and flame.amount[root] == flame.amount[view.root]:
        root = int(flame.parent[root])  # one of the same width looks the same
    if root != WHOLE and flame.amount[root] == flame.whole_ns:
        root = WHOLE
    return replace(state, flame=replace(view, root=root, at=view.root), hint="")


def inward(state: State) -> State:
    """To the largest part of the node."""
    flame, at = flame_of(state), cursor(state)
    return state if isinstance(flame, str) else moved(state, flame.largest(at))


def outward(state: State) -> State:
    """To what is around the node."""
    flame, at = flame_of(state), cursor(state)
    if isinstance(flame, str) or at in (WHOLE, state.flame.root) or flame.parent[at] == WHOLE:
        return state
    return moved(state, int(flame.parent[at]))


def beside(by: int) -> Run:
    """To the next block of the same level."""

    def run(state: State) -> State:
        flame, at = flame_of(state), cursor(state)
        if isinstance(flame, str) or at == WHOLE:
            return state
        return moved(state, flame.beside(at, by, state.flame.root, state.size.width))

    return run


def show(state: State) -> Outcome:
    """The longest call of the node, in the timeline."""
    flame, at = flame_of(state), cursor(state)
    row = -1 if isinstance(flame, str) or at == WHOLE else int(flame.row[at])
    if row < 0:
        return told(state, "this is no slice that could be shown")
    name = state.side.trace.name_of(row)
    return search.shown(state, Hits(name, state.active, np.array([row])).step(1))


def next_tree(state: State) -> State:
    tree = TREES[(TREES.index(state.flame.tree) + 1) % len(TREES)]
    return replace(state, flame=FlameView(tree, state.flame.time), hint="")


def next_time(state: State) -> State:
    time = TIMES[(TIMES.index(time_of(state)) + 1) % len(TIMES)]
    return replace(state, flame=FlameView(state.flame.tree, time), hint="")


def _title(state: State, flame: Flame | None) -> Said:
    view = state.flame
    whole = f": {duration(flame.whole_ns)}" if flame else ""
    inside = f"   in {flame.text(view.root)}" if flame and view.root != WHOLE else ""
    return Said(f" {TIME[time_of(state)]} {WHAT[view.tree]}{whole}{inside}", "title")


def _about(state: State, flame: Flame, at: int) -> TextPicture:
    """The node under the cursor, and what it lies in."""
    rule = glyphs_for(state.ascii_only).rule

    def lines(width: int, height: int) -> list[Said]:
        if at == WHOLE:
            return []
        amount = int(flame.amount[at])
        inner = sum(int(flame.amount[child]) for child in flame.children(at))
        parts = [duration(amount), f"{percent(amount, flame.whole_ns)} of all"]
        parts.append(f"{duration(max(0, amount - inner))} of it self")
        if flame.row[at] >= 0:
            parts.append(plural(int(flame.count[at]), "call"))
        around = " < ".join(flame.text(node) for node in flame.path(at)[-2::-1])
        return [
            Said(f" {flame.text(at)}", "plain"),
            Said(" " + "   ".join(parts)),
            Said(f" in {around}" if around else ""),
        ]

    return ruled((flame, at), "", rule, lines)


_action = partial(action, section="In the flame graph", where=on(NAME))

FlamePage.actions = (
    _action("flame-in", "Into", "down j", "the largest part of the block", inward),
    _action("flame-out", "Out", "up k", "to the block around it", outward),
    _action("flame-left", "Block at the left", "left h", "of the same level", beside(-1)),
    _action("flame-right", "Block at the right", "right l", "of the same level", beside(1)),
    _action("flame-zoom", "Zoom in", "space", "the block as wide as the screen", zoom),
    _action("flame-back", "Zoom out", "escape", "to what is around it", back),
    _action("flame-show", "Show", "enter", "the longest call, in the timeline", show),
    _action("flame-tree", "Other tree", "t", "ops, modules or Python frames", next_tree),
    _action(
        "flame-time", "Other time", "greater_than_sign less_than_sign", "GPU or CPU", next_time
    ),
)
