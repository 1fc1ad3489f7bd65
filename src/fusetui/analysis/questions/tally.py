"""The number of kernels of each kind in a step; without a GPU, of CPU ops that compute."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np

from fusetui.analysis.questions.computing import computing_ops
from fusetui.gpu.kinds import kinds_of
from fusetui.trace.layout.steps import labels_of, launched_in_steps, steps_of
from fusetui.trace.model.arrays import Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace


class Tallies(msgspec.Struct, frozen=True):
    """How often each kind occurs: per step, or once for a trace without steps."""

    steps: tuple[str, ...]
    on_gpu: bool  # otherwise CPU ops are counted
    tallies: tuple[Counter[str], ...]

    def found(self, kind: str) -> tuple[int, ...]:
        """The count of a kind in each step."""
        return tuple(tally[kind] for tally in self.tallies)

    def per_step(self, kind: str) -> float:
        """The mean over the steps, rounded to two digits; an integer if all are equal."""
        found = self.found(kind)
        total, steps = sum(found), max(len(found), 1)
        return total // steps if total % steps == 0 else round(total / steps, 2)

    def first(self, count: int) -> Tallies:
        """Only the first `count` steps."""
        return Tallies(self.steps[:count], self.on_gpu, self.tallies[:count])


def tallies(trace: Trace) -> Tallies:
    """Counts every step of a trace.

    Kernels, memcpys and memsets belong to the step that launched them, CPU ops (those of
    `computing_ops`) to the one in which they start.
    """
    steps, rows = steps_of(trace), trace.gpu_rows
    groups, on_gpu = launched_in_steps(trace), len(rows) > 0
    if not on_gpu:
        rows = computing_ops(trace)
        rows = rows[np.argsort(trace.start[rows], kind="stable")]
        groups = tuple(rows[own] for own in steps.slices_of(trace.start[rows]))
    counted = tuple(_tally(trace, own) for own in groups or [rows])
    return Tallies(tuple(labels_of(steps.names)), on_gpu, counted)


def _tally(trace: Trace, rows: Rows) -> Counter[str]:
    names = np.stack([trace.name[rows], trace.role[rows]])
    kinds, counts = np.unique(names, axis=1, return_counts=True)
    tally: Counter[str] = Counter()
    for name, role, count in zip(*kinds.tolist(), counts.tolist(), strict=True):
        for kind in kinds_of(Role(role), trace.names[name]):
            tally[kind] += count
    return tally
