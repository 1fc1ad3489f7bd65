"""The rows of the op tree page: figures in one unit a column, and their shares as bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from fusetui.text.figures import Unit, count, duration, percent
from fusetui.tui.drawing import palette
from fusetui.tui.drawing.bars import share_bar
from fusetui.tui.drawing.glyphs import Glyphs
from fusetui.tui.drawing.rows import Styled
from fusetui.tui.layout.call_tree import CallTree, TreeView
from fusetui.tui.layout.columns import NEVER, Column, fit, shown, start_unit
from fusetui.tui.layout.kinds import kind_of, label_of, narrow
from fusetui.tui.layout.tree import OpTree
from fusetui.tui.layout.view import Side

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
        look = palette.PLAIN if row >= 0 else palette.TITLE
        styled = [
            (text, look if self.columns[n].title else palette.BUSY)
            for n, text in zip(shown(self.columns, width), figures, strict=False)
        ]
        return [*styled, (last, palette.swatch(kind_of(role, name)) if row >= 0 else look)]

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
