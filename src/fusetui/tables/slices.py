"""The table of all slices: a row for each, as the trace has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fusetui.analysis.questions.search import FROM_NAME
from fusetui.gpu.kernel_names import KernelName, decode
from fusetui.tables.public import Table
from fusetui.tables.table import TableColumn, Values
from fusetui.trace.layout.steps import steps_of
from fusetui.trace.model.arrays import Flags
from fusetui.trace.model.categories import GPU_LAYERS, Role
from fusetui.trace.model.columns import Trace

KINDS = tuple(role.name.lower() for role in Role)


def slices(trace: Trace, first: frozenset[str]) -> Table:
    """`parent` and `launch` are rows of this table; `first`: as in Table."""
    length = trace.recorded()
    track, name = trace.track[:length], trace.name[:length]
    launch, op = trace.launch[:length], trace.op[:length]
    gpu = np.zeros(length, dtype=np.bool_)
    gpu[trace.gpu_rows] = True
    on_gpu = np.array(
        [lane.layer in GPU_LAYERS for lane in trace.tracks], dtype=np.bool_
    )[track]
    host, device = np.where(on_gpu, -1, track), np.where(on_gpu, track, -1)
    steps = steps_of(trace)
    step = steps.at(trace.start[np.where(launch >= 0, launch, np.arange(length))])
    step = np.where(gpu & (launch < 0), -1, step)
    columns = (
        TableColumn("row", np.arange(length, dtype=np.int64)),
        _text("name", name, trace.names),
        _text("category", trace.cat[:length], trace.categories),
        _text("kind", trace.role[:length], KINDS),
        TableColumn("start_ns", trace.start[:length] - trace.begin_ns),
        TableColumn("dur_ns", trace.dur[:length]),
        _text("lane", track, [lane.label for lane in trace.tracks]),
        _some("process", host, [str(lane.pid) for lane in trace.tracks]),
        _some("thread", host, [str(lane.tid) for lane in trace.tracks]),
        _some("device", device, [str(lane.pid) for lane in trace.tracks]),
        _some("stream", device, [str(lane.tid) for lane in trace.tracks]),
        _number("depth", trace.depth[:length]),
        _row("parent", trace.parent[:length]),
        _row("correlation", trace.correlation[:length]),
        _row("launch", launch),
        _some("op", np.where(op >= 0, trace.name[op], -1), trace.names),
        _number(
            "step", np.array([*steps.numbers, -1], dtype=np.int64)[step], step >= 0
        ),
        *_decoded(trace, np.where(gpu, name, -1)),
    )
    return Table("slices", columns, first)


def _decoded(trace: Trace, names: Values) -> list[TableColumn]:
    """What the names of GPU events say; every name is decoded once."""
    used = np.zeros(len(trace.names) + 1, dtype=np.bool_)
    used[names] = True
    found = [
        decode(name) if use else None
        for name, use in zip(trace.names, used, strict=False)
    ]
    columns = []
    for field, text in SAYS.items():
        said = [text(one) if one else None for one in found]
        numbers = {
            one: number for number, one in enumerate(dict.fromkeys(filter(None, said)))
        }
        of_name = np.array([*(numbers.get(one, -1) if one else -1 for one in said), -1])
        columns.append(_some(field, of_name[names], [*numbers]))
    return columns


SAYS: dict[str, Callable[[KernelName], str | None]] = {
    "short": lambda found: found.short,
    "family": lambda found: found.family,
    "kernel_op": lambda found: found.op,
    "dtype": lambda found: FROM_NAME["dtype"](found) or None,
    "collective": lambda found: found.collective,
}


def _number(name: str, values: Values, known: Flags | None = None) -> TableColumn:
    return TableColumn(name, values.astype(np.int64), None, known)


def _row(name: str, values: Values) -> TableColumn:
    """Numbers of which those below 0 stand for none."""
    return _number(name, np.maximum(values, -1), values >= 0)


def _text(name: str, values: Values, texts: Sequence[str]) -> TableColumn:
    return TableColumn(name, values.astype(np.int32), tuple(texts))


def _some(name: str, values: Values, texts: Sequence[str]) -> TableColumn:
    """The texts with these numbers, of which those below 0 stand for none."""
    known = values >= 0
    numbers = np.where(known, values, len(texts)).astype(np.int32)
    return TableColumn(name, numbers, (*texts, ""), known)
