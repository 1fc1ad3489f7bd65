"""The kernels page: kernels by total time, or CPU ops if there are no kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from fusetui.trace.kernel_names import decode
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.questions.totals import KernelTotal, OpTotal, by_name, kernel_totals, op_totals
from fusetui.trace.text.figures import count, duration, percent
from fusetui.tui.drawing import palette
from fusetui.tui.drawing.details import details, details_height
from fusetui.tui.drawing.glyphs import glyphs_for
from fusetui.tui.drawing.picture import TextPicture, ruled, text
from fusetui.tui.drawing.rows import Rows, Styled
from fusetui.tui.drawing.said import Said
from fusetui.tui.layout.columns import Column, fit, titles
from fusetui.tui.layout.kinds import kind_of, label_of
from fusetui.tui.pages.lists import ListPage
from fusetui.tui.pages.page import Pane
from fusetui.tui.state import search
from fusetui.tui.state.copying import names_text
from fusetui.tui.state.session import Hits
from fusetui.tui.state.state import Size, State

KERNEL_COLUMNS = (
    Column("total", 9),
    Column("share", 7),
    Column("count", 6),
    Column("median", 9),
    Column("min", 9, from_width=110),
    Column("max", 9, from_width=110),
    Column("op", 11, left=True, from_width=140),
    Column("tile", 11, left=True, from_width=140),
    Column("layout", 6, left=True, from_width=140),
    Column("dtype", 6, left=True, from_width=140),
    Column("stages", 6, from_width=140),
    Column("arch", 6, left=True, from_width=140),
    Column("kernel", 0, left=True),
)
OP_COLUMNS = (
    Column("self", 9),
    Column("share", 7),
    Column("total", 9),
    Column("count", 6),
    Column("CPU op", 0, left=True),
)


class Entry(msgspec.Struct, frozen=True, eq=False, dict=True):
    """One line of the table; `rows` are its slices in order of time."""

    make: Callable[[], tuple[str, ...]]
    role: Role
    name: str
    rows: NDArray[np.intp]

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """Made when the line first comes into sight: a trace may have 100,000 names."""
        return self.make()


class Table(msgspec.Struct, frozen=True, eq=False):
    """All lines, the longest time first."""

    columns: Sequence[Column]
    entries: Sequence[Entry]

    def format_row(self, index: int, width: int) -> list[Styled]:
        entry = self.entries[index]
        texts = fit(self.columns, entry.texts, width)
        kind = kind_of(int(entry.role), entry.name)
        *figures, name = [(text, palette.PLAIN) for text in texts]
        return [*figures, (name[0], palette.swatch(kind))]


class KernelsPage(ListPage):
    """Enter shows the first slice of a name in the timeline, n and N the others."""

    name = "kernels"
    title = "Kernels"
    key = "3"
    help = "by total time"
    hints = (
        "? keys",
        "j/k move",
        "Enter show in the timeline",
        "n/N the others",
        "1 timeline",
        "y copy",
    )

    def rows(self, state: State) -> Rows:
        table = state.side.once(table_of)
        return Rows(table, len(table.entries), lambda w: titles(table.columns, w), table.format_row)

    def shown_at(self, state: State, rank: int) -> State:
        """The cursor on a kernel, by its place among all by total time."""
        return state.with_list(self.name, replace(state.list_of(self.name), cursor=rank))

    def chosen(self, state: State, index: int) -> State:
        entry = state.side.once(table_of).entries[index]
        return search.shown(state, Hits(entry.name, state.active, entry.rows).step(1))

    def below(self, state: State, size: Size) -> Sequence[Pane]:
        """The details of the longest kernel of the name under the cursor."""
        return (Pane(details_height(size.height), self._details(state)),)

    def follow(self, before: State, state: State) -> State:
        """The cursor stays on its kernel."""
        now = before.list_of(self.name)
        entries = before.side.once(table_of).entries if self.name in before.lists else ()
        if not entries:
            return state
        name = entries[min(now.cursor, len(entries) - 1)].name
        found = [n for n, e in enumerate(state.side.once(table_of).entries) if e.name == name]
        return state.with_list(self.name, replace(now, cursor=found[0] if found else 0))

    def copied(self, state: State) -> str:
        """The full name of the kernel under the cursor."""
        entries = state.side.once(table_of).entries
        return names_text([entries[state.list_of(self.name).cursor].name]) if entries else ""

    def _details(self, state: State) -> TextPicture:
        side, glyphs = state.side, glyphs_for(state.ascii_only)
        entries = side.once(table_of).entries
        if not entries:
            return text([Said("this trace has neither kernels nor CPU ops")])
        entry = entries[min(state.list_of(self.name).cursor, len(entries) - 1)]

        def lines(width: int, height: int) -> list[Said]:
            longest = int(entry.rows[np.argmax(side.trace.dur[entry.rows])])
            return details(side.trace, longest, width, height, glyphs, side.insight.origins)

        identity = (side, entry, state.unpacked)
        return ruled(identity, "the longest of them", glyphs.rule, lines)


def table_of(trace: Trace) -> Table:
    """Kernels or, if the trace has none, CPU ops by self time."""
    kernels = _kernels(trace)
    return Table(KERNEL_COLUMNS, kernels) if kernels else Table(OP_COLUMNS, _ops(trace))


def _kernels(trace: Trace) -> list[Entry]:
    totals = kernel_totals(trace)
    whole = sum(total.total_ns for total in totals)
    return [
        Entry(partial(_kernel_texts, total, whole), Role.KERNEL, total.name, total.rows)
        for total in totals
    ]


def _kernel_texts(total: KernelTotal, whole: int) -> tuple[str, ...]:
    return (
        duration(total.total_ns),
        percent(total.total_ns, whole),
        count(total.count),
        duration(total.median_ns),
        duration(total.min_ns),
        duration(total.max_ns),
        *_decoded(total.name),
        label_of(int(Role.KERNEL), total.name),
    )


def _decoded(name: str) -> tuple[str, str, str, str, str, str]:
    """Op, tile, layout, dtype, stages and architecture; blank if the name does not say."""
    found = decode(name)
    if found is None:
        return "", "", "", "", "", ""
    tile = [str(n) for n in (found.tile_m, found.tile_n, found.tile_k) if n is not None]
    return (
        found.op or "",
        "x".join(tile),
        found.layout or "",
        found.dtype_a or found.dtype or "",
        str(found.stages or ""),
        found.arch or "",
    )


def _ops(trace: Trace) -> list[Entry]:
    totals = sorted(op_totals(trace), key=lambda op: (-op.self_ns, op.name))
    whole = sum(total.self_ns for total in totals)
    rows_of = {trace.name_of(int(rows[0])): rows for rows in by_name(trace, trace.rows_of(Role.OP))}
    return [
        Entry(partial(_op_texts, total, whole), Role.OP, total.name, rows_of[total.name])
        for total in totals
    ]


def _op_texts(total: OpTotal, whole: int) -> tuple[str, ...]:
    return (
        duration(total.self_ns),
        percent(total.self_ns, whole),
        duration(total.total_ns),
        count(total.count),
        label_of(int(Role.OP), total.name),
    )
