"""Graphs, compilations and graph breaks, from the logs of torch.compile.

The records of one graph follow each other: its generated code, its provenance, then its
`fx_graph_cache_*` with the key; so they do on cache hits. Forward and backward of a
region have the same compile id and different keys. Of a frame that was restarted, the
last attempt wrote the generated code, and the attempt that broke the reason.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from fusetui.text.figures import size
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.compile_log.files import (
    LogFiles,
    explain_empty,
    find_log_files,
    read_bytes_in,
    read_text_in,
)
from fusetui.trace.compile_log.records import (
    MAX_PAYLOAD_BYTES,
    UNKNOWN,
    LogRecords,
    read_records,
)
from fusetui.trace.compile_log.stacks import MAX_CODE_CHARS, CodeLine, frames_in
from fusetui.trace.compile_log.wrapper import Wrapper, parse_wrapper
from fusetui.trace.model.errors import CannotReadError, NotATraceError, TraceError
from fusetui.trace.model.memo import memo
from fusetui.trace.model.report import Progress, silent

STACK_TRACES = "inductor_provenance_tracking_kernel_stack_traces"
NODE_MAPPINGS = "inductor_provenance_tracking_node_mappings"
OUTPUT_CODE = "inductor_output_code"
BREAK = "dynamo_graph_break_reason"
RECOMPILE_REASONS = "recompile_reasons"
METRICS = "compilation_metrics"
BACKWARD_METRICS = "bwd_compilation_metrics"
START = "dynamo_start"
CACHE = "fx_graph_cache_"
CACHE_OUTCOMES = ("miss", "hit", "bypass", "disabled")
DYNAMO_GRAPH = "dynamo_output_graph"
POST_GRAD = "inductor_post_grad_graph"
MAPPINGS_FILE = f"{NODE_MAPPINGS}.json"
STACK_TRACES_FILE = f"{STACK_TRACES}.json"

KEY = lazy_pattern(r'"key": ?"([^"\\]{1,200})"')
KEY_CHARS = 1 << 16  # of a payload, in which its key is
BROKE_AT = lazy_pattern(
    r"Graph break (?:in user code )?at (?P<file>[^\n]{1,4096}?):(?P<line>[0-9]{1,9})\s*$",
    re.MULTILINE,
)
REASON = lazy_pattern(r"^Graph Break Reason: (?P<reason>[^\n]*)$", re.MULTILINE)
EXPLANATION = lazy_pattern(r"^\s*Explanation: (?P<text>[^\n]*)$", re.MULTILINE)
HINT = lazy_pattern(r"^\s*Hint: (?P<text>[^\n]*)$", re.MULTILINE)
USER_STACK = lazy_pattern(r"User code traceback:\n(?P<stack>(?: {2}[^\n]*\n?)*)")
GUARD_OF_ENTRY = lazy_pattern(r"(?P<entry>[0-9]{1,9}/[0-9]{1,9}): (?P<guard>[^\n]*)")
NODE_COMMENT = lazy_pattern(
    r"\s*# File: (?P<file>[^\n]{1,4096}?):(?P<line>[0-9]{1,9}) in (?P<function>[^,\n]{1,500}), "
    r"code: (?P<code>[^\n]*)"
)
"""`# File: model.py:10 in forward, code: h = F.gelu(x)`, above nodes of a graph."""
NODE = lazy_pattern(r"\s*(?P<name>[A-Za-z_]\w*)(?:: \"[^\"\n]*\")? = ")
CALLED = lazy_pattern(r"[\w.]*?(?P<op>[A-Za-z_]\w*)\(")
"""The call at the begin of the value of a node."""
SIGN = lazy_pattern(r" (?P<sign>\*\*|[-+*/@]) ")
OP_OF_SIGN = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "div",
    "@": "matmul",
    "**": "pow",
}
NUMBER_OF_NODE = lazy_pattern(r"_[0-9]+\Z")
NS_PER_US = 1_000
NS_PER_S = 1_000_000_000
MAX_TIME_NS = 1 << 62
WRAPPERS_KEPT = 64  # of a log, that were read last


class CompileId(msgspec.Struct, frozen=True, order=True):
    """A compiled frame, and how often it was compiled before: 0/2."""

    frame: int
    compile: int

    def __hash__(self) -> int:
        return hash((self.frame, self.compile))

    def __str__(self) -> str:
        return f"{self.frame}/{self.compile}"


class Payload(msgspec.Struct, frozen=True):
    """Where a text is that is read when it is asked for: record `record` of the log with
    this number, or a file in a folder of torch_compile_debug."""

    log: int
    record: int
    digest: str  # MD5 of the text as torch wrote it; "" if unknown
    folder: str = ""
    file: str = ""


class CompiledGraph(msgspec.Struct, frozen=True, eq=False, dict=True):
    """One graph for which code was generated, or taken from a cache."""

    number: int  # in CompileLog.graphs
    log: int  # UNKNOWN: of a folder of torch_compile_debug
    rank: int
    compile_id: CompileId | None
    attempt: int
    key: str  # of the FX graph cache; "" if it is not known
    cache: str  # miss, hit, bypass, ...; "" if it is not known
    wrapper_path: str  # a name only: it is never opened
    code: Payload | None
    stack_traces: Payload | None
    node_mappings: Payload | None
    post_grad: Payload | None
    dynamo_graph: Payload | None  # of its region, as Dynamo made it


class FailedGuard(msgspec.Struct, frozen=True):
    """Why an entry of the cache did not fit, in the log's words."""

    entry: str  # 0/1; "" if it is not named
    guard: str


