"""Pages that are trees, whose rows open and close."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from msgspec.structs import replace

from fusetui.trace.model.arrays import Flags, Int64s
from fusetui.tui.drawing.glyphs import glyphs_for
from fusetui.tui.drawing.picture import Rows
from fusetui.tui.drawing.schemes import Styled
from fusetui.tui.layout.figure_trees import Preorder, open_to, visible
from fusetui.tui.layout.text_layout import ListColumn, titles
from fusetui.tui.pages.page import ListPage, at_row
from fusetui.tui.state.action import Action, Run, action
from fusetui.tui.state.state import Opened, State

SECTION = "In the trees"
RowParts = Callable[[int, str, int], list[Styled]]


class TreeListPage(ListPage):
    """A list whose rows are the shown nodes of a tree, which are counted by their places in it."""

    @abstractmethod
    def order(self, state: State) -> Preorder:
        """The nodes as they are shown."""

    @abstractmethod
    def open_at_first(self, state: State) -> Flags:
        """Which nodes are open at first."""

    def ends(self, state: State) -> Int64s:
        """Of each node, one past the last node of its subtree."""
        return self.order(state).end

    def tree_rows(
        self,
        state: State,
        columns: Sequence[ListColumn],
        row: Callable[[int, str, int], list[Styled]],
    ) -> Rows:
        """`row`: the number that the tree has for a node, its mark, the width."""
        opened, order, glyphs = self.opened(state), self.order(state), glyphs_for(state.ascii_only)

        def formatted(index: int, width: int) -> list[Styled]:
            place = int(opened.shown[index])
            inner = int(order.end[place]) > place + 1
            mark = (glyphs.folded, glyphs.unfolded)[bool(opened.nodes[place])]
            return row(int(order.nodes[place]), mark if inner else glyphs.leaf, width)

        identity = opened, *columns
        return Rows(identity, len(opened.shown), lambda width: titles(columns, width), formatted)

    def opened(self, state: State) -> Opened:
        """Which nodes are open, and which are therefore shown."""
        opened, ends = state.list_of(self.name).opened, self.ends(state)
        if opened is not None and len(opened.nodes) == len(ends):
            return opened
        nodes = self.open_at_first(state)
        return Opened(nodes, visible(ends, nodes))

    def with_nodes(self, state: State, nodes: Flags) -> State:
        """Opens these nodes and closes all others."""
        opened = Opened(nodes, visible(self.ends(state), nodes))
        return state.with_list(self.name, replace(state.list_of(self.name), opened=opened))

    def on_node(self, state: State, node: int) -> State:
        """Moves the cursor to a node that is shown."""
        cursor = max(0, int(np.searchsorted(self.opened(state).shown, node)))
        return state.with_list(self.name, replace(state.list_of(self.name), cursor=cursor))

    def shown_at(self, state: State, node: int) -> State:
        """The cursor on a node, what is around it open; as it was for -1."""
        nodes = self.opened(state).nodes
        if node < 0:
            return self.with_nodes(state, nodes)
        opened = open_to(self.ends(state), nodes, node)
        return self.on_node(self.with_nodes(state, opened), node)

    def sorted(self, state: State, change: Callable[[State], State]) -> State:
        """The nodes in another order: those that are open stay open, and the cursor on its node."""
        before, here, was = self.opened(state).nodes, self.node(state), self.order(state)
        opened = np.zeros(len(before), dtype=np.bool_)
        opened[was.nodes] = before
        state = change(state)
        now = self.order(state)
        state = self.with_nodes(state, opened[now.nodes])
        return self.on_node(state, int(now.place[was.nodes[here]])) if here >= 0 else state

    def node(self, state: State) -> int:
        """The node under the cursor, or -1."""
        shown = self.opened(state).shown
        cursor = min(state.list_of(self.name).cursor, len(shown) - 1)
        return int(shown[cursor]) if len(shown) else -1

    def tree_node(self, state: State) -> int:
        """The number that the tree has for the node under the cursor, or -1."""
        place = self.node(state)
        return int(self.order(state).nodes[place]) if place >= 0 else -1

    def has_inner(self, state: State, node: int) -> bool:
        return int(self.ends(state)[node]) > node + 1

    def turn(self, state: State) -> State:
        """Opens or closes the node under the cursor."""
        node = self.node(state)
        if node < 0:
            return state
        nodes = self.opened(state).nodes.copy()
        nodes[node] = not nodes[node]
        return self.with_nodes(state, nodes)

    def unfold(self, state: State) -> State:
        """Opens the node under the cursor; if it is open, moves into it."""
        node = self.node(state)
        if node < 0 or not self.has_inner(state, node):
            return state
        if self.opened(state).nodes[node]:
            return at_row(self, state, state.list_of(self.name).cursor + 1)
        return self.turn(state)

    def fold(self, state: State) -> State:
        """Closes the node under the cursor; if it is closed, moves to the node around it."""
        node = self.node(state)
        if node < 0:
            return state
        if self.has_inner(state, node) and self.opened(state).nodes[node]:
            return self.turn(state)
        before = self.opened(state).shown[: state.list_of(self.name).cursor]
        around = before[self.ends(state)[before] > node]
        if not len(around):
            return state
        return at_row(self, state, int(np.searchsorted(before, around[-1])))


def tree_actions(find: Callable[[State], TreeListPage | None]) -> tuple[Action, ...]:
    """The actions of all trees; `tree` finds the tree that receives the keys."""

    def is_tree(state: State) -> bool:
        return find(state) is not None

    def of(change: Callable[[TreeListPage, State], State]) -> Run:
        def run(state: State) -> State:
            tree = find(state)
            return change(tree, state) if tree else state

        return run

    of_tree = partial(action, section=SECTION, where=is_tree)
    turn, unfold, fold = map(of, (TreeListPage.turn, TreeListPage.unfold, TreeListPage.fold))
    return (
        of_tree("turn", "Open or close", "space", "the node under the cursor", turn),
        of_tree("unfold", "Open", "right l", "again: into the node", unfold),
        of_tree("fold-node", "Close", "left h", "again: to the node around it", fold),
    )
