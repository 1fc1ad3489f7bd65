"""What a reader gives: the slices of a file in file order, before tracks, nesting and links."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.events import Events
from fusetui.trace.model.ids import Id
from fusetui.trace.model.report import Prefix, Skipped

Thread = tuple[Id, Id]
Lane = tuple[Id, Id, int | None]
"""pid, tid and, of a GPU event, the number of its device (`args.device`), if it says so."""


class Label(msgspec.Struct, frozen=True):
    """One metadata event (ph M): the name of a process or thread."""

    kind: str  # process_name, process_labels, thread_name, ...
    pid: Id
    tid: Id
    value: Any


class Raw(msgspec.Struct, frozen=True, eq=False):
    """Arrays have shape [slices]."""

    path: str
    bytes: int  # of the file as stored
    cut: str | None  # how a compressed file ended too early
    elements: Events
    phases: Counter[str]
    names: tuple[str, ...]
    categories: tuple[str, ...]
    threads: tuple[Lane, ...]
    labels: tuple[Label, ...]
    start: NDArray[np.int64]  # ns
    dur: NDArray[np.int64]  # ns, never negative
    name: NDArray[np.int32]
    category: NDArray[np.int32]
    thread: NDArray[np.int32]
    correlation: NDArray[np.int64]
    external_id: NDArray[np.int64]
    order: NDArray[np.int64]  # index in traceEvents
    keys: dict[str, Any]  # the other top-level keys
    events: int
    unreadable: int  # elements
    skipped: tuple[Skipped, ...]  # the first ones
    complete: bool
    too_damaged: int  # the byte at which reading stopped because of damage, or -1
    prefix: Prefix | None  # what was read, if it was not read to its end
    negative: int  # durations below zero, shown as zero
    unfinished: int  # begin events (ph B, b, S) without an end
    unmatched: int  # end events without a begin
    changed: bool = False  # the file changed while it was read
    format: str = "json"  # see formats.py
    left_out: dict[str, int] = {}  # see Report
    remarks: tuple[str, ...] = ()
