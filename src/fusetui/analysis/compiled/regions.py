"""Finds compiled regions, calls of graphs, and the calls of kernels inside them.

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

from fusetui.analysis.questions.launches import is_graph_launch
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.compile_log.log import CompileId
from fusetui.trace.model.arrays import Flags, Int32s, Rows, at, distinct
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


class CompiledCode(msgspec.Struct, frozen=True, eq=False, dict=True):
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
        """For each call the index of the innermost region around it.

        It is NONE for a backward pass, which runs outside of its region.
        """
        return self.regions.around(self.calls.rows)

    @cached_property
    def kernel_runs(self) -> KernelRuns:
        """The runs of compiled kernels, inside of calls of graphs and outside."""
        return _collect_kernel_runs(self)


class KernelRuns(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The runs of compiled kernels in a trace.

    A *run* is an op directly inside a call of a graph, or a launch without such an op,
    or an op with the name of a generated kernel outside of such calls. Arrays have one
    entry per run, in the order of threads and time.
    """

    spans: Spans
    call: Rows  # index into CompiledCode.calls; NONE: outside of them
    names: tuple[str, ...]  # as the wrapper writes them, see `wrapper_name`
    name: Int32s  # index into `names`
    # of each GPU event (Trace.gpu_rows) the run that launched it, else NONE
    run_of_gpu_event: Rows

    def __len__(self) -> int:
        return len(self.spans)

    @cached_property
    def has_gpu_events(self) -> Flags:
        """For each run whether it launched GPU events."""
        return np.isin(np.arange(len(self)), self.run_of_gpu_event)


@memo()
def find_compiled_code(trace: Trace) -> CompiledCode:
    """Find the calls of compiled code in a trace: the regions, and the calls of graphs
    in them.

    Torch before 2.4 does not annotate the calls of graphs; there the regions stand in
    for them. The result is empty if the trace has no compiled code.
    """
    region_rows = _find_rows_named(trace, REGION)
    call_rows = _find_rows_named(trace, GRAPH_CALL)

    # Torch before 2.4 does not annotate calls.
    if not len(call_rows):
        call_rows = region_rows

    thread_line = origins(trace).line  # the threads, laid end to end
    return CompiledCode(
        trace=trace,
        regions=Spans(trace, thread_line, region_rows),
        calls=Spans(trace, thread_line, call_rows),
    )


def _find_rows_named(trace: Trace, pattern: re.Pattern[str]) -> Rows:
    """Find the ops and annotations of CPU threads whose names match a pattern.

    Those of a CUDA graph's capture are included.
    """
    is_matching_name = trace.named(lambda name: pattern.match(name) is not None)
    rows = np.flatnonzero(is_matching_name[trace.name])

    is_op_or_annotation = np.isin(trace.source_role[rows], (Role.OP, Role.ANNOTATION))
    rows = rows[is_op_or_annotation]
    return rows[are_on_cpu(trace, rows)]


def parse_compile_id(name: str) -> CompileId | None:
    """Return the compile id in the name of a region; None for any other name."""
    match = REGION.match(name)
    if match is None:
        return None

    return CompileId(frame=int(match["frame"]), compile=int(match["compile"]))


def parse_cache_key(name: str) -> str:
    """Return the cache key in the name of a call of a graph.

    It is "" for any other name, and if the cache was off.
    """
    match = GRAPH_CALL.match(name)
    if match is None or match["key"] == NO_KEY:
        return ""
    return match["key"]


def wrapper_name(name: str) -> str:
    """Return the name by which an op or kernel is compared with those of a wrapper.

    It lacks the number of the graph, the namespace, the overload and the underscore of
    in-place ops.

    >>> wrapper_name("graph_0_cpp_fused_gelu_mul_0"), wrapper_name("aten::mm")
    ('cpp_fused_gelu_mul_0', 'mm')
    >>> wrapper_name("extern_kernels.mm"), wrapper_name("torch.ops.aten.sort.stable")
    ('mm', 'sort')
    """
    cpp = CPP_KERNEL.match(name)
    if cpp is not None:
        return str(cpp["name"])

    dotted = name.split(".")
    if "::" in name:  # aten::mm
        _, _, op = name.rpartition("::")
    elif name.startswith("extern_kernels."):  # extern_kernels.mm
        op = dotted[-1]
    elif name.startswith("torch.ops."):  # torch.ops.aten.sort.stable
        op = dotted[3] if len(dotted) > 3 else name
    elif name.startswith(("aten.", "inductor_ops.")):  # aten.mm.default
        op = dotted[1]
    else:
        return name

    op = EXTERN_KERNELS.get(op, op)
    return op.rstrip("_") or op


