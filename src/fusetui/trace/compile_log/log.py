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
    bytes_in,
    files_of,
    text_in,
    why_empty,
)
from fusetui.trace.compile_log.records import (
    MAX_PAYLOAD_BYTES,
    UNKNOWN,
    LogRecords,
    read_records,
)
from fusetui.trace.compile_log.stacks import MAX_CODE_CHARS, CodeLine, frames_in
from fusetui.trace.compile_log.wrapper import Wrapper, wrapper_of
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
        """All graphs, in the order of the logs; then those of torch_compile_debug."""
        graphs: list[CompiledGraph] = []
        for number, log in enumerate(self.logs):
            graphs += _graphs(number, log, first=len(graphs))
        for folder in self.files.graph_folders:
            graphs.append(_graph_of_folder(folder, number=len(graphs)))
        return tuple(graphs)

    @cached_property
    def compilations(self) -> tuple[Compilation, ...]:
        """All compilations, in the order in which each log has them."""
        found: list[Compilation] = []
        for number in range(len(self.logs)):
            found += self._compilations(number)
        return tuple(found)

    @cached_property
    def breaks(self) -> tuple[GraphBreak, ...]:
        """All graph breaks, in the order in which each log has them. A break that
        several attempts of one frame report counts once."""
        breaks: list[GraphBreak] = []
        for number, log in enumerate(self.logs):
            seen: set[tuple[CompileId | None, str, int, str]] = set()
            for record in _records_of(log, BREAK):
                one = _break(number, log, record)
                key = (one.compile_id, one.file, one.line, one.reason)
                if key not in seen:
                    seen.add(key)
                    breaks.append(one)
        return tuple(breaks)

    @cached_property
    def functions(self) -> Mapping[tuple[int, CompileId], str]:
        """The name of the compiled function, by log and compile id."""
        names: dict[tuple[int, CompileId], str] = {}
        for one in self.compilations:
            if one.compile_id is not None and one.function:
                names.setdefault((one.log, one.compile_id), one.function)
        return names

    def text(self, payload: Payload) -> str:
        """The text behind a payload. Raises CannotReadError."""
        if payload.folder:
            return text_in(payload.folder, payload.file, MAX_PAYLOAD_BYTES)
        return self.logs[payload.log].text(payload.record)

    def exact_bytes(self, payload: Payload, most: int) -> bytes:
        """What is behind a payload, as it was logged. Raises CannotReadError for more
        than so many bytes, and for what is not what torch wrote."""
        if payload.folder:
            return _bytes_of_file(payload, most)
        return _bytes_of_record(self.logs[payload.log], payload, most)

    def _compilations(self, number: int) -> Iterator[Compilation]:
        log = self.logs[number]
        reasons = _failed_guards(log)
        caches = {
            (graph.compile_id, _is_backward(self, graph)): graph.cache
            for graph in self.graphs
            if graph.log == number
        }
        for kind in (METRICS, BACKWARD_METRICS):
            for record in _records_of(log, kind):
                fields = log.header_json(record).get(kind)
                if isinstance(fields, dict):
                    compile_id = _compile_id(log, record)
                    is_backward = kind == BACKWARD_METRICS
                    yield _compilation(
                        number,
                        log,
                        record,
                        fields,
                        guards=() if is_backward else reasons.get(compile_id, ()),
                        cache=caches.get((compile_id, is_backward), ""),
                    )


def _bytes_of_file(payload: Payload, most: int) -> bytes:
    """A file of torch_compile_debug. Raises CannotReadError."""
    path = os.path.join(payload.folder, payload.file)
    content = bytes_in(payload.folder, payload.file, most + 1)
    if not content:
        raise CannotReadError(f"{path} is empty or not a regular file.")
    if len(content) > most:
        raise CannotReadError(f"{path} is larger than the limit of {size(most)}.")
    return content


def _bytes_of_record(log: LogRecords, payload: Payload, most: int) -> bytes:
    """The payload of a record, whose MD5 torch wrote beside it. Raises
    CannotReadError."""
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
    """The log of a file, or all logs and folders of torch_compile_debug at and below a
    folder. `progress` is called with the number of files read and of all. Raises
    CannotReadError or NotATraceError if nothing can be read."""
    files = files_of(path)
    if files.is_empty:
        raise NotATraceError(why_empty(files))
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
    """The generated wrapper of a graph; None if the log does not hold it or it can no
    longer be read."""
    text = code_of(log, graph)
    return wrapper_of(text) if text else None


def code_of(log: CompileLog, graph: CompiledGraph) -> str:
    """The text of the generated wrapper; "" if there is none or it can no longer be
    read."""
    return _text_or_blank(log, graph.code)


