"""Assigns the modules in node annotations to the nodes of replayed graphs.

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
    has_node_numbers,
    node_args,
)
from fusetui.analysis.graphs.join import append_captured_calls
from fusetui.analysis.questions.launches import find_nodes_of_replays, wants_capture
from fusetui.trace.load import build
from fusetui.trace.model.arrays import NO_ROW, Rows, rank_of_each
from fusetui.trace.model.categories import GRAPH_ANNOTATION
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.errors import TraceError
from fusetui.trace.model.events import Arguments, parsed
from fusetui.trace.model.joined import ANNOTATIONS, CERTAIN, Join, Joined
from fusetui.trace.read import Callbacks, read
from fusetui.trace.read.memory import file_in_memory
from fusetui.trace.read.source import describe_file

PATH_FIELDS: Final = ("module_name", "name", "str")
"""The fields of an annotation that may name a path; the first that is there counts."""

MAX_PATH_CHARACTERS: Final = 1 << 10
MAX_ANNOTATIONS_OF_NODE: Final = 64
MAX_LEVELS: Final = 32
"""A path is split into nested slices at no more dots than this."""
NO_PATH: Final = 0
"""The index of the path of a node that names none; that path is ""."""

_NESTED_PATH = re.compile(r"[^\W\d]\w*(?:\.\w+)+")
"""Matches the paths that are split into nested slices at their dots."""

BY_ANNOTATIONS: Final = "annotations:"
"""Marks the name of a file of annotations in a list of captures."""

_FILE_ENDING: Final = ".annotations.pkl"
_TRACE_ENDING = re.compile(r"(?:\.json(?:\.gz|\.zst)?)?\Z")
_OF_SEVERAL_PROCESSES: Final = (
    "several processes replay graphs, and the file does not identify its process"
)
_IN_FILE: Final = "file"
_IN_ARGS: Final = "args"
_NODE_ID_BITS: Final = 32
_NO_PATH_CATEGORY: Final = "graph_node"


class _NamedPath(NamedTuple):
    """The module path that the annotation of a node names."""

    path: str  # "" for none
    source: str  # where the annotation stands: _IN_FILE or _IN_ARGS


class _PathsOfNodes(msgspec.Struct, frozen=True, eq=False):
    """The module paths of all annotated nodes."""

    paths: tuple[str, ...]  # distinct; the first is "": no path
    of_row: Rows  # per row of the trace: the index of its path in `paths`
    sources: frozenset[str]  # _IN_FILE, _IN_ARGS, both or none


def add_annotated_modules(
    trace: Trace, files: Sequence[str]
) -> tuple[Trace, tuple[Join, ...]]:
    """Give replayed kernels the modules that annotations of their nodes name.

    Only replays that were not joined with a capture before get modules. What files of
    annotations do not name, the args of kernels may. Nothing is read unless the trace
    replays a graph.

    Args:
        trace: The trace.
        files: The files of annotations that a user named. If there are none, the file
            of annotations in the folder of the trace is used, if there is one.

    Returns:
        The trace with modules, and a record of what was joined.

    Raises:
        TraceError: A file that the user named cannot be read.
    """
    replays = _find_replays_without_op(trace)
    if not replays:
        return trace, ()

    user_named_files = len(files) > 0
    paths = list(files) if user_named_files else _find_default_annotation_files(trace)
    problems: list[str] = []
    if paths and _count_processes(trace, replays) > 1:
        problems.append(f"{paths[0]} is skipped: {_OF_SEVERAL_PROCESSES}.")
        paths = []

    annotation_by_node: dict[int, Any] = {}
    for path in paths:
        try:
            annotation_by_node |= read_annotations(path)
        except TraceError as error:
            if user_named_files:
                raise
            problems.append(str(error))
    return _join_modules(trace, replays, annotation_by_node, paths, problems)


def _find_replays_without_op(trace: Trace) -> list[Rows]:
    """Return the GPU events of each graph replay that was not joined with a capture
    before.

    Without a join, no op is known for these events. The result is [] if the trace needs
    no capture.
    """
    if not wants_capture(trace):
        return []
    replays = find_nodes_of_replays(trace)
    if not isinstance(trace, Joined):
        return replays
    has_captured_call = trace.captured != NO_ROW
    return [rows for rows in replays if not has_captured_call[rows].any()]


def _find_default_annotation_files(trace: Trace) -> list[str]:
    """Return the file of annotations that is named after the trace, if it exists."""
    path = _TRACE_ENDING.sub(_FILE_ENDING, trace.report.path, count=1)
    return [path] if os.path.isfile(path) else []


def _count_processes(trace: Trace, replays: Sequence[Rows]) -> int:
    """Count the processes that launch these replays."""
    processes = set()
    for rows in replays:
        call = int(trace.launch[rows[0]])
        processes.add(trace.track_of(call).pid)
    return len(processes)


def _join_modules(
    trace: Trace,
    replays: list[Rows],
    annotation_by_node: dict[int, Any],
    paths: list[str],
    problems: list[str],
) -> tuple[Trace, tuple[Join, ...]]:
    """Give the nodes of annotated replays their modules, and record what was done.

    A replay is annotated if one of its nodes is.

    Args:
        trace: The trace.
        replays: The nodes of each replay.
        annotation_by_node: The annotations of files, by (graph id << 32) | node id.
        paths: The files that these annotations are from.
        problems: What is wrong with the files. It is added to if they name no node.

    Returns:
        If no replay is annotated, the same trace, with a record only if there are
        problems.
    """
    named = _find_paths_of_nodes(trace, replays, annotation_by_node)
    has_path = named.of_row != NO_PATH
    annotated = [rows for rows in replays if has_path[rows].any()]
    file_names_nodes = _IN_FILE in named.sources
    if paths and not file_names_nodes and not problems:
        problems.append(
            f"{paths[0]} annotates no node of the graphs that {trace.report.file} "
            "replays."
        )

    rows = np.concatenate([np.empty(0, np.intp), *annotated])
    unnamed = int(np.count_nonzero(~has_path[rows]))
    record = Join(
        path=_describe_sources(trace, paths, named.sources),
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
        return _place_in_modules(trace, rows, named, record), (record,)
    if problems:
        return trace, (record,)
    return trace, ()


def _describe_sources(trace: Trace, paths: list[str], sources: frozenset[str]) -> str:
    """Say where the annotations of nodes stand, as `x.annotations.pkl and x.json`.

    Args:
        trace: The trace, whose file stands for annotations in args.
        paths: The files of annotations.
        sources: What was used; "" is returned for nothing.
    """
    file_names: list[str] = []
    if _IN_FILE in sources:
        file_names += paths
    if _IN_ARGS in sources:
        file_names.append(trace.report.file)
    return " and ".join(file_names)


def _place_in_modules(
    trace: Trace, rows: Rows, named: _PathsOfNodes, record: Join
) -> Trace:
    """Place nodes of graphs in the modules that they are annotated with.

    The modules become slices of a capture that is made up, as if the nodes had been
    captured in them. Unlike after a real capture, no node gets an op.

    Args:
        trace: The trace.
        rows: The nodes.
        named: The module path of each row of the trace.
        record: The record of this join.
    """
    capture_trace, row_of_path = _make_capture_trace(named.paths, record.path)
    calls = row_of_path[named.of_row[rows]]
    joined = append_captured_calls(trace, capture_trace, rows, calls, record)
    appended_rows = len(joined) - len(trace)
    no_op = np.full(appended_rows, NO_ROW, dtype=np.int32)
    return replace(joined, op=np.append(trace.op, no_op))


def _find_paths_of_nodes(
    trace: Trace, replays: list[Rows], annotation_by_node: Mapping[int, Any]
) -> _PathsOfNodes:
    """Find the module path that the annotation of each graph node names.

    A *node* is one kernel, copy or set of a graph. The args of all nodes are read once,
    and only in files that number their nodes. Without numbers a node cannot be found
    among the annotations.

    Args:
        trace: The trace.
        replays: The nodes of each replay.
        annotation_by_node: The annotations of files, by (graph id << 32) | node
            id.
    """
    path_index_of_row = np.full(len(trace), NO_PATH, dtype=np.intp)
    if not has_node_numbers(trace):
        return _PathsOfNodes(paths=("",), of_row=path_index_of_row, sources=frozenset())

    nodes, node_arguments = node_args(trace)
    named = _read_named_paths(node_arguments, annotation_by_node)
    with_path = [name for name in named if name.path]
    distinct_paths = {name.path for name in with_path}
    paths = ("", *sorted(distinct_paths, key=_split_path))
    index_of_path = {path: index for index, path in enumerate(paths)}

    # Nodes with equal args have one number, and so one path.
    path_index_of_number = np.array([index_of_path[name.path] for name in named])
    has_args = node_arguments.number >= 0  # else -1
    numbers = node_arguments.number[has_args]
    path_index_of_row[nodes[has_args]] = path_index_of_number[numbers]

    sources = frozenset(name.source for name in with_path)
    return _PathsOfNodes(paths=paths, of_row=path_index_of_row, sources=sources)


def _read_named_paths(
    node_arguments: Arguments, annotation_by_node: Mapping[int, Any]
) -> list[_NamedPath]:
    """Return the module path that each distinct set of args of nodes names.

    A *node* is one kernel, copy or set of a CUDA graph. Many nodes have equal args, so
    each distinct set is looked at only once.

    Args:
        node_arguments: The args of the nodes.
        annotation_by_node: The annotations of files, by (graph id << 32) | node
            id.
    """
    named = []
    for texts_of_args in node_arguments.distinct:
        args = {}
        for arg_name, text in zip(NODE_ARGS, texts_of_args, strict=True):
            args[arg_name] = parsed(text)
        named.append(_find_path_of_node(args, annotation_by_node))
    return named


def extract_module_path(annotation: Any) -> str:
    """Return the module path that the annotation of a graph node names, such as
    `model.layers.3`.

    If there are several annotations, the last one counts, as in torch. A plain text
    counts only where no field of a mapping names a path.

    Args:
        annotation: What torch wrote of a node: a mapping, a text, or a list of
            such.

    Returns:
        The path; "" if the annotation names none.
    """
    annotations = [annotation]
    if isinstance(annotation, list | tuple):
        annotations = list(annotation[-MAX_ANNOTATIONS_OF_NODE:])
    annotations.reverse()  # the latest first

    candidates: list[Any] = []
    for field in PATH_FIELDS:
        for mapping in annotations:
            if isinstance(mapping, dict):
                candidates.append(mapping.get(field))
    candidates += annotations

    for candidate in candidates:
        path = _to_path(candidate)
        if path:
            return path
    return ""


def _to_path(value: Any) -> str:
    """Return a text as a path, cut to the longest that is used; "" if it is no text."""
    if not isinstance(value, str):
        return ""
    path = value[:MAX_PATH_CHARACTERS].strip()
    # Replaces lone surrogates, which cannot be written.
    return path.encode(errors="replace").decode()


def _find_path_of_node(
    args: dict[str, Any], annotation_by_node: Mapping[int, Any]
) -> _NamedPath:
    """Return the module path of a node: as a file has it, else as its args do.

    Args:
        args: The args of the node, by NODE_ARGS.
        annotation_by_node: The annotations of files, by (graph id << 32) | node id.
    """
    node_key = _make_node_key(args)
    if node_key is not None:
        path = extract_module_path(annotation_by_node.get(node_key))
        if path:
            return _NamedPath(path, _IN_FILE)

    path = extract_module_path({field: args[field] for field in PATH_FIELDS})
    if path:
        return _NamedPath(path, _IN_ARGS)

    annotation = args[SOME_ANNOTATION]
    is_json = isinstance(annotation, str) and annotation.startswith(("[", "{"))
    if is_json:  # a list or a mapping as text
        with suppress(msgspec.DecodeError, RecursionError):
            annotation = msgspec.json.decode(annotation)
    return _NamedPath(extract_module_path(annotation), _IN_ARGS)


def _make_node_key(args: dict[str, Any]) -> int | None:
    """Return the key of a node in files of annotations: (graph id << 32) | node id.

    Some files have both numbers in one arg, some in two. Returns None if they are not
    recorded.
    """
    node = args[NODE_ID]
    graph = args[GRAPH_ID]
    if type(node) is not int or node < 0:  # True is an int too
        return None
    has_both_numbers = node >= 1 << _NODE_ID_BITS
    if has_both_numbers:
        return node
    if type(graph) is not int or graph < 0:
        return None
    return (graph << _NODE_ID_BITS) | node


def _split_path(path: str) -> tuple[str, ...]:
    """Split a module path at its dots, the outermost module first.

    A text that is no path of modules stays one name.
    """
    if _NESTED_PATH.fullmatch(path):
        return tuple(path.split(".", MAX_LEVELS))
    return (path,)


class _PathRange(NamedTuple):
    """The sorted paths that begin with the same levels, as indices; both included."""

    first: int
    last: int


def _make_capture_trace(paths: Iterable[str], source: str) -> tuple[Trace, Rows]:
    """Make up a trace with a slice for each path, nested as their modules are.

    E.g. for the paths "", "a", "a.b" and "c": a slice "" from 0 to 1 us, "a" from 1 to
    3 us with "a.b" in it from 2 to 3 us, and "c" from 3 to 4 us. All paths within a
    module are neighbors, because they are sorted by their levels.

    Args:
        paths: The paths; the first is "", which is in no other slice.
        source: What the trace is said to be read from.

    Returns:
        The trace, and for each path the row of its slice.
    """
    levels_of_paths = [_split_path(path) for path in paths]
    ranges = _find_ranges_of_modules(levels_of_paths)
    events = [
        _make_module_event(levels, path_range) for levels, path_range in ranges.items()
    ]
    index_of_event = {levels: index for index, levels in enumerate(ranges)}

    with closing(file_in_memory()) as file:
        file.write(msgspec.json.encode({"traceEvents": events}))
        file.flush()
        trace = build(read(describe_file(source, file), Callbacks(alone=True)))

    # `order` has for each row the event in the file.
    row_of_event = rank_of_each(trace.order)
    event_of_path = [index_of_event[levels] for levels in levels_of_paths]
    return trace, row_of_event[event_of_path]


def _find_ranges_of_modules(
    levels_of_paths: Sequence[tuple[str, ...]],
) -> dict[tuple[str, ...], _PathRange]:
    """Tell for each module which of the sorted paths lie in it.

    E.g. for the paths a, a.b and c: paths 0 to 1 lie in a, path 1 in a.b and path 2 in
    c.

    Args:
        levels_of_paths: The levels of each path, in order.

    Returns:
        The range of the paths that begin with the same levels, by these levels.
    """
    first_of_module: dict[tuple[str, ...], int] = {}
    last_of_module: dict[tuple[str, ...], int] = {}
    for path_index, levels in enumerate(levels_of_paths):
        for depth in range(1, len(levels) + 1):
            module = levels[:depth]
            first_of_module.setdefault(module, path_index)
            last_of_module[module] = path_index

    ranges = {}
    for module, first in first_of_module.items():
        ranges[module] = _PathRange(first=first, last=last_of_module[module])
    return ranges


def _make_module_event(
    levels: tuple[str, ...], path_range: _PathRange
) -> dict[str, Any]:
    """Make the trace event of a module, which lasts 1 us for each path within it.

    Args:
        levels: The names of the module and of those around it, the outermost
            first.
        path_range: Which of the sorted paths lie in the module.
    """
    return {
        "ph": "X",
        "cat": GRAPH_ANNOTATION if levels[0] else _NO_PATH_CATEGORY,
        "name": ".".join(levels) or "no annotation",
        "pid": "graphs",
        "tid": "annotations",
        "ts": path_range.first,
        "dur": path_range.last + 1 - path_range.first,
    }