EXTERN_KERNELS = {"bias_addmm": "addmm"}
"""Extern kernels that call an op of another name (torch/_inductor/kernel/mm.py)."""


def _collect_kernel_runs(compiled: CompiledCode) -> KernelRuns:
    """Collect the runs of compiled kernels, with the GPU events that each launched.

    A *run* is an op that a call of a graph makes, such as `triton_poi_fused_add_0`, or
    elsewhere an op with such a name. A launch in a call of a graph that lies in no op
    is a run by itself.
    """
    trace = compiled.trace
    ops_in_calls = _find_ops_of_calls(compiled)
    ops_outside = _find_ops_outside_calls(compiled)
    ops = np.concatenate((ops_in_calls, ops_outside))

    launches = launching_calls(trace, trace.gpu_rows)
    bare_launches = _find_launches_without_op(compiled, ops, launches)

    rows_of_runs = np.concatenate((ops, bare_launches))
    spans = Spans(trace, origins(trace).line, rows_of_runs)
    run_of_gpu_event = spans.around(launches)

    naming_row = _find_naming_rows(trace, spans.rows, bare_launches, run_of_gpu_event)
    wrapper_names = _collect_wrapper_names(trace, naming_row, ops)

    return KernelRuns(
        spans=spans,
        call=compiled.calls.around(spans.rows),
        names=wrapper_names.names,
        name=wrapper_names.name_of_run,
        run_of_gpu_event=run_of_gpu_event,
    )


def _find_naming_rows(
    trace: Trace, runs: Int32s, bare_launches: Rows, run_of_gpu_event: Rows
) -> Rows:
    """Find the row by whose name each run is known.

    It is the run itself. For a launch without an op it is the kernel that it launches.

    Args:
        trace: The trace.
        runs: The rows of the runs.
        bare_launches: Which rows are launches without an op.
        run_of_gpu_event: For each of `trace.gpu_rows` the run that launched it.

    Returns:
        For each run a row of the trace, or NONE.
    """
    is_bare = np.isin(runs, bare_launches)
    naming_row = np.where(is_bare, NONE, runs).astype(np.intp)

    is_launched_by_bare = at(is_bare, run_of_gpu_event, missing=False)
    run = run_of_gpu_event[is_launched_by_bare]
    naming_row[run] = trace.gpu_rows[is_launched_by_bare]
    return naming_row


class _WrapperNames(NamedTuple):
    """The names of runs, as wrappers of generated code write them."""

    names: tuple[str, ...]
    name_of_run: Int32s  # for each run its index in `names`, or NONE


def _collect_wrapper_names(trace: Trace, naming_row: Rows, ops: Rows) -> _WrapperNames:
    """Collect the names of kernel runs as the generated code of a graph writes them.

    The names that occur for ops come first.

    Args:
        trace: The trace.
        naming_row: For each run the row by whose name it is known, or -1.
        ops: The rows of the runs that are ops.
    """
    has_name = naming_row >= 0
    recorded_name = trace.name[naming_row]

    # Number the names of the wrapper; each recorded name is translated once.
    names_of_ops = distinct(trace.name[ops]).tolist()
    names_of_all = distinct(recorded_name[has_name]).tolist()
    number_of_name: dict[str, int] = {}
    number_of_recorded = np.full(len(trace.names), NONE, dtype=np.int32)
    for name_index in [*names_of_ops, *names_of_all]:
        name = wrapper_name(trace.names[name_index])
        number = number_of_name.setdefault(name, len(number_of_name))
        number_of_recorded[name_index] = number

    name_of_run = np.where(has_name, number_of_recorded[recorded_name], NONE)
    return _WrapperNames(
        names=tuple(number_of_name), name_of_run=name_of_run.astype(np.int32)
    )


