"""How often each kind of kernel occurs, or of CPU op that computes in traces without a GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from fusetui.capture.expect import kinds
from fusetui.trace import Trace
from fusetui.trace.categories import Role
from fusetui.trace.diff.work import working_names, working_ops
from fusetui.trace.steps import Step, steps


class Tallies(msgspec.Struct, frozen=True):
    """How often each kind occurs: per step, or once for a trace without steps."""

    steps: tuple[str, ...]
    on_gpu: bool
    tallies: tuple[Counter[str], ...]


def tallies(trace: Trace) -> Tallies:
    """Counts every step of a trace; GPU work belongs to the step that launched it."""
    found = steps(trace)
    on_gpu = len(trace.gpu_rows) > 0
    if on_gpu:
        groups = [step.gpu_rows.tolist() for step in found] or [trace.gpu_rows.tolist()]
    else:
        groups = _computing(trace, found)
    counted = tuple(_tally(trace, rows) for rows in groups)
    return Tallies(tuple(step.name for step in found), on_gpu, counted)


def kinds_of(trace: Trace, row: int) -> frozenset[str]:
    """Everything that a GPU event or a CPU op counts as."""
    role = trace.role[row]
    if role in (Role.COPY, Role.SET):
        return frozenset({"memcpy" if role == Role.COPY else "memset"})
    return kinds(trace.name_of(row)) | {"kernels"}


def _computing(trace: Trace, found: Sequence[Step]) -> list[list[int]]:
    """The CPU ops that compute something, by the step in which they start."""
    rows = working_ops(trace, working_names([trace]))
    if not found:
        return [rows.tolist()]
    rows = rows[np.argsort(trace.start[rows], kind="stable")]
    edges = [np.searchsorted(trace.start[rows], (s.start_ns, s.start_ns + s.dur_ns)) for s in found]
    return [rows[first:last].tolist() for first, last in edges]


def _tally(trace: Trace, rows: Sequence[int]) -> Counter[str]:
    tally: Counter[str] = Counter()
    for row in rows:
        tally.update(kinds_of(trace, row))
    return tally
