"""The op tree page: CPU ops of every thread with total, self and GPU time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from fusetui.trace.model.columns import Trace
from fusetui.trace.text.figures import count, duration, percent
from fusetui.trace.text.units import Unit, unit_of
from fusetui.tui.drawing import palette
from fusetui.tui.drawing.bars import share_bar
from fusetui.tui.drawing.glyphs import Glyphs, glyphs_for
from fusetui.tui.drawing.rows import Rows, Styled
from fusetui.tui.layout.call_tree import (
    MODES,
    SORTS,
    CallTree,
    TreeView,
    call_tree,
    callers_tree,
)
from fusetui.tui.layout.columns import Column, fit, shown, titles
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
from fusetui.tui.state.action import Run, action, on
from fusetui.tui.state.copying import names_text
from fusetui.tui.state.session import Hits
from fusetui.tui.state.state import ListState, Outcome, State, told

COLUMNS = (
    Column("total", 9),
    Column("self", 9),
    Column("GPU", 9),
    Column("kernels", 7),
    Column("op", 0, left=True),
)


NAME = "tree"
BAR = 10  # cells
LARGE = 200_000  # slices: the tree of fewer is made in a moment
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
        merged = merged_of(state)
        return merged.preorder(state.tree.sort).end if merged else state.side.once(op_tree).end

    def open_at_first(self, state: State) -> NDArray[np.bool_]:
        """The threads."""
        merged = merged_of(state)
        if merged is None:
            opened: NDArray[np.bool_] = state.side.once(op_tree).row < 0
            return opened
        threads: NDArray[np.bool_] = merged.name[merged.preorder(state.tree.sort).nodes] < 0
        return threads

    def rows(self, state: State) -> Rows:
        merged, opened, view = merged_of(state), self.opened(state), state.tree
        glyphs = glyphs_for(state.ascii_only)
        if merged is None:
            tree = state.side.once(op_tree)

            def each(index: int, width: int) -> list[Styled]:
                node = int(opened.shown[index])
                return format_node(tree, node, bool(opened.nodes[node]), glyphs, width)

            return Rows(opened, len(opened.shown), lambda w: titles(COLUMNS, w), each)
        order, columns, units = merged.preorder(view.sort), _columns(merged, view), _units(merged)

        def row(index: int, width: int) -> list[Styled]:
            place = int(opened.shown[index])
            inner = int(order.end[place]) > place + 1
            mark = (glyphs.folded, glyphs.unfolded)[bool(opened.nodes[place])]
            leaf = mark if inner else glyphs.leaf
            return _row(merged, int(order.nodes[place]), leaf, columns, units, glyphs, width)

        return Rows(opened, len(opened.shown), lambda w: titles(columns, w), row)

    def chosen(self, state: State, index: int) -> Outcome:
        """Shows the op, or the longest of its path, in the timeline; opens or closes a thread."""
        place = int(self.opened(state).shown[index])
        row = self._row_of(state, place)
        if row < 0:
            return self.turn(state)
        trace = state.side.trace
        rows = np.array([row])
        merged = merged_of(state)
        if merged is not None:
            node = int(merged.preorder(state.tree.sort).nodes[place])
            same = np.flatnonzero(merged.of_row == node)
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
        if before.tree.mode != "each":
            return _followed(self, before, state)
        old, new, shown = before.side.once(op_tree), state.side.once(op_tree), now.opened.shown
        node = int(shown[min(now.cursor, len(shown) - 1)]) if len(shown) else -1
        nodes, node = same_open(old, now.opened.nodes, node, new)
        return self.on_node(self.with_nodes(state, nodes), node)

    def copied(self, state: State) -> str:
        """The full name of the op under the cursor, or the label of the thread."""
        place, merged = self.node(state), merged_of(state)
        if place < 0:
            return ""
        if merged is None:
            return names_text([name_of_node(state.side.once(op_tree), place)])
        return names_text([name_of(merged, int(merged.preorder(state.tree.sort).nodes[place]))])

    def _row_of(self, state: State, place: int) -> int:
        merged = merged_of(state)
        if merged is None:
            return int(state.side.once(op_tree).row[place])
        return int(merged.row[merged.preorder(state.tree.sort).nodes[place]])

    def _node_of(self, state: State, row: int) -> int:
        merged = merged_of(state)
        if merged is None:
            return node_of(state.side.once(op_tree), row)
        node = int(merged.of_row[row])
        return int(merged.preorder(state.tree.sort).place[node]) if node >= 0 else -1


MAKERS: dict[str, Callable[[Trace], CallTree | OpTree]] = {
    "path": call_tree,
    "callers": callers_tree,
    "each": op_tree,
}


def merged_of(state: State) -> CallTree | None:
    """The tree of merged ops; None where each is shown."""
    tree = state.side.once(MAKERS[state.tree.mode])
    return tree if isinstance(tree, CallTree) else None


def awaited(state: State, mode: str) -> str:
    """A sentence while the tree of a large trace is made beside the app; no key makes that."""
    side, make = state.side, MAKERS[mode]
    is_large = len(side.trace) > LARGE and side.trace.report.prefix is None
    return WORKING if is_large and make not in side.made else ""


def name_of(merged: CallTree, node: int) -> str:
    """The name as the trace has it, or the label of a thread."""
    name = int(merged.name[node])
    return merged.trace.names[name] if name >= 0 else merged.trace.tracks[-1 - name].label


def _path_of(merged: CallTree, node: int) -> tuple[str, ...]:
    above = int(merged.parent[node])
    return (*(_path_of(merged, above) if above >= 0 else ()), name_of(merged, node))


def _followed(page: TreePage, before: State, state: State) -> State:
    """The same paths open, and the cursor on the same."""
    old, new, now = merged_of(before), merged_of(state), before.list_of(NAME)
    if old is None or new is None or now.opened is None:
        return state
    order, fresh = old.preorder(before.tree.sort), new.preorder(state.tree.sort)
    places = {_path_of(new, int(n)): p for p, n in enumerate(fresh.nodes.tolist())}
    nodes = page.open_at_first(state).copy()
    seen = now.opened.shown[now.opened.nodes[now.opened.shown]]
    for place in seen.tolist():
        if (path := _path_of(old, int(order.nodes[place]))) in places:
            nodes[places[path]] = True
    here = page.node(before)
    path = _path_of(old, int(order.nodes[here])) if here >= 0 else ()
    return page.on_node(page.with_nodes(state, nodes), places.get(path, 0))


def _units(merged: CallTree) -> tuple[Unit, Unit, Unit]:
    """Of GPU time, total and self."""
    columns = (merged.gpu_ns, merged.total_ns, merged.own_ns)
    gpu, total, own = (unit_of([int(one.max(initial=0))]) for one in columns)
    return gpu, total, own


def _columns(merged: CallTree, view: TreeView) -> Sequence[Column]:
    gpu, total, own = _units(merged)

    def title(sort: str, text: str) -> str:
        return f"{text}*" if view.sort == sort else text

    what = "op, then what calls it" if merged.bottom_up else "op"
    return (
        Column(title("GPU", f"GPU {gpu.name}"), 9),
        Column("share", 7, from_width=70),
        Column("", BAR, left=True, from_width=90),
        Column(title("total", f"total {total.name}"), 10),
        Column(title("self", f"self {own.name}"), 9),
        Column("kernels", 7, from_width=70),
        Column(title("count", "count"), 7),
        Column(title("name", what), 0, left=True),
    )


def _row(
    merged: CallTree,
    node: int,
    mark: str,
    columns: Sequence[Column],
    units: tuple[Unit, Unit, Unit],
    glyphs: Glyphs,
    width: int,
) -> list[Styled]:
    """One line of merged ops; the share is that of the GPU time of all."""
    indent = "  " * int(merged.level[node]) + mark + " "
    name = name_of(merged, node)
    if merged.name[node] < 0:
        texts = [*("",) * (len(columns) - 1), f"{indent}{narrow(name)}"]
        return [(text, palette.TITLE) for text in fit(columns, texts, width)]
    whole = int(merged.gpu_ns[merged.level == (0 if merged.bottom_up else 1)].sum())
    gpu, kernels = int(merged.gpu_ns[node]), int(merged.kernels[node])
    role = int(merged.trace.source_role[merged.row[node]])
    texts = [
        units[0].text(gpu) if gpu else "",
        percent(gpu, whole) if gpu else "",
        share_bar(gpu, whole, BAR, glyphs),
        units[1].text(int(merged.total_ns[node])),
        units[2].text(int(merged.own_ns[node])),
        count(kernels) if kernels else "",
        count(int(merged.count[node])),
        indent + label_of(role, name),
    ]
    *figures, last = fit(columns, texts, width)
    places = shown(columns, width)
    styled = [
        (text, palette.PLAIN if columns[n].title else palette.BUSY)
        for n, text in zip(places, figures, strict=False)
    ]
    return [*styled, (last, palette.swatch(kind_of(role, name)))]


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
    gpu, kernels = int(tree.gpu_ns[node]), int(tree.kernels[node])
    texts = [
        duration(int(trace.dur[row])),
        duration(int(tree.own_ns[node])),
        duration(gpu) if gpu else "",
        count(kernels) if kernels else "",
        indent + label_of(int(trace.source_role[row]), trace.name_of(row)),
    ]
    *figures, name = fit(COLUMNS, texts, width)
    kind = kind_of(int(trace.source_role[row]), trace.name_of(row))
    return [*((text, palette.PLAIN) for text in figures), (name, palette.swatch(kind))]


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
        if state.tree.mode == "each":
            return told(state, "each op is in order of time", "tree-mode merge them")
        at = SORTS.index(state.tree.sort) + by
        view = replace(state.tree, sort=SORTS[at % len(SORTS)])
        now = replace(state, tree=view).with_list(NAME, ListState())
        return TREE.with_nodes(now, TREE.opened(now).nodes)

    return run


_action = partial(action, section="In the op tree", where=on(NAME))

TreePage.actions = (
    _action("tree-mode", "Merge", "t", "by call path, from the ops up, or each", next_mode),
    _action(
        "tree-sort-right", "Sort by the next column", "greater_than_sign", "marked *", sort_by(1)
    ),
    _action("tree-sort-left", "Sort by the one before", "less_than_sign", "marked *", sort_by(-1)),
)
