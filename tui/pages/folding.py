"""Pages that are trees, whose rows open and close: figures of each node, as shares of a
whole."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

import numpy as np
from msgspec.structs import replace

from fusetui.text.cutting import clip
from fusetui.text.figures import count, duration, percent
from fusetui.trace.model.arrays import Flags
from fusetui.tui.drawing.picture import Rows, Said, no_rows, row_parts, text
from fusetui.tui.drawing.schemes import Styled, glyphs_for, share_bar
from fusetui.tui.layout.figure_trees import FigureTree
from fusetui.tui.layout.text_layout import ListColumn, titles
from fusetui.tui.pages.page import ListPage, Pane, next_of, page_table
from fusetui.tui.state.action import Action, Run, action
from fusetui.tui.state.state import OpenNodes, Size, State

if TYPE_CHECKING:
    from fusetui.tables.public import Table

SECTION = "In the trees"
BAR = 10  # cells
NOTHING = OpenNodes(np.empty(0, dtype=np.bool_), np.empty(0, dtype=np.int64))
Tree = TypeVar("Tree", bound=FigureTree)
Columns = Mapping[str, ListColumn]  # by figures, `share`, "" for its bar, and `name`


def figure_column(
    tree: FigureTree,
    sort: str,
    name: str,
    cells: int,
    from_width: int = 0,
    title: str = "",
) -> ListColumn:
    """The column by which the rows are sorted has a star."""
    title = title or (f"{name} {tree.units[name].name}" if name in tree.units else name)
    star = "*" if name and name == sort else ""
    return ListColumn(title + star, cells, name in ("", "name"), from_width)


class TreeListPage(ListPage, Generic[Tree]):
    """A list whose rows are the shown nodes of a tree, which are counted by their
    places in it."""

    is_table = True
    # the figures that are shown even where they are 0
    zeros: ClassVar[Collection[str]] = ()

    @abstractmethod
    def tree(self, state: State) -> Tree | None:
        """None until it is known."""

    @abstractmethod
    def sort(self, state: State, tree: Tree) -> str:
        """What the nodes are sorted by."""

    @abstractmethod
    def sorted_by(self, state: State, sort: str) -> State: ...

    @abstractmethod
    def columns(self, state: State, tree: Tree, sort: str) -> Columns: ...

    @abstractmethod
    def look(self, tree: Tree, node: int) -> tuple[str, str]:
        """The tokens of a row and of its last text."""

    @abstractmethod
    def heading(self, state: State, tree: Tree, measure: str) -> tuple[str, str]:
        """What the rows are, and what their shares are of, after its figure."""

    def texts(self, state: State, tree: Tree, node: int) -> Mapping[str, str]:
        """Instead of figures."""
        return {}

    @abstractmethod
    def texts_of_table(
        self, tree: Tree, nodes: Sequence[int]
    ) -> Mapping[str, Sequence[str]]:
        """The columns of a saved table that name its nodes."""

    def column_name(self, tree: Tree, figure: str) -> str:
        return f"{figure.lower()}_ns" if figure in tree.units else figure

    def table(self, state: State, rows: Sequence[int] | None = None) -> Table | None:
        """The nodes that are shown, each below the one around it."""
        if (tree := self.tree(state)) is None:
            return None
        shown = self.opened(state).shown
        nodes = shown if rows is None else shown[[*rows]]
        figures = {
            self.column_name(tree, name): tree.figures[name][nodes]
            for name in tree.figures
        }
        texts = self.texts_of_table(tree, nodes.tolist())
        return page_table(self.name, texts, level=tree.level[nodes], **figures)

    def nothing(self, state: State) -> str:
        return ""

    def rows(self, state: State) -> Rows:
        if not (tree := self.tree(state)):
            return no_rows(self.nothing(state))
        found, sort = tree, self.sort(state, tree)
        named, glyphs = self.columns(state, tree, sort), glyphs_for(state.ascii_only)
        opened, columns = self.opened(state), [*named.values()]
        measure = tree.measure(sort)

        def said(name: str, figures: Mapping[str, int]) -> str:
            if name == "share":
                share = figures[measure]
                return percent(share, found.whole(measure)) if share else ""
            if not name:
                return share_bar(figures[measure], found.whole(measure), BAR, glyphs)
            if not figures[name] and name not in self.zeros:
                return ""
            unit = found.units.get(name)
            return unit.text(figures[name]) if unit else count(figures[name])

        def formatted(index: int, width: int) -> list[Styled]:
            node = int(opened.shown[index])
            turned = glyphs.unfolded if opened.nodes[node] else glyphs.folded
            mark = turned if found.size[node] > 1 else glyphs.leaf
            figures = {
                name: int(values[node]) for name, values in found.figures.items()
            }
            own = dict(self.texts(state, found, node))
            own["name"] = f"{'  ' * int(found.level[node])}{mark} {found.label(node)}"
            texts = [own[n] if n in own else said(n, figures) for n in named]
            return row_parts(columns, texts, width, *self.look(found, node))

        identity = opened, *columns
        return Rows(
            identity, len(opened.shown), lambda width: titles(columns, width), formatted
        )

    def above(self, state: State, size: Size) -> Sequence[Pane]:
        if not (tree := self.tree(state)):
            return ()
        measure = tree.measure(self.sort(state, tree))
        whole, (what, of) = tree.whole(measure), self.heading(state, tree, measure)
        figure = duration(whole) if measure in tree.units else count(whole)
        ellipsis = glyphs_for(state.ascii_only).ellipsis
        said = clip(f"{what}   share of the {figure} {of}", size.width - 1, ellipsis)
        return (Pane(1, text([Said(f" {said}", "plain")])),)

    def subject(self, state: State) -> int:
        tree, node = self.tree(state), self.node(state)
        return int(tree.row[node]) if tree and node >= 0 else -1

    def opened(self, state: State) -> OpenNodes:
        """Which nodes are open, and which are therefore shown."""
        opened, tree = state.list_of(self.name).opened, self.tree(state)
        if tree is None:
            return NOTHING
        if opened is not None and len(opened.nodes) == len(tree):
            return opened
        return self._opening(state, tree, tree.open_at_first)

    def _opening(self, state: State, tree: Tree, nodes: Flags) -> OpenNodes:
        return OpenNodes(nodes, tree.visible(self.sort(state, tree), nodes))

    def with_nodes(self, state: State, nodes: Flags) -> State:
        tree = self.tree(state)
        opened = self._opening(state, tree, nodes) if tree else NOTHING
        return state.with_list(
            self.name, replace(state.list_of(self.name), opened=opened)
        )

    def on_node(self, state: State, node: int) -> State:
        """The cursor on a node; where that is not shown on what follows, for -1 on the
        first."""
        tree, cursor = self.tree(state), 0
        if tree and node >= 0:
            place = tree.preorder(self.sort(state, tree)).place
            cursor = int(np.searchsorted(place[self.opened(state).shown], place[node]))
        return state.with_list(
            self.name, replace(state.list_of(self.name), cursor=cursor)
        )

    def led_to(self, state: State, node: int) -> State:
        """The cursor on a node, what is around it open; as it was for -1."""
        tree, nodes = self.tree(state), self.opened(state).nodes
        if tree is None or node < 0:
            return self.with_nodes(state, nodes)
        nodes, around = nodes.copy(), node
        while (around := int(tree.parent[around])) >= 0:
            nodes[around] = True
        return self.on_node(self.with_nodes(state, nodes), node)

    def sort_on(self, state: State, by: int) -> State:
        """Sorted by the next column, or the one before: open nodes and the cursor
        stay."""
        tree, node, nodes = self.tree(state), self.node(state), self.opened(state).nodes
        if not tree:
            return state
        state = self.sorted_by(state, next_of(tree.sorts, self.sort(state, tree), by))
        return self.on_node(self.with_nodes(state, nodes), node)

    def node(self, state: State) -> int:
        """The node under the cursor, or -1."""
        shown = self.opened(state).shown
        cursor = self.under_cursor(state, range(len(shown)))
        return -1 if cursor is None else int(shown[cursor])

    def turn(self, state: State) -> State:
        if (node := self.node(state)) < 0:
            return state
        nodes = self.opened(state).nodes.copy()
        nodes[node] = not nodes[node]
        return self.with_nodes(state, nodes)

    def unfold(self, state: State) -> State:
        """Opens the node under the cursor; if it is open, moves into it."""
        tree, node = self.tree(state), self.node(state)
        if not tree or tree.size[node] == 1:
            return state
        if self.opened(state).nodes[node]:
            return self.at_row(state, state.list_of(self.name).cursor + 1)
        return self.turn(state)

    def fold(self, state: State) -> State:
        """Closes the node under the cursor; if it is closed, moves to the node around
        it."""
        tree, node, opened = self.tree(state), self.node(state), self.opened(state)
        if not tree:
            return state
        if tree.size[node] > 1 and opened.nodes[node]:
            return self.turn(state)
        around = int(tree.parent[node])
        return self.on_node(state, around) if around >= 0 else state


AnyTree = TreeListPage[FigureTree]


def tree_actions(find: Callable[[State], AnyTree | None]) -> tuple[Action, ...]:
    """The actions of all trees; `find` finds the tree that receives the keys."""

    def of(change: Callable[[AnyTree, State], State]) -> Run:
        def run(state: State) -> State:
            tree = find(state)
            return change(tree, state) if tree else state

        return run

    of_tree = partial(
        action, section=SECTION, where=lambda state: find(state) is not None
    )
    turn, unfold, fold = map(
        of, (TreeListPage.turn, TreeListPage.unfold, TreeListPage.fold)
    )
    return (
        of_tree("turn", "Open or close", "space", "the node under the cursor", turn),
        of_tree("unfold", "Open", "right l", "again: into the node", unfold),
        of_tree("fold-node", "Close", "left h", "again: to the node around it", fold),
    )
