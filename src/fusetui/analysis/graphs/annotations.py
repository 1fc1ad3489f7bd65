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
from typing import Any

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
from fusetui.trace.model.events import parsed
from fusetui.trace.model.joined import ANNOTATIONS, CERTAIN, Join, Joined
from fusetui.trace.read import Callbacks, read
from fusetui.trace.read.memory import file_in_memory
from fusetui.trace.read.source import stored_in

NAMES = ("module_name", "name", "str")
"""The fields of an annotation that may name a path; the first that is there counts."""
LONGEST = 1 << 10  # characters of a path
MOST = 64  # annotations of one node
MODULE = re.compile(r"[^\W\d]\w*(?:\.\w+)+")  # only such paths are nested at their dots
LEVELS = 32
# before the name of a file of annotations among captures
BY_ANNOTATIONS = "annotations:"
BESIDE = ".annotations.pkl"  # in the place of the ending of a trace
ENDING = re.compile(r"(?:\.json(?:\.gz|\.zst)?)?\Z")
OF_SEVERAL = "several processes replay graphs, and it cannot tell of which one it is"
FILE, ARGS = "file", "args"
NODE_BITS = 32
NOWHERE = "graph_node"


def with_annotations(
    trace: Trace, files: Sequence[str]
) -> tuple[Trace, tuple[Join, ...]]:
    """The trace with the modules of nodes that were not joined before. `files`: of
    annotations, those that a user names; else there may be one beside the trace. What
    they do not name, args may. Reads nothing unless a graph was replayed.

    Raises TraceError if a named file cannot be read.
    """
    each = nodes_of_replays(trace) if wants_capture(trace) else []
    if isinstance(trace, Joined):  # those that were not joined before
        each = [rows for rows in each if (trace.captured[rows] < 0).all()]
    if not each:
        return trace, ()
    by_node: dict[int, Any] = {}
    problems: list[str] = []
    beside = ENDING.sub(BESIDE, trace.report.path, count=1)
    paths = list(files) or ([beside] if os.path.isfile(beside) else [])
    if (
        paths
        and len({trace.track_of(int(trace.launch[rows[0]])).pid for rows in each}) > 1
    ):
        problems.append(f"{paths[0]} is left out: {OF_SEVERAL}.")
        paths = []
    for path in paths:
        try:
            by_node |= read_annotations(path)
        except TraceError as error:
            if files:
                raise
            problems.append(str(error))
    return _joined(trace, each, by_node, paths, problems)


def _joined(
    trace: Trace,
    each: list[Rows],
    by_node: dict[int, Any],
    paths: list[str],
    problems: list[str],
) -> tuple[Trace, tuple[Join, ...]]:
    """All nodes of a replay are joined if one of them is annotated."""
    own, of_row, sources = _named(trace, each, by_node)
    told = [rows for rows in each if of_row[rows].any()]
    if paths and FILE not in sources and not problems:
        problems.append(
            f"{paths[0]} names no node of the graphs that {trace.report.file} replays."
        )
    used = [
        *(paths if FILE in sources else ()),
        *([trace.report.file] if ARGS in sources else ()),
    ]
    rows = np.concatenate([np.empty(0, np.intp), *told])
    unnamed = int((of_row[rows] == 0).sum())
    record = Join(
        path=" and ".join(used),
        replays=len(told),
        of_replays=len(each),
        kernels=len(rows) - unnamed,
        certainty=CERTAIN,
        why_likely="",
        refused=tuple(problems),
        joined_by=ANNOTATIONS,
        unnamed=unnamed,
    )
    if not told:
        return trace, (record,) if problems else ()
    there, places = _as_capture(own, record.path)
    grafted = graft(trace, there, rows, places[of_row[rows]], record)
    op = np.append(trace.op, np.full(len(grafted) - len(trace), -1, dtype=np.int32))
    return replace(grafted, op=op), (record,)


