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
from fusetui.tui.drawing.picture import Rows, Said, make_empty_list, style_row, text
from fusetui.tui.drawing.schemes import Glyphs, Styled, choose_glyphs, draw_share_bar
from fusetui.tui.layout.figure_trees import FigureTree
from fusetui.tui.layout.text_layout import ListColumn, titles
from fusetui.tui.pages.page import ListPage, Pane, cycle_name, make_page_table
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


def make_figure_column(
    tree: FigureTree,
    sort: str,
    name: str,
    cells: int,
    from_width: int = 0,
    title: str = "",
) -> ListColumn:
    """Return the list column of one figure of a tree.

    Its title is `title`, or the figure's name with its unit (ns, us, ...). The column
    by which rows are sorted gets a star. The bar (named "") and the name are aligned
    left; others right. `from_width`: the screen width from which it is shown.
    """
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
        """Return the tree that the page lists, or None while it is not known yet."""

    @abstractmethod
    def sort(self, state: State, tree: Tree) -> str:
        """Return the name of the figure by which siblings in the tree are sorted."""

    @abstractmethod
    def sorted_by(self, state: State, sort: str) -> State:
        """Return the state with the nodes of the tree sorted by the figure `sort`."""

    @abstractmethod
    def columns(self, state: State, tree: Tree, sort: str) -> Columns:
        """Return the columns of the list, by the figures that they show. The title of
        the column by which it is sorted has a star."""

    @abstractmethod
    def look(self, tree: Tree, node: int) -> tuple[str, str]:
        """Return the color tokens of a node's row: one for the figures, one for the
        last text, its name."""

    @abstractmethod
    def heading(self, state: State, tree: Tree, measure: str) -> tuple[str, str]:
        """Return two parts of the line above the list: what its rows are, and what
        their shares are of."""

    def texts(self, state: State, tree: Tree, node: int) -> Mapping[str, str]:
        """Return texts that stand in some columns of a node instead of its figures, by
        column name. By default there are none."""
        return {}

    @abstractmethod
    def texts_of_table(
        self, tree: Tree, nodes: Sequence[int]
    ) -> Mapping[str, Sequence[str]]:
        """Return the text columns of a saved table that name these nodes, by column
        title. Each has one text per node."""

    def column_name(self, tree: Tree, figure: str) -> str:
        """Return what the column of a figure is called in a saved table: times end in
        `_ns`."""
        return f"{figure.lower()}_ns" if figure in tree.units else figure

    def table(self, state: State, rows: Sequence[int] | None = None) -> Table | None:
        """Return the shown nodes as a table to save, each below its parent, with their
        levels and exact figures. `rows` selects rows of the list; None takes all. The
        result is None while the tree is not known."""
        tree = self.tree(state)
        if tree is None:
            return None
        shown_nodes = self.opened(state).shown
        nodes = shown_nodes if rows is None else shown_nodes[[*rows]]
        figures = {}
        for name, values in tree.figures.items():
            figures[self.column_name(tree, name)] = values[nodes]
        texts = self.texts_of_table(tree, nodes.tolist())
        return make_page_table(self.name, texts, level=tree.level[nodes], **figures)

    def nothing(self, state: State) -> str:
        """Return the sentence that is shown instead of a tree that is empty or not
        known yet."""
        return ""

    def rows(self, state: State) -> Rows:
        """Return a row for each node of the tree that is shown, with its figures and
        its share of the whole. Children of closed nodes are not shown."""
        tree = self.tree(state)
        if not tree:
            return make_empty_list(self.nothing(state))
        sort = self.sort(state, tree)
        measure = tree.measure(sort)
        column_of_name = self.columns(state, tree, sort)
        columns = tuple(column_of_name.values())
        open_nodes = self.opened(state)
        glyphs = choose_glyphs(state.ascii_only)

        def format_row(index: int, width: int) -> list[Styled]:
            """The row of one node."""
            node = int(open_nodes.shown[index])
            texts = {
                "name": _format_name(tree, node, open_nodes, glyphs),
                "share": _format_share(tree, node, measure),
                "": _draw_share_bar(tree, node, measure, glyphs),
            }
            texts.update(self.texts(state, tree, node))
            cells = []
            for name in column_of_name:
                # all other columns are figures of the tree
                if name not in texts:
                    texts[name] = self._format_figure(tree, node, name)
                cells.append(texts[name])
            token, last_token = self.look(tree, node)
            return style_row(columns, cells, width, token, last_token)

        return Rows(
            identity=(open_nodes, *columns),
            count=len(open_nodes.shown),
            titles=partial(titles, columns),
            format=format_row,
        )

    def _format_figure(self, tree: Tree, node: int, column: str) -> str:
        """Return a figure of a node as text: a time in the unit of its column, else a
        count. A 0 gives "", except in the columns named in `zeros`."""
        figure = int(tree.figures[column][node])
        if not figure and column not in self.zeros:
            return ""
        unit = tree.units.get(column)
        return unit.text(figure) if unit else count(figure)

    def above(self, state: State, size: Size) -> Sequence[Pane]:
        """Return a line that says what the rows are and what their shares are of. There
        is none without a tree."""
        tree = self.tree(state)
        if not tree:
            return ()
        measure = tree.measure(self.sort(state, tree))
        whole = tree.whole(measure)
        rows_text, whole_text = self.heading(state, tree, measure)
        figure = duration(whole) if measure in tree.units else count(whole)
        ellipsis = choose_glyphs(state.ascii_only).ellipsis
        share = f"share of the {figure} {whole_text}"
        line = clip(f"{rows_text}   {share}", size.width - 1, ellipsis)
        return (Pane(1, text([Said(f" {line}", "plain")])),)

    def subject(self, state: State) -> int:
        """Return the row of the slice that the node under the cursor stands for; -1 for
        none."""
        tree = self.tree(state)
        node = self.node(state)
        return int(tree.row[node]) if tree and node >= 0 else -1

    def opened(self, state: State) -> OpenNodes:
        """Return which nodes of the tree are open, and which are therefore shown.

        Nodes that the user opened or closed are used while they fit the tree. Otherwise
        it opens as at first.
        """
        tree = self.tree(state)
        if tree is None:
            return NO_NODES
        kept_nodes = state.list_of(self.name).opened
        # another number of nodes means that they are of an earlier tree
        if kept_nodes is not None and len(kept_nodes.nodes) == len(tree):
            return kept_nodes
        return self._opening(state, tree, tree.open_at_first)

    def _opening(self, state: State, tree: Tree, nodes: Flags) -> OpenNodes:
        """Return the given open nodes (bool, one per node) together with the nodes that
        are shown because of them."""
        return OpenNodes(nodes, tree.visible(self.sort(state, tree), nodes))

    def with_nodes(self, state: State, nodes: Flags) -> State:
        """Return the state with exactly the given nodes of the tree open. `nodes` is
        bool, one per node."""
        tree = self.tree(state)
        open_nodes = self._opening(state, tree, nodes) if tree else NO_NODES
        list_state = replace(state.list_of(self.name), opened=open_nodes)
        return state.with_list(self.name, list_state)

    def on_node(self, state: State, node: int) -> State:
        """Return the state with the cursor on `node`. If that node is hidden, the
        cursor goes to the next one that is shown; for -1 to the first row."""
        tree = self.tree(state)
        cursor = 0
        if tree and node >= 0:
            preorder_places = tree.preorder(self.sort(state, tree)).place
            shown_places = preorder_places[self.opened(state).shown]
            cursor = int(np.searchsorted(shown_places, preorder_places[node]))
        list_state = replace(state.list_of(self.name), cursor=cursor)
        return state.with_list(self.name, list_state)

    def led_to(self, state: State, node: int) -> State:
        """Return the state with the cursor on `node` and all nodes around it open, so
        that it is shown. For -1 nothing moves."""
        tree = self.tree(state)
        open_flags = self.opened(state).nodes
        if tree is None or node < 0:
            return self.with_nodes(state, open_flags)
        open_flags = open_flags.copy()
        ancestor = int(tree.parent[node])
        while ancestor >= 0:
            open_flags[ancestor] = True
            ancestor = int(tree.parent[ancestor])
        return self.on_node(self.with_nodes(state, open_flags), node)

    def sort_on(self, state: State, by: int) -> State:
        """Return the state with the tree sorted by the next column (`by` 1) or the one
        before (-1). Open nodes stay open, and the cursor stays on its node."""
        tree = self.tree(state)
        if not tree:
            return state
        node = self.node(state)
        open_flags = self.opened(state).nodes
        sort = cycle_name(tree.sorts, self.sort(state, tree), by)
        sorted_state = self.with_nodes(self.sorted_by(state, sort), open_flags)
        return self.on_node(sorted_state, node)

    def node(self, state: State) -> int:
        """Return the node of the tree that is under the cursor; -1 for an empty tree."""
        shown = self.opened(state).shown
        cursor = self.under_cursor(state, range(len(shown)))
        return -1 if cursor is None else int(shown[cursor])

    def turn(self, state: State) -> State:
        """Open the node under the cursor if it is closed, and close it if it is open."""
        node = self.node(state)
        if node < 0:
            return state
        open_flags = self.opened(state).nodes.copy()
        open_flags[node] = not open_flags[node]
        return self.with_nodes(state, open_flags)

    def unfold(self, state: State) -> State:
        """Open the node under the cursor; where it is open already, move the cursor to
        its first child. A leaf stays as it is."""
        tree = self.tree(state)
        node = self.node(state)
        if not tree or tree.size[node] == 1:
            return state
        if self.opened(state).nodes[node]:
            return self.at_row(state, state.list_of(self.name).cursor + 1)
        return self.turn(state)

    def fold(self, state: State) -> State:
        """Close the node under the cursor; where it is closed or a leaf, move the
        cursor to its parent."""
        tree = self.tree(state)
        if not tree:
            return state
        node = self.node(state)
        if tree.size[node] > 1 and self.opened(state).nodes[node]:
            return self.turn(state)
        parent = int(tree.parent[node])
        return self.on_node(state, parent) if parent >= 0 else state


