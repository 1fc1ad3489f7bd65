"""Builds the answer about everything that torch.compile generated for a program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec
import numpy as np

from fusetui.analysis.compiled.breaks import passed_breaks
from fusetui.analysis.compiled.compilations import compilations_of
from fusetui.analysis.compiled.graphs import GraphJoin, Why, logs_of_trace
from fusetui.analysis.compiled.kernels import (
    JoinedKernels,
    KernelOfGraph,
    joined_kernels,
)
from fusetui.analysis.compiled.lines import lines_of_graph
from fusetui.analysis.compiled.model import (
    CompileAnswer,
    CompiledKernel,
    CompiledRegion,
    LogOfTrace,
    NotJoined,
    Pass,
    SourceLine,
)
from fusetui.analysis.compiled.regions import NONE, RegionsOfTrace, compile_id_of
from fusetui.analysis.compiled.remedies import frequent_guards, remedies_for
from fusetui.analysis.questions.launches import is_replay
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
def compile_answer(trace: Trace, log: CompileLog | None) -> CompileAnswer:
    """Report what torch.compile made of a program that was recorded.

    `fusetui compile` prints it.

    Args:
        trace: The trace.
        log: The compile log of the trace; None if there is none.
    """
    kernels = joined_kernels(trace, log)
    item_ns = kernels.item_ns()

    # Count the runs and add up the time of each kernel of a graph.
    runs_of_kernel = np.bincount(kernels.kernel_of_item, minlength=len(kernels.kernels))
    ns_of_kernel = np.zeros(len(kernels.kernels), dtype=np.int64)
    np.add.at(ns_of_kernel, kernels.kernel_of_item, item_ns)

    is_joined = np.array(
        [kernel.is_joined for kernel in kernels.kernels], dtype=np.bool_
    )
    is_possible = np.array(
        [kernel.is_possible for kernel in kernels.kernels], dtype=np.bool_
    )

    outside = _count_outside_of_items(kernels)

    compilations: list[Compilation] = []
    if log is not None:
        logs = logs_of_trace(trace, log)
        compilations += [
            compilation for compilation in log.compilations if compilation.log in logs
        ]

    return CompileAnswer(
        log=None if log is None else _log_of_trace(log),
        recorded=True,
        regions=_region_records(kernels, log, runs_of_kernel, ns_of_kernel),
        kernels=int(runs_of_kernel.sum()) + sum(entry.kernels for entry in outside),
        joined=int(runs_of_kernel[is_joined].sum()),
        possible=int(runs_of_kernel[is_joined & is_possible].sum()),
        not_joined=(
            *_count_not_joined(kernels, runs_of_kernel, ns_of_kernel),
            *outside,
        ),
        breaks=passed_breaks(kernels.regions, log),
        compilations=compilations_of(trace, log),
        guards=frequent_guards(compilations),
        remedies=remedies_for(compilations),
    )


def answer_of_log(log: CompileLog) -> CompileAnswer:
    """Report what a compile log says without a trace.

    Every graph is a region, with the calls of its wrapper; nothing has a time.
    """
    return CompileAnswer(
        log=_log_of_trace(log),
        recorded=False,
        regions=tuple(_region_of_graph(log, graph) for graph in log.graphs),
        kernels=0,
        joined=0,
        possible=0,
        not_joined=(),
        breaks=passed_breaks(None, log),
        compilations=compilations_of(None, log),
        guards=frequent_guards(log.compilations),
        remedies=remedies_for(log.compilations),
    )


def source_lines(lines: Iterable[CodeLine]) -> tuple[SourceLine, ...]:
    """Turn lines of Python into records of the answer."""
    return tuple(
        SourceLine(
            file=line.file, line=line.line, function=line.function, code=line.code
        )
        for line in lines
    )


def _log_of_trace(log: CompileLog) -> LogOfTrace:
    """Say which logs were read and what could not be read of them."""
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


def _region_records(
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
    on_gpu = _are_on_gpu(kernels)
    kernels_of_join: dict[GraphJoin, list[CompiledKernel]] = defaultdict(list)

    # Begin with all joins, so that calls without kernels are regions too.
    for join in kernels.calls.joins:
        kernels_of_join[join] = []

    for kernel_index, kernel in enumerate(kernels.kernels):
        kernels_of_join[kernel.join].append(
            _kernel_record(
                kernel,
                int(runs_of_kernel[kernel_index]),
                int(ns_of_kernel[kernel_index]),
                on_gpu[kernel_index],
            )
        )

    called = _called_regions(kernels.regions)
    calls_of_join = np.bincount(
        kernels.calls.join_of_call, minlength=len(kernels.calls.joins)
    )
    index_of_join = {
        join: join_index for join_index, join in enumerate(kernels.calls.joins)
    }

    regions = []
    for join, kernels_of_region in kernels_of_join.items():
        kernels_of_region.sort(
            key=lambda kernel: (-kernel.total_ns, kernel.name, kernel.handle)
        )
        join_index = index_of_join.get(join)
        calls = 0 if join_index is None else int(calls_of_join[join_index])
        regions.append(_region_record(log, join, kernels_of_region, called, calls))

    regions.sort(key=lambda region: (-region.kernel_ns, region.compile_id, region.key))
    return tuple(regions)


def _region_record(
    log: CompileLog | None,
    join: GraphJoin,
    kernels: list[CompiledKernel],
    called: dict[CompileId, _CalledRegion],
    calls: int,
) -> CompiledRegion:
    """Build the record of one region, or of one backward pass.

    Args:
        log: The compile log.
        join: What its calls were joined with.
        kernels: Its kernels.
        called: How often each region of the trace was called.
        calls: How often its graph was called.
    """
    compile_id = join.compile_id
    graph = join.graph
    if compile_id is None and graph is not None:
        compile_id = graph.compile_id

    function, file, line = _compiled_function(log, graph, compile_id)
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
        pass_=_pass_of_graph(log, graph),
        cache="" if graph is None else graph.cache,
        kernels=tuple(kernels),
    )


def _region_of_graph(log: CompileLog, graph: CompiledGraph) -> CompiledRegion:
    """Build the record of a graph of the log, without any recorded time."""
    function, file, line = _compiled_function(log, graph, graph.compile_id)
    wrapper = wrapper_in(log, graph)
    lines = lines_of_graph(log, graph)

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
        pass_=_pass_of_graph(log, graph),
        cache=graph.cache,
        kernels=tuple(kernels),
    )


def _kernel_record(
    kernel: KernelOfGraph, calls: int, total_ns: int, on_gpu: bool
) -> CompiledKernel:
    """Build the record of one kernel of a region.

    Args:
        kernel: The kernel, as it was joined with the log.
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


