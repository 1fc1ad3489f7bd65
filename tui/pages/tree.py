"""The op tree page: CPU ops of every thread with total, self and GPU time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from fusetui.text.figures import Unit, count, duration, percent
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.memo import kept_on
from fusetui.tui.drawing.glyphs import Glyphs, glyphs_for, share_bar
from fusetui.tui.drawing.picture import Rows, Said, text
from fusetui.tui.drawing.schemes import TEXT, Styled
from fusetui.tui.layout.call_tree import MODES, CallTree, TreeView, call_tree, callers_tree
from fusetui.tui.layout.figure_trees import Preorder
from fusetui.tui.layout.kinds import kind_of, label_of, narrow
from fusetui.tui.layout.op_tree import OpTree, node_of, op_tree, open_to, same_open
from fusetui.tui.layout.text_layout import NEVER, Column, fit, shown, start_unit, titles
from fusetui.tui.layout.view import Side
from fusetui.tui.pages.folding import TreeListPage
from fusetui.tui.pages.page import Pane
from fusetui.tui.state import search
from fusetui.tui.state.action import Run, action, on
from fusetui.tui.state.copying import names_text
from fusetui.tui.state.session import Hits
from fusetui.tui.state.state import ListState, Outcome, Size, State, told

BAR = 10  # cells
WHAT: Final = {
    "path": "ops by call path",
    "callers": "ops, and below each what calls it",
    "each": "ops one by one",
}
WHOLES: Final = {
    "GPU": "of GPU time that they launched",
    "total": "that they took",
    "self": "of their self time",
    "kernels": "kernels",
    "count": "calls",
}


class TreeTable(msgspec.Struct, frozen=True, eq=False):
    """What the rows of a tree need; `start`: the unit of the times at which ops began."""

    side: Side
    tree: CallTree | OpTree
    measure: str
    columns: Sequence[Column]
    start: Unit

    def row(self, node: int, mark: str, glyphs: Glyphs, width: int) -> list[Styled]:
        """One line; the share is that of the measure."""
        tree, row = self.tree, int(self.tree.row[node])
        level = int(tree.level[node] if isinstance(tree, CallTree) else tree.depth[node])
        role = int(tree.trace.source_role[row]) if row >= 0 else -1
        name = tree.name_of(node)
        label = f"{'  ' * level}{mark} {label_of(role, name) if row >= 0 else narrow(name)}"
        *figures, last = fit(self.columns, [*self._texts(node, row, glyphs), label], width)
        look = "plain" if row >= 0 else "title"
        styled = [
            (text, look if self.columns[n].title else "busy")
            for n, text in zip(shown(self.columns, width), figures, strict=False)
        ]
        return [*styled, (last, kind_of(role, name).token + TEXT if row >= 0 else look)]

    def _texts(self, node: int, row: int, glyphs: Glyphs) -> list[str]:
        tree, whole = self.tree, self.tree.whole(self.measure)
        found = {name: int(values[node]) for name, values in tree.figures.items()}
        share = found[self.measure]
        return [
            tree.units["GPU"].text(found["GPU"]) if found["GPU"] else "",
            percent(share, whole) if share else "",
            share_bar(share, whole, BAR, glyphs),
            tree.units["total"].text(found["total"]),
            tree.units["self"].text(found["self"]) if row >= 0 else "",
            count(found["kernels"]) if found["kernels"] else "",
            self._last(found, row),
        ]

    def _last(self, found: dict[str, int], row: int) -> str:
        if isinstance(self.tree, CallTree):
            return count(found["count"])
        start = int(self.tree.trace.start[row]) - self.side.origin
        return self.start.text(start) if row >= 0 else ""


def tree_table(side: Side, tree: CallTree | OpTree, view: TreeView) -> TreeTable:
    """The column by which the rows are sorted has a star."""
    sort = view.sort_of(tree)
    start = start_unit(tree.trace)

    def column(name: str, text: str, width: int, from_width: int = 0) -> Column:
        return Column(f"{text}*" if name == sort else text, width, name == "name", from_width)

    def time(name: str, width: int, from_width: int = 0) -> Column:
        return column(name, f"{name} {tree.units[name].name}", width, from_width)

    launches = tree.whole("GPU") > 0
    is_merged = isinstance(tree, CallTree)
    last = column("count", "count", 7) if is_merged else column("start", f"at {start.name}", 10)
    columns = (
        time("GPU", 9, 0 if launches else NEVER),
        Column("share", 7, from_width=70),
        Column("", BAR, left=True, from_width=90),
        time("total", 10),
        time("self", 9),
        column("kernels", "kernels", 8, 70 if launches else NEVER),
        last,
        column("name", "op, then what calls it" if view.mode == "callers" else "op", 0),
    )
    return TreeTable(side, tree, tree.measure(sort), columns, start)


def heading(tree: CallTree | OpTree, view: TreeView) -> str:
    """What the rows are, and what their shares are of."""
    measure = tree.measure(view.sort_of(tree))
    whole = tree.whole(measure)
    text = duration(whole) if measure in tree.units else count(whole)
    share = f"share of the {text} {WHOLES[measure]}"
    if measure == "GPU" and whole < tree.all_gpu_ns:
        share += f", {percent(whole, tree.all_gpu_ns)} of all GPU time"
    return f"{WHAT[view.mode]}   {share}"


NAME = "tree"
LARGE = 200_000  # slices: the tree of fewer is made in a moment
TOO_MANY = "so many ops, one by one, are shown in order of time alone"
WORKING = "working: the op tree of this large trace will follow"


class TreePage(TreeListPage):
    """Space opens and closes a node, Enter shows the op, or the longest of those merged."""

    name = NAME
    title = "Op tree"
    key = "2"
    help = "CPU ops with total, self and GPU time, by call path, by callers, or each"
    hints = (
        "help keys",
        "row-down/row-up move",
        "turn open",
        "show the longest",
        "tree-mode path, callers, each",
        "tree-sort-right/tree-sort-left sort",
        "copy copy",
    )

    def missing(self, state: State) -> str:
        return awaited(state, state.tree.mode)

    def open(self, state: State) -> State:
        """Shows the selected slice, if it is in the tree."""
        row, nodes = state.view.selected, self.opened(state).nodes
        node = self._node_of(state, row) if row >= 0 else -1
        if node < 0:
            return self.with_nodes(state, nodes)
        return self.on_node(self.with_nodes(state, open_to(self.ends(state), nodes, node)), node)

    def ends(self, state: State) -> NDArray[np.int64]:
        return order_of(state).end

    def open_at_first(self, state: State) -> NDArray[np.bool_]:
        """The threads."""
        threads: NDArray[np.bool_] = shown_tree(state).is_thread[order_of(state).nodes]
        return threads

    def rows(self, state: State) -> Rows:
        tree, order, opened = shown_tree(state), order_of(state), self.opened(state)
        table = tree_table(state.side, tree, state.tree)
        glyphs = glyphs_for(state.ascii_only)

        def row(index: int, width: int) -> list[Styled]:
            place = int(opened.shown[index])
            inner = int(order.end[place]) > place + 1
            mark = (glyphs.folded, glyphs.unfolded)[bool(opened.nodes[place])]
            return table.row(int(order.nodes[place]), mark if inner else glyphs.leaf, glyphs, width)

        columns = table.columns
        return Rows(opened, len(opened.shown), lambda width: titles(columns, width), row)

    def above(self, state: State, size: Size) -> Sequence[Pane]:
        """What the rows are, and what their shares are of."""
        return (Pane(1, text([Said(f" {heading(shown_tree(state), state.tree)}", "plain")])),)

    def chosen(self, state: State, index: int) -> Outcome:
        """Shows the op, or the longest of its path, in the timeline; opens or closes a thread."""
        place = int(self.opened(state).shown[index])
        row = self._row_of(state, place)
        if row < 0:
            return self.turn(state)
        trace, tree = state.side.trace, shown_tree(state)
        rows = np.array([row])
        if isinstance(tree, CallTree):
            same = np.flatnonzero(tree.of_row == int(order_of(state).nodes[place]))
            same = same[trace.role[same] == trace.role[row]]
            same = same[np.argsort(trace.start[same], kind="stable")]
            rows = same if len(same) else rows
        at = int((rows == row).argmax())
        return search.shown(state, Hits(trace.name_of(row), state.active, rows, at))

    def subject(self, state: State) -> int:
        node = self.node(state)
        return self._row_of(state, node) if node >= 0 else -1

    def follow(self, before: State, state: State) -> State:
        """Keeps open nodes and the cursor; of merged ops, which have other places, the first."""
        now = before.list_of(self.name)
        if now.opened is None:
            return state
        old, new = shown_tree(before), shown_tree(state)
        if isinstance(old, CallTree) and isinstance(new, CallTree):
            return _followed(self, before, state, (old, new))
        if not (isinstance(old, OpTree) and isinstance(new, OpTree)):
            return state
        was, fresh = order_of(before), order_of(state)
        opened = np.zeros(len(old), dtype=np.bool_)
        opened[was.nodes] = now.opened.nodes
        here = self.node(before)
        nodes, node = same_open(old, opened, int(was.nodes[here]) if here >= 0 else -1, new)
        state = self.with_nodes(state, nodes[fresh.nodes])
        return self.on_node(state, int(fresh.place[node]) if node >= 0 else -1)

    def copied(self, state: State) -> str:
        """The full name of the op under the cursor, or the label of the thread."""
        place = self.node(state)
        if place < 0:
            return ""
        return names_text([shown_tree(state).name_of(int(order_of(state).nodes[place]))])

    def _row_of(self, state: State, place: int) -> int:
        return int(shown_tree(state).row[order_of(state).nodes[place]])

    def _node_of(self, state: State, row: int) -> int:
        """The place of a slice of the trace, -1 if it is not in the tree."""
        tree = shown_tree(state)
        node = int(tree.of_row[row]) if isinstance(tree, CallTree) else node_of(tree, row)
        return int(order_of(state).place[node]) if node >= 0 else -1


MAKERS: dict[str, Callable[[Trace], CallTree | OpTree]] = {
    "path": call_tree,
    "callers": callers_tree,
    "each": op_tree,
}


def shown_tree(state: State) -> CallTree | OpTree:
    """That of the active side; made once for each way to merge it."""
    return state.side.once(MAKERS[state.tree.mode])


def order_of(state: State) -> Preorder:
    """The nodes as they are shown; what is open is counted by their places in it."""
    tree = shown_tree(state)
    return tree.preorder(state.tree.sort_of(tree))


def awaited(state: State, mode: str) -> str:
    """A sentence while the tree of a large trace is made beside the app; no key makes that."""
    side, make = state.side, MAKERS[mode]
    is_large = len(side.trace) > LARGE and side.trace.report.prefix is None
    return WORKING if is_large and make not in kept_on(side.trace) else ""


def _path_of(tree: CallTree, node: int) -> tuple[str, ...]:
    above = int(tree.parent[node])
    return (*(_path_of(tree, above) if above >= 0 else ()), tree.name_of(node))


def _followed(
    page: TreePage, before: State, state: State, trees: tuple[CallTree, CallTree]
) -> State:
    """The same paths open, and the cursor on the same."""
    now, (old, new) = before.list_of(NAME), trees
    if now.opened is None:
        return state
    order, fresh = order_of(before), order_of(state)
    places = {_path_of(new, int(n)): p for p, n in enumerate(fresh.nodes.tolist())}
    nodes = page.open_at_first(state).copy()
    seen = now.opened.shown[now.opened.nodes[now.opened.shown]]
    for place in seen.tolist():
        if (path := _path_of(old, int(order.nodes[place]))) in places:
            nodes[places[path]] = True
    here = page.node(before)
    path = _path_of(old, int(order.nodes[here])) if here >= 0 else ()
    return page.on_node(page.with_nodes(state, nodes), places.get(path, 0))


TREE = TreePage()


def next_mode(state: State) -> State:
    """By call path, then from the ops up, then each; the op under the cursor stays in sight."""
    row = TREE.subject(state)
    mode = MODES[(MODES.index(state.tree.mode) + 1) % len(MODES)]
    if said := awaited(state, mode):
        return told(state, said)
    now = replace(state, tree=replace(state.tree, mode=mode)).with_list(NAME, ListState())
    node = TREE._node_of(now, row) if row >= 0 else -1
    nodes = TREE.opened(now).nodes
    if node < 0:
        return TREE.with_nodes(now, nodes)
    return TREE.on_node(TREE.with_nodes(now, open_to(TREE.ends(now), nodes, node)), node)


def sort_by(by: int) -> Run:
    """Sorted by the next column, or the one before, as an action runs it."""

    def run(state: State) -> State:
        tree = shown_tree(state)
        if len(tree) > LARGE and isinstance(tree, OpTree):
            return told(state, TOO_MANY, "tree-mode merge them")
        at = tree.SORTS.index(state.tree.sort_of(tree)) + by
        view = state.tree.sorted_by(tree.SORTS[at % len(tree.SORTS)])
        state = TREE.with_nodes(state, TREE.opened(state).nodes)
        now = TREE.in_order(state, order_of(state), tree.preorder(view.sort_of(tree)))
        return replace(now, tree=view)

    return run


_action = partial(action, section="In the op tree", where=on(NAME))

TreePage.actions = (
    _action("tree-mode", "Merge", "t", "by call path, from the ops up, or each", next_mode),
    _action(
        "tree-sort-right", "Sort by the next column", "greater_than_sign", "marked *", sort_by(1)
    ),
    _action("tree-sort-left", "Sort by the one before", "less_than_sign", "marked *", sort_by(-1)),
)
