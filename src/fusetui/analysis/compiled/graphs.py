"""Which graph of the log each call of a compiled graph is of."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec
import numpy as np

from fusetui.analysis.compiled.regions import (
    NONE,
    RegionsOfTrace,
    compile_id_of,
    key_of,
)
from fusetui.analysis.questions.process_groups import rank_of
from fusetui.trace.compile_log.log import CompiledGraph, CompileId, CompileLog
from fusetui.trace.compile_log.records import UNKNOWN
from fusetui.trace.model.arrays import Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.program.own_code import function_of


class JoinedBy(StrEnum):
    """How a call was found in the log."""

    KEY = "key"  # of the FX graph cache
    WRAPPER = "wrapper"  # the file of the generated wrapper, by a Python frame
    COMPILE_ID = "compile id"  # which has one graph only
    KERNEL_FILE = "kernel file"  # `# kernel path` in one wrapper only


class Why(StrEnum):
    """Why something was not joined with the log."""

    NO_LOG = "no log"
    NO_KEY = "the cache of graphs was off, and no frame names the wrapper"
    KEY_NOT_IN_LOG = "the log has no graph with this key"
    TWO_LOGS = "two logs claim the key"
    TWO_GRAPHS = "two graphs of the log have the key"
    TWO_WRAPPERS = "several wrappers have the kernel file"
    NOT_IN_WRAPPER = "the wrapper does not call it"
    NO_CODE = "the log has no generated code of the graph"
    NO_PROVENANCE = "the log has no provenance: INDUCTOR_PROVENANCE=1 writes it"
    OUTSIDE = (
        "it was not launched in a call of a compiled graph, and no kernel file is known"
    )
    CACHED = "the code came from a cache, with the lines of another function"
    REPLAYED = "replayed by a CUDA graph, whose capture is not at hand"


class GraphJoin(msgspec.Struct, frozen=True):
    """What one kind of calls was joined with: all calls with the same key, in regions
    with the same compile id."""

    key: str  # "" if it was not recorded
    compile_id: CompileId | None  # of the region around; None: a backward pass
    graph: CompiledGraph | None
    by: JoinedBy | None
    why_not: Why | None


class JoinedCalls(msgspec.Struct, frozen=True, eq=False):
    """`join_of_call`: for each call of a graph its place in `joins`; shape [calls]."""

    joins: tuple[GraphJoin, ...]
    join_of_call: Rows

    def of_call(self, call: int) -> GraphJoin:
        return self.joins[int(self.join_of_call[call])]


def joined_calls(regions: RegionsOfTrace, log: CompileLog | None) -> JoinedCalls:
    """Joins each call with a graph of the log, by its key, else by the file of its
    wrapper, else by the compile id of its region."""
    trace = regions.trace
    call_rows = regions.calls.rows
    region_of_call = regions.region_of_call
    name_of_region = np.where(
        region_of_call == NONE,
        NONE,
        trace.name[regions.regions.rows_at(region_of_call)],
    )
    kinds = np.stack((trace.name[call_rows], name_of_region))
    distinct, first_call, join_of_call = np.unique(
        kinds, axis=1, return_index=True, return_inverse=True
    )
    joins = []
    for kind, (name, region_name) in enumerate(distinct.T.tolist()):
        compile_id = None
        if region_name != NONE:
            compile_id = compile_id_of(trace.names[region_name])
        key = key_of(trace.names[name])
        joins.append(_join(regions, log, key, compile_id, int(first_call[kind])))
    return JoinedCalls(joins=tuple(joins), join_of_call=join_of_call.reshape(-1))


def _join(
    regions: RegionsOfTrace,
    log: CompileLog | None,
    key: str,
    compile_id: CompileId | None,
    call: int,
) -> GraphJoin:
    """The join of calls with a key and a compile id, of which `call` is one."""
    graph, by, why_not = None, None, None
    if log is None:
        why_not = Why.NO_LOG
    elif key:
        candidates = [graph for graph in log.graphs if graph.key == key]
        chosen = _chosen(regions, log, candidates, compile_id, call)
        if isinstance(chosen, CompiledGraph):
            graph, by = chosen, JoinedBy.KEY
        else:
            why_not = chosen
    if graph is None and log is not None and why_not in (None, Why.KEY_NOT_IN_LOG):
        graph, by = _without_key(regions, log, compile_id, call, has_key=bool(key))
        if graph is None:
            why_not = why_not or Why.NO_KEY
        else:
            why_not = None
    return GraphJoin(
        key=key, compile_id=compile_id, graph=graph, by=by, why_not=why_not
    )


def _chosen(
    regions: RegionsOfTrace,
    log: CompileLog,
    candidates: Sequence[CompiledGraph],
    compile_id: CompileId | None,
    call: int,
) -> CompiledGraph | Why:
    """The graph of a call among those with its key: of the rank and the process of the
    trace, and of the region around it. Graphs with the same texts are one."""
    if not candidates:
        return Why.KEY_NOT_IN_LOG
    trace = regions.trace
    narrowed = list(candidates)
    for test in (
        lambda graph: _is_of_rank(trace, graph),
        lambda graph: _is_of_process(regions, log, graph, call),
        lambda graph: compile_id is not None and graph.compile_id == compile_id,
    ):
        fitting = [graph for graph in narrowed if test(graph)]
        narrowed = fitting or narrowed
    if len({graph.log for graph in narrowed}) > 1:
        return narrowed[-1] if are_equal(narrowed) else Why.TWO_LOGS
    if len({graph.compile_id for graph in narrowed}) > 1 and not are_equal(narrowed):
        return Why.TWO_GRAPHS
    return narrowed[-1]  # the last attempt


def logs_of_trace(trace: Trace, log: CompileLog) -> frozenset[int]:
    """The numbers of the logs that the trace's rank, else its processes, wrote; all
    where neither is known."""
    rank, _ = rank_of(trace.keys, trace.report.path)
    of_rank = {number for number, one in enumerate(log.logs) if one.rank == rank}
    if of_rank and rank != UNKNOWN:
        return frozenset(of_rank)
    processes = {str(track.pid) for track in trace.tracks}
    of_processes = {
        number
        for number, one in enumerate(log.logs)
        if one.process != UNKNOWN and str(one.process) in processes
    }
    return frozenset(of_processes or range(len(log.logs)))


def are_equal(graphs: Sequence[CompiledGraph]) -> bool:
    """Whether the code and the provenance of these graphs are the same texts, by the
    hashes that torch wrote."""
    digests = set()
    for graph in graphs:
        if graph.code is None or graph.stack_traces is None:
            return False
        if not (graph.code.digest and graph.stack_traces.digest):
            return False
        digests.add((graph.code.digest, graph.stack_traces.digest))
    return len(digests) == 1


def _is_of_rank(trace: Trace, graph: CompiledGraph) -> bool:
    if graph.rank == UNKNOWN:
        return False
    rank, _ = rank_of(trace.keys, trace.report.path)
    return rank == graph.rank


def _is_of_process(
    regions: RegionsOfTrace, log: CompileLog, graph: CompiledGraph, call: int
) -> bool:
    """Whether the log of a graph was written by the process of a call."""
    if graph.log == UNKNOWN:
        return False
    process = log.logs[graph.log].process
    row = int(regions.calls.rows[call])
    return process != UNKNOWN and str(regions.trace.track_of(row).pid) == str(process)


def _without_key(
    regions: RegionsOfTrace,
    log: CompileLog,
    compile_id: CompileId | None,
    call: int,
    *,
    has_key: bool,
) -> tuple[CompiledGraph | None, JoinedBy | None]:
    """The graph of a call by the frame of its wrapper, or by a compile id that has one
    graph; a key that the log does not have rules the compile id out."""
    path = wrapper_frame(regions, call)
    if path:
        of_wrapper = [
            graph for graph in log.graphs if _is_same_file(graph.wrapper_path, path)
        ]
        if of_wrapper and (len(of_wrapper) == 1 or are_equal(of_wrapper)):
            return of_wrapper[-1], JoinedBy.WRAPPER
    if compile_id is None or has_key:
        return None, None
    of_id = [graph for graph in log.graphs if graph.compile_id == compile_id]
    if len(of_id) == 1:
        return of_id[0], JoinedBy.COMPILE_ID
    return None, None


def wrapper_frame(regions: RegionsOfTrace, call: int) -> str:
    """The file of the wrapper's frame `FILE(85): call` in a call of a graph; "" if
    stacks were not recorded."""
    trace = regions.trace
    call_row = int(regions.calls.rows[call])
    begin, end = int(trace.start[call_row]), int(trace.end[call_row])
    thread = int(trace.thread_of_track[int(trace.track[call_row])])
    for number in range(len(trace.tracks)):
        if int(trace.thread_of_track[number]) != thread:
            continue
        track = trace.tracks[number]
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
    """Whether two paths of generated files are the same: the names are hashes of the
    content, and torch may strip the folders before them from a frame."""
    return (
        bool(path)
        and path.replace("\\", "/").split("/")[-2:]
        == other.replace("\\", "/").split("/")[-2:]
    )
