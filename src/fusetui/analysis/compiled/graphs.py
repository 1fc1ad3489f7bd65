"""Finds the graph in the log for each call of a compiled graph."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec
import numpy as np

from fusetui.analysis.compiled.regions import (
    NONE,
    RegionsOfTrace,
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


def join_calls_with_log(regions: RegionsOfTrace, log: CompileLog | None) -> JoinedCalls:
    """Find out which graph of the compile log each call of a compiled graph ran.

    The cache key in the name of the call decides ("CompiledFxGraph fab12..."), else the
    generated file of its wrapper, else the compile id in the name of the region around
    it ("Torch-Compiled Region: 0/1").

    Args:
        regions: The regions of the trace.
        log: The compile log; without it nothing is joined.
    """
    trace = regions.trace
    call_rows = regions.calls.rows
    region_of_call = regions.region_of_call
    name_of_region = np.where(
        region_of_call == NONE,
        NONE,
        trace.name[regions.regions.rows_at(region_of_call)],
    )

    # Calls with the same name in regions of the same name are joined once.
    name_of_call = trace.name[call_rows]
    first_calls, join_of_call = distinct_rows((name_of_call, name_of_region))
    joins = []
    for call in first_calls.tolist():
        region_name = int(name_of_region[call])
        compile_id = None
        if region_name != NONE:
            compile_id = parse_compile_id(trace.names[region_name])
        key = parse_cache_key(trace.names[name_of_call[call]])
        joins.append(_join_equal_calls(regions, log, key, compile_id, call))

    return JoinedCalls(joins=tuple(joins), join_of_call=join_of_call)


def _join_equal_calls(
    regions: RegionsOfTrace,
    log: CompileLog | None,
    key: str,
    compile_id: CompileId | None,
    call: int,
) -> GraphJoin:
    """Find the graph of the compile log that some calls of a compiled graph ran.

    All of these calls have the same key and compile id, so that they have the same
    result.

    Args:
        regions: The compiled regions of the trace.
        log: The compile log; None if there is none.
        key: The cache key in the name of the calls; "" if there is none.
        compile_id: The compile id of the region around them; None if it is not
            known.
        call: One of the calls.

    Returns:
        The graph and how it was recognized, or else why there is none.
    """
    graph: CompiledGraph | None = None
    joined_by: JoinedBy | None = None
    why_not: Why | None = None

    if log is None:
        why_not = Why.NO_LOG
    elif key:
        candidates = [graph for graph in log.graphs if graph.key == key]
        graph_or_reason = _choose_graph(regions, log, candidates, compile_id, call)
        if isinstance(graph_or_reason, CompiledGraph):
            graph, joined_by = graph_or_reason, JoinedBy.KEY
        else:
            why_not = graph_or_reason

    if graph is None and log is not None and why_not in (None, Why.KEY_NOT_IN_LOG):
        graph, joined_by = _find_graph_without_key(
            regions, log, compile_id, call, has_key=bool(key)
        )
        if graph is None:
            why_not = why_not or Why.NO_KEY
        else:
            why_not = None

    return GraphJoin(
        key=key, compile_id=compile_id, graph=graph, by=joined_by, why_not=why_not
    )


def _choose_graph(
    regions: RegionsOfTrace,
    log: CompileLog,
    candidates: Sequence[CompiledGraph],
    compile_id: CompileId | None,
    call: int,
) -> CompiledGraph | Why:
    """Choose the graph that a call ran, among those with the cache key of the call.

    Graphs of the rank, the process and the compile id of the call are preferred, in
    this order. Graphs with the same texts count as one.

    Args:
        regions: The compiled regions of the trace.
        log: The compile log.
        candidates: The graphs with the key; there may be none.
        compile_id: The compile id of the region around the call.
        call: The index of the call.

    Returns:
        The graph, or why none can be chosen.
    """
    if not candidates:
        return Why.KEY_NOT_IN_LOG

    trace = regions.trace
    candidates_left = list(candidates)

    # Each test narrows the choice, unless no graph passes it.
    graphs_of_rank = [graph for graph in candidates_left if _is_of_rank(trace, graph)]
    candidates_left = graphs_of_rank or candidates_left

    graphs_of_process = [
        graph for graph in candidates_left if _is_of_process(regions, log, graph, call)
    ]
    candidates_left = graphs_of_process or candidates_left

    if compile_id is not None:
        graphs_of_region = [
            graph for graph in candidates_left if graph.compile_id == compile_id
        ]
        candidates_left = graphs_of_region or candidates_left

    are_of_several_logs = len({graph.log for graph in candidates_left}) > 1
    are_of_several_ids = len({graph.compile_id for graph in candidates_left}) > 1
    if (are_of_several_logs or are_of_several_ids) and not have_equal_code(
        candidates_left
    ):
        return Why.TWO_LOGS if are_of_several_logs else Why.TWO_GRAPHS

    # Of several attempts to compile, the last one counts.
    return candidates_left[-1]


def find_logs_of_trace(trace: Trace, log: CompileLog) -> frozenset[int]:
    """Return the numbers of the logs that the program of a trace wrote.

    They are those of its rank, else those of its processes. All logs count if neither
    is known.
    """
    rank, _ = infer_rank(trace.keys, trace.report.path)
    logs_of_rank = {
        number for number, log_file in enumerate(log.logs) if log_file.rank == rank
    }
    if logs_of_rank and rank != UNKNOWN:
        return frozenset(logs_of_rank)

    processes = {str(track.pid) for track in trace.tracks}
    logs_of_processes = {
        number
        for number, log_file in enumerate(log.logs)
        if log_file.process != UNKNOWN and str(log_file.process) in processes
    }
    return frozenset(logs_of_processes or range(len(log.logs)))


def have_equal_code(graphs: Sequence[CompiledGraph]) -> bool:
    """Return whether graphs have the same code and the same provenance.

    The hashes that torch wrote are compared, so the texts are not read.
    """
    digests = set()
    for graph in graphs:
        if graph.code is None or graph.stack_traces is None:
            return False
        if not (graph.code.digest and graph.stack_traces.digest):
            return False
        digests.add((graph.code.digest, graph.stack_traces.digest))

    return len(digests) == 1


def _is_of_rank(trace: Trace, graph: CompiledGraph) -> bool:
    """Return whether a graph was compiled by the rank of a trace."""
    if graph.rank == UNKNOWN:
        return False
    rank, _ = infer_rank(trace.keys, trace.report.path)
    return rank == graph.rank


def _is_of_process(
    regions: RegionsOfTrace, log: CompileLog, graph: CompiledGraph, call: int
) -> bool:
    """Return whether the log of a graph was written by the process of a call."""
    if graph.log == UNKNOWN:
        return False

    process = log.logs[graph.log].process
    row = int(regions.calls.rows[call])
    return process != UNKNOWN and str(regions.trace.track_of(row).pid) == str(process)


def _find_graph_without_key(
    regions: RegionsOfTrace,
    log: CompileLog,
    compile_id: CompileId | None,
    call: int,
    *,
    has_key: bool,
) -> tuple[CompiledGraph | None, JoinedBy | None]:
    """Find the graph of a call whose key does not lead to one.

    The frame of its wrapper is tried first, then a compile id that has a single graph.

    Args:
        regions: The regions of the trace.
        log: The compile log.
        compile_id: The compile id of the region around the call.
        call: The call.
        has_key: Whether the call has a key that the log does not have. That rules the
            compile id out.

    Returns:
        The graph, and by what it was recognized; None twice if there is none.
    """
    path = find_wrapper_file(regions, call)
    if path:
        graphs_of_wrapper = [
            graph for graph in log.graphs if _is_same_file(graph.wrapper_path, path)
        ]
        is_unique = len(graphs_of_wrapper) == 1 or have_equal_code(graphs_of_wrapper)
        if graphs_of_wrapper and is_unique:
            return graphs_of_wrapper[-1], JoinedBy.WRAPPER

    if compile_id is None or has_key:
        return None, None

    graphs_of_id = [graph for graph in log.graphs if graph.compile_id == compile_id]
    if len(graphs_of_id) == 1:
        return graphs_of_id[0], JoinedBy.COMPILE_ID

    return None, None


def find_wrapper_file(regions: RegionsOfTrace, call: int) -> str:
    """Return the file of the generated wrapper that a call of a graph ran.

    It is named by the Python frame `FILE(85): call` in the call. Returns "" if stacks
    were not recorded.
    """
    trace = regions.trace
    call_row = int(regions.calls.rows[call])
    begin = int(trace.start[call_row])
    end = int(trace.end[call_row])
    thread = int(trace.thread_of_track[int(trace.track[call_row])])
    for track_index in range(len(trace.tracks)):
        if int(trace.thread_of_track[track_index]) != thread:
            continue

        # Look at the slices of Python that begin within the call.
        track = trace.tracks[track_index]
        first = track.first_row + int(trace.start[track.rows].searchsorted(begin))
        for row in range(first, track.end_row):
            if int(trace.start[row]) >= end:
                break
            if int(trace.role[row]) != Role.PYTHON:
                break

            function = function_of(trace.name_of(row))
            if function and function.name == "call":
                return function.file

    return ""


def _is_same_file(path: str, other: str) -> bool:
    """Return whether two paths of generated files mean the same file.

    The names are hashes of the content, and torch may strip the folders before them
    from a frame. So only the last folder and the name are compared.
    """
    last_parts = path.replace("\\", "/").split("/")[-2:]
    last_parts_of_other = other.replace("\\", "/").split("/")[-2:]
    return bool(path) and last_parts == last_parts_of_other
