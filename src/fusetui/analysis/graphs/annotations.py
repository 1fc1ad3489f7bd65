"""Gives the nodes of replayed graphs the modules that their annotations name.

torch.cuda.graph_annotations marks kernels while a graph is captured. What it noted of a
node stands in the args of its kernels, or in a file of its own (see
annotation_file.py). torch writes one mapping for each node, in which inner marks win,
or a list of such; a marked text is its `name`, in older versions its `str`, and the
hooks of torch write `module_name`, as in L.layers.0.mlp.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.analysis.graphs.annotation_file import read_annotations
from fusetui.analysis.graphs.captures import (
    GRAPH_ID,
    NODE_ARGS,
    NODE_ID,
    SOME_ANNOTATION,
    node_args,
    numbers_nodes,
)
from fusetui.analysis.graphs.join import graft
from fusetui.analysis.questions.launches import nodes_of_replays, wants_capture
from fusetui.trace.load import build
from fusetui.trace.model.arrays import Rows
from fusetui.trace.model.categories import GRAPH_ANNOTATION
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.errors import TraceError
from fusetui.trace.model.events import Arguments, parsed
from fusetui.trace.model.joined import ANNOTATIONS, CERTAIN, Join, Joined
from fusetui.trace.read import Callbacks, read
from fusetui.trace.read.memory import file_in_memory
from fusetui.trace.read.source import stored_in

PATH_FIELDS: Final = ("module_name", "name", "str")
"""The fields of an annotation that may name a path; the first that is there counts."""

MAX_PATH_CHARACTERS: Final = 1 << 10
MAX_ANNOTATIONS_OF_NODE: Final = 64
MAX_LEVELS: Final = 32
"""Dots of a path at which slices are nested."""

_NESTED_PATH = re.compile(r"[^\W\d]\w*(?:\.\w+)+")
"""Only such paths are nested at their dots."""

BY_ANNOTATIONS: Final = "annotations:"
"""Stands before the name of a file of annotations among captures."""

_FILE_ENDING: Final = ".annotations.pkl"
_TRACE_ENDING = re.compile(r"(?:\.json(?:\.gz|\.zst)?)?\Z")
_OF_SEVERAL_PROCESSES: Final = (
    "several processes replay graphs, and it cannot tell of which one it is"
)
_IN_FILE: Final = "file"
_IN_ARGS: Final = "args"
_NODE_ID_BITS: Final = 32
_NO_PATH_CATEGORY: Final = "graph_node"


class _NamedPath(NamedTuple):
    """The path that the annotation of a node names, "" for none; and where it stands:
    _IN_FILE or _IN_ARGS."""

    path: str
    source: str


class _PathsOfNodes(msgspec.Struct, frozen=True, eq=False):
    """What annotations name."""

    paths: tuple[str, ...]  # the first is "": no path
    of_row: Rows  # for each row of the trace the index of its path
    sources: frozenset[str]  # _IN_FILE, _IN_ARGS, both or none


def with_annotations(
    trace: Trace, files: Sequence[str]
) -> tuple[Trace, tuple[Join, ...]]:
    """The trace with the modules of nodes that were not joined before. `files`: of
    annotations, those that a user names; else there may be one beside the trace. What
    they do not name, args may. Reads nothing unless a graph was replayed.

    Raises TraceError if a named file cannot be read.
    """
    replays = _replays_without_op(trace)
    if not replays:
        return trace, ()
    paths = list(files) or _file_beside(trace)
    problems: list[str] = []
    if paths and _process_count(trace, replays) > 1:
        problems.append(f"{paths[0]} is left out: {_OF_SEVERAL_PROCESSES}.")
        paths = []
    by_node: dict[int, Any] = {}
    for path in paths:
        try:
            by_node |= read_annotations(path)
        except TraceError as error:
            if files:
                raise
            problems.append(str(error))
    return _join_modules(trace, replays, by_node, paths, problems)


def _replays_without_op(trace: Trace) -> list[Rows]:
    """The nodes of each replay that was not joined before."""
    if not wants_capture(trace):
        return []
    replays = nodes_of_replays(trace)
    if not isinstance(trace, Joined):
        return replays
    return [rows for rows in replays if (trace.captured[rows] < 0).all()]


def _file_beside(trace: Trace) -> list[str]:
    """The file of annotations in the folder of the trace, if there is one."""
    path = _TRACE_ENDING.sub(_FILE_ENDING, trace.report.path, count=1)
    return [path] if os.path.isfile(path) else []


def _process_count(trace: Trace, replays: Sequence[Rows]) -> int:
    """How many processes launch these replays."""
    calls = [int(trace.launch[rows[0]]) for rows in replays]
    return len({trace.track_of(call).pid for call in calls})


def _join_modules(
    trace: Trace,
    replays: list[Rows],
    by_node: dict[int, Any],
    paths: list[str],
    problems: list[str],
) -> tuple[Trace, tuple[Join, ...]]:
    """The trace with modules for all nodes of the replays of which a node is annotated,
    and a record of that; without one, the same trace, and a record only if there are
    problems. `paths`: of the files that `by_node` is from; `problems`: what is wrong
    with them, to which it is added if they name no node."""
    named = _paths_of_nodes(trace, replays, by_node)
    annotated = [rows for rows in replays if named.of_row[rows].any()]
    has_file = _IN_FILE in named.sources
    if paths and not has_file and not problems:
        problems.append(
            f"{paths[0]} names no node of the graphs that {trace.report.file} replays."
        )
    rows = np.concatenate([np.empty(0, np.intp), *annotated])
    unnamed = int((named.of_row[rows] == 0).sum())
    record = Join(
        path=_sources_text(trace, paths, named.sources),
        replays=len(annotated),
        of_replays=len(replays),
        kernels=len(rows) - unnamed,
        certainty=CERTAIN,
        why_likely="",
        refused=tuple(problems),
        joined_by=ANNOTATIONS,
        unnamed=unnamed,
    )
    if annotated:
        return _grafted(trace, rows, named, record), (record,)
    return trace, (record,) if problems else ()


def _sources_text(trace: Trace, paths: list[str], sources: frozenset[str]) -> str:
    """`x.annotations.pkl and x.json`: where the annotations of nodes stand; "" if no
    node has any. `paths`: of the files of annotations."""
    texts = list(paths) if _IN_FILE in sources else []
    if _IN_ARGS in sources:
        texts.append(trace.report.file)
    return " and ".join(texts)


def _grafted(trace: Trace, rows: Rows, named: _PathsOfNodes, record: Join) -> Trace:
    """The trace in which each of these nodes is in the module that it is annotated
    with. No node gets an op."""
    capture_trace, row_of_path = _as_capture(named.paths, record.path)
    calls = row_of_path[named.of_row[rows]]
    grafted = graft(trace, capture_trace, rows, calls, record)
    no_op = np.full(len(grafted) - len(trace), -1, dtype=np.int32)
    return replace(grafted, op=np.append(trace.op, no_op))


def _paths_of_nodes(
    trace: Trace, replays: list[Rows], by_node: Mapping[int, Any]
) -> _PathsOfNodes:
    """The paths that annotations name. Reads the args of all nodes, once, in files that
    number them."""
    of_row = np.zeros(len(trace), dtype=np.intp)
    if not numbers_nodes(trace):
        return _PathsOfNodes(paths=("",), of_row=of_row, sources=frozenset())
    nodes, node_arguments = node_args(trace)
    named = _named_paths(node_arguments, by_node)
    with_path = [name for name in named if name.path]
    distinct_paths = {name.path for name in with_path}
    paths = ("", *sorted(distinct_paths, key=_levels))
    index_of_path = {path: index for index, path in enumerate(paths)}
    index_of_distinct = [index_of_path[name.path] for name in named]
    index_of_distinct.append(0)  # no path, of a node without args
    of_distinct = np.array(index_of_distinct, dtype=np.intp)
    of_row[nodes] = of_distinct[node_arguments.number]
    sources = frozenset(name.source for name in with_path)
    return _PathsOfNodes(paths=paths, of_row=of_row, sources=sources)


def _named_paths(
    node_arguments: Arguments, by_node: Mapping[int, Any]
) -> list[_NamedPath]:
    """The path that each of the distinct args of nodes names."""
    named = []
    for texts in node_arguments.distinct:
        values = [parsed(text) for text in texts]
        args = dict(zip(NODE_ARGS, values, strict=True))
        named.append(_named_by(args, by_node))
    return named


def path_named(annotation: Any) -> str:
    """The path that an annotation names; "" if it names none. Of several the last one
    counts, as in torch, and a text only where no field names a path."""
    if isinstance(annotation, list | tuple):
        latest_first = annotation[-MAX_ANNOTATIONS_OF_NODE:][::-1]
    else:
        latest_first = [annotation]
    mappings = [part for part in latest_first if isinstance(part, dict)]
    for field in PATH_FIELDS:
        for mapping in mappings:
            path = _path_text(mapping.get(field))
            if path:
                return path
    for part in latest_first:
        path = _path_text(part)
        if path:
            return path
    return ""


def _path_text(value: Any) -> str:
    """A text as a path, as far as it may be long; "" for anything else."""
    if not isinstance(value, str):
        return ""
    return value[:MAX_PATH_CHARACTERS].strip().encode(errors="replace").decode()


def _named_by(args: dict[str, Any], by_node: Mapping[int, Any]) -> _NamedPath:
    """The path of a node with these args: as the file has it, else as the args do."""
    path = path_named(by_node.get(_node_key(args)))
    if path:
        return _NamedPath(path, _IN_FILE)
    path = path_named({name: args[name] for name in PATH_FIELDS})
    if path:
        return _NamedPath(path, _IN_ARGS)
    annotation = args[SOME_ANNOTATION]
    is_json = isinstance(annotation, str) and annotation.startswith(("[", "{"))
    if is_json:  # a list or a mapping as text
        with suppress(msgspec.DecodeError, RecursionError):
            annotation = msgspec.json.decode(annotation)
    return _NamedPath(path_named(annotation), _IN_ARGS)


def _node_key(args: dict[str, Any]) -> int:
    """(graph id << 32) | node id: in one arg, or in two; -1 if they are not
    recorded."""
    node = args[NODE_ID]
    graph = args[GRAPH_ID]
    if type(node) is not int or node < 0:
        return -1
    if node >> _NODE_ID_BITS:
        return node
    if type(graph) is not int or graph < 0:
        return -1
    return graph << _NODE_ID_BITS | node


def _levels(path: str) -> tuple[str, ...]:
    """The names of a path from the outermost one; a text that is none is one name."""
    if _NESTED_PATH.fullmatch(path):
        return tuple(path.split(".", MAX_LEVELS))
    return (path,)


class _PathRange(NamedTuple):
    """The places of the paths, in their order, that begin with the same levels."""

    first: int
    last: int


def _as_capture(paths: Iterable[str], source: str) -> tuple[Trace, Rows]:
    """A trace with a slice for each path, inside those of the levels above it; and the
    row of each path. The first path is "", which is in no other slice. Each path begins
    1 us after the one before, so `paths` are sorted by their levels."""
    levels_of_paths = [_levels(path) for path in paths]
    ranges = _ranges_of_levels(levels_of_paths)
    events = []
    for levels, path_range in ranges.items():
        events.append(_event(levels, path_range))
    with closing(file_in_memory()) as file:
        file.write(msgspec.json.encode({"traceEvents": events}))
        file.flush()
        trace = build(read(stored_in(source, file), Callbacks(alone=True)))
    row_of_event = np.argsort(trace.order).tolist()
    row_of_levels = dict(zip(ranges, row_of_event, strict=True))
    rows = [row_of_levels[levels] for levels in levels_of_paths]
    return trace, np.array(rows, dtype=np.intp)


def _ranges_of_levels(
    levels_of_paths: Sequence[tuple[str, ...]],
) -> dict[tuple[str, ...], _PathRange]:
    """For the levels of each path, and for each beginning of them, which paths begin
    with these levels."""
    ranges: dict[tuple[str, ...], _PathRange] = {}
    for place, levels in enumerate(levels_of_paths):
        for depth in range(1, len(levels) + 1):
            prefix = levels[:depth]
            first = ranges[prefix].first if prefix in ranges else place
            ranges[prefix] = _PathRange(first=first, last=place)
    return ranges


def _event(levels: tuple[str, ...], path_range: _PathRange) -> dict[str, Any]:
    """A slice with the name of these levels that lasts 1 us for each of the paths."""
    return {
        "ph": "X",
        "cat": GRAPH_ANNOTATION if levels[0] else _NO_PATH_CATEGORY,
        "name": ".".join(levels) or "no annotation",
        "pid": "graphs",
        "tid": "annotations",
        "ts": path_range.first,
        "dur": path_range.last + 1 - path_range.first,
    }
