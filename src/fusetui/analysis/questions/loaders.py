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
MAX_READY_CALL_NS = 1_000_000
"""A call for a batch that takes longer than this has waited for it. A shorter one shows
how long a call takes whose batch is ready."""


@memo()
def find_loader_calls(trace: Trace) -> Rows:
    """Return the slices in which a program takes a batch from a data loader.

    They are on any thread, ascending.
    """
    return trace.rows_named(LOADER.search, Role.ANNOTATION, Role.OP, Role.PYTHON)


def find_worker_loader_calls(trace: Trace) -> Rows:
    """Return those calls for the next batch of a data loader whose batch is loaded by
    worker processes."""
    rows = find_loader_calls(trace)
    return rows[trace.matching(rows, WORKERS.search)]


def estimate_batch_waits(trace: Trace, rows: Rows) -> Int64s:
    """Return for how long each call for a batch may have waited.

    That is what it took beyond the shortest call of its thread, whose batch was ready:
    calls of 0.2, 0.3 and 5 ms waited for 0, 0.1 and 4.8 ms. If even the shortest call
    took longer than MAX_READY_CALL_NS (1 ms), no batch was ready, and each call counts
    as a whole.

    Args:
        trace: The trace.
        rows: The calls.

    Returns:
        ns for each of `rows`.
    """
    waited_ns = np.zeros(len(rows), dtype=np.int64)
    thread = trace.thread_of_track[trace.track[rows]]
    lasted_ns = trace.end[rows] - trace.start[rows]
    for number in distinct(thread).tolist():
        calls = np.flatnonzero(thread == number)
        shortest_ns = int(lasted_ns[calls].min())
        was_ready = shortest_ns <= MAX_READY_CALL_NS
        call_takes_ns = shortest_ns if was_ready else 0
        waited_ns[calls] = lasted_ns[calls] - call_takes_ns
    return waited_ns
