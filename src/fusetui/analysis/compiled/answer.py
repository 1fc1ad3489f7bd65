"""Builds the answer about everything that torch.compile generated for a program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec
import numpy as np

from fusetui.analysis.compiled.breaks import list_graph_breaks
from fusetui.analysis.compiled.compilations import list_compilations
from fusetui.analysis.compiled.graphs import GraphJoin, Why, find_logs_of_trace
from fusetui.analysis.compiled.kernels import (
    JoinedKernels,
    KernelOfGraph,
    join_kernels,
)
from fusetui.analysis.compiled.lines import find_lines_of_graph
from fusetui.analysis.compiled.model import (
    CompileAnswer,
    CompiledKernel,
    CompiledRegion,
    LogOfTrace,
    NotJoined,
    Pass,
    SourceLine,
)
from fusetui.analysis.compiled.regions import NONE, RegionsOfTrace, parse_compile_id
from fusetui.analysis.compiled.remedies import find_remedies, list_frequent_guards
from fusetui.analysis.questions.launches import is_graph_launch
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.compile_log.log import (
    Compilation,
    CompiledGraph,
    CompileId,
    CompileLog,
    wrapper_in,
)
from fusetui.trace.compile_log.stacks import CodeLine
from fusetui.trace.compile_log.wrapper import Wrapper
from fusetui.trace.model.arrays import Int64s
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.memo import memo

KEY_REASONS = (Why.TWO_LOGS, Why.TWO_GRAPHS, Why.KEY_NOT_IN_LOG)
"""Reasons that are about a key."""


@memo(2)
def report_compilation(trace: Trace, log: CompileLog | None) -> CompileAnswer:
    """Report what torch.compile made of a program that was recorded.

    `fusetui compile` prints it.

    Args:
        trace: The trace.
        log: The compile log of the trace; None if there is none.
    """
    kernels = join_kernels(trace, log)
    runs_of_kernel = kernels.runs_of_kernels()
    ns_of_kernel = kernels.ns_of_kernels()
    is_joined = np.array(
        [kernel.is_joined for kernel in kernels.kernels], dtype=np.bool_
    )
    is_possible = np.array(
        [kernel.is_possible for kernel in kernels.kernels], dtype=np.bool_
    )
    outside_of_items = _count_outside_of_items(kernels)
    compilations = _find_compilations_of_trace(trace, log)

    return CompileAnswer(
        log=None if log is None else _describe_logs(log),
        recorded=True,
        regions=_report_regions(kernels, log, runs_of_kernel, ns_of_kernel),
        kernels=int(runs_of_kernel.sum())
        + sum(outside_count.kernels for outside_count in outside_of_items),
        joined=int(runs_of_kernel[is_joined].sum()),
        possible=int(runs_of_kernel[is_joined & is_possible].sum()),
        not_joined=(
            *_count_not_joined(kernels, runs_of_kernel, ns_of_kernel),
            *outside_of_items,
        ),
        breaks=list_graph_breaks(kernels.regions, log),
        compilations=list_compilations(trace, log),
        guards=list_frequent_guards(compilations),
        remedies=find_remedies(compilations),
    )


def _find_compilations_of_trace(
    trace: Trace, log: CompileLog | None
) -> list[Compilation]:
    """Return the compilations of the program of a trace; none without a log."""
    if log is None:
        return []
    logs = find_logs_of_trace(trace, log)
    return [compilation for compilation in log.compilations if compilation.log in logs]


def report_compile_log(log: CompileLog) -> CompileAnswer:
    """Report what a compile log says without a trace of the program.

    Every graph of the log is listed as a region, with the kernels that its wrapper
    calls. No times and no numbers of calls are known.
    """
    return CompileAnswer(
        log=_describe_logs(log),
        recorded=False,
        regions=tuple(_report_graph(log, graph) for graph in log.graphs),
        kernels=0,
        joined=0,
        possible=0,
        not_joined=(),
        breaks=list_graph_breaks(None, log),
        compilations=list_compilations(None, log),
        guards=list_frequent_guards(log.compilations),
        remedies=find_remedies(log.compilations),
    )


def source_lines(lines: Iterable[CodeLine]) -> tuple[SourceLine, ...]:
    """Turn lines of Python into records of the answer."""
    return tuple(
        SourceLine(
            file=line.file, line=line.line, function=line.function, code=line.code
        )
        for line in lines
    )


def _describe_logs(log: CompileLog) -> LogOfTrace:
    """Describe which files of a compile log were read, how many graphs they have, and
    what could not be read."""
    return LogOfTrace(
        path=log.path,
        logs=len(log.logs),
        graph_folders=len(log.files.graph_folders),
        graphs=len(log.graphs),
        unread=tuple(log_file.reason for log_file in log.unread),
        unread_records=sum(records.unread_count for records in log.logs),
    )


class _CalledRegion(msgspec.Struct, frozen=True):
    """How often a compiled region was called, and how long that took on the CPU."""

    calls: int
    cpu_ns: int


def _count_calls_of_joins(kernels: JoinedKernels) -> dict[GraphJoin, int]:
    """Count the calls of graphs that were joined in the same way, by their join."""
    joins = kernels.calls.joins
    counts = np.bincount(kernels.calls.join_of_call, minlength=len(joins))
    # Of equal joins, the last one counts.
    return dict(zip(joins, counts.tolist(), strict=True))


def _report_regions(
    kernels: JoinedKernels,
    log: CompileLog | None,
    runs_of_kernel: Int64s,
    ns_of_kernel: Int64s,
) -> tuple[CompiledRegion, ...]:
    """Report the regions and backward passes of a trace, longest kernel time first.

    Args:
        kernels: The kernels of the trace.
        log: Its compile log.
        runs_of_kernel: How often each kernel of `kernels.kernels` ran.
        ns_of_kernel: How long each of these took in all, in ns.
    """
    on_gpu = _mark_gpu_kernels(kernels)
    # Begin with all joins, so that calls without kernels are regions too.
    kernels_of_join: dict[GraphJoin, list[CompiledKernel]] = {
        join: [] for join in kernels.calls.joins
    }
    for kernel_index, kernel in enumerate(kernels.kernels):
        record = _report_kernel(
            kernel,
            int(runs_of_kernel[kernel_index]),
            int(ns_of_kernel[kernel_index]),
            on_gpu[kernel_index],
        )
        kernels_of_join.setdefault(kernel.join, []).append(record)

    called = _sum_region_calls(kernels.regions)
    calls_of_join = _count_calls_of_joins(kernels)
    regions = []
    for join, kernels_of_region in kernels_of_join.items():
        kernels_of_region.sort(
            key=lambda kernel: (-kernel.total_ns, kernel.name, kernel.handle)
        )
        calls = calls_of_join.get(join, 0)
        regions.append(_report_region(log, join, kernels_of_region, called, calls))

    regions.sort(key=lambda region: (-region.kernel_ns, region.compile_id, region.key))
    return tuple(regions)


def _report_region(
    log: CompileLog | None,
    join: GraphJoin,
    kernels: list[CompiledKernel],
    called: dict[CompileId, _CalledRegion],
    calls: int,
) -> CompiledRegion:
    """Describe one region of compiled code, or one backward pass, with its kernels and
    times.

    Args:
        log: The compile log; None if there is none.
        join: The graph of the log that its calls ran, or why none is known.
        kernels: The records of its kernels.
        called: How often each region of the trace was called, and its CPU time.
        calls: How often its graph was called.
    """
    compile_id = join.compile_id
    graph = join.graph
    if compile_id is None and graph is not None:
        compile_id = graph.compile_id

    function, file, line = _find_compiled_function(log, graph, compile_id)
    in_region = called.get(join.compile_id) if join.compile_id is not None else None

    return CompiledRegion(
        compile_id="" if compile_id is None else str(compile_id),
        function=function,
        file=file,
        line=line,
        calls=calls,
        cpu_ns=in_region.cpu_ns if in_region is not None else 0,
        kernel_ns=sum(kernel.total_ns for kernel in kernels),
        joined_by="" if join.by is None else join.by.value,
        key=join.key,
        pass_=_determine_training_pass(log, graph),
        cache="" if graph is None else graph.cache,
        kernels=tuple(kernels),
    )


def _report_graph(log: CompileLog, graph: CompiledGraph) -> CompiledRegion:
    """Describe a graph of the compile log as a region, without any recorded time.

    Its kernels are those that its wrapper, the generated code that runs the graph,
    calls. Each comes with its lines of Python, or with the reason why they are not
    known.
    """
    function, file, line = _find_compiled_function(log, graph, graph.compile_id)
    wrapper = wrapper_in(log, graph)
    lines = find_lines_of_graph(log, graph)

    kernels = []
    for call in wrapper.calls if wrapper is not None else ():
        lines_of_call = lines.get(call.handle, ())
        kernels.append(
            CompiledKernel(
                name=call.name,
                handle=call.handle,
                calls=0,
                total_ns=0,
                on_gpu=False,
                lines=source_lines(lines_of_call),
                possible=False,
                not_joined="" if lines_of_call else Why.NO_PROVENANCE.value,
            )
        )

    return CompiledRegion(
        compile_id="" if graph.compile_id is None else str(graph.compile_id),
        function=function,
        file=file,
        line=line,
        calls=0,
        cpu_ns=0,
        kernel_ns=0,
        joined_by="",
        key=graph.key,
        pass_=_determine_training_pass(log, graph),
        cache=graph.cache,
        kernels=tuple(kernels),
    )


def _report_kernel(
    kernel: KernelOfGraph, calls: int, total_ns: int, on_gpu: bool
) -> CompiledKernel:
    """Describe one kernel of a compiled region: its lines of Python, its calls and its
    time.

    Args:
        kernel: The kernel, with what is known of it from the log.
        calls: How often it ran.
        total_ns: How long it took in all.
        on_gpu: Whether it launched GPU events.
    """
    handle = kernel.calls[0].handle if len(kernel.calls) == 1 else ""
    return CompiledKernel(
        name=kernel.name,
        handle=handle,
        calls=calls,
        total_ns=total_ns,
        on_gpu=on_gpu,
        lines=source_lines(kernel.lines),
        possible=kernel.is_possible,
        not_joined="" if kernel.why_not is None else kernel.why_not.value,
    )


def _mark_gpu_kernels(kernels: JoinedKernels) -> list[bool]:
    """Return for each kernel whether any item of it launched GPU events."""
    on_gpu = np.zeros(len(kernels.kernels), dtype=np.bool_)
    on_gpu[kernels.kernel_of_item[kernels.items.has_gpu_events]] = True
    are_on_gpu: list[bool] = on_gpu.tolist()
    return are_on_gpu


def _sum_region_calls(regions: RegionsOfTrace) -> dict[CompileId, _CalledRegion]:
    """Count the calls of compiled regions and add up their CPU time, by compile id.

    The compile id is in the name of a region. Regions that were only recorded in the
    capture of a CUDA graph do not count.
    """
    trace = regions.trace
    rows = regions.regions.rows
    rows = rows[rows < trace.recorded()]
    names, name_of_row = np.unique(trace.name[rows], return_inverse=True)
    calls = np.bincount(name_of_row, minlength=len(names))
    cpu_ns = np.zeros(len(names), dtype=np.int64)
    np.add.at(cpu_ns, name_of_row, trace.dur[rows])

    called = {}
    for index, name in enumerate(names.tolist()):
        compile_id = parse_compile_id(trace.names[name])
        if compile_id is not None:
            called[compile_id] = _CalledRegion(
                calls=int(calls[index]), cpu_ns=int(cpu_ns[index])
            )

    return called


def _find_compiled_function(
    log: CompileLog | None, graph: CompiledGraph | None, compile_id: CompileId | None
) -> tuple[str, str, int]:
    """Return the name, the file and the line of a compiled function.

    They are "" and 0 if the log does not have them.

    Args:
        log: The compile log.
        graph: A graph of the function, which tells the log; None if none is known.
        compile_id: The id of its compilation.
    """
    if log is None or compile_id is None:
        return "", "", 0

    for compilation in log.compilations:
        is_of_log = graph is None or compilation.log == graph.log
        if is_of_log and compilation.compile_id == compile_id and compilation.function:
            return compilation.function, compilation.file, compilation.line

    return "", "", 0


def _determine_training_pass(
    log: CompileLog | None, graph: CompiledGraph | None
) -> Pass:
    """Return which pass of training a compiled graph belongs to, by the id in its
    wrapper.

    The wrapper is the generated code that runs the graph. Returns `forward`, `backward`
    or `inference`, and `unknown` without a log or a known id.
    """
    wrapper: Wrapper | None = None
    if log is not None and graph is not None:
        wrapper = wrapper_in(log, graph)

    name = wrapper.aot_id.rpartition("_")[2] if wrapper is not None else ""
    if name == "forward":
        return "forward"

    if name == "backward":
        return "backward"

    if name == "inference":
        return "inference"

    return "unknown"


GENERATED = lazy_pattern(r"triton_(?:poi|red|per|tem|for|mm)_")
"""How the names of Triton kernels begin that Inductor generates."""


def _count_outside_of_items(kernels: JoinedKernels) -> tuple[NotJoined, ...]:
    """Count the generated kernels on the GPU that no op or launch of a compiled region
    explains.

    Kernels that a replayed CUDA graph launched are counted separately from the others.
    """
    trace = kernels.trace
    rows = trace.gpu_rows[kernels.items.item_of_gpu_event == NONE]
    rows = rows[trace.matching(rows, GENERATED.match)] if len(rows) else rows

    # A kernel without a launch counts as one of the others.
    is_replayed = np.zeros(len(rows), dtype=np.bool_)
    launched = np.flatnonzero(trace.launch[rows] >= 0)
    launches = trace.launch[rows[launched]]
    is_replayed[launched] = trace.matching(launches, is_graph_launch)

    not_joined = []
    for why, is_selected in ((Why.REPLAYED, is_replayed), (Why.OUTSIDE, ~is_replayed)):
        if is_selected.any():
            not_joined.append(
                NotJoined(
                    why=why.value,
                    detail="",
                    kernels=int(np.count_nonzero(is_selected)),
                    total_ns=int(trace.dur[rows[is_selected]].sum()),
                )
            )

    return tuple(not_joined)


def _count_not_joined(
    kernels: JoinedKernels, runs_of_kernel: Int64s, ns_of_kernel: Int64s
) -> tuple[NotJoined, ...]:
    """Count the kernels without a known line of Python by the reason, the most frequent
    first.

    Args:
        kernels: The kernels of the trace.
        runs_of_kernel: How often each kernel of `kernels.kernels` ran.
        ns_of_kernel: How long each of these took in all, in ns.
    """
    runs: dict[tuple[str, str], int] = defaultdict(int)
    total_ns: dict[tuple[str, str], int] = defaultdict(int)
    for kernel_index, kernel in enumerate(kernels.kernels):
        if kernel.why_not is None:
            continue

        # A key or a name is added where the reason is about one.
        detail = ""
        if kernel.why_not in KEY_REASONS:
            detail = kernel.join.key
        elif kernel.why_not is Why.NOT_IN_WRAPPER:
            detail = kernel.name
        reason = (kernel.why_not.value, detail)
        runs[reason] += int(runs_of_kernel[kernel_index])
        total_ns[reason] += int(ns_of_kernel[kernel_index])

    rows = [
        NotJoined(why=why, detail=detail, kernels=count, total_ns=total_ns[why, detail])
        for (why, detail), count in runs.items()
    ]
    rows.sort(key=lambda row: (-row.kernels, row.why, row.detail))
    return tuple(rows)
