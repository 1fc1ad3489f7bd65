"""Pages that are trees, whose rows open and close."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from fusetui.tui.layout.figure_trees import Preorder
from fusetui.tui.layout.op_tree import visible
from fusetui.tui.pages.page import ListPage, at_row
from fusetui.tui.state.action import Action, Run, action
from fusetui.tui.state.state import Opened, State

SECTION = "In the trees"


class TreeListPage(ListPage):
    """A list whose rows are the shown nodes of a tree, in preorder."""

    @abstractmethod
    def ends(self, state: State) -> NDArray[np.int64]:
        """Of each node, one past the last node of its subtree."""

    @abstractmethod
    def open_at_first(self, state: State) -> NDArray[np.bool_]:
        """Which nodes are open at first."""

    def opened(self, state: State) -> Opened:
        """Which nodes are open, and which are therefore shown."""
        opened, ends = state.list_of(self.name).opened, self.ends(state)
        if opened is not None and len(opened.nodes) == len(ends):
            return opened
        nodes = self.open_at_first(state)
        return Opened(nodes, visible(ends, nodes))

    def with_nodes(self, state: State, nodes: NDArray[np.bool_]) -> State:
        """Opens these nodes and closes all others."""
        opened = Opened(nodes, visible(self.ends(state), nodes))
        return state.with_list(self.name, replace(state.list_of(self.name), opened=opened))

    def on_node(self, state: State, node: int) -> State:
        """Moves the cursor to a node that is shown."""
        cursor = max(0, int(np.searchsorted(self.opened(state).shown, node)))
        return state.with_list(self.name, replace(state.list_of(self.name), cursor=cursor))

    def in_order(self, state: State, was: Preorder, now: Preorder) -> State:
        """The nodes in another order: those that are open stay open, and the cursor on its node."""
        before, here = state.list_of(self.name).opened, self.node(state)
        if before is None:
            return state
        opened = np.zeros(len(before.nodes), dtype=np.bool_)
        opened[was.nodes] = before.nodes
        nodes = opened[now.nodes]
        shown = Opened(nodes, visible(now.end, nodes))
        state = state.with_list(self.name, replace(state.list_of(self.name), opened=shown))
        if here < 0:
            return state
        place = int(now.place[was.nodes[here]])
        cursor = max(0, int(np.searchsorted(shown.shown, place)))
        return state.with_list(self.name, replace(state.list_of(self.name), cursor=cursor))

    def node(self, state: State) -> int:
        """The node under the cursor, or -1."""
        shown = self.opened(state).shown
        cursor = min(state.list_of(self.name).cursor, len(shown) - 1)
        return int(shown[cursor]) if len(shown) else -1

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
    return (
        of_tree(
            "turn", "Open or close", "space", "the node under the cursor", of(TreeListPage.turn)
        ),
        of_tree("unfold", "Open", "right l", "again: into the node", of(TreeListPage.unfold)),
        of_tree(
            "fold-node", "Close", "left h", "again: to the node around it", of(TreeListPage.fold)
        ),
    )
