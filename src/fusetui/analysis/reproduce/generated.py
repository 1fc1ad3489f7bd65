"""The code that torch.compile generated for a call, from the compile log.

Nothing of it is run or judged here: it is taken as bytes, and names in it are only
compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from fusetui import Error
from fusetui.analysis.compiled.finding import compile_log_of
from fusetui.analysis.compiled.graphs import GraphJoin
from fusetui.analysis.compiled.kernels import (
    JoinedKernels,
    KernelOfGraph,
    joined_kernels,
)
from fusetui.analysis.compiled.regions import NONE, calls_of_rows, items_of_rows
from fusetui.analysis.reproduce.model import Call, CallKind
from fusetui.trace.compile_log.log import CompiledGraph, CompileLog, wrapper_in
from fusetui.trace.model.columns import Trace

MAX_CODE_BYTES: Final = 16 << 20
"""Of a generated module, that is copied. Those of real models have some 100 KB."""

WHOLE_GRAPH: Final = "call"
"""The function of a generated module that runs its whole graph."""


class NoGeneratedCodeError(Error):
    """The generated code of a call is not at hand; the message is one plain
    sentence."""


class GeneratedCode(msgspec.Struct, frozen=True, kw_only=True):
    """A generated module, and what of it makes a call again."""

    code: bytes  # as the log has it
    name: str  # of a kernel of the module, or WHOLE_GRAPH
    numbers: tuple[int, ...]
    """Which of the calls of this name in the module, from 0 on; several: the trace does
    not tell which of them."""
    log: str  # the file or folder in which it was


class _Target(NamedTuple):
    """What runs: a name of the module of a graph, and which of its calls."""

    graph: CompiledGraph
    name: str
    numbers: tuple[int, ...]


def generated_code(trace: Trace, call: Call) -> GeneratedCode:
    """The generated code behind a call of kind COMPILED. Raises NoGeneratedCodeError,
    and TraceError if a log that was named cannot be read, or is damaged there."""
    name = call.op or "".join(call.kernels[:1])
    if call.kind is not CallKind.COMPILED:
        raise NoGeneratedCodeError(f"{name} is no code that torch.compile generated.")
    log = compile_log_of(trace)
    if log is None:
        raise NoGeneratedCodeError(
            f"The code of {name} is in the log of torch.compile, and none lies beside "
            "the trace: record with TORCH_TRACE=DIR, and name DIR with --compile-log."
        )
    target = _target(joined_kernels(trace, log), log, call.row, name)
    if target.graph.code is None:
        raise _not_in(log, name, "the log has no generated code of the graph")
    return GeneratedCode(
        code=log.exact_bytes(target.graph.code, MAX_CODE_BYTES),
        name=target.name,
        numbers=target.numbers,
        log=log.path,
    )


def _not_in(log: CompileLog, name: str, why: str) -> NoGeneratedCodeError:
    return NoGeneratedCodeError(f"{name} is not in the log {log.path}: {why}.")


def _target(joined: JoinedKernels, log: CompileLog, row: int, name: str) -> _Target:
    """What a row is in the log: a kernel that a generated module defines, or a whole
    graph. Raises NoGeneratedCodeError."""
    item = int(items_of_rows(joined.regions, np.array([row]))[0])
    if item != NONE:
        return _kernel(joined.kernel_for_item(item), log, name)
    joins = [join for join in _joins_at(joined, row) if join.graph is not None]
    graphs = {join.graph.number: join.graph for join in joins if join.graph}
    if len(graphs) > 1:
        raise NoGeneratedCodeError(
            f"{name} runs {len(graphs)} compiled graphs: name a kernel of one of them."
        )
    for graph in graphs.values():
        return _Target(graph=graph, name=WHOLE_GRAPH, numbers=(0,))
    raise _not_in(log, name, _why_not(_joins_at(joined, row)))


def _kernel(kernel: KernelOfGraph, log: CompileLog, name: str) -> _Target:
    """A kernel that a generated module defines. Raises NoGeneratedCodeError."""
    graph = kernel.join.graph
    if graph is None or not kernel.calls:
        why = kernel.why_not or kernel.join.why_not
        raise _not_in(log, name, "" if why is None else why.value)
    wrapper = wrapper_in(log, graph)
    if wrapper is None or wrapper.definition_of(kernel.name) is None:
        raise _not_in(log, name, "the wrapper calls it, and does not define it")
    of_name = [call.line for call in wrapper.calls if call.name == kernel.name]
    numbers = tuple(of_name.index(call.line) for call in kernel.calls)
    return _Target(graph=graph, name=kernel.name, numbers=numbers)


def _joins_at(joined: JoinedKernels, row: int) -> Sequence[GraphJoin]:
    """The joins of the call of a graph that a row lies in, or of those inside it."""
    regions = joined.regions
    around = int(calls_of_rows(regions, np.array([row]))[0])
    if around != NONE:
        return [joined.calls.join_for_call(around)]
    trace = regions.trace
    rows = regions.calls.rows
    thread = trace.thread_of_track[trace.track]
    is_inside = thread[rows] == thread[row]
    is_inside &= trace.start[rows] >= trace.start[row]
    is_inside &= trace.end[rows] <= trace.end[row]
    return [
        joined.calls.join_for_call(place)
        for place in np.flatnonzero(is_inside).tolist()
    ]


def _why_not(joins: Sequence[GraphJoin]) -> str:
    """Why none of these joins leads to a graph."""
    for join in joins:
        if join.why_not is not None:
            return join.why_not.value
    return "it calls no compiled graph"
