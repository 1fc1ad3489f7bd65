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
from fusetui.trace.model.arrays import NO_ROW
from fusetui.trace.model.memo import kept_result, memo
from fusetui.tui.drawing.lane_lines import draw_filled_slice, draw_highlighted_slice
from fusetui.tui.drawing.picture import Said, make_ruled_picture, text
from fusetui.tui.drawing.schemes import Glyphs, Styled, choose_glyphs
from fusetui.tui.layout.answer import explain_missing_result
from fusetui.tui.layout.flame import (
    TIMES,
    TREES,
    WHOLE,
    Flame,
    FlameView,
    NodeCells,
    build_flame,
)
from fusetui.tui.layout.op_tree import FRAMES, build_call_tree
from fusetui.tui.layout.view import Side
from fusetui.tui.pages.page import (
    MAX_COPIED_CHARS,
    Page,
    Pane,
    cycle_name,
    make_page_table,
)
from fusetui.tui.pages.tree import explain_wait
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
        """Return what a drawn line depends on, as the key of a cache. The cursor is
        part of it only on the line that shows the cursor."""
        level = self._level_of_line(y, height)
        cursor = WHOLE
        if self.at != WHOLE and self.flame.tree.level[self.at] == level:
            cursor = self.at
        return self.flame, self.root, level, cursor, width

    def line(self, y: int, width: int, height: int) -> Sequence[Styled]:
        """Return the blocks on line `y`: the nodes of one level that are at least a
        cell wide, with blanks between them."""
        drawn_parts: list[Styled] = []
        end_of_last = 0
        level = self._level_of_line(y, height)
        for cells in self.flame.in_sight(self.root, level, width):
            if cells.first > end_of_last:
                drawn_parts.append((" " * (cells.first - end_of_last), "plain"))
            is_beside = cells.first == end_of_last and bool(drawn_parts)
            drawn_parts.append(self._draw_rectangle(cells, is_beside))
            end_of_last = cells.stop
        return drawn_parts

    def _draw_rectangle(self, cells: NodeCells, is_beside: bool) -> Styled:
        """Return one block of the flame graph, with its name, and its share of the
        whole if there is room. `is_beside` means that it touches the block at its left.
        """
        tree = self.flame.tree
        name = tree.label(cells.node)
        block_cells = cells.stop - cells.first
        share = percent(int(self.flame.amount[cells.node]), self.flame.whole_ns)
        with_share = f"{name}  {share}"
        if len(with_share) + CELLS_BESIDE_NAME <= block_cells:
            name = with_share
        if cells.node == self.at:
            return draw_highlighted_slice(name, block_cells, self.glyphs)
        return draw_filled_slice(
            name, block_cells, tree.kind(cells.node), is_beside, self.glyphs
        )

    def node_at(self, x: int, y: int, width: int, height: int) -> int:
        """Return the node of the block at cell (x, y); WHOLE where there is no block."""
        level = self._level_of_line(y, height)
        for cells in self.flame.in_sight(self.root, level, width):
            if cells.first <= x < cells.stop:
                return cells.node
        return WHOLE

    def _level_of_line(self, y: int, height: int) -> int:
        """Return the level of the tree that is drawn on line `y`. The graph is scrolled
        so that the level of the cursor is in sight."""
        first_level = self.flame.first_level(self.root)
        if self.at == WHOLE:
            return first_level + y
        hidden_levels = self.flame.depth(self.root) - height
        levels_above_cursor = int(self.flame.tree.level[self.at]) - first_level
        hidden_above = min(levels_above_cursor - LINES_ABOVE_CURSOR, hidden_levels)
        return first_level + y + max(0, hidden_above)


