"""Compiled regions, calls of graphs, and the calls of kernels inside them.

At run time torch records `Torch-Compiled Region: F/C` (an op) around a compiled
function, and `## Call CompiledFxGraph KEY ##` (an annotation) around each call of a
compiled graph. Sources: torch/_dynamo/convert_frame.py, torch/_inductor/output_code.py.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.questions.launches import is_replay
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.compile_log.log import CompileId
from fusetui.trace.model.arrays import Flags, Int32s, Rows, distinct
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.joined import rows_there
from fusetui.trace.model.memo import memo
from fusetui.trace.model.op_names import is_frame, is_metadata
from fusetui.trace.program.origin import launching_calls, origins
from fusetui.trace.program.regions import Spans, are_on_cpu

REGION = lazy_pattern(
    r"Torch-Compiled Region: (?P<frame>[0-9]{1,9})/(?P<compile>[0-9]{1,9})"
)
GRAPH_CALL = lazy_pattern(r"## Call CompiledFxGraph (?P<key>\S{1,200}) ##")
NO_KEY = "None"
"""The key of a graph whose cache is off."""
CPP_KERNEL = lazy_pattern(r"graph_[0-9]+_(?P<name>cpp_\w+)\Z")
"""The op of a fused C++ kernel: the number is that of the graph in its process."""
INDUCTOR_KERNEL = lazy_pattern(r"triton_\w+\Z|graph_[0-9]+_cpp_\w+\Z")
NONE = -1


class RegionsOfTrace(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The compiled regions of a trace and the calls of graphs in them.

    A `call` is a call of a compiled graph; in traces of torch before 2.4, which do not
    annotate them, each region stands for one.
    """

    trace: Trace
    regions: Spans
    calls: Spans

    def __bool__(self) -> bool:
        return len(self.regions) > 0 or len(self.calls) > 0

    @cached_property
    def region_of_call(self) -> Rows:
        """For each call the index of the innermost region around it; NONE for a backward
        pass, which runs outside of its region. Shape [calls]."""
        return self.regions.around(self.calls.rows)

    @cached_property
    def items(self) -> CalledKernels:
        """What the calls of graphs call."""
        return _called_kernels(self)