def _find_ops_of_calls(compiled: CompiledCode) -> Rows:
    """Find the ops that a call of a graph makes itself.

    An op inside of another op of the same call is not one of them. Ops that only
    describe tensors or wrap others do not count, neither as such ops nor as the ones
    around.
    """
    trace = compiled.trace
    ops = rows_there(trace, Role.OP)
    is_wrapper_name = trace.named(lambda name: is_frame(name) or is_metadata(name))
    is_wrapper = is_wrapper_name[trace.name[ops]]

    call = compiled.calls.around(ops)
    is_in_call = call >= 0

    # An op is inside of another one of its call if the op around it is in that call.
    parent = trace.parent[ops].astype(np.intp)
    outer_op = _climb_out_of_wrappers(trace, parent, is_wrapper_name)
    has_outer_op = outer_op >= 0
    is_inner = has_outer_op & (compiled.calls.around(outer_op) == call)

    called: Rows = ops[is_in_call & ~is_inner & ~is_wrapper]
    return called


def _climb_out_of_wrappers(trace: Trace, rows: Rows, is_wrapper: Flags) -> Rows:
    """Climb from each slice to the nearest slice around it that is no wrapper.

    A *wrapper* is here an op that only calls other ops or describes tensors.

    Args:
        trace: The trace.
        rows: Rows of the trace; -1 for none.
        is_wrapper: For each name of the trace whether it is that of a wrapper.

    Returns:
        For each row itself or a row around it; -1 if there is none.
    """
    outer = np.array(rows)
    while True:
        climbs = (outer >= 0) & is_wrapper[trace.name[outer]]
        if not climbs.any():
            return outer
        outer[climbs] = trace.parent[outer[climbs]]


def _find_ops_outside_calls(compiled: CompiledCode) -> Rows:
    """Find the ops that have the name of a kernel generated by Inductor, but run in no
    call of a compiled graph. Ops of captured graphs are included."""
    trace = compiled.trace
    is_generated = trace.named(lambda name: INDUCTOR_KERNEL.match(name) is not None)
    ops = rows_there(trace, Role.OP)
    ops = ops[is_generated[trace.name[ops]]]

    outside: Rows = ops[compiled.calls.around(ops) == NONE]
    return outside


def _find_launches_without_op(
    compiled: CompiledCode, ops: Rows, launches: Int32s
) -> Rows:
    """Find the launch calls inside calls of compiled graphs that no op contains.

    Such a launch stands for a kernel by itself. Replays of CUDA graphs are left out,
    because each launches many kernels.

    Args:
        compiled: The compiled code of the trace.
        ops: The ops that calls of graphs make.
        launches: The launch of each GPU event; -1 for none.
    """
    trace = compiled.trace
    rows: Rows = distinct(launches[launches >= 0]).astype(np.intp)
    is_in_call = compiled.calls.around(rows) != NONE
    rows = rows[is_in_call]
    if not len(rows):
        return rows

    is_replay = trace.matching(rows, is_graph_launch)
    rows = rows[~is_replay]
    if not len(rows):
        return rows

    spans_of_ops = Spans(trace, origins(trace).line, ops)
    without_op: Rows = rows[spans_of_ops.around(rows) == NONE]
    return without_op


def find_runs_of_rows(compiled: CompiledCode, rows: Rows) -> Rows:
    """Find the run that each row is, lies in, or was launched by.

    Returns:
        For each of `rows` an index of a run, or NONE.
    """
    return compiled.kernel_runs.spans.around(launching_calls(compiled.trace, rows))


def find_calls_of_rows(compiled: CompiledCode, rows: Rows) -> Rows:
    """Find the call of a graph that each row lies in, or was launched in.

    Returns:
        For each of `rows` an index of a call, or NONE.
    """
    return compiled.calls.around(launching_calls(compiled.trace, rows))


def find_regions_of_rows(compiled: CompiledCode, rows: Rows) -> Rows:
    """Find the compiled region that each row lies in, or was launched in.

    Returns:
        For each of `rows` an index of a region, or NONE.
    """
    return compiled.regions.around(launching_calls(compiled.trace, rows))
