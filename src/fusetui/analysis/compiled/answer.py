"""What torch.compile made of a program, as one answer."""

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
    """What the trace and its log say together."""
    kernels = joined_kernels(trace, log)
    item_ns = kernels.item_ns()
    counts = np.bincount(kernels.kernel_of_item, minlength=len(kernels.kernels))
    times = np.zeros(len(kernels.kernels), dtype=np.int64)
    np.add.at(times, kernels.kernel_of_item, item_ns)
    is_joined = np.array([one.is_joined for one in kernels.kernels], dtype=np.bool_)
    is_possible = np.array([one.is_possible for one in kernels.kernels], dtype=np.bool_)
    outside = _outside_of_items(kernels)
    compilations: list[Compilation] = []
    if log is not None:
        logs = logs_of_trace(trace, log)
        compilations += [one for one in log.compilations if one.log in logs]
    return CompileAnswer(
        log=None if log is None else _log_of_trace(log),
        recorded=True,
        regions=_regions(kernels, log, counts, times),
        kernels=int(counts.sum()) + sum(one.kernels for one in outside),
        joined=int(counts[is_joined].sum()),
        possible=int(counts[is_joined & is_possible].sum()),
        not_joined=(*_not_joined(kernels, counts, times), *outside),
        breaks=passed_breaks(kernels.regions, log),
        compilations=compilations_of(trace, log),
        guards=frequent_guards(compilations),
        remedies=remedies_for(compilations),
    )


def answer_of_log(log: CompileLog) -> CompileAnswer:
    """What a log says without a trace: every graph, with the calls of its wrapper."""
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
    """The same lines as records of the answer."""
    return tuple(
        SourceLine(
            file=line.file, line=line.line, function=line.function, code=line.code
        )
        for line in lines
    )


def _log_of_trace(log: CompileLog) -> LogOfTrace:
    return LogOfTrace(
        path=log.path,
        logs=len(log.logs),
        graph_folders=len(log.files.graph_folders),
        graphs=len(log.graphs),
        unread=tuple(one.reason for one in log.unread),
        unread_records=sum(records.unread_count for records in log.logs),
    )


class _CalledRegion(msgspec.Struct, frozen=True):
    """How often a region was called, and for how long."""

    calls: int
    cpu_ns: int


def _regions(
    kernels: JoinedKernels, log: CompileLog | None, counts: Int64s, times: Int64s
) -> tuple[CompiledRegion, ...]:
    """The regions and backward passes of a trace, those with the most kernel time
    first."""
    on_gpu = _are_on_gpu(kernels)
    of_join: dict[GraphJoin, list[CompiledKernel]] = defaultdict(list)
    for join in kernels.calls.joins:
        of_join[join] = []
    for number, kernel in enumerate(kernels.kernels):
        of_join[kernel.join].append(
            _kernel(kernel, int(counts[number]), int(times[number]), on_gpu[number])
        )
    called = _called_regions(kernels.regions)
    calls_of_join = np.bincount(
        kernels.calls.join_of_call, minlength=len(kernels.calls.joins)
    )
    join_numbers = {join: number for number, join in enumerate(kernels.calls.joins)}
    regions = []
    for join, some in of_join.items():
        some.sort(key=lambda kernel: (-kernel.total_ns, kernel.name, kernel.handle))
        place = join_numbers.get(join)
        calls = 0 if place is None else int(calls_of_join[place])
        regions.append(_region(log, join, some, called, calls))
    regions.sort(key=lambda region: (-region.kernel_ns, region.compile_id, region.key))
    return tuple(regions)


def _region(
    log: CompileLog | None,
    join: GraphJoin,
    kernels: list[CompiledKernel],
    called: dict[CompileId, _CalledRegion],
    calls: int,
) -> CompiledRegion:
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
        pass_=_pass(log, graph, is_outside=join.compile_id is None),
        cache="" if graph is None else graph.cache,
        kernels=tuple(kernels),
    )


