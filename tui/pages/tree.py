"""The op tree page: CPU ops of every thread with total, self and GPU time."""

from __future__ import annotations

from functools import partial

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from fusetui.trace.text.figures import count, duration
from fusetui.tui.drawing import palette
from fusetui.tui.drawing.glyphs import Glyphs, glyphs_for
from fusetui.tui.drawing.rows import Rows, Styled
from fusetui.tui.layout.columns import Column, fit, titles
from fusetui.tui.layout.kinds import kind_of, label_of, narrow
from fusetui.tui.layout.tree import (
    OpTree,
    name_of_node,
    node_of,
    op_tree,
    open_to,
    same_open,
    visible,
)
from fusetui.tui.pages.lists import ListPage, at_row
from fusetui.tui.state import search
from fusetui.tui.state.action import action, on
from fusetui.tui.state.copying import names_text
from fusetui.tui.state.session import Hits
from fusetui.tui.state.state import Opened, Outcome, State

COLUMNS = (
    Column("total", 9),
    Column("self", 9),
    Column("GPU", 9),
    Column("kernels", 7),
    Column("op", 0, left=True),
)


SECTION = "In the op tree"
NAME = "tree"


class TreePage(ListPage):
    """Space opens and closes a node, Enter shows the op in the timeline."""

    name = NAME
    title = "Op tree"
    key = "2"
    help = "CPU ops with total, self and GPU time"
    hints = (
        "? keys",
        "j/k move",
        "Space open",
        "Enter show in the timeline",
        "1 timeline",
        "y copy",
    )

    def open(self, state: State) -> State:
        """The selected slice is in sight, when it is in the tree."""
        tree, row = state.side.once(op_tree), state.view.selected
        node = node_of(tree, row) if row >= 0 else -1
        nodes = _opened(state).nodes
        if node < 0:
            return _with_nodes(state, nodes)
        return _on_node(_with_nodes(state, open_to(tree, nodes, node)), node)

    def rows(self, state: State) -> Rows:
        tree, opened = state.side.once(op_tree), _opened(state)
        glyphs = glyphs_for(state.ascii_only)

        def row(index: int, width: int) -> list[Styled]:
            node = int(opened.shown[index])
            return format_node(tree, node, bool(opened.nodes[node]), glyphs, width)

        return Rows(opened, len(opened.shown), lambda w: titles(COLUMNS, w), row)

    def chosen(self, state: State, index: int) -> Outcome:
        """An op is shown in the timeline; a thread is opened or closed."""
        tree = state.side.once(op_tree)
        row = int(tree.row[_opened(state).shown[index]])
        if row < 0:
            return turn(state)
        hits = Hits(tree.trace.name_of(row), state.active, np.array([row]))
        return search.shown(state, hits.step(1))

    def follow(self, before: State, state: State) -> State:
        """Open nodes and the cursor stay."""
        now = before.list_of(self.name)
        if now.opened is None:
            return state
        old, new, shown = before.side.once(op_tree), state.side.once(op_tree), now.opened.shown
        node = int(shown[min(now.cursor, len(shown) - 1)]) if len(shown) else -1
        nodes, node = same_open(old, now.opened.nodes, node, new)
        return _on_node(_with_nodes(state, nodes), node)

    def copied(self, state: State) -> str:
        """The full name of the op under the cursor, or the label of the thread."""
        node = _node(state)
        return names_text([name_of_node(state.side.once(op_tree), node)]) if node >= 0 else ""


def turn(state: State) -> State:
    """Open the node under the cursor, or close it."""
    node = _node(state)
    if node < 0:
        return state
    nodes = _opened(state).nodes.copy()
    nodes[node] = not nodes[node]
    return _with_nodes(state, nodes)


def unfold(state: State) -> State:
    """Open the node under the cursor; an open one leads into it."""
    node = _node(state)
    if node < 0 or not _has_children(state, node):
        return state
    if _opened(state).nodes[node]:
        return at_row(TREE, state, state.list_of(NAME).cursor + 1)
    return turn(state)


def fold(state: State) -> State:
    """Close the node under the cursor; one that is closed leads to the node around it."""
    node = _node(state)
    if node < 0:
        return state
    if _has_children(state, node) and _opened(state).nodes[node]:
        return turn(state)
    tree, shown = state.side.once(op_tree), _opened(state).shown
    before = shown[: state.list_of(NAME).cursor]
    around = before[tree.end[before] > node]
    return at_row(TREE, state, int(np.searchsorted(shown, around[-1]))) if len(around) else state


def _opened(state: State) -> Opened:
    """Which nodes are open; at first the threads."""
    opened, tree = state.list_of(NAME).opened, state.side.once(op_tree)
    if opened is not None and len(opened.nodes) == len(tree.row):
        return opened
    return _opening(tree, tree.row < 0)


def _opening(tree: OpTree, nodes: NDArray[np.bool_]) -> Opened:
    return Opened(nodes, visible(tree, nodes))


def _with_nodes(state: State, nodes: NDArray[np.bool_]) -> State:
    opened = _opening(state.side.once(op_tree), nodes)
    return state.with_list(NAME, replace(state.list_of(NAME), opened=opened))


def _on_node(state: State, node: int) -> State:
    """The cursor on a node that is in sight."""
    cursor = max(0, int(np.searchsorted(_opened(state).shown, node)))
    return state.with_list(NAME, replace(state.list_of(NAME), cursor=cursor))


def _node(state: State) -> int:
    """The node under the cursor, or -1."""
    shown = _opened(state).shown
    return int(shown[min(state.list_of(NAME).cursor, len(shown) - 1)]) if len(shown) else -1


def _has_children(state: State, node: int) -> bool:
    return int(state.side.once(op_tree).end[node]) > node + 1


def format_node(tree: OpTree, node: int, is_open: bool, glyphs: Glyphs, width: int) -> list[Styled]:
    """One line of the tree."""
    row = int(tree.row[node])
    has_children = int(tree.end[node]) > node + 1
    mark = (glyphs.unfolded if is_open else glyphs.folded) if has_children else glyphs.leaf
    indent = "  " * int(tree.depth[node]) + mark + " "
    if row < 0:
        label = narrow(tree.trace.tracks[int(tree.track[node])].label)
        return [
            (text, palette.TITLE)
            for text in fit(COLUMNS, ["", "", "", "", mark + " " + label], width)
        ]
    trace = tree.trace
    gpu, kernels = int(tree.gpu_ns[row]), int(tree.kernels[row])
    texts = [
        duration(int(trace.dur[row])),
        duration(int(tree.own_ns[row])),
        duration(gpu) if gpu else "",
        count(kernels) if kernels else "",
        indent + label_of(int(trace.role[row]), trace.name_of(row)),
    ]
    *figures, name = fit(COLUMNS, texts, width)
    kind = kind_of(int(trace.role[row]), trace.name_of(row))
    return [*((text, palette.PLAIN) for text in figures), (name, palette.swatch(kind))]


_action = partial(action, section=SECTION, where=on(NAME))


TREE = TreePage()
TreePage.actions = (
    _action("turn", "Open or close", "space", "the node under the cursor", turn),
    _action("unfold", "Open", "right l", "again: into the node", unfold),
    _action("fold-node", "Close", "left h", "again: to the node around it", fold),
)