@memo(WRAPPERS_KEPT)
def stacks_of(
    log: CompileLog, graph: CompiledGraph
) -> dict[str, tuple[tuple[CodeLine, ...], ...]]:
    """The stacks behind each kernel of a graph, by its handle (`cpp_fused_add_0:3`);
    each is outermost frame first. {} without provenance."""
    stacks: dict[str, tuple[tuple[CodeLine, ...], ...]] = {}
    for handle, texts in _table(_text_or_blank(log, graph.stack_traces)).items():
        if isinstance(texts, list):
            frames = [frames_in(text) for text in texts if isinstance(text, str)]
            stacks[handle] = tuple(stack for stack in frames if stack)
    return stacks


@memo(WRAPPERS_KEPT)
def nodes_of(log: CompileLog, graph: CompiledGraph) -> dict[str, tuple[str, ...]]:
    """The nodes of the graph after its passes that each kernel computes, by its handle.
    {} without provenance."""
    return _mapping(log, graph, "cppCodeToPost")


@memo(WRAPPERS_KEPT)
def dynamo_nodes_of(
    log: CompileLog, graph: CompiledGraph
) -> dict[str, tuple[str, ...]]:
    """The nodes of Dynamo's graph that each node after the passes comes from. {} without
    provenance."""
    return _mapping(log, graph, "postToPre")


def _mapping(
    log: CompileLog, graph: CompiledGraph, name: str
) -> dict[str, tuple[str, ...]]:
    """One of the mappings of nodes; what is no list of texts is left out."""
    mappings = _table(_text_or_blank(log, graph.node_mappings))
    return {
        key: tuple(text for text in texts if isinstance(text, str))
        for key, texts in _dict(mappings.get(name)).items()
        if isinstance(texts, list)
    }


@memo(WRAPPERS_KEPT)
def lines_of_dynamo_nodes(log: CompileLog, graph: CompiledGraph) -> dict[str, CodeLine]:
    """The line of Python of each node of Dynamo's graph, by the comment above it. {} if
    the log does not hold that graph."""
    lines: dict[str, CodeLine] = {}
    line: CodeLine | None = None
    for text in _text_or_blank(log, graph.dynamo_graph).split("\n"):
        comment = NODE_COMMENT.match(text)
        if comment:
            line = CodeLine(
                file=comment["file"],
                line=int(comment["line"]),
                function=comment["function"],
                code=comment["code"].strip()[:MAX_CODE_CHARS],
            )
            continue
        if text.lstrip().startswith("#"):
            line = None  # no stack trace was found for the following nodes
            continue
        node = NODE.match(text)
        if node and line is not None:
            lines.setdefault(node["name"], line)
    return lines


@memo(WRAPPERS_KEPT)
def graph_lines_of(log: CompileLog, graph: CompiledGraph) -> dict[str, str]:
    """The line of the graph after its passes that defines each node, by its name. {} if
    the log does not hold it."""
    lines: dict[str, str] = {}
    for line in _text_or_blank(log, graph.post_grad).split("\n"):
        name, equals, value = line.strip().partition(" = ")
        name = name.partition(":")[0].strip()
        if equals and name.isidentifier():
            lines.setdefault(name, f"{name} = {value.partition(';')[0].strip()}")
    return lines


@memo(WRAPPERS_KEPT)
def ops_of_dynamo_nodes(log: CompileLog, graph: CompiledGraph) -> dict[str, str]:
    """What each node of Dynamo's graph calls: `gelu` of `torch._C._nn.gelu(...)`, `sin`
    of `x.sin()`; `mul` of `h * y`; of anything else the name of the node without its number."""
    ops: dict[str, str] = {}
    for text in _text_or_blank(log, graph.dynamo_graph).split("\n"):
        node = NODE.match(text)
        if node is None:
            continue
        called = CALLED.match(text, node.end())
        sign = SIGN.search(text, node.end())
        if called:
            name = called["op"]
        elif sign:
            name = OP_OF_SIGN[sign["sign"]]
        else:
            name = NUMBER_OF_NODE.sub("", node["name"])
        ops.setdefault(node["name"], name)
    return ops


def _text_or_blank(log: CompileLog, payload: Payload | None) -> str:
    if payload is None:
        return ""
    try:
        return log.text(payload)
    except CannotReadError:
        return ""


def _table(text: str) -> dict[str, Any]:
    """The object of a JSON text; {} for anything else."""
    try:
        value = msgspec.json.decode(text.encode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError):
        return {}
    return _dict(value)


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _records_of(log: LogRecords, kind: str) -> list[int]:
    """The records of a kind, in their order."""
    if kind not in log.kinds:
        return []
    records: list[int] = np.flatnonzero(log.kind == log.kinds.index(kind)).tolist()
    return records


def _compile_id(log: LogRecords, record: int) -> CompileId | None:
    frame, compile_ = int(log.frame[record]), int(log.compile[record])
    if frame == UNKNOWN or compile_ == UNKNOWN:
        return None
    return CompileId(frame=frame, compile=compile_)


