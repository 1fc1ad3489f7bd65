"""The lines of Python behind a call of a kernel.

Code that comes from a cache has the stacks of the program that filled the cache: another
function with the same graph, or the same function before its file was edited. For such a
graph the nodes that a kernel computes lead to Dynamo's own graph, which is made anew for
every compilation and has a line at each node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fusetui.trace.compile_log.log import (
    CompiledGraph,
    CompileLog,
    dynamo_nodes_of,
    lines_of_dynamo_nodes,
    nodes_of,
    stacks_of,
)
from fusetui.trace.compile_log.stacks import CodeLine
from fusetui.trace.model.memo import memo
from fusetui.trace.program.own_code import is_own

FROM_CACHE = "hit"


@memo(64)
def lines_of_graph(
    log: CompileLog, graph: CompiledGraph
) -> dict[str, tuple[CodeLine, ...]]:
    """The lines behind each handle of a graph (`cpp_fused_add_0:3`), in the order of
    file and line; see `line_of`. A handle of cached code whose lines cannot be known is
    left out."""
    lines: dict[str, tuple[CodeLine, ...]] = {}
    for handle, stacks in stacks_of(log, graph).items():
        of_stacks = lines_of_stacks(stacks)
        if graph.cache != FROM_CACHE:
            lines[handle] = of_stacks
            continue
        by_nodes = lines_by_nodes(log, graph, handle)
        if by_nodes is not None:
            lines[handle] = by_nodes
        elif _are_of_region(log, graph, of_stacks):
            lines[handle] = of_stacks
    return lines


def lines_by_nodes(
    log: CompileLog, graph: CompiledGraph, handle: str
) -> tuple[CodeLine, ...] | None:
    """The lines of the nodes of Dynamo's graph that a kernel computes; None unless the
    line of each is known."""
    pre_nodes = dynamo_nodes_of(log, graph)
    line_of_node = lines_of_dynamo_nodes(log, graph)
    lines = []
    for post_node in nodes_of(log, graph).get(handle, ()):
        for node in pre_nodes.get(post_node, ()):
            if node not in line_of_node:
                return None
            lines.append(line_of_node[node])
    return _each_once(lines) or None


def _are_of_region(
    log: CompileLog, graph: CompiledGraph, lines: Sequence[CodeLine]
) -> bool:
    """Whether Dynamo's graph of the region has nodes of all these lines, or is not in
    the log."""
    of_region = lines_of_dynamo_nodes(log, graph).values()
    known = {(line.file, line.line, line.code) for line in of_region}
    if not known:
        return True
    return all((line.file, line.line, line.code) in known for line in lines)


def lines_of_stacks(stacks: Sequence[Sequence[CodeLine]]) -> tuple[CodeLine, ...]:
    """The line of each stack, every file and line once, in their order."""
    return _each_once(line_of(stack) for stack in stacks if stack)


def _each_once(lines: Iterable[CodeLine]) -> tuple[CodeLine, ...]:
    by_place: dict[tuple[str, int], CodeLine] = {}
    for line in lines:
        by_place.setdefault((line.file, line.line), line)
    return tuple(by_place[place] for place in sorted(by_place))


def line_of(stack: Sequence[CodeLine]) -> CodeLine:
    """The innermost frame of the user's own code; where there is none, the innermost
    frame. `stack`: at least one frame, outermost first."""
    for frame in reversed(stack):
        if is_own(frame.file):
            return frame
    return stack[-1]