class CalledKernels(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The calls of kernels: arrays of shape [items], in the order of threads and time.

    An item is an op directly inside a call of a graph, or a launch without such an op;
    or an op with the name of a generated kernel outside of such calls.
    """

    spans: Spans
    call: Rows  # index into RegionsOfTrace.calls; NONE: outside of them
    names: tuple[str, ...]  # as the wrapper writes them, see `wrapper_name`
    name: Int32s  # index into `names`
    # of each GPU event (Trace.gpu_rows) the item that launched it, else NONE
    item_of_gpu_event: Rows

    def __len__(self) -> int:
        return len(self.spans)

    @cached_property
    def has_gpu_events(self) -> Flags:
        """Which items launched GPU events; shape [items]."""
        has = np.zeros(len(self), dtype=np.bool_)
        has[self.item_of_gpu_event[self.item_of_gpu_event >= 0]] = True
        return has


@memo()
def regions_of(trace: Trace) -> RegionsOfTrace:
    """The compiled regions of a trace; empty without any."""
    line = origins(trace).line
    region_rows = _rows_named(trace, REGION)
    call_rows = _rows_named(trace, GRAPH_CALL)
    regions = Spans(trace, line, region_rows)
    if not len(call_rows):
        call_rows = region_rows
    return RegionsOfTrace(
        trace=trace, regions=regions, calls=Spans(trace, line, call_rows)
    )


def _rows_named(trace: Trace, pattern: re.Pattern[str]) -> Rows:
    """The ops and annotations of CPU threads whose names match, also those of a
    capture."""
    names = trace.named(lambda name: pattern.match(name) is not None)
    rows = np.flatnonzero(names[trace.name])
    rows = rows[np.isin(trace.source_role[rows], (Role.OP, Role.ANNOTATION))]
    return rows[are_on_cpu(trace, rows)]


def compile_id_of(name: str) -> CompileId | None:
    """The id in the name of a region; None for any other name."""
    match = REGION.match(name)
    if match is None:
        return None
    return CompileId(frame=int(match["frame"]), compile=int(match["compile"]))


def key_of(name: str) -> str:
    """The key in the name of a call of a graph; "" for any other name, and where the
    cache is off."""
    match = GRAPH_CALL.match(name)
    if match is None or match["key"] == NO_KEY:
        return ""
    return match["key"]


def wrapper_name(name: str) -> str:
    """The name of a recorded op or kernel as it is compared with those of the wrapper:
    without the number of the graph, the namespace, the overload and an underscore for
    in-place.

    >>> wrapper_name("graph_0_cpp_fused_gelu_mul_0"), wrapper_name("aten::mm")
    ('cpp_fused_gelu_mul_0', 'mm')
    >>> wrapper_name("extern_kernels.mm"), wrapper_name("torch.ops.aten.sort.stable")
    ('mm', 'sort')
    """
    cpp = CPP_KERNEL.match(name)
    if cpp is not None:
        return str(cpp["name"])
    if "::" in name:
        plain = name.rpartition("::")[2]
    elif name.startswith("extern_kernels."):
        plain = name.rpartition(".")[2]
    elif name.startswith("torch.ops."):
        plain = name.split(".")[3] if name.count(".") >= 3 else name
    elif name.startswith(("aten.", "inductor_ops.")):
        plain = name.split(".")[1]
    else:
        return name
    plain = EXTERN_KERNELS.get(plain, plain)
    return plain.rstrip("_") or plain


EXTERN_KERNELS = {"bias_addmm": "addmm"}
"""Extern kernels that call an op of another name (torch/_inductor/kernel/mm.py)."""


def _called_kernels(regions: RegionsOfTrace) -> CalledKernels:
    """The items of a trace: the ops that calls of graphs make or that have the name of a
    generated kernel, and launches without such an op; with the GPU events of each."""
    trace = regions.trace
    ops = np.concatenate((_ops_of_calls(regions), _ops_outside(regions)))
    launches = launching_calls(trace, trace.gpu_rows)
    bare = _bare_launches(regions, ops, launches)
    spans = Spans(trace, origins(trace).line, np.concatenate((ops, bare)))
    item_of_gpu_event = spans.around(launches)
    naming_row = _naming_rows(trace, spans.rows, bare, item_of_gpu_event)
    names = _wrapper_names(trace, naming_row, ops)
    return CalledKernels(
        spans=spans,
        call=regions.calls.around(spans.rows),
        names=names.names,
        name=names.name_of_item,
        item_of_gpu_event=item_of_gpu_event,
    )


def _naming_rows(
    trace: Trace, items: Int32s, bare: Rows, item_of_gpu_event: Rows
) -> Rows:
    """The row by whose name each item is known: its own, or of a launch without an op
    that of the kernel that it launches, -1 for none; shape [items]."""
    is_bare = np.isin(items, bare)
    naming_row = np.where(is_bare, NONE, items).astype(np.intp)
    launched = np.flatnonzero(item_of_gpu_event >= 0)
    launched = launched[is_bare[item_of_gpu_event[launched]]]
    naming_row[item_of_gpu_event[launched]] = trace.gpu_rows[launched]
    return naming_row


class _WrapperNames(NamedTuple):
    """Names as wrappers of generated code have them, and for each item its place among
    them, NONE without one."""

    names: tuple[str, ...]
    name_of_item: Int32s


def _wrapper_names(trace: Trace, naming_row: Rows, ops: Rows) -> _WrapperNames:
    """The names of items, those of `ops` first."""
    has_name = naming_row >= 0
    number_in_trace = trace.name[naming_row]
    places: dict[str, int] = {}
    place_of_number = np.full(len(trace.names), NONE, dtype=np.int32)
    of_ops = distinct(trace.name[ops])
    of_all = distinct(number_in_trace[has_name])
    for number in (*of_ops.tolist(), *of_all.tolist()):
        name = wrapper_name(trace.names[number])
        place_of_number[number] = places.setdefault(name, len(places))
    name_of_item = np.where(has_name, place_of_number[number_in_trace], NONE)
    return _WrapperNames(tuple(places), name_of_item.astype(np.int32))


def _ops_of_calls(regions: RegionsOfTrace) -> Rows:
    """The ops that a call of a graph makes itself, without those that only describe
    tensors or wrap others: no other op of the same call, but for such ones, is around
    them."""
    trace = regions.trace
    ops = rows_there(trace, Role.OP)
    is_wrapper = trace.named(lambda name: is_frame(name) or is_metadata(name))
    call = regions.calls.around(ops)
    parent = trace.parent[ops].astype(np.intp)
    outer = _outside_wrappers(trace, parent, is_wrapper)
    # an op around it may itself lie in the same call; -1 lies in none
    is_inner = (outer >= 0) & (regions.calls.around(outer) == call)
    is_called = (call >= 0) & ~is_inner & ~is_wrapper[trace.name[ops]]
    called: Rows = ops[is_called]
    return called


def _outside_wrappers(trace: Trace, rows: Rows, is_wrapper: Flags) -> Rows:
    """Each row, or where its name is that of a wrapper, the nearest row around it that is
    no wrapper; -1 where there is none. `is_wrapper` is by name."""
    outer = np.array(rows)
    while True:
        climbs = (outer >= 0) & is_wrapper[trace.name[outer]]
        if not climbs.any():
            return outer
        outer[climbs] = trace.parent[outer[climbs]]


def _ops_outside(regions: RegionsOfTrace) -> Rows:
    """The ops outside of calls of graphs that have the name of a generated kernel."""
    trace = regions.trace
    is_generated = trace.named(lambda name: INDUCTOR_KERNEL.match(name) is not None)
    ops = rows_there(trace, Role.OP)
    ops = ops[is_generated[trace.name[ops]]]
    outside: Rows = ops[regions.calls.around(ops) == NONE]
    return outside


def _bare_launches(regions: RegionsOfTrace, ops: Rows, launches: Int32s) -> Rows:
    """The launches inside a call of a graph that none of these ops contains; without
    replays of CUDA graphs, which launch many kernels."""
    trace = regions.trace
    rows = distinct(launches[launches >= 0]).astype(np.intp)
    rows = rows[regions.calls.around(rows) >= 0]
    rows = rows[~trace.matching(rows, is_replay)] if len(rows) else rows
    if not len(rows):
        return rows
    of_ops = Spans(trace, origins(trace).line, ops)
    return rows[of_ops.around(rows) < 0]


def items_of_rows(regions: RegionsOfTrace, rows: Rows) -> Rows:
    """For each row the item that it is, lies in, or was launched by; NONE for others.
    Shape of `rows`."""
    return regions.items.spans.around(launching_calls(regions.trace, rows))


def calls_of_rows(regions: RegionsOfTrace, rows: Rows) -> Rows:
    """For each row the call of a graph that it lies in, or was launched in; NONE for
    others."""
    return regions.calls.around(launching_calls(regions.trace, rows))


def regions_of_rows(regions: RegionsOfTrace, rows: Rows) -> Rows:
    """For each row the compiled region that it lies in, or was launched in; NONE for
    others."""
    return regions.regions.around(launching_calls(regions.trace, rows))
