"""Pages that show trees: rows open and close, and figures are shares of a whole."""

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
from fusetui.tui.drawing.schemes import Glyphs, Styled, glyphs_for, share_bar
from fusetui.tui.layout.figure_trees import FigureTree
from fusetui.tui.layout.text_layout import ListColumn, titles
from fusetui.tui.pages.page import ListPage, Pane, next_of, page_table
from fusetui.tui.state.action import Action, Run, action
from fusetui.tui.state.state import OpenNodes, Size, State

if TYPE_CHECKING:
    from fusetui.tables.public import Table

SECTION = "In the trees"
BAR_CELLS = 10
NO_NODES = OpenNodes(
    nodes=np.empty(0, dtype=np.bool_), shown=np.empty(0, dtype=np.int64)
)
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
    """The column of a figure, called `title`, else by the figure and its unit. The
    column by which the rows are sorted has a star."""
    if not title:
        title = name
        if name in tree.units:
            title += f" {tree.units[name].name}"
    if name and name == sort:
        title += "*"
    is_bar_or_name = name in ("", "name")
    return ListColumn(title, cells, left=is_bar_or_name, from_width=from_width)


class TreeListPage(ListPage, Generic[Tree]):
    """A list whose rows are the shown nodes of a tree, which are counted by their
    places in it."""

    # the figures that are shown even where they are 0
    zeros: ClassVar[Collection[str]] = ()

    @abstractmethod
    def tree(self, state: State) -> Tree | None:
        """None until it is known."""

    @abstractmethod
    def sort(self, state: State, tree: Tree) -> str:
        """What the nodes are sorted by."""

    @abstractmethod
    def sorted_by(self, state: State, sort: str) -> State:
        """The state with another order of the nodes."""

    @abstractmethod
    def columns(self, state: State, tree: Tree, sort: str) -> Columns:
        """The columns of the list; that by which it is sorted has a star."""

    @abstractmethod
    def look(self, tree: Tree, node: int) -> tuple[str, str]:
        """The tokens of a row and of its last text."""

    @abstractmethod
    def heading(self, state: State, tree: Tree, measure: str) -> tuple[str, str]:
        """What the rows are, and what their shares are of, after its figure."""

    def texts(self, state: State, tree: Tree, node: int) -> Mapping[str, str]:
        """What stands in some columns of a node instead of a figure."""
        return {}

    @abstractmethod
    def texts_of_table(
        self, tree: Tree, nodes: Sequence[int]
    ) -> Mapping[str, Sequence[str]]:
        """The columns of a saved table that name its nodes."""

    def column_name(self, tree: Tree, figure: str) -> str:
        """What the column of a figure is called in a saved table."""
        return f"{figure.lower()}_ns" if figure in tree.units else figure

    def table(self, state: State, rows: Sequence[int] | None = None) -> Table | None:
        """The nodes that are shown, each below the one around it."""
        tree = self.tree(state)
        if tree is None:
            return None
        shown = self.opened(state).shown
        nodes = shown if rows is None else shown[[*rows]]
        figures = {}
        for name, values in tree.figures.items():
            figures[self.column_name(tree, name)] = values[nodes]
        texts = self.texts_of_table(tree, nodes.tolist())
        return page_table(self.name, texts, level=tree.level[nodes], **figures)

    def nothing(self, state: State) -> str:
        """A sentence that stands instead of a tree that is not known or empty."""
        return ""

    def rows(self, state: State) -> Rows:
        """The nodes that are shown, with their figures and their share of the whole."""
        tree = self.tree(state)
        if not tree:
            return no_rows(self.nothing(state))
        sort = self.sort(state, tree)
        columns = self.columns(state, tree, sort)
        opened = self.opened(state)
        measure = tree.measure(sort)
        glyphs = glyphs_for(state.ascii_only)
        listed = tuple(columns.values())

        def formatted(index: int, width: int) -> list[Styled]:
            """The row of one node."""
            node = int(opened.shown[index])
            texts = {
                "name": _name_text(tree, node, opened, glyphs),
                "share": _share_text(tree, node, measure),
                "": _share_bar(tree, node, measure, glyphs),
                **self.texts(state, tree, node),
            }
            shown = [
                texts[name] if name in texts else self._figure_text(tree, node, name)
                for name in columns
            ]
            token, last_token = self.look(tree, node)
            return row_parts(listed, shown, width, token, last_token)

        return Rows(
            identity=(opened, *listed),
            count=len(opened.shown),
            titles=partial(titles, listed),
            format=formatted,
        )

    def _figure_text(self, tree: Tree, node: int, column: str) -> str:
        """A figure of a node, in the unit of its column if it is a time; "" where it is
        0, unless it is one of `zeros`."""
        figure = int(tree.figures[column][node])
        if not figure and column not in self.zeros:
            return ""
        unit = tree.units.get(column)
        return unit.text(figure) if unit else count(figure)

    def above(self, state: State, size: Size) -> Sequence[Pane]:
        """A line that says what the rows are and what their shares are of."""
        tree = self.tree(state)
        if not tree:
            return ()
        measure = tree.measure(self.sort(state, tree))
        whole = tree.whole(measure)
        what, of = self.heading(state, tree, measure)
        figure = duration(whole) if measure in tree.units else count(whole)
        ellipsis = glyphs_for(state.ascii_only).ellipsis
        share = f"share of the {figure} {of}"
        line = clip(f"{what}   {share}", size.width - 1, ellipsis)
        return (Pane(1, text([Said(f" {line}", "plain")])),)

    def subject(self, state: State) -> int:
        """The slice that the node under the cursor stands for; -1 for none."""
        tree, node = self.tree(state), self.node(state)
        return int(tree.row[node]) if tree and node >= 0 else -1

    def opened(self, state: State) -> OpenNodes:
        """Which nodes are open, and which are therefore shown."""
        tree = self.tree(state)
        if tree is None:
            return NO_NODES
        opened = state.list_of(self.name).opened
        if opened is not None and len(opened.nodes) == len(tree):
            return opened
        return self._opening(state, tree, tree.open_at_first)

    def _opening(self, state: State, tree: Tree, nodes: Flags) -> OpenNodes:
        return OpenNodes(nodes, tree.visible(self.sort(state, tree), nodes))

    def with_nodes(self, state: State, nodes: Flags) -> State:
        """The tree with these nodes open, bool [nodes]."""
        tree = self.tree(state)
        opened = self._opening(state, tree, nodes) if tree else NO_NODES
        of_list = replace(state.list_of(self.name), opened=opened)
        return state.with_list(self.name, of_list)

    def on_node(self, state: State, node: int) -> State:
        """The cursor on a node; where that is not shown on what follows, for -1 on the
        first."""
        tree = self.tree(state)
        cursor = 0
        if tree and node >= 0:
            place = tree.preorder(self.sort(state, tree)).place
            shown_places = place[self.opened(state).shown]
            cursor = int(np.searchsorted(shown_places, place[node]))
        of_list = replace(state.list_of(self.name), cursor=cursor)
        return state.with_list(self.name, of_list)

    def led_to(self, state: State, node: int) -> State:
        """The cursor on a node, what is around it open; as it was for -1."""
        tree = self.tree(state)
        nodes = self.opened(state).nodes
        if tree is None or node < 0:
            return self.with_nodes(state, nodes)
        nodes = nodes.copy()
        around = int(tree.parent[node])
        while around >= 0:
            nodes[around] = True
            around = int(tree.parent[around])
        return self.on_node(self.with_nodes(state, nodes), node)

    def sort_on(self, state: State, by: int) -> State:
        """Sorted by the next column, or the one before: open nodes and the cursor
        stay."""
        tree = self.tree(state)
        if not tree:
            return state
        node = self.node(state)
        nodes = self.opened(state).nodes
        sort = next_of(tree.sorts, self.sort(state, tree), by)
        now = self.with_nodes(self.sorted_by(state, sort), nodes)
        return self.on_node(now, node)

    def node(self, state: State) -> int:
        """The node under the cursor, or -1."""
        shown = self.opened(state).shown
        cursor = self.under_cursor(state, range(len(shown)))
        return -1 if cursor is None else int(shown[cursor])

    def turn(self, state: State) -> State:
        """Opens the node under the cursor, or closes it."""
        node = self.node(state)
        if node < 0:
            return state
        nodes = self.opened(state).nodes.copy()
        nodes[node] = not nodes[node]
        return self.with_nodes(state, nodes)

    def unfold(self, state: State) -> State:
        """Opens the node under the cursor; if it is open, moves into it."""
        tree = self.tree(state)
        node = self.node(state)
        if not tree or tree.size[node] == 1:
            return state
        if self.opened(state).nodes[node]:
            return self.at_row(state, state.list_of(self.name).cursor + 1)
        return self.turn(state)

    def fold(self, state: State) -> State:
        """Closes the node under the cursor; if it is closed, moves to the node around
        it."""
        tree = self.tree(state)
        if not tree:
            return state
        node = self.node(state)
        if tree.size[node] > 1 and self.opened(state).nodes[node]:
            return self.turn(state)
        around = int(tree.parent[node])
        return self.on_node(state, around) if around >= 0 else state


