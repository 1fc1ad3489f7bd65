"""The pages that are lists: the kernels table and the op tree."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message

from fusetui.trace.model.columns import Trace
from fusetui.tui.cells import heading
from fusetui.tui.copying import names_text
from fusetui.tui.details import Said, details, details_height
from fusetui.tui.glyphs import Glyphs
from fusetui.tui.kernel_rows import Table, table_of
from fusetui.tui.pane import Pane
from fusetui.tui.rowlist import Cell, RowList
from fusetui.tui.session import Hits
from fusetui.tui.tree import (
    COLUMNS,
    OpTree,
    format_node,
    name_of_node,
    node_of,
    op_tree,
    open_to,
    same_open,
    visible,
)
from fusetui.tui.view import Side


class Show(Message):
    """Show these rows in the timeline."""

    def __init__(self, hits: Hits) -> None:
        super().__init__()
        self.hits = hits


class KernelsPage(Vertical):
    """Kernels by total time; Enter shows the first of a kind, n and N the others."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="kernels")
        self._glyphs = glyphs
        self._list = RowList(name="kernel-list")
        self._details = Pane(name="kernel-details")
        self._table = Table((), ())
        self._trace: Trace | None = None
        self._number = 0

    def compose(self) -> ComposeResult:
        yield self._list
        yield self._details

    def open(self, side: Side, number: int) -> None:
        """Fill the table the first time that the page is shown, and for another trace."""
        self._number = number
        if side.trace is not self._trace:
            self._fill(side.trace)
        self._list.focus()
        self.call_after_refresh(self._describe)

    def copied(self) -> str:
        """The full name of the kernel under the cursor."""
        entries = self._table.entries
        return names_text([entries[self._list.cursor].name]) if entries else ""

    def follow(self, side: Side) -> None:
        """More of the same trace, where it is shown: the cursor stays on its kernel."""
        if self._trace is None:
            return
        entries, cursor = self._table.entries, self._list.cursor
        name = entries[cursor].name if entries else ""
        self._fill(side.trace)
        now = [n for n, entry in enumerate(self._table.entries) if entry.name == name]
        self._list.move_to(now[0] if now else 0)
        self._describe()

    def on_row_list_highlighted(self) -> None:
        self._describe()

    def describe_again(self) -> None:
        """More is known of the kernel under the cursor."""
        self._describe()

    def on_row_list_chosen(self, message: RowList.Chosen) -> None:
        if message.index < len(self._table.entries):  # it may be of a table that is gone by now
            entry = self._table.entries[message.index]
            self.post_message(Show(Hits(entry.name, self._number, entry.rows)))

    def on_resize(self) -> None:
        self._details.styles.height = details_height(self.size.height)
        self.call_after_refresh(self._describe)

    def _fill(self, trace: Trace) -> None:
        self._trace = trace
        self._table = table = table_of(trace)
        self._list.fill(len(table.entries), lambda w: heading(table.columns, w), table.format_row)

    def _describe(self) -> None:
        width, height = self._details.size.width, details_height(self.size.height)
        if self._trace is None or not width:  # not laid out yet; a resize follows
            return
        if not self._table.entries:
            self._details.say([Said("this trace has neither kernels nor CPU ops")])
            return
        rows = self._table.entries[self._list.cursor].rows
        longest = int(rows[np.argmax(self._trace.dur[rows])])
        said = details(self._trace, longest, width, height - 1, self._glyphs)
        text = f"{self._glyphs.rule * 3} the longest of them "
        rule = Said(text.ljust(width, self._glyphs.rule), "rule")
        self._details.say([rule, *said])


class TreePage(Vertical):
    """CPU ops of every thread; space opens and closes, Enter shows the op in the timeline."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space,right,l", "fold(1)", "Open", show=False, id="tree.open"),
        Binding("left,h", "fold(-1)", "Close", show=False, id="tree.close"),
    ]

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="tree")
        self._glyphs = glyphs
        self._list = RowList(name="tree-list")
        self._tree: OpTree | None = None
        self._opened = np.zeros(0, dtype=np.bool_)
        self._shown = np.zeros(0, dtype=np.intp)
        self._number = 0

    def compose(self) -> ComposeResult:
        yield self._list

    def open(self, side: Side, number: int, row: int) -> None:
        """Show the tree of a trace with a row in sight, when it is in the tree."""
        self._number = number
        if self._tree is None or self._tree.trace is not side.trace:
            self._tree = op_tree(side.trace)
            self._opened = self._tree.row < 0
        node = node_of(self._tree, row) if row >= 0 else -1
        if node >= 0:
            self._opened = open_to(self._tree, self._opened, node)
        self._refill()
        if node >= 0:
            self._list.move_to(int(np.searchsorted(self._shown, node)))
        self._list.focus()

    def copied(self) -> str:
        """The full name of the op under the cursor, or the label of the thread."""
        if self._tree is None or not len(self._shown):
            return ""
        return names_text([name_of_node(self._tree, int(self._shown[self._list.cursor]))])

    def follow(self, side: Side) -> None:
        """More of the same trace, where it is shown: open nodes and the cursor stay."""
        if self._tree is None:
            return
        node = int(self._shown[self._list.cursor]) if len(self._shown) else -1
        now = op_tree(side.trace)
        self._opened, node = same_open(self._tree, self._opened, node, now)
        self._tree = now
        self._refill()
        self._list.move_to(int(np.searchsorted(self._shown, node)))

    def action_fold(self, direction: int) -> None:
        """Open or close the node under the cursor; closing a leaf goes to what is around it."""
        if self._tree is None or not len(self._shown):
            return
        node = int(self._shown[self._list.cursor])
        has_children = int(self._tree.end[node]) > node + 1
        if direction < 0 and not (has_children and self._opened[node]):
            self._list.move_to(self._index_around(node))
            return
        self._opened = self._opened.copy()
        self._opened[node] = direction > 0 and not self._opened[node]
        self._refill()

    def on_row_list_chosen(self, message: RowList.Chosen) -> None:
        if self._tree is None or message.index >= len(self._shown):
            return  # of a tree that is gone by now
        row = int(self._tree.row[self._shown[message.index]])
        if row < 0:
            self.action_fold(1)
            return
        trace = self._tree.trace
        self.post_message(Show(Hits(trace.name_of(row), self._number, np.array([row]))))

    def _index_around(self, node: int) -> int:
        assert self._tree is not None
        before = self._shown[: int(np.searchsorted(self._shown, node))]
        around = before[self._tree.end[before] > node]
        return int(np.searchsorted(self._shown, around[-1])) if len(around) else 0

    def _refill(self) -> None:
        tree = self._tree
        assert tree is not None
        self._shown = visible(tree, self._opened)
        shown, opened = self._shown, self._opened

        def row(index: int, width: int) -> list[Cell]:
            node = int(shown[index])
            return format_node(tree, node, bool(opened[node]), self._glyphs, width)

        self._list.fill(len(shown), lambda w: heading(COLUMNS, w), row)
