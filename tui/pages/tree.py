"""The op tree page: CPU ops of every thread with total, self and GPU time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.text.figures import Unit, count, duration, percent
from fusetui.trace.model.arrays import Flags
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.memo import kept_on
from fusetui.tui.drawing.glyphs import Glyphs, glyphs_for, share_bar
from fusetui.tui.drawing.picture import Rows, Said, row_parts, text
from fusetui.tui.drawing.schemes import TEXT, Styled
from fusetui.tui.layout.call_tree import MODES, CallTree, TreeView, call_tree, callers_tree
from fusetui.tui.layout.figure_trees import Preorder
from fusetui.tui.layout.kinds import kind_of, label_of, narrow
from fusetui.tui.layout.op_tree import OpTree, node_of, op_tree, same_open
from fusetui.tui.layout.text_layout import NEVER, ListColumn, start_unit
from fusetui.tui.layout.view import Side
from fusetui.tui.pages.folding import TreeListPage
from fusetui.tui.pages.page import Pane, sort_actions
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
    columns: Sequence[ListColumn]
    start: Unit

    def row(self, node: int, mark: str, glyphs: Glyphs, width: int) -> list[Styled]:
        """One line; the share is that of the measure."""
        tree, row, name = self.tree, int(self.tree.row[node]), self.tree.name_of(node)
        found = {name: int(values[node]) for name, values in tree.figures.items()}
        share, whole = found[self.measure], tree.whole(self.measure)
        label, last, token = narrow(name), "title", "title"
        level = int(tree.level[node] if isinstance(tree, CallTree) else tree.depth[node])
        if row >= 0:
            role = int(tree.trace.source_role[row])
            label, last, token = label_of(role, name), kind_of(role, name).token + TEXT, "plain"
        texts = [
            tree.units["GPU"].text(found["GPU"]) if found["GPU"] else "",
            percent(share, whole) if share else "",
            share_bar(share, whole, BAR, glyphs),
            tree.units["total"].text(found["total"]),
            tree.units["self"].text(found["self"]) if row >= 0 else "",
            count(found["kernels"]) if found["kernels"] else "",
            self._last(found, row),
            f"{'  ' * level}{mark} {label}",
        ]
        return row_parts(self.columns, texts, width, token, last)

    def _last(self, found: dict[str, int], row: int) -> str:
        if isinstance(self.tree, CallTree):
            return count(found["count"])
        start = int(self.tree.trace.start[row]) - self.side.origin
        return self.start.text(start) if row >= 0 else ""


def tree_table(side: Side, tree: CallTree | OpTree, view: TreeView) -> TreeTable:
    """The column by which the rows are sorted has a star."""
    sort, start = view.sort_of(tree), start_unit(tree.trace)

    def column(name: str, text: str, width: int, from_width: int = 0) -> ListColumn:
        return ListColumn(f"{text}*" if name == sort else text, width, name == "name", from_width)

    def time(name: str, width: int, from_width: int = 0) -> ListColumn:
        return column(name, f"{name} {tree.units[name].name}", width, from_width)

    launches, is_merged = tree.whole("GPU") > 0, isinstance(tree, CallTree)
    columns = (
        time("GPU", 9, 0 if launches else NEVER),
        ListColumn("share", 7, from_width=70),
        ListColumn("", BAR, left=True, from_width=90),
        time("total", 10),
        time("self", 9),
        column("kernels", "kernels", 8, 70 if launches else NEVER),
        column("count", "count", 7) if is_merged else column("start", f"at {start.name}", 10),
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
        return self.shown_at(state, self.place_of(state, state.view.selected))

    def order(self, state: State) -> Preorder:
        tree = shown_tree(state)
        return tree.preorder(state.tree.sort_of(tree))

    def open_at_first(self, state: State) -> Flags:
        """The threads."""
        return shown_tree(state).is_thread[self.order(state).nodes]

    def rows(self, state: State) -> Rows:
        table = tree_table(state.side, shown_tree(state), state.tree)
        glyphs = glyphs_for(state.ascii_only)

        def row(node: int, mark: str, width: int) -> list[Styled]:
            return table.row(node, mark, glyphs, width)

        return self.tree_rows(state, table.columns, row)

    def above(self, state: State, size: Size) -> Sequence[Pane]:
        """What the rows are, and what their shares are of."""
        return (Pane(1, text([Said(f" {heading(shown_tree(state), state.tree)}", "plain")])),)

    def chosen(self, state: State, index: int) -> Outcome:
        """Shows the op, or the longest of its path, in the timeline; opens or closes a thread."""
        trace, tree = state.side.trace, shown_tree(state)
        node = int(self.order(state).nodes[self.opened(state).shown[index]])
        row = int(tree.row[node])
        if row < 0:
            return self.turn(state)
        rows = np.array([row])
        if isinstance(tree, CallTree):
            same = np.flatnonzero(tree.of_row == node)
            same = same[trace.role[same] == trace.role[row]]
            same = same[np.argsort(trace.start[same], kind="stable")]
            rows = same if len(same) else rows
        at = int((rows == row).argmax())
        return search.shown(state, Hits(trace.name_of(row), state.active, rows, at))

    def subject(self, state: State) -> int:
        node = self.tree_node(state)
        return int(shown_tree(state).row[node]) if node >= 0 else -1

    def copied(self, state: State) -> str:
        """The full name of the op under the cursor, or the label of the thread."""
        node = self.tree_node(state)
        return names_text([shown_tree(state).name_of(node)]) if node >= 0 else ""

    def follow(self, before: State, state: State) -> State:
        """Keeps open nodes and the cursor; of merged ops, which have other places, the first."""
        now, here = before.list_of(self.name), self.tree_node(before)
        if now.opened is None:
            return state
        old, new, fresh = shown_tree(before), shown_tree(state), self.order(state)
        if isinstance(old, CallTree) and isinstance(new, CallTree):
            return self._same_paths(before, state, old, new)
        if not (isinstance(old, OpTree) and isinstance(new, OpTree)):
            return state
        opened = np.zeros(len(old), dtype=np.bool_)
        opened[self.order(before).nodes] = now.opened.nodes
        nodes, node = same_open(old, opened, here, new)
        state = self.with_nodes(state, nodes[fresh.nodes])
        return self.on_node(state, int(fresh.place[node]) if node >= 0 else -1)

    def _same_paths(self, before: State, state: State, old: CallTree, new: CallTree) -> State:
        """The same paths open, and the cursor on the same."""
        order, fresh, shown = self.order(before), self.order(state), self.opened(before)
        places = {_path_of(new, int(n)): p for p, n in enumerate(fresh.nodes.tolist())}
        nodes = self.open_at_first(state).copy()
        for place in shown.shown[shown.nodes[shown.shown]].tolist():
            if (path := _path_of(old, int(order.nodes[place]))) in places:
                nodes[places[path]] = True
        here = self.tree_node(before)
        path = _path_of(old, here) if here >= 0 else ()
        return self.on_node(self.with_nodes(state, nodes), places.get(path, 0))

    def place_of(self, state: State, row: int) -> int:
        """The place of a slice of the trace, -1 if it is not in the tree."""
        if row < 0:
            return -1
        tree = shown_tree(state)
        node = int(tree.of_row[row]) if isinstance(tree, CallTree) else node_of(tree, row)
        return int(self.order(state).place[node]) if node >= 0 else -1


MAKERS: dict[str, Callable[[Trace], CallTree | OpTree]] = {
    "path": call_tree,
    "callers": callers_tree,
    "each": op_tree,
}


def shown_tree(state: State) -> CallTree | OpTree:
    """That of the active side; made once for each way to merge it."""
    return state.side.once(MAKERS[state.tree.mode])


def awaited(state: State, mode: str) -> str:
    """A sentence while the tree of a large trace is made beside the app; no key makes that."""
    side, make = state.side, MAKERS[mode]
    is_large = len(side.trace) > LARGE and side.trace.report.prefix is None
    return WORKING if is_large and make not in kept_on(side.trace) else ""


def _path_of(tree: CallTree, node: int) -> tuple[str, ...]:
    above = int(tree.parent[node])
    return (*(_path_of(tree, above) if above >= 0 else ()), tree.name_of(node))


TREE = TreePage()


def next_mode(state: State) -> State:
    """By call path, then from the ops up, then each; the op under the cursor stays in sight."""
    row = TREE.subject(state)
    mode = MODES[(MODES.index(state.tree.mode) + 1) % len(MODES)]
    if said := awaited(state, mode):
        return told(state, said)
    now = replace(state, tree=replace(state.tree, mode=mode)).with_list(NAME, ListState())
    return TREE.shown_at(now, TREE.place_of(now, row))


def sort_by(by: int) -> Run:
    """Sorted by the next column, or the one before, as an action runs it."""

    def run(state: State) -> State:
        tree = shown_tree(state)
        if len(tree) > LARGE and isinstance(tree, OpTree):
            return told(state, TOO_MANY, "tree-mode merge them")
        at = tree.SORTS.index(state.tree.sort_of(tree)) + by
        view = state.tree.sorted_by(tree.SORTS[at % len(tree.SORTS)])
        return TREE.sorted(state, lambda now: replace(now, tree=view))

    return run


_action = partial(action, section="In the op tree", where=on(NAME))

TreePage.actions = (
    _action("tree-mode", "Merge", "t", "by call path, from the ops up, or each", next_mode),
    *sort_actions(_action, "tree-", sort_by),
)