def _name_text(tree: FigureTree, node: int, opened: OpenNodes, glyphs: Glyphs) -> str:
    """The name of a node, indented by its level, after a character that says whether it
    is open or cannot be opened."""
    if tree.size[node] == 1:
        mark = glyphs.leaf
    elif opened.nodes[node]:
        mark = glyphs.unfolded
    else:
        mark = glyphs.folded
    indent = "  " * int(tree.level[node])
    return f"{indent}{mark} {tree.label(node)}"


def _share_text(tree: FigureTree, node: int, measure: str) -> str:
    """The share of the whole that a node is by a measure; "" for none."""
    part = int(tree.figures[measure][node])
    return percent(part, tree.whole(measure)) if part else ""


def _share_bar(tree: FigureTree, node: int, measure: str, glyphs: Glyphs) -> str:
    """The bar of that share."""
    part = int(tree.figures[measure][node])
    return share_bar(part, tree.whole(measure), BAR_CELLS, glyphs)


AnyTree = TreeListPage[FigureTree]


def tree_actions(find: Callable[[State], AnyTree | None]) -> tuple[Action, ...]:
    """The actions of all trees; `find` finds the tree that receives the keys."""

    def on_tree(change: Callable[[AnyTree, State], State]) -> Run:
        def run(state: State) -> State:
            tree = find(state)
            return change(tree, state) if tree else state

        return run

    of_tree = partial(
        action, section=SECTION, where=lambda state: find(state) is not None
    )
    return (
        of_tree(
            name="turn",
            title="Open or close",
            written="space",
            help="the node under the cursor",
            run=on_tree(TreeListPage.turn),
        ),
        of_tree(
            name="unfold",
            title="Open",
            written="right l",
            help="again: into the node",
            run=on_tree(TreeListPage.unfold),
        ),
        of_tree(
            name="fold-node",
            title="Close",
            written="left h",
            help="again: to the node around it",
            run=on_tree(TreeListPage.fold),
        ),
    )
