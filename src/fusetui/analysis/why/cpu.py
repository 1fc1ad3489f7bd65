"""The account of the CPU threads: what each did between its first and last slice."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.collectives import ON_CPU
from fusetui.analysis.why.account import Accounts
from fusetui.analysis.why.host import Host, Threads, named
from fusetui.analysis.why.model import ThreadAccount
from fusetui.trace.model.categories import CPU_LAYERS
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import exact_id
from fusetui.trace.model.intervals import NOTHING, Cover, common, innermost, union

Int64s = NDArray[np.int64]
Rows = NDArray[np.intp]

WAITS = re.compile(
    r"<built-in (?:method|function) (?:acquire|sleep|select|poll|wait\w*|recv\w*|accept)\b"
    r"|<method '(?:acquire|poll|wait\w*|recv\w*|accept)' of"
)
"""Frames of functions that wait for a lock, a time, a process or a socket."""


def cpu_accounts(
    accounts: Accounts, window: tuple[int, int] | None = None
) -> tuple[ThreadAccount, ...]:
    """Each thread in the order of the lanes; if there is a window [begin, end), in ns of the file,
    only its part."""
    found = [one for line in accounts.threads for one in _of_line(accounts, line, window)]
    order = sorted(found, key=lambda one: one[0])
    return tuple(account for _, account in order)


def _of_line(
    accounts: Accounts, line: Threads, window: tuple[int, int] | None
) -> list[tuple[int, ThreadAccount]]:
    trace = accounts.trace
    track, begin, end = _from_first_to_last(trace, line)
    if window is not None:
        begin, end = np.clip(begin, *window), np.clip(end, *window)
    first, last = line.on_line(track, begin), line.on_line(track, end)
    split = line.split(first, last)
    waits = common(line.covers[Host.PYTHON], _waiting_frames(trace, line)).within(first, last)
    inside = common(line.covers[Host.ANNOTATION], _collectives(trace, line)).within(first, last)
    op = split[Host.ALLOC] + split[Host.CALL] + split[Host.OP]
    found: list[tuple[int, ThreadAccount]] = []
    noted, waited = split[Host.ANNOTATION] - inside, split[Host.SYNC] + waits + inside
    columns = (track, end - begin, op, split[Host.PYTHON] - waits, waited)
    rest = (noted + split[Host.NOTHING], noted, inside)
    for at, span, work, python, wait, nothing, only_noted, collective in zip(
        *(column.tolist() for column in (*columns, *rest)), strict=True
    ):
        own = trace.tracks[at]
        account = ThreadAccount(
            process=exact_id(own.pid),
            thread=exact_id(own.tid),
            label=own.label,
            span_ns=span,
            op_ns=work,
            python_ns=python,
            wait_ns=wait,
            nothing_ns=nothing,
            annotation_ns=only_noted,
            collective_ns=collective,
        )
        found.append((at, account))
    return found


def _from_first_to_last(trace: Trace, line: Threads) -> tuple[Rows, Int64s, Int64s]:
    """The first track, first start and last end (ns) of each thread."""
    firsts = np.array([track.first_row for track in trace.tracks])
    ends = np.maximum.reduceat(trace.end, firsts)
    on_cpu = np.array([track.layer in CPU_LAYERS for track in trace.tracks])
    tracks = np.flatnonzero(line.tracks & on_cpu)
    thread = trace.thread_of_track[tracks]
    _, first, own = np.unique(thread, return_index=True, return_inverse=True)
    begin = np.full(len(first), np.iinfo(np.int64).max)
    end = np.full(len(first), np.iinfo(np.int64).min)
    np.minimum.at(begin, own, trace.start[firsts[tracks]])
    np.maximum.at(end, own, ends[tracks])
    return tracks[first], begin, end


def _collectives(trace: Trace, line: Threads) -> Cover:
    """The time in which a collective runs on the CPU: an annotation that lasts until it is done."""
    marks, start, end = line.slices(Host.ANNOTATION).columns
    own = named(trace, marks, lambda name: ON_CPU.match(name) is not None) > 0
    which = own[trace.name[marks]]
    return union(start[which], end[which])


def _waiting_frames(trace: Trace, line: Threads) -> Cover:
    """The time in which the innermost frame is that of a function that waits."""
    frames, start, end = line.slices(Host.PYTHON).columns
    by_name = named(trace, frames, lambda name: WAITS.search(name) is not None) > 0
    waits = by_name[trace.name[frames]]
    if not waits.any():
        return NOTHING
    found = union(start[waits], end[waits])
    at = found.start.searchsorted(start, side="right") - 1
    within = (at >= 0) & (start < found.end[at])  # these frames, and what they call
    times, inner = innermost(start[within], end[within])
    waiting = np.append(waits[within], False)[inner][:-1]  # the last stands for none
    return union(times[:-1][waiting], times[1:][waiting])