def _named(
    trace: Trace, each: list[Rows], by_node: Mapping[int, Any]
) -> tuple[tuple[str, ...], Rows, set[str]]:
    """The paths that annotations name, the first of them ""; for each row the index of
    its path; and where they stand: FILE, ARGS or both. Reads the args of all nodes,
    once, in files that number them."""
    of_row = np.zeros(len(trace), dtype=np.intp)
    if not numbers_nodes(trace):
        return ("",), of_row, set()
    nodes, found = node_args(trace)
    texts = [
        dict(zip(NODE_ARGS, map(parsed, one), strict=True)) for one in found.distinct
    ]
    named = [_named_by(args, by_node) for args in texts]
    paths = ("", *sorted({path for path, _ in named} - {""}, key=_levels))
    number = {path: at for at, path in enumerate(paths)}
    of_text = np.array([*(number[path] for path, _ in named), 0], dtype=np.intp)
    of_row[nodes] = of_text[found.number]
    return paths, of_row, {source for path, source in named if path}


def path_named(annotation: Any) -> str:
    """The path that an annotation names; "" if it names none. Of several the last one
    counts, as in torch, and a text only where no field names a path."""
    parts = annotation[-MOST:] if isinstance(annotation, list | tuple) else [annotation]
    fields = [
        part.get(name)
        for name in NAMES
        for part in parts[::-1]
        if isinstance(part, dict)
    ]
    asked = (one for one in (*fields, *parts[::-1]) if isinstance(one, str))
    named = (one[:LONGEST].strip().encode(errors="replace").decode() for one in asked)
    return next((one for one in named if one), "")


def _named_by(args: dict[str, Any], by_node: Mapping[int, Any]) -> tuple[str, str]:
    """The path of a node with these args, and where it stands."""
    if path := path_named(by_node.get(_node(args))):
        return path, FILE
    if path := path_named({name: args[name] for name in NAMES}):
        return path, ARGS
    annotation = args[SOME_ANNOTATION]
    # a list as text
    if isinstance(annotation, str) and annotation.startswith(("[", "{")):
        with suppress(msgspec.DecodeError, RecursionError):
            annotation = msgspec.json.decode(annotation)
    return path_named(annotation), ARGS


def _node(args: dict[str, Any]) -> int:
    """(graph id << 32) | node id: in one arg, or in two; -1 if they are not
    recorded."""
    node, graph = args[NODE_ID], args[GRAPH_ID]
    if type(node) is not int or node < 0:
        return -1
    if node >> NODE_BITS:
        return node
    return graph << NODE_BITS | node if type(graph) is int and graph >= 0 else -1


def _levels(path: str) -> tuple[str, ...]:
    return tuple(path.split(".", LEVELS)) if MODULE.fullmatch(path) else (path,)


def _as_capture(paths: Iterable[str], source: str) -> tuple[Trace, Rows]:
    """A trace with a slice for each path, inside those of the levels above it; and the
    row of each path. The first path is "", which is in no other slice. Each path begins
    1 us after the one before."""
    spans: dict[tuple[str, ...], list[int]] = {}
    for at, path in enumerate(paths):
        levels = _levels(path)
        for depth in range(1, len(levels) + 1):
            spans.setdefault(levels[:depth], [at, at])[1] = at
    events = [
        {
            "ph": "X",
            "cat": GRAPH_ANNOTATION if levels[0] else NOWHERE,
            "name": ".".join(levels) or "no annotation",
            **{
                "pid": "graphs",
                "tid": "annotations",
                "ts": first,
                "dur": last + 1 - first,
            },
        }
        for levels, (first, last) in spans.items()
    ]
    with closing(file_in_memory()) as file:
        file.write(msgspec.json.encode({"traceEvents": events}))
        file.flush()
        trace = build(read(stored_in(source, file), Callbacks(alone=True)))
    by_order = np.argsort(trace.order)
    of_levels = {levels: int(by_order[at]) for at, levels in enumerate(spans)}
    return trace, np.array([of_levels[_levels(path)] for path in paths], dtype=np.intp)