class _OpenGraph:
    """The records of a graph that its `fx_graph_cache_*` has not ended yet."""

    def __init__(self) -> None:
        self.record_of: dict[str, int] = {}  # by kind, see PARTS_OF_GRAPH

    @property
    def has_code(self) -> bool:
        return OUTPUT_CODE in self.record_of


PARTS_OF_GRAPH = (OUTPUT_CODE, STACK_TRACES, NODE_MAPPINGS, POST_GRAD)
"""The kinds of records before the one that ends a graph."""


class _GraphsOfLog:
    """Takes the records of a log in their order, and puts graphs together."""

    def __init__(self, number: int, log: LogRecords, first: int) -> None:
        """`first`: the number that the first graph gets."""
        self.graphs: list[CompiledGraph] = []
        self._number = number
        self._log = log
        self._first = first
        # by compile id, as frames may be compiled in turn
        self._open: dict[CompileId | None, _OpenGraph] = {}
        self._dynamo_graph: dict[CompileId | None, int] = {}  # of the last attempt

    def take(self, record: int, kind: str) -> None:
        compile_id = _compile_id(self._log, record)
        if kind.removeprefix(CACHE) in CACHE_OUTCOMES:
            self._end(compile_id, record)
        elif kind == DYNAMO_GRAPH:
            self._dynamo_graph[compile_id] = record
        elif kind in PARTS_OF_GRAPH:
            graph = self._open.setdefault(compile_id, _OpenGraph())
            if kind == OUTPUT_CODE and graph.has_code:  # its cache was off
                self._end(compile_id, UNKNOWN)
                graph = self._open.setdefault(compile_id, _OpenGraph())
            graph.record_of[kind] = record

    def end(self) -> None:
        """The log is over: graphs without a record of the cache have no key."""
        for compile_id in list(self._open):
            self._end(compile_id, UNKNOWN)

    def _end(self, compile_id: CompileId | None, cache_record: int) -> None:
        graph = self._open.pop(compile_id, None)
        if graph is None or not graph.has_code:
            return
        self.graphs.append(
            _graph(
                self._number,
                self._log,
                graph,
                cache_record,
                dynamo_graph=self._dynamo_graph.get(compile_id, UNKNOWN),
                number_of_graph=self._first + len(self.graphs),
            )
        )


def _graphs(number: int, log: LogRecords, first: int) -> list[CompiledGraph]:
    """The graphs of a log; `first`: the number that the first of them gets."""
    graphs = _GraphsOfLog(number, log, first)
    for record, kind in enumerate(log.kind.tolist()):
        graphs.take(record, log.kinds[kind])
    graphs.end()
    return graphs.graphs


def _graph(
    number: int,
    log: LogRecords,
    graph: _OpenGraph,
    cache_record: int,
    *,
    dynamo_graph: int,
    number_of_graph: int,
) -> CompiledGraph:
    """The graph of some records; UNKNOWN stands for a record that there is not."""

    def payload(record: int | None) -> Payload | None:
        if record is None or record == UNKNOWN:
            return None
        return Payload(log=number, record=record, digest=log.digests[record])

    key, cache = "", ""
    if cache_record != UNKNOWN:
        cache = log.kinds[int(log.kind[cache_record])].removeprefix(CACHE)
        key = _key_of(log, cache_record)
    code = graph.record_of[OUTPUT_CODE]
    header = _dict(log.header_json(code).get(OUTPUT_CODE))
    path = header.get("file_path") or header.get("filename") or ""
    return CompiledGraph(
        number=number_of_graph,
        log=number,
        rank=log.rank,
        compile_id=_compile_id(log, code),
        attempt=int(log.attempt[code]),
        key=key,
        cache=cache,
        wrapper_path=path if isinstance(path, str) else "",
        code=payload(code),
        stack_traces=payload(graph.record_of.get(STACK_TRACES)),
        node_mappings=payload(graph.record_of.get(NODE_MAPPINGS)),
        post_grad=payload(graph.record_of.get(POST_GRAD)),
        dynamo_graph=payload(dynamo_graph),
    )


def _key_of(log: LogRecords, record: int) -> str:
    """The `key` near the beginning of a payload; "" without one."""
    start = int(log.payload[record])
    end = min(int(log.end[record]), start + KEY_CHARS)
    match = KEY.search(log.document[start:end].decode("utf-8", "replace"))
    return match[1] if match else ""


def _graph_of_folder(folder: str, number: int) -> CompiledGraph:
    """The graph of a folder of torch_compile_debug, which names neither a compile id
    nor a key."""

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
    """Whether the wrapper of a graph is that of a backward pass, by its AOT id."""
    if graph.code is None or graph.code.folder:
        return False
    records = log.logs[graph.log]
    start = int(records.payload[graph.code.record])
    return b"_backward']" in records.document[start : start + 200]


