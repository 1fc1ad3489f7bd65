"""Builds the answer about everything that torch.compile generated for a program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

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
from fusetui.analysis.compiled.regions import NONE, CompiledCode, parse_compile_id
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
from fusetui.trace.model.arrays import Int64s, distinct, summed
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
    joined = join_kernels(trace, log)
    runs_of_kernel = joined.runs_of_kernels()
    ns_of_kernel = joined.ns_of_kernels()

    # A run counts by what is known of its kernel.
    runs_with_lines = 0
    runs_with_possible_lines = 0
    for kernel, runs in zip(joined.kernels, runs_of_kernel.tolist(), strict=True):
        if kernel.is_joined:
            runs_with_lines += runs
            runs_with_possible_lines += runs if kernel.is_possible else 0

    without_lines = _count_not_joined(joined, runs_of_kernel, ns_of_kernel)
    unexplained = _count_unexplained_kernels(joined)
    unexplained_runs = sum(row.kernels for row in unexplained)
    compilations = _find_compilations_of_trace(trace, log)

    return CompileAnswer(
        log=None if log is None else _describe_logs(log),
        recorded=True,
        regions=_report_regions(joined, log, runs_of_kernel, ns_of_kernel),
        kernels=int(runs_of_kernel.sum()) + unexplained_runs,
        joined=runs_with_lines,
        possible=runs_with_possible_lines,
        not_joined=without_lines + unexplained,
        breaks=list_graph_breaks(joined.compiled, log),
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


def _count_calls_of_joins(joined: JoinedKernels) -> dict[GraphJoin, int]:
    """Count the calls of compiled graphs by what they were joined with in the log."""
    joins = joined.calls.joins
    counts = np.bincount(joined.calls.join_of_call, minlength=len(joins))
    # Of equal joins, the last one counts.
    return dict(zip(joins, counts.tolist(), strict=True))


def _report_regions(
    joined: JoinedKernels,
    log: CompileLog | None,
    runs_of_kernel: Int64s,
    ns_of_kernel: Int64s,
) -> tuple[CompiledRegion, ...]:
    """Report the regions and backward passes of a trace, longest kernel time first.

    Args:
        joined: The kernels of the trace, joined with the log.
        log: The compile log; None if there is none.
        runs_of_kernel: How often each kernel of `joined.kernels` ran.
        ns_of_kernel: How long each of these took in all, in ns.
    """
    # Begin with all graphs that were called, so that those without kernels have a
    # region too.
    kernels_of_graph: dict[GraphJoin, list[CompiledKernel]] = {
        join: [] for join in joined.calls.joins
    }
    on_gpu = _mark_gpu_kernels(joined)
    for index, kernel in enumerate(joined.kernels):
        record = _report_kernel(
            kernel,
            calls=int(runs_of_kernel[index]),
            total_ns=int(ns_of_kernel[index]),
            on_gpu=on_gpu[index],
        )
        kernels_of_graph.setdefault(kernel.join, []).append(record)

    cpu_ns_of_regions = _sum_cpu_time_of_regions(joined.compiled)
    calls_of_graphs = _count_calls_of_joins(joined)
    regions = []
    for join, kernels in kernels_of_graph.items():
        kernels.sort(key=lambda kernel: (-kernel.total_ns, kernel.name, kernel.handle))
        region = _report_region(
            log,
            join,
            kernels,
            calls=calls_of_graphs.get(join, 0),
            cpu_ns_of_regions=cpu_ns_of_regions,
        )
        regions.append(region)

    regions.sort(key=lambda region: (-region.kernel_ns, region.compile_id, region.key))
    return tuple(regions)


def _report_region(
    log: CompileLog | None,
    join: GraphJoin,
    kernels: list[CompiledKernel],
    *,
    calls: int,
    cpu_ns_of_regions: dict[CompileId, int],
) -> CompiledRegion:
    """Describe one region of compiled code, or one backward pass, with its kernels and
    times.

    Args:
        log: The compile log; None if there is none.
        join: The graph of the log that its calls ran, or why none is known.
        kernels: The records of its kernels.
        calls: How often its graph was called.
        cpu_ns_of_regions: The CPU time of all calls of each region of the trace.
    """
    graph = join.graph
    cpu_ns = 0
    compile_id = join.compile_id
    if compile_id is not None:
        cpu_ns = cpu_ns_of_regions.get(compile_id, 0)
    elif graph is not None:
        compile_id = graph.compile_id

    function = _find_compiled_function(log, graph, compile_id)
    return CompiledRegion(
        compile_id="" if compile_id is None else str(compile_id),
        function=function.name,
        file=function.file,
        line=function.line,
        calls=calls,
        cpu_ns=cpu_ns,
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
    function = _find_compiled_function(log, graph, graph.compile_id)
    wrapper = wrapper_in(log, graph)
    calls = () if wrapper is None else wrapper.calls
    lines_of_handle = find_lines_of_graph(log, graph)

    kernels = []
    for call in calls:
        lines = lines_of_handle.get(call.handle, ())
        kernel = CompiledKernel(
            name=call.name,
            handle=call.handle,
            calls=0,
            total_ns=0,
            on_gpu=False,
            lines=source_lines(lines),
            possible=False,
            not_joined="" if lines else Why.NO_PROVENANCE.value,
        )
        kernels.append(kernel)

    return CompiledRegion(
        compile_id="" if graph.compile_id is None else str(graph.compile_id),
        function=function.name,
        file=function.file,
        line=function.line,
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
    return CompiledKernel(
        name=kernel.name,
        handle=kernel.handle,
        calls=calls,
        total_ns=total_ns,
        on_gpu=on_gpu,
        lines=source_lines(kernel.lines),
        possible=kernel.is_possible,
        not_joined="" if kernel.why_not is None else kernel.why_not.value,
    )


def _mark_gpu_kernels(joined: JoinedKernels) -> list[bool]:
    """Return for each kernel whether any run of it launched GPU events."""
    run_is_on_gpu = joined.kernel_runs.has_gpu_events
    kernels_on_gpu = distinct(joined.kernel_of_run[run_is_on_gpu])

    is_on_gpu = np.zeros(len(joined.kernels), dtype=np.bool_)
    is_on_gpu[kernels_on_gpu] = True
    are_on_gpu: list[bool] = is_on_gpu.tolist()
    return are_on_gpu


def _sum_cpu_time_of_regions(compiled: CompiledCode) -> dict[CompileId, int]:
    """Add up the CPU time of the calls of each compiled region, in ns.

    The compile id is in the name of a region. Regions that were only recorded in the
    capture of a CUDA graph do not count.
    """
    trace = compiled.trace
    rows = compiled.regions.rows
    rows = rows[rows < trace.recorded()]
    name_indices = distinct(trace.name[rows])
    index_of_row = np.searchsorted(name_indices, trace.name[rows])
    ns_of_name = summed(index_of_row, trace.dur[rows], len(name_indices))

    cpu_ns = {}
    for name_index, ns in zip(name_indices.tolist(), ns_of_name.tolist(), strict=True):
        compile_id = parse_compile_id(trace.names[name_index])
        if compile_id is not None:
            cpu_ns[compile_id] = ns
    return cpu_ns


class _CompiledFunction(NamedTuple):
    """A function that was compiled. Its fields are empty if the log lacks them."""

    name: str = ""
    file: str = ""
    line: int = 0


def _find_compiled_function(
    log: CompileLog | None, graph: CompiledGraph | None, compile_id: CompileId | None
) -> _CompiledFunction:
    """Find the name, the file and the line of a compiled function in the compile log.

    Args:
        log: The compile log; None if there is none.
        graph: A graph of the function, which tells the log; None if none is known.
        compile_id: The id of its compilation; None if it is not known.
    """
    if log is None or compile_id is None:
        return _CompiledFunction()

    for compilation in log.compilations:
        is_of_log = graph is None or compilation.log == graph.log
        if is_of_log and compilation.compile_id == compile_id and compilation.function:
            return _CompiledFunction(
                name=compilation.function,
                file=compilation.file,
                line=compilation.line,
            )

    return _CompiledFunction()


def _determine_training_pass(
    log: CompileLog | None, graph: CompiledGraph | None
) -> Pass:
    """Return which pass of training a compiled graph belongs to, by the id in its
    wrapper.

    The wrapper is the generated code that runs the graph; its id is such as
    `0_forward`. Returns `unknown` without a log or a known id.
    """
    wrapper: Wrapper | None = None
    if log is not None and graph is not None:
        wrapper = wrapper_in(log, graph)
    if wrapper is None:
        return "unknown"

    _, _, suffix = wrapper.aot_id.rpartition("_")
    known_passes: dict[str, Pass] = {
        "forward": "forward",
        "backward": "backward",
        "inference": "inference",
    }
    return known_passes.get(suffix, "unknown")


GENERATED = lazy_pattern(r"triton_(?:poi|red|per|tem|for|mm)_")
"""How the names of Triton kernels begin that Inductor generates."""


def _count_unexplained_kernels(joined: JoinedKernels) -> tuple[NotJoined, ...]:
    """Count the generated kernels on the GPU that no op or launch of a compiled region
    explains.

    Kernels that a replayed CUDA graph launched are counted separately from the others.
    """
    trace = joined.trace
    rows = trace.gpu_rows[joined.kernel_runs.run_of_gpu_event == NONE]
    if not len(rows):
        return ()

    rows = rows[trace.matching(rows, GENERATED.match)]
    launch = trace.launch[rows]
    has_launch = launch >= 0  # a kernel without a launch counts as not replayed
    is_replayed = np.zeros(len(rows), dtype=np.bool_)
    is_replayed[has_launch] = trace.matching(launch[has_launch], is_graph_launch)

    counted = []
    for why, is_counted in ((Why.REPLAYED, is_replayed), (Why.OUTSIDE, ~is_replayed)):
        if is_counted.any():
            row = NotJoined(
                why=why.value,
                detail="",
                kernels=int(np.count_nonzero(is_counted)),
                total_ns=int(trace.dur[rows[is_counted]].sum()),
            )
            counted.append(row)
    return tuple(counted)


def _count_not_joined(
    joined: JoinedKernels, runs_of_kernel: Int64s, ns_of_kernel: Int64s
) -> tuple[NotJoined, ...]:
    """Count the kernels without a known line of Python by the reason, the most frequent
    first.

    Args:
        joined: The kernels of the trace, joined with the log.
        runs_of_kernel: How often each kernel of `joined.kernels` ran.
        ns_of_kernel: How long each of these took in all, in ns.
    """
    runs: Counter[tuple[str, str]] = Counter()  # by the reason and its detail
    total_ns: Counter[tuple[str, str]] = Counter()
    for index, kernel in enumerate(joined.kernels):
        if kernel.why_not is None:
            continue

        # A key or a name is added where the reason is about one.
        detail = ""
        if kernel.why_not in KEY_REASONS:
            detail = kernel.join.key
        elif kernel.why_not is Why.NOT_IN_WRAPPER:
            detail = kernel.name
        runs[kernel.why_not.value, detail] += int(runs_of_kernel[index])
        total_ns[kernel.why_not.value, detail] += int(ns_of_kernel[index])

    rows = []
    for (why, detail), count in runs.items():
        ns = total_ns[why, detail]
        rows.append(NotJoined(why=why, detail=detail, kernels=count, total_ns=ns))

    rows.sort(key=lambda row: (-row.kernels, row.why, row.detail))
    return tuple(rows)
