"""Finds the graph in the log for each call of a compiled graph."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.analysis.compiled.regions import (
    NONE,
    CompiledCode,
    parse_cache_key,
    parse_compile_id,
)
from fusetui.analysis.questions.process_groups import infer_rank
from fusetui.trace.compile_log.log import CompiledGraph, CompileId, CompileLog
from fusetui.trace.compile_log.records import UNKNOWN
from fusetui.trace.model.arrays import Rows, distinct_rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.program.own_code import function_of


class JoinedBy(StrEnum):
    """By what a call of a graph was joined with the log."""

    KEY = "key"  # of the FX graph cache
    WRAPPER = "wrapper"  # the file of the generated wrapper, by a Python frame
    COMPILE_ID = "compile id"  # which has one graph only
    KERNEL_FILE = "kernel file"  # `# kernel path` in one wrapper only


class Why(StrEnum):
    """Why something was not joined with the log."""

    NO_LOG = "no log"
    NO_KEY = "the graph cache was off, and no frame names the wrapper"
    KEY_NOT_IN_LOG = "the log has no graph with this key"
    TWO_LOGS = "two logs contain the key"
    TWO_GRAPHS = "two graphs in the log have the key"
    TWO_WRAPPERS = "several wrappers contain the kernel file"
    NOT_IN_WRAPPER = "the wrapper does not call it"
    NO_CODE = "the log has no generated code of the graph"
    NO_PROVENANCE = "the log has no provenance (record with INDUCTOR_PROVENANCE=1)"
    OUTSIDE = (
        "it was launched outside calls of compiled graphs, and its kernel file is "
        "unknown"
    )
    CACHED = "the code came from a cache, with line numbers of another function"
    REPLAYED = "replayed by a CUDA graph whose capture is not available"


class GraphJoin(msgspec.Struct, frozen=True):
    """What the calls with one key, in regions of one compile id, were joined with."""

    key: str  # "" if it was not recorded
    compile_id: CompileId | None  # of the region around; None: a backward pass
    graph: CompiledGraph | None  # of the log; None if it was not joined
    by: JoinedBy | None  # by what the graph was recognized
    why_not: Why | None  # why there is no graph


class JoinedCalls(msgspec.Struct, frozen=True, eq=False):
    """The calls of graphs in a trace, joined with the log."""

    joins: tuple[GraphJoin, ...]
    join_of_call: Rows  # for each call its index in `joins`

    def join_for_call(self, call: int) -> GraphJoin:
        """Return what a call was joined with."""
        return self.joins[int(self.join_of_call[call])]


def join_calls_with_log(compiled: CompiledCode, log: CompileLog | None) -> JoinedCalls:
    """Find out which graph of the compile log each call of a compiled graph ran.

    The cache key in the name of the call decides ("CompiledFxGraph fab12..."), else the
    generated file of its wrapper, else the compile id in the name of the region around
    it ("Torch-Compiled Region: 0/1").

    Args:
        compiled: The compiled code of the trace.
        log: The compile log; without it nothing is joined.
    """
    trace = compiled.trace
    call_name = trace.name[compiled.calls.rows]
    region = compiled.region_of_call
    has_region = region != NONE
    region_name = np.where(
        has_region, trace.name[compiled.regions.rows_at(region)], NONE
    )

    # Calls with the same name in regions of the same name are joined once.
    first_calls, join_of_call = distinct_rows((call_name, region_name))
    joins = []
    for call in first_calls.tolist():
        compile_id = None
        if has_region[call]:
            compile_id = parse_compile_id(trace.names[region_name[call]])
        key = parse_cache_key(trace.names[call_name[call]])
        joins.append(_join_equal_calls(compiled, log, key, compile_id, call))

    return JoinedCalls(joins=tuple(joins), join_of_call=join_of_call)


def _join_equal_calls(
    compiled: CompiledCode,
    log: CompileLog | None,
    key: str,
    compile_id: CompileId | None,
    call: int,
) -> GraphJoin:
    """Find the graph of the compile log that some calls of a compiled graph ran.

    All of these calls have the same key and compile id, so that they have the same
    result.

    Args:
        compiled: The compiled code of the trace.
        log: The compile log; None if there is none.
        key: The cache key in the name of the calls; "" if there is none.
        compile_id: The compile id of the region around them; None if it is not
            known.
        call: One of the calls.

    Returns:
        The graph and how it was recognized, or else why there is none.
    """
    without_graph = GraphJoin(
        key=key, compile_id=compile_id, graph=None, by=None, why_not=Why.NO_LOG
    )
    if log is None:
        return without_graph

    with_key = [graph for graph in log.graphs if key and graph.key == key]
    if with_key:
        chosen = _choose_graph(compiled, log, with_key, compile_id, call)
        if isinstance(chosen, Why):
            return replace(without_graph, why_not=chosen)
        return replace(without_graph, graph=chosen, by=JoinedBy.KEY, why_not=None)

    graph = _find_graph_by_wrapper(compiled, log, call)
    if graph is not None:
        return replace(without_graph, graph=graph, by=JoinedBy.WRAPPER, why_not=None)

    # A key that the log does not have means another graph than those of the log, even
    # if the compile id is the same.
    if key:
        return replace(without_graph, why_not=Why.KEY_NOT_IN_LOG)

    graph = _find_only_graph_of_id(log, compile_id)
    if graph is not None:
        return replace(without_graph, graph=graph, by=JoinedBy.COMPILE_ID, why_not=None)

    return replace(without_graph, why_not=Why.NO_KEY)


def _choose_graph(
    compiled: CompiledCode,
    log: CompileLog,
    candidates: Sequence[CompiledGraph],
    compile_id: CompileId | None,
    call: int,
) -> CompiledGraph | Why:
    """Choose the graph that a call ran, among those with the cache key of the call.

    Graphs of the rank, the process and the compile id of the call are preferred, in
    this order. Graphs with the same texts count as one.

    Args:
        compiled: The compiled code of the trace.
        log: The compile log.
        candidates: The graphs with the key, at least one.
        compile_id: The compile id of the region around the call.
        call: The index of the call.

    Returns:
        The graph, or why none can be chosen.
    """
    trace = compiled.trace
    graphs = list(candidates)

    # Each test narrows the choice, unless no graph passes it.
    of_rank = [graph for graph in graphs if _is_of_rank(trace, graph)]
    graphs = of_rank or graphs

    of_process = [
        graph for graph in graphs if _is_of_process(compiled, log, graph, call)
    ]
    graphs = of_process or graphs

    if compile_id is not None:
        of_region = [graph for graph in graphs if graph.compile_id == compile_id]
        graphs = of_region or graphs

    # Of several attempts to compile, and of equal graphs, the last one counts.
    has_several_logs = len({graph.log for graph in graphs}) > 1
    has_several_ids = len({graph.compile_id for graph in graphs}) > 1
    is_same_graph = not has_several_logs and not has_several_ids
    if is_same_graph or have_equal_code(graphs):
        return graphs[-1]

    return Why.TWO_LOGS if has_several_logs else Why.TWO_GRAPHS


def find_logs_of_trace(trace: Trace, log: CompileLog) -> frozenset[int]:
    """Return the numbers of the logs that the program of a trace wrote.

    They are those of its rank, else those of its processes. All logs count if neither
    is known.
    """
    rank = infer_rank(trace.keys, trace.report.path).rank
    processes = {str(track.pid) for track in trace.tracks}

    logs_of_rank = set()
    logs_of_processes = set()
    for number, log_file in enumerate(log.logs):
        if rank != UNKNOWN and log_file.rank == rank:
            logs_of_rank.add(number)
        if log_file.process != UNKNOWN and str(log_file.process) in processes:
            logs_of_processes.add(number)

    all_logs = range(len(log.logs))
    return frozenset(logs_of_rank or logs_of_processes or all_logs)


def have_equal_code(graphs: Sequence[CompiledGraph]) -> bool:
    """Return whether graphs have the same code and the same provenance.

    The hashes that torch wrote are compared, so the texts are not read.
    """
    digests = set()
    for graph in graphs:
        code_digest = graph.code.digest if graph.code else ""
        stacks_digest = graph.stack_traces.digest if graph.stack_traces else ""
        if not code_digest or not stacks_digest:
            return False
        digests.add((code_digest, stacks_digest))

    return len(digests) == 1


def _is_of_rank(trace: Trace, graph: CompiledGraph) -> bool:
    """Return whether a graph was compiled by the rank of a trace."""
    if graph.rank == UNKNOWN:
        return False
    rank = infer_rank(trace.keys, trace.report.path).rank
    return rank == graph.rank


def _is_of_process(
    compiled: CompiledCode, log: CompileLog, graph: CompiledGraph, call: int
) -> bool:
    """Return whether the log of a graph was written by the process of a call."""
    if graph.log == UNKNOWN:
        return False

    process_of_log = log.logs[graph.log].process
    row_of_call = int(compiled.calls.rows[call])
    process_of_call = compiled.trace.track_of(row_of_call).pid
    is_known = process_of_log != UNKNOWN
    return is_known and str(process_of_call) == str(process_of_log)


def _find_graph_by_wrapper(
    compiled: CompiledCode, log: CompileLog, call: int
) -> CompiledGraph | None:
    """Find the graph of a call by the file of its wrapper, the generated code that runs
    it.

    A Python frame in the call names the file. Returns None if no frame does, if no
    graph has that file, or if several have it whose code is not known to be equal. Of
    graphs with equal code it is the last one.
    """
    path = find_wrapper_file(compiled, call)
    if not path:
        return None

    graphs = [graph for graph in log.graphs if _is_same_file(graph.wrapper_path, path)]
    if len(graphs) == 1 or have_equal_code(graphs):
        return graphs[-1]
    return None


def _find_only_graph_of_id(
    log: CompileLog, compile_id: CompileId | None
) -> CompiledGraph | None:
    """Return the graph of a compile id; None if it has none, or several."""
    if compile_id is None:
        return None
    graphs = [graph for graph in log.graphs if graph.compile_id == compile_id]
    return graphs[0] if len(graphs) == 1 else None


def find_wrapper_file(compiled: CompiledCode, call: int) -> str:
    """Return the file of the generated wrapper that a call of a graph ran.

    It is named by the Python frame `FILE(85): call` in the call. Returns "" if stacks
    were not recorded.
    """
    trace = compiled.trace
    call_row = int(compiled.calls.rows[call])
    begin_ns = int(trace.start[call_row])
    end_ns = int(trace.end[call_row])
    thread = trace.thread_of_track[trace.track[call_row]]
    for track, thread_of_track in zip(
        trace.tracks, trace.thread_of_track.tolist(), strict=True
    ):
        if thread_of_track != thread:
            continue

        # Look at the slices of Python that begin within the call.
        rows_before = int(trace.start[track.rows].searchsorted(begin_ns))
        for row in range(track.first_row + rows_before, track.end_row):
            is_behind_call = trace.start[row] >= end_ns
            if is_behind_call or trace.role[row] != Role.PYTHON:
                break

            frame = function_of(trace.name_of(row))
            if frame is not None and frame.name == "call":
                return frame.file

    return ""


def _is_same_file(path: str, other: str) -> bool:
    """Return whether two paths of generated files mean the same file.

    The names are hashes of the content, and torch may strip the folders before them
    from a frame. So only the last folder and the name are compared.
    """
    last_parts = path.replace("\\", "/").split("/")[-2:]
    last_parts_of_other = other.replace("\\", "/").split("/")[-2:]
    return bool(path) and last_parts == last_parts_of_other
