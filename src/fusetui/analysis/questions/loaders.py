"""Finds where a program takes batches from a data loader, and how long it may have
waited."""

from __future__ import annotations

import numpy as np

from fusetui.text.patterns import lazy_pattern
from fusetui.trace.model.arrays import Int64s, Rows, distinct
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.memo import memo

LOADER = lazy_pattern(
    r"enumerate\(DataLoader\)|\bDataLoader\w*\.__next__"
    r"|torch/utils/data/dataloader\.py\(\d+\): __next__"
)
"""What torch/utils/data/dataloader.py is recorded as; in 2021 the annotation was an
op."""
WORKERS = lazy_pattern(r"MultiProcessing")
"""Part of the name of the iterator whose batches come from other processes."""
AT_ONCE_NS = 1_000_000
"""The longest time (ns) that the shortest call for a batch may take if it is to show
what a call takes whose batch is ready. Where all calls take longer, that is not
known."""


@memo()
def loader_rows(trace: Trace) -> Rows:
    """The slices in which a batch is fetched, on any thread."""
    return trace.rows_named(LOADER.search, Role.ANNOTATION, Role.OP, Role.PYTHON)


def worker_rows(trace: Trace) -> Rows:
    """The slices in which a batch is asked for that workers load, on any thread."""
    rows = loader_rows(trace)
    return rows[trace.matching(rows, WORKERS.search)]


def waits_for_batches(trace: Trace, rows: Rows) -> Int64s:
    """How long each call for a batch may have waited (ns): what it took beyond the
    shortest call of its thread, which returned at once. Where even that took longer
    than AT_ONCE_NS, all of it."""
    waited = np.zeros(len(rows), dtype=np.int64)
    thread = trace.thread_of_track[trace.track[rows]]
    lasted = trace.end[rows] - trace.start[rows]
    for number in distinct(thread).tolist():
        calls = np.flatnonzero(thread == number)
        shortest_ns = int(lasted[calls].min())
        is_at_once = shortest_ns <= AT_ONCE_NS
        waited[calls] = lasted[calls] - (shortest_ns if is_at_once else 0)
    return waited
