"""What the kernels table shows: kernels by total time, or CPU ops where no GPU worked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from fusetui.trace.kernel_names import decode
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.questions.totals import KernelTotal, OpTotal, by_name, kernel_totals, op_totals
from fusetui.trace.text.figures import count, duration, percent
from fusetui.tui import palette
from fusetui.tui.cells import Column, fit
from fusetui.tui.kinds import kind_of, label_of
from fusetui.tui.rowlist import Cell

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


@dataclass(frozen=True, eq=False)
class Entry:
    """One line of the table; `rows` are its slices in order of time."""

    make: Callable[[], tuple[str, ...]]
    role: Role
    name: str
    rows: NDArray[np.intp]

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """Made when the line is first in sight: a trace may have 100,000 names."""
        return self.make()


@dataclass(frozen=True, eq=False)
class Table:
    columns: Sequence[Column]
    entries: Sequence[Entry]

    def format_row(self, index: int, width: int) -> list[Cell]:
        entry = self.entries[index]
        texts = fit(self.columns, entry.texts, width)
        kind = kind_of(int(entry.role), entry.name)
        *figures, name = [(text, palette.PLAIN) for text in texts]
        return [*figures, (name[0], palette.swatch(kind))]


def table_of(trace: Trace) -> Table:
    """Kernels; on a trace without any: CPU ops by self time."""
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
    """Op, tile, layout, dtype, stages and architecture; blank when the name does not say."""
    found = decode(name)
    if found is None:
        return "", "", "", "", "", ""
    sides = [str(n) for n in (found.tile_m, found.tile_n, found.tile_k) if n is not None]
    return (
        found.op or "",
        "x".join(sides),
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