def _region_of_graph(log: CompileLog, graph: CompiledGraph) -> CompiledRegion:
    """A graph of the log, with the calls of its wrapper; nothing was recorded."""
    function, file, line = _compiled_function(log, graph, graph.compile_id)
    wrapper = wrapper_in(log, graph)
    lines = lines_of_graph(log, graph)
    kernels = []
    for call in wrapper.calls if wrapper is not None else ():
        known = lines.get(call.handle, ())
        kernels.append(
            CompiledKernel(
                name=call.name,
                handle=call.handle,
                calls=0,
                total_ns=0,
                on_gpu=False,
                lines=source_lines(known),
                possible=False,
                not_joined="" if known else Why.NO_PROVENANCE.value,
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
        pass_=_pass(log, graph, is_outside=False),
        cache=graph.cache,
        kernels=tuple(kernels),
    )


def _kernel(
    kernel: KernelOfGraph, calls: int, total_ns: int, on_gpu: bool
) -> CompiledKernel:
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
    """Whether any item of each kernel launched GPU events."""
    on_gpu = np.zeros(len(kernels.kernels), dtype=np.bool_)
    on_gpu[kernels.kernel_of_item[kernels.items.has_gpu_events]] = True
    are_on_gpu: list[bool] = on_gpu.tolist()
    return are_on_gpu


def _called_regions(regions: RegionsOfTrace) -> dict[CompileId, _CalledRegion]:
    """The calls and the CPU time of each compile id; captured regions do not count."""
    trace = regions.trace
    rows = regions.regions.rows
    rows = rows[rows < trace.recorded()]
    names, name_of_row = np.unique(trace.name[rows], return_inverse=True)
    calls = np.bincount(name_of_row, minlength=len(names))
    cpu_ns = np.zeros(len(names), dtype=np.int64)
    np.add.at(cpu_ns, name_of_row, trace.dur[rows])
    called = {}
    for place, name in enumerate(names.tolist()):
        compile_id = compile_id_of(trace.names[name])
        if compile_id is not None:
            called[compile_id] = _CalledRegion(
                calls=int(calls[place]), cpu_ns=int(cpu_ns[place])
            )
    return called


def _compiled_function(
    log: CompileLog | None, graph: CompiledGraph | None, compile_id: CompileId | None
) -> tuple[str, str, int]:
    """The name, file and line of a compiled function; "" and 0 where the log does not
    have them."""
    if log is None or compile_id is None:
        return "", "", 0
    for one in log.compilations:
        is_of_log = graph is None or one.log == graph.log
        if is_of_log and one.compile_id == compile_id and one.function:
            return one.function, one.file, one.line
    return "", "", 0


def _pass(
    log: CompileLog | None, graph: CompiledGraph | None, *, is_outside: bool
) -> Pass:
    """Which pass a graph is of, by the id in its wrapper."""
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


def _outside_of_items(kernels: JoinedKernels) -> tuple[NotJoined, ...]:
    """The generated kernels on the GPU that no op or launch of a compiled region
    explains: those of replayed CUDA graphs, and others."""
    trace = kernels.trace
    rows = trace.gpu_rows[kernels.items.item_of_gpu_event == NONE]
    rows = rows[trace.matching(rows, GENERATED.match)] if len(rows) else rows
    is_replayed = np.zeros(len(rows), dtype=np.bool_)
    launched = np.flatnonzero(trace.launch[rows] >= 0)
    launches = trace.launch[rows[launched]]
    is_replayed[launched] = trace.matching(launches, is_replay)
    found = []
    for why, which in ((Why.REPLAYED, is_replayed), (Why.OUTSIDE, ~is_replayed)):
        if which.any():
            found.append(
                NotJoined(
                    why=why.value,
                    detail="",
                    kernels=int(np.count_nonzero(which)),
                    total_ns=int(trace.dur[rows[which]].sum()),
                )
            )
    return tuple(found)


def _not_joined(
    kernels: JoinedKernels, counts: Int64s, times: Int64s
) -> tuple[NotJoined, ...]:
    """The kernels without a line by reason, the most frequent first."""
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for number, kernel in enumerate(kernels.kernels):
        if kernel.why_not is None:
            continue
        detail = ""
        if kernel.why_not in KEY_REASONS:
            detail = kernel.join.key
        elif kernel.why_not is Why.NOT_IN_WRAPPER:
            detail = kernel.name
        both = sums[kernel.why_not.value, detail]
        both[0] += int(counts[number])
        both[1] += int(times[number])
    found = [
        NotJoined(why=why, detail=detail, kernels=count, total_ns=ns)
        for (why, detail), (count, ns) in sums.items()
    ]
    found.sort(key=lambda one: (-one.kernels, one.why, one.detail))
    return tuple(found)