class FlamePage(Page):
    """Of each block the largest part lies at the left, whatever its place in time."""

    name, title, key = NAME, "Flame", "8"
    help = "flame graph of ops, modules or Python frames"
    hints = (
        "help help; flame-in/flame-out in and out; flame-left/flame-right beside; "
        "flame-zoom/flame-back zoom; flame-show go to longest; "
        "flame-tree ops, modules, frames; flame-time GPU or CPU time; copy copy"
    )

    def open(self, state: State) -> State:
        """Return the state with the whole flame graph in sight and the cursor where it
        is at first. The chosen tree and time stay."""
        return replace(state, flame=FlameView(state.flame.tree, state.flame.time))

    def follow(self, before: State, state: State) -> State:
        """Return the state after more of the trace was read: the whole graph is shown
        again, because its nodes are others now."""
        return self.open(state)

    def show(self, state: State, size: Size) -> Sequence[Pane]:
        """Return the panes of the page: the title, the flame graph, and a few lines
        about the block under the cursor. Where there is no graph yet, a sentence says
        why."""
        view = state.flame
        glyphs = choose_glyphs(state.ascii_only)
        title = f" {TIME[choose_time(state)]} {WHAT[view.tree]}"
        flame = find_flame(state)
        if isinstance(flame, str):
            why_no_flame = flame
            return (
                Pane(1, text([Said(title, "title")])),
                Pane(1, text([Said(f" {why_no_flame}")])),
            )
        title += f": {duration(flame.whole_ns)}"
        if view.root != WHOLE:
            title += f"   in {flame.tree.label(view.root)}"
        title = clip(title, size.width, glyphs.ellipsis)
        cursor_node = here(state).node
        draw_details = partial(_describe_rectangle, flame, cursor_node)
        identity = (flame, cursor_node)
        details = make_ruled_picture(identity, "", glyphs.rule, draw_details)
        return (
            Pane(1, text([Said(title, "title")])),
            _make_graph_pane(state, flame, cursor_node, size),
            Pane(BELOW_LINES, details),
        )

    def subject(self, state: State) -> int:
        """Return the row of the longest call of the block under the cursor; -1 for
        none."""
        flame, node = here(state)
        if flame is None or node == WHOLE:
            return -1
        return int(flame.tree.row[node])

    def copied(self, state: State) -> str:
        """Return the names from the outermost block to the one under the cursor, joined
        by " > "; "" for none."""
        flame, node = here(state)
        if flame is None or node == WHOLE:
            return ""
        names = [flame.tree.label(around) for around in flame.path(node)]
        return clip(printable(" > ".join(names)), MAX_COPIED_CHARS)

    def table(self, state: State, rows: Sequence[int] | None = None) -> Table | None:
        """Return the blocks within the one that fills the screen as a table to save.
        Blocks too narrow to be drawn are included; each stands below its parent. None
        where there is no graph."""
        flame = find_flame(state)
        if isinstance(flame, str):
            return None
        nodes = flame.inside(state.flame.root)
        if rows is not None:
            nodes = nodes[[*rows]]
        return make_page_table(
            self.name,
            {"name": [flame.tree.label(node) for node in nodes.tolist()]},
            level=flame.tree.level[nodes],
            time_ns=flame.amount[nodes],
            share=flame.amount[nodes] / max(1, flame.whole_ns),
        )

    def why_no_table(self, state: State) -> str:
        """Return a sentence that says why there is no flame graph to save."""
        flame = find_flame(state)
        return flame if isinstance(flame, str) else super().why_no_table(state)


def _make_graph_pane(state: State, flame: Flame, at: int, size: Size) -> Pane:
    """Return the pane with the flame graph. A click moves the cursor to a block; a
    click on the block under the cursor zooms to it."""
    height = max(1, size.height - 1 - BELOW_LINES)
    glyphs = choose_glyphs(state.ascii_only, state.colorless)
    picture = FlamePicture(flame, state.flame.root, at, glyphs)

    def pointed(state: State, x: int, y: int) -> State:
        node = picture.node_at(x, y, size.width, height)
        if node == at:
            return zoom(state)
        return state if node == WHOLE else change_view(state, at=node)

    return Pane(height, picture, pointed)


def find_flame(state: State) -> Flame | str:
    """Return the flame graph that the page shows, or a sentence that says why there is
    none yet."""
    side = state.side
    tree = state.flame.tree
    time = choose_time(state)
    if tree == "modules" and side.insight.answer is None:
        return explain_missing_result(side.trace, "the modules")
    if tree == "frames" and kept_result(side.trace, FRAMES) is None:
        return explain_missing_result(side.trace, "the Python frames")
    if tree == "ops":
        waiting = explain_wait(state, "path")
        if waiting:
            return waiting
    flame = _make_flame(side, tree, time)
    return flame if flame.whole_ns else f"{TIME[time]} {WHAT[tree]}: none"


@memo(6)
def _make_flame(side: Side, tree: str, time: str) -> Flame:
    """Return the flame graph of a tree, with widths by GPU or CPU time. The tree must
    be known already; the last 6 graphs are kept."""
    if tree == "modules" and side.insight.answer:
        return build_flame(side.insight.answer.modules, time)
    if tree == "frames":
        return build_flame(kept_result(side.trace, FRAMES), time)
    return build_flame(build_call_tree(side.trace), time)


def choose_time(state: State) -> str:
    """Return which time the widths stand for: what the user chose, else GPU time if
    there is any, else CPU time."""
    if state.flame.time:
        return state.flame.time
    return "GPU" if len(state.side.trace.gpu_rows) else "CPU"