def _failed_guards(log: LogRecords) -> dict[CompileId | None, tuple[FailedGuard, ...]]:
    """Why each frame was compiled again, the newest entry of the cache first."""
    guards: dict[CompileId | None, tuple[FailedGuard, ...]] = {}
    for record in _records_of(log, RECOMPILE_REASONS):
        guards[_compile_id(log, record)] = guards_in(log.text(record))
    return guards


def guards_in(text: str) -> tuple[FailedGuard, ...]:
    """The guards of a text of `recompile_reasons`, the newest entry of the cache first:
    one text, or a JSON list of several. What has no `0/1: ` before it is kept as it is.

    >>> guards_in("0/0: tensor 'x' size mismatch")
    (FailedGuard(entry='0/0', guard="tensor 'x' size mismatch"),)
    """
    texts: list[str] = []
    if text.lstrip().startswith("["):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, list):
            texts = [one for one in value if isinstance(one, str)]
    if not texts:
        texts = [text.strip()] if text.strip() else []
    guards = []
    for one in texts:
        match = GUARD_OF_ENTRY.match(one)
        if match:
            guards.append(
                FailedGuard(entry=match["entry"], guard=match["guard"].strip())
            )
        else:
            guards.append(FailedGuard(entry="", guard=one.split("\n")[0].strip()))
    guards.sort(key=_age)
    return tuple(guards)


def _age(guard: FailedGuard) -> int:
    """Smaller for a newer entry of the cache; those without a number come last."""
    number = guard.entry.rpartition("/")[2]
    return -int(number) if number.isdigit() else 1


def _compilation(
    number: int,
    log: LogRecords,
    record: int,
    fields: dict[str, Any],
    *,
    guards: tuple[FailedGuard, ...],
    cache: str,
) -> Compilation:
    failure = [
        text
        for text in (fields.get("fail_type"), fields.get("fail_reason"))
        if isinstance(text, str) and text
    ]
    reason = fields.get("recompile_reason")
    if not guards and isinstance(reason, str) and reason:
        guards = guards_in(reason)
    restarts = fields.get("restart_reasons")
    return Compilation(
        log=number,
        rank=log.rank,
        compile_id=_compile_id(log, record),
        is_backward=log.kinds[int(log.kind[record])] == BACKWARD_METRICS,
        function=_text_field(fields, "co_name"),
        file=_text_field(fields, "co_filename"),
        line=_int_field(fields, "co_firstlineno"),
        start_ns=_time_ns(fields, micros="start_time_us", seconds="start_time"),
        duration_ns=_time_ns(
            fields, micros="duration_us", seconds="entire_frame_compile_time_s"
        ),
        inductor_ns=_time_ns(
            fields,
            micros="inductor_cumulative_compile_time_us",
            seconds="inductor_compile_time_s",
        ),
        guards=guards,
        failure=": ".join(failure),
        cache=cache,
        restarts=len(restarts) if isinstance(restarts, list) else 0,
    )


def _text_field(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _int_field(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name)
    return value if type(value) is int and 0 <= value < 1 << 31 else 0


def _time_ns(fields: dict[str, Any], *, micros: str, seconds: str) -> int:
    """A time in ns, from a field in microseconds or else one in seconds; 0 without
    either."""
    for name, factor in ((micros, NS_PER_US), (seconds, NS_PER_S)):
        value = fields.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            ns = value * factor
            if 0 < ns < MAX_TIME_NS:
                return int(ns)
    return 0


def _break(number: int, log: LogRecords, record: int) -> GraphBreak:
    text = log.text(record)
    place = BROKE_AT.search(text)
    explanation = EXPLANATION.search(text)
    hints = dict.fromkeys(match["text"].strip() for match in HINT.finditer(text))
    stack = USER_STACK.search(text)
    return GraphBreak(
        log=number,
        rank=log.rank,
        compile_id=_compile_id(log, record),
        file=place["file"] if place else "",
        line=int(place["line"]) if place else 0,
        reason=_reason(text),
        explanation=explanation["text"].strip() if explanation else "",
        hints=tuple(hints),
        stack=frames_in(stack["stack"]) if stack else (),
        payload=Payload(log=number, record=record, digest=log.digests[record]),
    )


def _reason(text: str) -> str:
    """What is unsupported: the paragraph after the line with the reason, or that line
    itself where nothing follows it."""
    reason = REASON.search(text)
    if reason is None:
        return text.strip().split("\n")[0]
    following = text[reason.end() :].lstrip("\n").split("\n")[0].strip()
    if following and not following.startswith(("User code", "Explanation")):
        return following
    return str(reason["reason"]).strip()