def _are_on_gpu(kernels: JoinedKernels) -> list[bool]:
    """Return for each kernel whether any item of it launched GPU events."""
    on_gpu = np.zeros(len(kernels.kernels), dtype=np.bool_)
    on_gpu[kernels.kernel_of_item[kernels.items.has_gpu_events]] = True
    are_on_gpu: list[bool] = on_gpu.tolist()
    return are_on_gpu


def _called_regions(regions: RegionsOfTrace) -> dict[CompileId, _CalledRegion]:
    """Add up the calls and the CPU time of each compile id.

    Regions of a CUDA graph's capture do not count.
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
        compile_id = compile_id_of(trace.names[name])
        if compile_id is not None:
            called[compile_id] = _CalledRegion(
                calls=int(calls[index]), cpu_ns=int(cpu_ns[index])
            )

    return called


def _compiled_function(
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


def _pass_of_graph(log: CompileLog | None, graph: CompiledGraph | None) -> Pass:
    """Return which pass of training a graph belongs to, by the id in its wrapper."""
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
    """Count the generated kernels that no op or launch of a compiled region explains.

    They are those of replayed CUDA graphs, and others.
    """
    trace = kernels.trace
    rows = trace.gpu_rows[kernels.items.item_of_gpu_event == NONE]
    rows = rows[trace.matching(rows, GENERATED.match)] if len(rows) else rows

    # A kernel without a launch counts as one of the others.
    is_replayed = np.zeros(len(rows), dtype=np.bool_)
    launched = np.flatnonzero(trace.launch[rows] >= 0)
    launches = trace.launch[rows[launched]]
    is_replayed[launched] = trace.matching(launches, is_replay)

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
    """Count the kernels without a line by the reason for it, the most frequent first.

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
