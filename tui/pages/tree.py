"""The op tree page: CPU ops of every thread with total, self and GPU time."""

from __future__ import annotations

import numpy as np
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
)
from fusetui.tui.pages.folding import TreeListPage
from fusetui.tui.state import search
from fusetui.tui.state.copying import names_text
from fusetui.tui.state.session import Hits
from fusetui.tui.state.state import Outcome, State

COLUMNS = (
    Column("total", 9),
    Column("self", 9),
    Column("GPU", 9),
    Column("kernels", 7),
    Column("op", 0, left=True),
)


NAME = "tree"


class TreePage(TreeListPage):
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
        """Shows the selected slice, if it is in the tree."""
        tree, row = state.side.once(op_tree), state.view.selected
        node = node_of(tree, row) if row >= 0 else -1
        nodes = self.opened(state).nodes
        if node < 0:
            return self.with_nodes(state, nodes)
        return self.on_node(self.with_nodes(state, open_to(tree.end, nodes, node)), node)

    def ends(self, state: State) -> NDArray[np.int64]:
        return state.side.once(op_tree).end

    def open_at_first(self, state: State) -> NDArray[np.bool_]:
        """The threads."""
        opened: NDArray[np.bool_] = state.side.once(op_tree).row < 0
        return opened

    def rows(self, state: State) -> Rows:
        tree, opened = state.side.once(op_tree), self.opened(state)
        glyphs = glyphs_for(state.ascii_only)

        def row(index: int, width: int) -> list[Styled]:
            node = int(opened.shown[index])
            return format_node(tree, node, bool(opened.nodes[node]), glyphs, width)

        return Rows(opened, len(opened.shown), lambda w: titles(COLUMNS, w), row)

    def chosen(self, state: State, index: int) -> Outcome:
        """Shows an op in the timeline; opens or closes a thread."""
        tree = state.side.once(op_tree)
        row = int(tree.row[self.opened(state).shown[index]])
        if row < 0:
            return self.turn(state)
        hits = Hits(tree.trace.name_of(row), state.active, np.array([row]))
        return search.shown(state, hits.step(1))

    def follow(self, before: State, state: State) -> State:
        """Keeps open nodes and the cursor."""
        now = before.list_of(self.name)
        if now.opened is None:
            return state
        old, new, shown = before.side.once(op_tree), state.side.once(op_tree), now.opened.shown
        node = int(shown[min(now.cursor, len(shown) - 1)]) if len(shown) else -1
        nodes, node = same_open(old, now.opened.nodes, node, new)
        return self.on_node(self.with_nodes(state, nodes), node)

    def copied(self, state: State) -> str:
        """The full name of the op under the cursor, or the label of the thread."""
        node = self.node(state)
        return names_text([name_of_node(state.side.once(op_tree), node)]) if node >= 0 else ""


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


TREE = TreePage()
