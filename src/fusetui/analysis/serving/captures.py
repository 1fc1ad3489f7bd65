"""The graphs that a trace captures: the calls between the begin and the end of a stream capture.

Every one of them becomes a node of the graph instead of running: a call in between that launched a
GPU event belongs to another stream.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.computing import within
from fusetui.analysis.questions.launches import GRAPH, LAUNCHES, LONGEST_NAME
from fusetui.trace.model.arguments import arguments, parsed
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.memo import memo

Rows = NDArray[np.intp]

BEGIN = re.compile(r"StreamBeginCapture")
END = re.compile(r"StreamEndCapture")
MOVES = re.compile(r"Memcpy|Memset")
FORKS = re.compile(r"StreamWaitEvent")
SIZE = re.compile(r"(?:[a-z]{1,40}_)?capture_(\d{1,9})(?:_([A-Za-z_]{1,40}))?\Z")
"""The annotation of a server around a capture: capture_32_DECODE (SGLang), capture_32_FULL and
capture_32_PIECEWISE (vLLM), capture_32_decode (ATOM)."""

KERNEL = ("kernel",)  # HIP's calls record the name of the kernel that they launch


class Capture(msgspec.Struct, frozen=True, eq=False):
    """One graph. `kernels`: for each call the name of its kernel, "" where it is not recorded."""

    begin: int  # row of the call that begins it
    calls: Rows  # rows of the calls that became nodes, in order
    kernels: tuple[str, ...]
    size: int | None  # requests or tokens that it is for, as an annotation around it says
    mode: str = ""  # as that annotation says
    forks: bool = False  # streams wait for each other in it

    def __len__(self) -> int:
        return len(self.calls)


class Captures(msgspec.Struct, frozen=True, eq=False):
    """The captures of a trace in order, and how many begin in it without an end."""

    whole: tuple[Capture, ...]
    cut: int


def has_captures(trace: Trace) -> bool:
    """Whether a capture begins in this trace; looks at names only."""
    return any(BEGIN.search(name, 0, LONGEST_NAME) for name in trace.names)


@memo()
def captures(trace: Trace) -> Captures:
    """The captures of all threads. Reads the args of their calls."""
    begins, ends = (_calls(trace, pattern) for pattern in (BEGIN, END))
    spans = _spans(trace, begins, ends)
    calls = _nodes(trace)
    own = [_between(trace, calls, begin, end) for begin, end in spans]
    waits = trace.start[_calls(trace, FORKS)]
    every = np.concatenate([np.empty(0, np.intp), *own])
    names = _kernels(trace, every)
    found, at = [], 0
    for (begin, end), rows in zip(spans, own, strict=True):
        size, mode = _size(trace, begin)
        first, last = np.searchsorted(waits, (trace.start[begin], trace.start[end]))
        found.append(
            Capture(begin, rows, tuple(names[at : at + len(rows)]), size, mode, bool(last > first))
        )
        at += len(rows)
    return Captures(tuple(found), len(begins) - len(spans))


def _calls(trace: Trace, pattern: re.Pattern[str]) -> Rows:
    """Calls of a matching name in order of time; of nested ones (CUDA's runtime calls the driver)
    the outer one."""
    return _outer(trace, lambda name: pattern.search(name, 0, LONGEST_NAME) is not None)


def _outer(trace: Trace, tells: Callable[[str], bool]) -> Rows:
    """Calls of such a name in order of time, without those within one. Of a capture with Python
    most names are those of frames: only the names of calls are looked at."""
    rows = np.flatnonzero(trace.role == Role.CALL)
    used, which = np.unique(trace.name[rows], return_inverse=True)
    told = np.array([tells(trace.names[name]) for name in used.tolist()] or [False])
    rows = rows[told[which.reshape(-1)]] if len(rows) else rows
    rows = rows[~within(trace, rows)[rows]]
    return rows[np.argsort(trace.start[rows], kind="stable")]


def _spans(trace: Trace, begins: Rows, ends: Rows) -> list[tuple[int, int]]:
    """Each begin with the next end on its thread, unless another begin comes first."""
    thread = trace.thread_of_track[trace.track]
    waiting: dict[int, int] = {}
    found = []
    both = np.concatenate((begins, ends))
    opens = np.repeat([True, False], (len(begins), len(ends)))
    order = np.argsort(trace.start[both], kind="stable")
    for row, is_begin in zip(both[order].tolist(), opens[order].tolist(), strict=True):
        if is_begin:
            waiting[int(thread[row])] = row
        elif (begin := waiting.pop(int(thread[row]), -1)) >= 0:
            found.append((begin, row))
    return sorted(found, key=lambda span: int(trace.start[span[0]]))


def _nodes(trace: Trace) -> Rows:
    """Calls that launch, copy or set, and launched no GPU event; of nested ones the outer one."""
    rows = _outer(trace, _makes_a_node)
    launch = trace.launch[trace.gpu_rows]
    ran = np.bincount(launch[launch >= 0], minlength=len(trace)) > 0
    return rows[~ran[rows]]


def _makes_a_node(name: str) -> bool:
    if GRAPH.search(name, 0, LONGEST_NAME):
        return False
    return any(one.search(name, 0, LONGEST_NAME) for one in (LAUNCHES, MOVES))


def _between(trace: Trace, calls: Rows, begin: int, end: int) -> Rows:
    """Those of the thread that captures; if it has none, of all."""
    first, last = np.searchsorted(trace.start[calls], (trace.end[begin], trace.start[end]))
    rows = calls[first:last]
    thread = trace.thread_of_track[trace.track[rows]]
    found: Rows = rows[thread == trace.thread_of_track[trace.track[begin]]]
    return found if len(found) else rows


def _kernels(trace: Trace, calls: Rows) -> list[str]:
    """The name of the kernel that each call launches, "" where it is not recorded."""
    if not any(trace.names[n].startswith("hip") for n in np.unique(trace.name[calls]).tolist()):
        return [""] * len(calls)  # CUDA's calls have no such arg
    found = arguments(trace.elements, trace.order[calls], KERNEL, keep_as="captured")
    distinct = [parsed(texts[0]) for texts in found.distinct]
    names = [name if isinstance(name, str) else "" for name in distinct]
    return [names[number] if number >= 0 else "" for number in found.number.tolist()]


def _size(trace: Trace, begin: int) -> tuple[int | None, str]:
    """The number and the mode in the innermost annotation around a row that says what it
    captures."""
    rows = trace.rows_of(Role.ANNOTATION)
    time = trace.start[begin]
    rows = rows[(trace.start[rows] <= time) & (time < trace.end[rows])]
    for row in rows[np.argsort(-trace.start[rows], kind="stable")].tolist():
        if found := SIZE.match(trace.name_of(row)[:LONGEST_NAME]):
            return int(found[1]), (found[2] or "").upper()
    return None, ""
