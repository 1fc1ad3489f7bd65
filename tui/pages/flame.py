"""The flame page: ops, modules or Python frames of the program, with widths
proportional to their time."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

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
from fusetui.tui.layout.flame import (
    TIMES,
    TREES,
    WHOLE,
    Flame,
    FlameView,
    NodeCells,
    flame_of,
)
from fusetui.tui.layout.op_tree import FRAMES, call_tree
from fusetui.tui.layout.view import Side
from fusetui.tui.pages.page import (
    MAX_COPIED_CHARS,
    Page,
    Pane,
    next_of,
    page_table,
)
from fusetui.tui.pages.tree import awaited
from fusetui.tui.state import search
from fusetui.tui.state.action import action, on
from fusetui.tui.state.state import Outcome, Size, State, told

if TYPE_CHECKING:
    from fusetui.tables.public import Table

CELLS_BESIDE_NAME = 2  # of a block
LINES_ABOVE_CURSOR = 2  # where there are more levels than lines
NAME = "flame"
BELOW_LINES = 4  # about the node under the cursor, the rule included
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
        """What a line depends on: the cursor only where it is on its level."""
        level = self._level(y, height)
        cursor = WHOLE
        if self.at != WHOLE and self.flame.tree.level[self.at] == level:
            cursor = self.at
        return self.flame, self.root, level, cursor, width

    def line(self, y: int, width: int, height: int) -> Sequence[Styled]:
        """The nodes of a level that take a cell at least, with blanks between."""
        parts: list[Styled] = []
        end_of_last = 0
        level = self._level(y, height)
        for cells in self.flame.in_sight(self.root, level, width):
            if cells.first > end_of_last:
                parts.append((" " * (cells.first - end_of_last), "plain"))
            is_beside = cells.first == end_of_last and bool(parts)
            parts.append(self._node(cells, is_beside))
            end_of_last = cells.stop
        return parts

    def _node(self, cells: NodeCells, is_beside: bool) -> Styled:
        """One node, with its share of the whole if there is room for that beside its
        name; `is_beside`: it begins where another one ends."""
        tree = self.flame.tree
        name = tree.label(cells.node)
        size = cells.stop - cells.first
        share = percent(int(self.flame.amount[cells.node]), self.flame.whole_ns)
        with_share = f"{name}  {share}"
        if len(with_share) + CELLS_BESIDE_NAME <= size:
            name = with_share
        if cells.node == self.at:
            return chosen_slice(name, size, self.glyphs)
        return filled_slice(name, size, tree.kind(cells.node), is_beside, self.glyphs)

    def node_at(self, x: int, y: int, width: int, height: int) -> int:
        """The node at a cell; WHOLE beside them."""
        level = self._level(y, height)
        for cells in self.flame.in_sight(self.root, level, width):
            if cells.first <= x < cells.stop:
                return cells.node
        return WHOLE

    def _level(self, y: int, height: int) -> int:
        """The level that is drawn on line `y`: scrolled so that the cursor is in
        sight."""
        first = self.flame.first_level(self.root)
        if self.at == WHOLE:
            return first + y
        hidden_levels = self.flame.depth(self.root) - height
        levels_above_cursor = int(self.flame.tree.level[self.at]) - first
        scrolled = min(levels_above_cursor - LINES_ABOVE_CURSOR, hidden_levels)
        return first + y + max(0, scrolled)


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
        """Everything, the cursor where it is at first; the tree and the time stay."""
        return replace(state, flame=FlameView(state.flame.tree, state.flame.time))

    def follow(self, before: State, state: State) -> State:
        return self.open(state)

    def show(self, state: State, size: Size) -> Sequence[Pane]:
        """The graph below its title, and a few lines about the block with the
        cursor."""
        view = state.flame
        title = f" {TIME[time_of(state)]} {WHAT[view.tree]}"
        flame = flame_or_why(state)
        if isinstance(flame, str):
            return (
                Pane(1, text([Said(title, "title")])),
                Pane(1, text([Said(f" {flame}")])),
            )
        title += f": {duration(flame.whole_ns)}"
        if view.root != WHOLE:
            title += f"   in {flame.tree.label(view.root)}"
        title = clip(title, size.width, glyphs_for(state.ascii_only).ellipsis)
        at = here(state).node
        about = partial(_about, flame, at)
        rule = glyphs_for(state.ascii_only).rule
        return (
            Pane(1, text([Said(title, "title")])),
            _graph(state, flame, at, size),
            Pane(BELOW_LINES, ruled((flame, at), "", rule, about)),
        )

    def subject(self, state: State) -> int:
        """The longest call of the block with the cursor; -1 for none."""
        flame, node = here(state)
        if flame is None or node == WHOLE:
            return -1
        return int(flame.tree.row[node])

    def copied(self, state: State) -> str:
        """The names from the outermost block to the one with the cursor."""
        flame, node = here(state)
        if flame is None or node == WHOLE:
            return ""
        names = [flame.tree.label(around) for around in flame.path(node)]
        return clip(printable(" > ".join(names)), MAX_COPIED_CHARS)

    def table(self, state: State, rows: Sequence[int] | None = None) -> Table | None:
        """The blocks within the one that is as wide as the screen, also those too narrow
        to be drawn, each below the one around it."""
        flame = flame_or_why(state)
        if isinstance(flame, str):
            return None
        nodes = flame.inside(state.flame.root)
        if rows is not None:
            nodes = nodes[[*rows]]
        return page_table(
            self.name,
            {"name": [flame.tree.label(node) for node in nodes.tolist()]},
            level=flame.tree.level[nodes],
            time_ns=flame.amount[nodes],
            share=flame.amount[nodes] / max(1, flame.whole_ns),
        )

    def why_no_table(self, state: State) -> str:
        flame = flame_or_why(state)
        return flame if isinstance(flame, str) else super().why_no_table(state)


def _graph(state: State, flame: Flame, at: int, size: Size) -> Pane:
    """The graph. A click moves the cursor to a block, a second one zooms to it."""
    height = max(1, size.height - 1 - BELOW_LINES)
    glyphs = glyphs_for(state.ascii_only, state.colorless)
    picture = FlamePicture(flame, state.flame.root, at, glyphs)

    def pointed(state: State, x: int, y: int) -> State:
        node = picture.node_at(x, y, size.width, height)
        if node == at:
            return zoom(state)
        return state if node == WHOLE else turned(state, at=node)

    return Pane(height, picture, pointed)


def flame_or_why(state: State) -> Flame | str:
    """What is drawn, or why it cannot be yet."""
    side = state.side
    tree = state.flame.tree
    time = time_of(state)
    if tree == "modules" and side.insight.answer is None:
        return working(side.trace, "the modules")
    if tree == "frames" and kept_result(side.trace, FRAMES) is None:
        return working(side.trace, "the Python frames")
    if tree == "ops":
        waiting = awaited(state, "path")
        if waiting:
            return waiting
    flame = _flame(side, tree, time)
    return flame if flame.whole_ns else f"{TIME[time]} {WHAT[tree]}: none"


@memo(6)
def _flame(side: Side, tree: str, time: str) -> Flame:
    """The flame graph of a tree, which must be known."""
    if tree == "modules" and side.insight.answer:
        return flame_of(side.insight.answer.modules, time)
    if tree == "frames":
        return flame_of(kept_result(side.trace, FRAMES), time)
    return flame_of(call_tree(side.trace), time)


def time_of(state: State) -> str:
    """The time that is drawn: that of the GPU, if there is any, until a person
    chooses."""
    if state.flame.time:
        return state.flame.time
    return "GPU" if len(state.side.trace.gpu_rows) else "CPU"


class Here(NamedTuple):
    """What is drawn, None where it cannot be, and the node that the keys act on, WHOLE
    for none."""

    flame: Flame | None
    node: int


def here(state: State) -> Here:
    """What is drawn, and the node that the keys act on."""
    flame = flame_or_why(state)
    if isinstance(flame, str):
        return Here(None, WHOLE)
    view = state.flame
    node = view.at if view.at != WHOLE else flame.fork(view.root)
    return Here(flame, node)


def turned(state: State, **fields: Any) -> State:
    """Another tree or time, or another node as wide as the screen or under the
    cursor."""
    return replace(state, flame=replace(state.flame, **fields), hint="")


def zoom(state: State) -> State:
    """The node with the cursor becomes as wide as the screen."""
    node = here(state).node
    return turned(state, root=node, at=node)


def back(state: State) -> State:
    """What is around it becomes as wide as the screen."""
    flame = here(state).flame
    zoomed = state.flame.root
    if flame is None or zoomed == WHOLE:
        return state
    parent = flame.tree.parent
    root = int(parent[zoomed])
    while root != WHOLE and flame.amount[root] == flame.amount[zoomed]:
        root = int(parent[root])  # one of the same width looks the same
    if root != WHOLE and flame.amount[root] == flame.whole_ns:
        root = WHOLE
    return turned(state, root=root, at=zoomed)


def inward(state: State) -> State:
    """The cursor on the largest part of its block."""
    flame, node = here(state)
    return turned(state, at=flame.largest(node)) if flame else state


def outward(state: State) -> State:
    """The cursor on the block around its own, unless that is as wide as the screen."""
    flame, node = here(state)
    if flame is None or node in (WHOLE, state.flame.root):
        return state
    around = int(flame.tree.parent[node])
    return state if around == WHOLE else turned(state, at=around)


def beside(state: State, by: int) -> State:
    """The cursor on the next node of its level to the right, or for -1 to the left."""
    flame, node = here(state)
    if flame is None or node == WHOLE:
        return state
    other = flame.beside(node, by, state.flame.root, state.size.width)
    return turned(state, at=other)


def show(state: State) -> Outcome:
    """The longest call of the block with the cursor, in the timeline."""
    row = FlamePage().subject(state)
    if row < 0:
        return told(state, "No slice to show here.")
    return search.shown_row(state, row)


def next_tree(state: State) -> State:
    """The next of the trees, all of it."""
    tree = next_of(TREES, state.flame.tree)
    return turned(state, tree=tree, root=WHOLE, at=WHOLE)


def next_time(state: State) -> State:
    """The other time: of the GPU, or on the CPU."""
    time = next_of(TIMES, time_of(state))
    return turned(state, time=time, root=WHOLE, at=WHOLE)


def _about(flame: Flame, node: int, width: int, height: int) -> list[Said]:
    """The node under the cursor, and what it lies in; nothing for WHOLE."""
    if node == WHOLE:
        return []
    tree = flame.tree
    total_ns = int(flame.amount[node])
    inner_ns = int(flame.amount[flame.children(node)].sum())
    self_ns = max(0, total_ns - inner_ns)
    parts = [
        f"total {duration(total_ns)} ({percent(total_ns, flame.whole_ns)})",
        f"self {duration(self_ns)}",
    ]
    if tree.row[node] >= 0:
        calls = tree.figures["count" if "count" in tree.figures else "calls"]
        parts.append(plural(int(calls[node]), "call"))
    *outer, _ = flame.path(node)
    around = " < ".join(tree.label(outer_node) for outer_node in reversed(outer))
    return [
        Said(f" {tree.label(node)}", "plain"),
        Said(" " + "   ".join(parts)),
        Said(f" in {around}" if around else ""),
    ]


_action = partial(action, section="In the flame graph", where=on(NAME))
FlamePage.actions = (
    _action(
        name="flame-in",
        title="Into",
        written="down j",
        help="the largest part of the block",
        run=inward,
    ),
    _action(
        name="flame-out",
        title="Out",
        written="up k",
        help="to the block around it",
        run=outward,
    ),
    _action(
        name="flame-left",
        title="Block at the left",
        written="left h",
        help="of the same level",
        run=partial(beside, by=-1),
    ),
    _action(
        name="flame-right",
        title="Block at the right",
        written="right l",
        help="of the same level",
        run=partial(beside, by=1),
    ),
    _action(
        name="flame-zoom",
        title="Zoom in",
        written="space",
        help="the block as wide as the screen",
        run=zoom,
    ),
    _action(
        name="flame-back",
        title="Zoom out",
        written="escape",
        help="to what is around it",
        run=back,
    ),
    _action(
        name="flame-show",
        title="Show",
        written="enter",
        help="the longest call, in the timeline",
        run=show,
    ),
    _action(
        name="flame-tree",
        title="Other tree",
        written="t",
        help="ops, modules or Python frames",
        run=next_tree,
    ),
    _action(
        name="flame-time",
        title="Other time",
        written="> <",
        help="GPU or CPU",
        run=next_time,
    ),
)