class Here(NamedTuple):
    """What is drawn, None where it cannot be, and the node that the keys act on, WHOLE
    for none."""

    flame: Flame | None
    node: int


def here(state: State) -> Here:
    """Return the flame graph that is shown (None where there is none) and the node
    under the cursor (WHOLE for none).

    Until the user moves it, the cursor is where the graph first divides.
    """
    flame = find_flame(state)
    if isinstance(flame, str):
        return Here(None, WHOLE)
    view = state.flame
    node = view.at if view.at != WHOLE else flame.fork(view.root)
    return Here(flame, node)


def change_view(state: State, **fields: Any) -> State:
    """Return the state with other fields of the flame graph's view: its tree, time,
    root or cursor."""
    return replace(state, flame=replace(state.flame, **fields), hint="")


def zoom(state: State) -> State:
    """Return the state in which the block under the cursor is as wide as the screen."""
    node = here(state).node
    return change_view(state, root=node, at=node)


def back(state: State) -> State:
    """Return the state in which the next wider block around the current one fills the
    screen.

    Blocks of the same width are passed over, because they would look the same.
    """
    flame = here(state).flame
    current_root = state.flame.root
    if flame is None or current_root == WHOLE:
        return state
    parent = flame.tree.parent
    root = int(parent[current_root])
    while root != WHOLE and flame.amount[root] == flame.amount[current_root]:
        root = int(parent[root])  # one of the same width looks the same
    if root != WHOLE and flame.amount[root] == flame.whole_ns:
        root = WHOLE
    return change_view(state, root=root, at=current_root)


def move_inward(state: State) -> State:
    """Move the cursor to the largest child of its block."""
    flame, node = here(state)
    return change_view(state, at=flame.largest(node)) if flame else state


def move_outward(state: State) -> State:
    """Move the cursor to the parent of its block, unless its block fills the screen."""
    flame, node = here(state)
    if flame is None or node in (WHOLE, state.flame.root):
        return state
    parent = int(flame.tree.parent[node])
    return state if parent == WHOLE else change_view(state, at=parent)


def beside(state: State, by: int) -> State:
    """Move the cursor to the next block of its level, to the right (`by` 1) or to the
    left (-1)."""
    flame, node = here(state)
    if flame is None or node == WHOLE:
        return state
    next_node = flame.beside(node, by, state.flame.root, state.size.width)
    return change_view(state, at=next_node)


def show(state: State) -> Outcome:
    """Show the longest call of the block under the cursor in the timeline. A message
    says where it has none."""
    row = FlamePage().subject(state)
    if row == NO_ROW:
        return told(state, "No slice to show here.")
    return search.show_row(state, row)


def switch_tree(state: State) -> State:
    """Show the next kind of flame graph: of ops, modules, or Python frames."""
    tree = cycle_name(TREES, state.flame.tree)
    return change_view(state, tree=tree, root=WHOLE, at=WHOLE)


def switch_time(state: State) -> State:
    """Give the blocks of the flame graph their widths by the other time: GPU or CPU."""
    time = cycle_name(TIMES, choose_time(state))
    return change_view(state, time=time, root=WHOLE, at=WHOLE)


def _describe_rectangle(flame: Flame, node: int, width: int, height: int) -> list[Said]:
    """Return the lines about a block: its name, its total and self time, its calls, and
    the blocks around it. They are empty for WHOLE."""
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
    if tree.row[node] != NO_ROW:
        # the tree of modules has another name for it
        count_name = "count" if "count" in tree.figures else "calls"
        calls = int(tree.figures[count_name][node])
        parts.append(plural(calls, "call"))
    outer_labels = [tree.label(around) for around in flame.path(node)[:-1]]
    outer_names = " < ".join(reversed(outer_labels))
    return [
        Said(f" {tree.label(node)}", "plain"),
        Said(" " + "   ".join(parts)),
        Said(f" in {outer_names}" if outer_names else ""),
    ]


_action = partial(action, section="In the flame graph", where=on(NAME))
FlamePage.actions = (
    _action(
        name="flame-in",
        title="Into",
        written="down j",
        help="the largest part of the block",
        run=move_inward,
    ),
    _action(
        name="flame-out",
        title="Out",
        written="up k",
        help="to the enclosing block",
        run=move_outward,
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
        help="to the enclosing block",
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
        run=switch_tree,
    ),
    _action(
        name="flame-time",
        title="Other time",
        written="> <",
        help="GPU or CPU",
        run=switch_time,
    ),
)