def _format_name(tree: FigureTree, node: int, opened: OpenNodes, glyphs: Glyphs) -> str:
    """Return the name of a node, indented by its level. A sign before it shows whether
    the node is open, closed or a leaf."""
    if tree.size[node] == 1:
        mark = glyphs.leaf
    elif opened.nodes[node]:
        mark = glyphs.unfolded
    else:
        mark = glyphs.folded
    indent = "  " * int(tree.level[node])
    return f"{indent}{mark} {tree.label(node)}"


def _format_share(tree: FigureTree, node: int, measure: str) -> str:
    """Return a node's share of the whole by a figure, in percent; "" where its figure
    is 0."""
    part = int(tree.figures[measure][node])
    return percent(part, tree.whole(measure)) if part else ""


def _draw_share_bar(tree: FigureTree, node: int, measure: str, glyphs: Glyphs) -> str:
    """Return a bar for a node's share of the whole by the figure `measure`."""
    part = int(tree.figures[measure][node])
    return draw_share_bar(part, tree.whole(measure), BAR_CELLS, glyphs)


AnyTree = TreeListPage[FigureTree]


def list_tree_actions(find: Callable[[State], AnyTree | None]) -> tuple[Action, ...]:
    """Return the actions of all trees: open or close, open, and close a node. `find`
    returns the tree that receives the keys, or None."""

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
            help="press again to go to the first child",
            run=on_tree(TreeListPage.unfold),
        ),
        of_tree(
            name="fold-node",
            title="Close",
            written="left h",
            help="press again to go to the parent",
            run=on_tree(TreeListPage.fold),
        ),
    )