class Compilation(msgspec.Struct, frozen=True):
    """A frame that was compiled, or its backward pass."""

    log: int
    rank: int
    compile_id: CompileId | None
    is_backward: bool
    function: str
    file: str
    line: int
    start_ns: int  # Unix time; 0: not recorded
    duration_ns: int
    inductor_ns: int  # of it
    guards: tuple[FailedGuard, ...]  # that failed, the newest entry of the cache first
    failure: str  # fail_type and fail_reason; "" if it succeeded
    cache: str  # of its graphs: miss, hit, bypass; "" without any
    restarts: int  # attempts before the last one


class GraphBreak(msgspec.Struct, frozen=True):
    """Where Dynamo could not go on."""

    log: int
    rank: int
    compile_id: CompileId | None
    file: str
    line: int  # 0: not recorded
    reason: str  # the first sentence that says what is unsupported
    explanation: str
    hints: tuple[str, ...]
    stack: tuple[CodeLine, ...]  # of the user's code, outermost first
    payload: Payload


class UnreadLog(msgspec.Struct, frozen=True):
    """A file that could not be read."""

    path: str
    reason: str  # a sentence


class CompileLog(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Everything that was found at a path."""

    path: str
    files: LogFiles
    logs: tuple[LogRecords, ...]
    unread: tuple[UnreadLog, ...]

    @cached_property
    def graphs(self) -> tuple[CompiledGraph, ...]:
        """All graphs: first those of the logs in their order, then those in folders of
        torch_compile_debug."""
        graphs: list[CompiledGraph] = []
        for number, log in enumerate(self.logs):
            graphs += _collect_graphs(number, log, first=len(graphs))
        for folder in self.files.graph_folders:
            graphs.append(_graph_from_folder(folder, number=len(graphs)))
        return tuple(graphs)

    @cached_property
    def compilations(self) -> tuple[Compilation, ...]:
        """All compilations, in the order in which each log has them."""
        compilations: list[Compilation] = []
        for number in range(len(self.logs)):
            compilations += self._compilations(number)
        return tuple(compilations)

    @cached_property
    def breaks(self) -> tuple[GraphBreak, ...]:
        """All graph breaks, in the order in which each log has them. A break that
        several attempts at one frame report counts once."""
        breaks: list[GraphBreak] = []
        for number, log in enumerate(self.logs):
            seen_keys: set[tuple[CompileId | None, str, int, str]] = set()
            for record in _records_of_kind(log, BREAK):
                graph_break = _parse_break(number, log, record)
                break_key = (
                    graph_break.compile_id,
                    graph_break.file,
                    graph_break.line,
                    graph_break.reason,
                )
                if break_key not in seen_keys:
                    seen_keys.add(break_key)
                    breaks.append(graph_break)
        return tuple(breaks)

    @cached_property
    def functions(self) -> Mapping[tuple[int, CompileId], str]:
        """The name of each compiled function, by the number of its log and its compile
        id. Compilations without an id or a name are left out."""
        names: dict[tuple[int, CompileId], str] = {}
        for compilation in self.compilations:
            if compilation.compile_id is not None and compilation.function:
                names.setdefault(
                    (compilation.log, compilation.compile_id), compilation.function
                )
        return names

    def text(self, payload: Payload) -> str:
        """The text that a payload refers to: a record of a log, or a file. Raises
        CannotReadError."""
        if payload.folder:
            return read_text_in(payload.folder, payload.file, MAX_PAYLOAD_BYTES)
        return self.logs[payload.log].text(payload.record)

    def exact_bytes(self, payload: Payload, most: int) -> bytes:
        """The bytes that a payload refers to, exactly as they were logged.

        Raises CannotReadError if there are more than `most` bytes, or if they are not
        what torch wrote.
        """
        if payload.folder:
            return _read_file_payload(payload, most)
        return _read_record_payload(self.logs[payload.log], payload, most)

    def _compilations(self, number: int) -> Iterator[Compilation]:
        """Yield the compilations of the log with this number: first the forward passes,
        then the backward passes. Each has the guards that failed before it, and the
        outcome of the cache."""
        log = self.logs[number]
        guards_of_frame = _collect_failed_guards(log)
        cache_outcomes = {
            (graph.compile_id, _is_backward(self, graph)): graph.cache
            for graph in self.graphs
            if graph.log == number
        }
        for kind in (METRICS, BACKWARD_METRICS):
            is_backward = kind == BACKWARD_METRICS
            for record in _records_of_kind(log, kind):
                fields = log.header_json(record).get(kind)
                if not isinstance(fields, dict):
                    continue
                compile_id = _read_compile_id(log, record)
                guards: tuple[FailedGuard, ...] = ()
                if not is_backward:  # guards are those of the forward pass
                    guards = guards_of_frame.get(compile_id, ())
                cache = cache_outcomes.get((compile_id, is_backward), "")
                yield _build_compilation(
                    number, log, record, fields, guards=guards, cache=cache
                )


def _read_file_payload(payload: Payload, most: int) -> bytes:
    """The bytes of a file in a folder of torch_compile_debug. Raises CannotReadError if
    it is empty, no regular file, or larger than `most` bytes."""
    path = os.path.join(payload.folder, payload.file)
    content = read_bytes_in(payload.folder, payload.file, most + 1)
    if not content:
        raise CannotReadError(f"{path} is empty or not a regular file.")
    if len(content) > most:
        raise CannotReadError(f"{path} is larger than the limit of {size(most)}.")
    return content


def _read_record_payload(log: LogRecords, payload: Payload, most: int) -> bytes:
    """The payload of a record, checked against the MD5 that torch wrote beside it.
    Raises CannotReadError if it is larger than `most` bytes, or was cut or changed."""
    stored_bytes = log.stored_bytes(payload.record)
    if stored_bytes > most:
        raise CannotReadError(
            f"{log.path}: the text has {size(stored_bytes)}, more than the limit of "
            f"{size(most)}."
        )
    content = log.bytes_of(payload.record, most)
    digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if payload.digest and payload.digest != digest:
        raise CannotReadError(
            f"{log.path} was truncated or changed: it contains text that torch did "
            "not write."
        )
    return content


def read_compile_log(path: str, progress: Progress = silent) -> CompileLog:
    """Read the logs of torch.compile at a path.

    A file is one log. Of a folder, all logs and folders of torch_compile_debug in it
    and below are read. `progress` is called with the number of files read and of all
    files. Logs that cannot be read are listed in `unread`. Raises CannotReadError or
    NotATraceError if nothing can be read.
    """
    files = find_log_files(path)
    if files.is_empty:
        raise NotATraceError(explain_empty(files))
    logs: list[LogRecords] = []
    unread: list[UnreadLog] = []
    for number, name in enumerate(files.logs):
        try:
            logs.append(read_records(name))
        except TraceError as error:
            unread.append(UnreadLog(path=name, reason=str(error)))
        progress(number + 1, len(files.logs))
    if not logs and not files.graph_folders:
        raise NotATraceError(unread[0].reason)
    return CompileLog(path=path, files=files, logs=tuple(logs), unread=tuple(unread))


@memo(WRAPPERS_KEPT)
def wrapper_in(log: CompileLog, graph: CompiledGraph) -> Wrapper | None:
    """The wrapper that Inductor generated for a graph, parsed. None if the log does not
    hold it or it can no longer be read."""
    text = code_of(log, graph)
    return parse_wrapper(text) if text else None


def code_of(log: CompileLog, graph: CompiledGraph) -> str:
    """The source text of the wrapper that Inductor generated for a graph. "" if there
    is none or it can no longer be read."""
    return _text_or_blank(log, graph.code)


@memo(WRAPPERS_KEPT)
def stacks_of(
    log: CompileLog, graph: CompiledGraph
) -> dict[str, tuple[tuple[CodeLine, ...], ...]]:
    """Return the Python stacks that each kernel of a graph comes from.

    A kernel that was fused of several ops has several. They are by the handle of the
    kernel, such as `cpp_fused_add_0:3`; each has its outermost frame first. {} if torch
    did not log them.
    """
    stacks: dict[str, tuple[tuple[CodeLine, ...], ...]] = {}
    texts_of_handles = _decode_object(_text_or_blank(log, graph.stack_traces))
    for handle, texts in texts_of_handles.items():
        if isinstance(texts, list):
            frames = [frames_in(text) for text in texts if isinstance(text, str)]
            stacks[handle] = tuple(stack for stack in frames if stack)
    return stacks


@memo(WRAPPERS_KEPT)
def nodes_of(log: CompileLog, graph: CompiledGraph) -> dict[str, tuple[str, ...]]:
    """The nodes of the post-grad graph that each kernel computes, by the handle of the
    kernel. {} if torch did not log where kernels come from."""
    return _read_node_mapping(log, graph, "cppCodeToPost")


@memo(WRAPPERS_KEPT)
def dynamo_nodes_of(
    log: CompileLog, graph: CompiledGraph
) -> dict[str, tuple[str, ...]]:
    """The nodes of Dynamo's graph that each node of the post-grad graph comes from, by
    its name. {} if torch did not log where nodes come from."""
    return _read_node_mapping(log, graph, "postToPre")


def _read_node_mapping(
    log: CompileLog, graph: CompiledGraph, name: str
) -> dict[str, tuple[str, ...]]:
    """Return one of the mappings between nodes that torch logged for a graph.

    {"postToPre": {"mul": ["gelu", 7]}} gives {"mul": ("gelu",)} for the name
    "postToPre": what is no text is left out, and what is no list too.

    Args:
        log: The log.
        graph: The graph.
        name: The name of the mapping; {} if there is none of this name.
    """
    mappings = _decode_object(_text_or_blank(log, graph.node_mappings))
    return {
        key: tuple(text for text in texts if isinstance(text, str))
        for key, texts in _dict_or_empty(mappings.get(name)).items()
        if isinstance(texts, list)
    }


@memo(WRAPPERS_KEPT)
def lines_of_dynamo_nodes(log: CompileLog, graph: CompiledGraph) -> dict[str, CodeLine]:
    """Return the line of Python of each node of Dynamo's graph, by the node's name.

    In the text of the graph, a comment with the line stands above the nodes that came
    from it:

        # File: m.py:10 in forward, code: h = gelu(x)
        h: "f32[8]" = torch._C._nn.gelu(x)

    {} if the log does not hold that graph.
    """
    lines: dict[str, CodeLine] = {}
    code_line: CodeLine | None = None
    for graph_line in _text_or_blank(log, graph.dynamo_graph).split("\n"):
        comment = NODE_COMMENT.match(graph_line)
        if comment:
            code_line = CodeLine(
                file=comment["file"],
                line=int(comment["line"]),
                function=comment["function"],
                code=comment["code"].strip()[:MAX_CODE_CHARS],
            )
            continue
        if graph_line.lstrip().startswith("#"):
            code_line = None  # no stack trace was found for the following nodes
            continue
        node = NODE.match(graph_line)
        if node and code_line is not None:
            lines.setdefault(node["name"], code_line)
    return lines


@memo(WRAPPERS_KEPT)
def graph_lines_of(log: CompileLog, graph: CompiledGraph) -> dict[str, str]:
    """The line that defines each node in the text of the post-grad graph, by the name
    of the node. {} if the log does not hold that graph.

    The type of the node and what follows a semicolon are left out.
    """
    lines: dict[str, str] = {}
    for line in _text_or_blank(log, graph.post_grad).split("\n"):
        name_and_type, equals, rest = line.strip().partition(" = ")
        name = name_and_type.partition(":")[0].strip()
        value = rest.partition(";")[0].strip()
        if equals and name.isidentifier():
            lines.setdefault(name, f"{name} = {value}")
    return lines


@memo(WRAPPERS_KEPT)
def ops_of_dynamo_nodes(log: CompileLog, graph: CompiledGraph) -> dict[str, str]:
    """The op that each node of Dynamo's graph calls, by the name of the node.

    It is `gelu` for `torch._C._nn.gelu(...)`, `sin` for `x.sin()` and `mul` for `h *
    y`. Any other node is called by its own name without the number at the end.
    """
    ops: dict[str, str] = {}
    for graph_line in _text_or_blank(log, graph.dynamo_graph).split("\n"):
        node = NODE.match(graph_line)
        if node is None:
            continue
        called = CALLED.match(graph_line, node.end())
        sign = SIGN.search(graph_line, node.end())
        if called:
            op_name = called["op"]
        elif sign:
            op_name = OP_OF_SIGN[sign["sign"]]
        else:
            op_name = NUMBER_OF_NODE.sub("", node["name"])
        ops.setdefault(node["name"], op_name)
    return ops


def _text_or_blank(log: CompileLog, payload: Payload | None) -> str:
    """The text of a payload; "" if there is no payload or it cannot be read."""
    if payload is None:
        return ""
    try:
        return log.text(payload)
    except CannotReadError:
        return ""


def _decode_object(text: str) -> dict[str, Any]:
    """The object that a JSON text holds; {} for anything else."""
    try:
        value = msgspec.json.decode(text.encode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError):
        return {}
    return _dict_or_empty(value)


def _dict_or_empty(value: object) -> dict[str, Any]:
    """The value if it is a dict, else {}."""
    return value if isinstance(value, dict) else {}


def _records_of_kind(log: LogRecords, kind: str) -> list[int]:
    """The numbers of all records of one kind, in their order; [] if the log has no such
    kind."""
    if kind not in log.kinds:
        return []
    records: list[int] = np.flatnonzero(log.kind == log.kinds.index(kind)).tolist()
    return records


def _read_compile_id(log: LogRecords, record: int) -> CompileId | None:
    """The compile id of a record; None if the record does not say one."""
    frame, compile_ = int(log.frame[record]), int(log.compile[record])
    if frame == UNKNOWN or compile_ == UNKNOWN:
        return None
    return CompileId(frame=frame, compile=compile_)


class _GraphRecords:
    """The records of a graph: what the compiler wrote of it, step by step. The record
    `fx_graph_cache_*`, which says whether it came from the cache, is the last one."""

    def __init__(self) -> None:
        self.record_of: dict[str, int] = {}  # by kind, see PARTS_OF_GRAPH

    @property
    def has_code(self) -> bool:
        """Whether the record with the generated code has come."""
        return OUTPUT_CODE in self.record_of


PARTS_OF_GRAPH = (OUTPUT_CODE, STACK_TRACES, NODE_MAPPINGS, POST_GRAD)
"""The kinds of records before the one that ends a graph."""


class _GraphsOfLog:
    """Takes the records of a log in their order, and puts graphs together."""

    def __init__(self, number: int, log: LogRecords, first: int) -> None:
        """Prepare to collect the graphs of a log. `number` is the number of the log,
        `first` the one that its first graph gets."""
        self.graphs: list[CompiledGraph] = []
        self._log_number = number
        self._log = log
        self._first = first
        # by compile id, as frames may be compiled in turn
        self._unfinished: dict[CompileId | None, _GraphRecords] = {}
        # record of the last attempt
        self._dynamo_graph: dict[CompileId | None, int] = {}

    def take(self, record: int, kind: str) -> None:
        """Take the next record of the log.

        A record about the cache ends the graph of its compile id. A second generated
        code for one compile id also ends the graph before: then the cache was off.
        """
        compile_id = _read_compile_id(self._log, record)
        if kind.removeprefix(CACHE) in CACHE_OUTCOMES:
            self._finish(compile_id, cache_record=record)
        elif kind == DYNAMO_GRAPH:
            self._dynamo_graph[compile_id] = record
        elif kind in PARTS_OF_GRAPH:
            unfinished = self._unfinished.get(compile_id)
            if kind == OUTPUT_CODE and unfinished and unfinished.has_code:
                self._finish(compile_id)  # without a record, as its cache was off
            records = self._unfinished.setdefault(compile_id, _GraphRecords())
            records.record_of[kind] = record

    def finish_all(self) -> None:
        """Finish all graphs that are still open, as the log is over. Without a record
        about the cache they have no cache key."""
        for compile_id in list(self._unfinished):
            self._finish(compile_id)

    def _finish(
        self, compile_id: CompileId | None, cache_record: int = UNKNOWN
    ) -> None:
        """Add the graph of a compile id to `graphs` if it has generated code.
        `cache_record` is the record about the cache, or UNKNOWN."""
        records = self._unfinished.pop(compile_id, None)
        if records is None or not records.has_code:
            return
        graph = _build_graph(
            self._log_number,
            self._log,
            records,
            cache_record,
            dynamo_record=self._dynamo_graph.get(compile_id, UNKNOWN),
            number=self._first + len(self.graphs),
        )
        self.graphs.append(graph)


def _collect_graphs(number: int, log: LogRecords, first: int) -> list[CompiledGraph]:
    """The graphs of a log, in order. `first` is the number that the first of them gets."""
    collector = _GraphsOfLog(number, log, first)
    for record, kind in enumerate(log.kind.tolist()):
        collector.take(record, log.kinds[kind])
    collector.finish_all()
    return collector.graphs


def _build_graph(
    log_number: int,
    log: LogRecords,
    records: _GraphRecords,
    cache_record: int,
    *,
    dynamo_record: int,
    number: int,
) -> CompiledGraph:
    """Make a graph from its records.

    Args:
        log_number: The number of the log.
        log: The log.
        records: The records of the graph, one of them with its code.
        cache_record: The record about the cache, or UNKNOWN.
        dynamo_record: The record with the graph of Dynamo, or UNKNOWN.
        number: The number that the graph gets.
    """

    def payload_of(record: int) -> Payload | None:
        if record == UNKNOWN:
            return None
        return Payload(log=log_number, record=record, digest=log.digests[record])

    def payload_of_kind(kind: str) -> Payload | None:
        return payload_of(records.record_of.get(kind, UNKNOWN))

    cache_key = ""
    cache_outcome = ""  # such as "hit"
    if cache_record != UNKNOWN:
        cache_kind = log.kinds[int(log.kind[cache_record])]
        cache_outcome = cache_kind.removeprefix(CACHE)
        cache_key = _find_cache_key(log, cache_record)
    code_record = records.record_of[OUTPUT_CODE]
    return CompiledGraph(
        number=number,
        log=log_number,
        rank=log.rank,
        compile_id=_read_compile_id(log, code_record),
        attempt=int(log.attempt[code_record]),
        key=cache_key,
        cache=cache_outcome,
        wrapper_path=_read_code_path(log, code_record),
        code=payload_of(code_record),
        stack_traces=payload_of_kind(STACK_TRACES),
        node_mappings=payload_of_kind(NODE_MAPPINGS),
        post_grad=payload_of_kind(POST_GRAD),
        dynamo_graph=payload_of(dynamo_record),
    )


def _read_code_path(log: LogRecords, code_record: int) -> str:
    """The path of the file that the generated code was written to; "" if its record
    has none."""
    header = _dict_or_empty(log.header_json(code_record).get(OUTPUT_CODE))
    path = header.get("file_path") or header.get("filename")
    return path if isinstance(path, str) else ""


def _find_cache_key(log: LogRecords, record: int) -> str:
    """The `key` near the beginning of the payload of a record; "" without one."""
    start = int(log.payload[record])
    end = min(int(log.end[record]), start + KEY_CHARS)
    match = KEY.search(log.document[start:end].decode("utf-8", "replace"))
    return match[1] if match else ""


def _graph_from_folder(folder: str, number: int) -> CompiledGraph:
    """The graph in a folder of torch_compile_debug. Such a folder says neither its
    compile id nor its cache key."""

    def payload(file: str) -> Payload:
        return Payload(log=UNKNOWN, record=UNKNOWN, digest="", folder=folder, file=file)

    return CompiledGraph(
        number=number,
        log=UNKNOWN,
        rank=UNKNOWN,
        compile_id=None,
        attempt=0,
        key="",
        cache="",
        wrapper_path="",
        code=payload("output_code.py"),
        stack_traces=payload(STACK_TRACES_FILE),
        node_mappings=payload(MAPPINGS_FILE),
        post_grad=payload("fx_graph_transformed.py"),
        dynamo_graph=None,
    )


def _is_backward(log: CompileLog, graph: CompiledGraph) -> bool:
    """Whether the generated code of a graph is for a backward pass, by the AOT id at
    its beginning. False for a graph of a folder."""
    if graph.code is None or graph.code.folder:
        return False
    records = log.logs[graph.log]
    start = int(records.payload[graph.code.record])
    # the first line has it: # AOT ID: ['0_backward']
    return b"_backward']" in records.document[start : start + 200]


def _collect_failed_guards(
    log: LogRecords,
) -> dict[CompileId | None, tuple[FailedGuard, ...]]:
    """The guards that failed before each recompilation, by the compile id of that. The
    newest cache entry comes first."""
    guards: dict[CompileId | None, tuple[FailedGuard, ...]] = {}
    for record in _records_of_kind(log, RECOMPILE_REASONS):
        guards[_read_compile_id(log, record)] = guards_in(log.text(record))
    return guards


def guards_in(text: str) -> tuple[FailedGuard, ...]:
    """The failed guards in a text of `recompile_reasons`, the newest cache entry first.

    The text is one reason, or a JSON list of several. A reason without `0/1: ` before
    it is kept with a blank entry.

        >>> guards_in("0/0: tensor 'x' size mismatch")
        (FailedGuard(entry='0/0', guard="tensor 'x' size mismatch"),)
    """
    reasons = _texts_of_list(text)
    is_one_reason = not reasons and text.strip()
    if is_one_reason:
        reasons = [text.strip()]
    guards = [_parse_reason(reason) for reason in reasons]
    return tuple(sorted(guards, key=_age_of_entry))


def _texts_of_list(text: str) -> list[str]:
    """The texts in a JSON list; [] if the text is no JSON list."""
    if not text.lstrip().startswith("["):
        return []
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return []
    if not isinstance(value, list):
        return []
    return [item for item in value if isinstance(item, str)]


def _parse_reason(reason: str) -> FailedGuard:
    """The cache entry and the guard in a reason such as `0/0: tensor 'x' size
    mismatch`. A reason in another form gives its first line, without an entry."""
    match = GUARD_OF_ENTRY.match(reason)
    if match is None:
        first_line = reason.split("\n")[0]
        return FailedGuard(entry="", guard=first_line.strip())
    return FailedGuard(entry=match["entry"], guard=match["guard"].strip())


def _age_of_entry(guard: FailedGuard) -> int:
    """A sort key that is smaller for a newer cache entry: -2 for entry 0/2. Entries
    without a number come last."""
    number = guard.entry.rpartition("/")[2]
    return -int(number) if number.isdigit() else 1


def _build_compilation(
    number: int,
    log: LogRecords,
    record: int,
    fields: dict[str, Any],
    *,
    guards: tuple[FailedGuard, ...],
    cache: str,
) -> Compilation:
    """Make a compilation from the metrics that torch logged for it.

    Args:
        number: The number of the log.
        log: The log.
        record: The record with the metrics.
        fields: The metrics by name, of any JSON type.
        guards: The guards that failed before it; if (), the metrics may name one.
        cache: The outcome of the cache: hit, miss, bypass or "".
    """
    fail_type = _text_field(fields, "fail_type")
    fail_reason = _text_field(fields, "fail_reason")
    failure_parts = [part for part in (fail_type, fail_reason) if part]
    recompile_reason = _text_field(fields, "recompile_reason")
    if not guards and recompile_reason:
        guards = guards_in(recompile_reason)
    restarts = fields.get("restart_reasons")
    return Compilation(
        log=number,
        rank=log.rank,
        compile_id=_read_compile_id(log, record),
        is_backward=log.kinds[int(log.kind[record])] == BACKWARD_METRICS,
        function=_text_field(fields, "co_name"),
        file=_text_field(fields, "co_filename"),
        line=_int_field(fields, "co_firstlineno"),
        start_ns=_time_field_ns(fields, micros="start_time_us", seconds="start_time"),
        duration_ns=_time_field_ns(
            fields, micros="duration_us", seconds="entire_frame_compile_time_s"
        ),
        inductor_ns=_time_field_ns(
            fields,
            micros="inductor_cumulative_compile_time_us",
            seconds="inductor_compile_time_s",
        ),
        guards=guards,
        failure=": ".join(failure_parts),
        cache=cache,
        restarts=len(restarts) if isinstance(restarts, list) else 0,
    )


def _text_field(fields: dict[str, Any], name: str) -> str:
    """A metric that is a text; "" if it is missing or of another type."""
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _int_field(fields: dict[str, Any], name: str) -> int:
    """A metric that is a whole number below 2**31; 0 if it is missing or anything else."""
    value = fields.get(name)
    return value if type(value) is int and 0 <= value < 1 << 31 else 0


def _time_field_ns(fields: dict[str, Any], *, micros: str, seconds: str) -> int:
    """A duration or time in ns, from a metric in microseconds or else one in seconds. 0
    if neither is there, or it is out of range."""
    for name, factor in ((micros, NS_PER_US), (seconds, NS_PER_S)):
        value = fields.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            ns = value * factor
            if 0 < ns < MAX_TIME_NS:
                return int(ns)
    return 0


def _parse_break(number: int, log: LogRecords, record: int) -> GraphBreak:
    """Parse the text of a graph break: where it is, its reason, explanation, hints and
    stack. Parts that the text lacks are blank."""
    text = log.text(record)
    location = BROKE_AT.search(text)
    explanation = EXPLANATION.search(text)
    hints = dict.fromkeys(match["text"].strip() for match in HINT.finditer(text))
    stack_match = USER_STACK.search(text)
    return GraphBreak(
        log=number,
        rank=log.rank,
        compile_id=_read_compile_id(log, record),
        file=location["file"] if location else "",
        line=int(location["line"]) if location else 0,
        reason=_find_reason(text),
        explanation=explanation["text"].strip() if explanation else "",
        hints=tuple(hints),
        stack=frames_in(stack_match["stack"]) if stack_match else (),
        payload=Payload(log=number, record=record, digest=log.digests[record]),
    )


def _find_reason(text: str) -> str:
    """The sentence that says what Dynamo does not support. It is the paragraph after
    the line `Graph Break Reason:`, or that line itself if nothing follows it."""
    reason = REASON.search(text)
    if reason is None:
        return text.strip().split("\n")[0]
    following = text[reason.end() :].lstrip("\n").split("\n")[0].strip()
    if following and not following.startswith(("User code", "Explanation")):
        return following
    return str(reason["reason"]).strip()
