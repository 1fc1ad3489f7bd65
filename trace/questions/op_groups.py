"""CPU ops grouped by name, or by name with the shapes and types of their inputs."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.questions.inputs import input_keys
from fusetui.trace.questions.spread import Spread, grouped, spreads
from fusetui.trace.questions.totals import gpu_under, inside_same_name, self_ns
from fusetui.trace.roofline.many import distinct_rows, inputs_of_ops

GROUPINGS = ("name", "shape")


class OpGroup(msgspec.Struct, frozen=True):
    """CPU ops of one group. An op inside another one of its group adds only to the spread, its
    count, and self.

    `fields` have the name, and by shape also `shapes` and `dtypes`, as in `ops --json`.
    """

    fields: dict[str, Any]
    spread: Spread  # of each call
    total_ns: int
    self_ns: int
    gpu_ns: int  # of the GPU events launched under it
    kernels: int


def op_groups(trace: Trace, by: str = "name") -> tuple[OpGroup, ...]:
    """All CPU ops grouped by one of GROUPINGS, the largest total first."""
    rows = trace.rows_of(Role.OP)
    if not len(rows):
        return ()
    name = trace.name[rows]
    if by == "shape":
        given = input_keys(inputs_of_ops(trace, rows))
        first, number = distinct_rows((name, given.number))
    else:
        first, number = distinct_rows((name,))
    groups = grouped(number, trace.start[rows])
    outer = ~inside_same_name(trace, rows)
    gpu_ns, kernels = gpu_under(trace)
    columns = zip(
        spreads(number, trace.dur[rows]),
        groups.sums(np.where(outer, trace.dur[rows], 0)).tolist(),
        groups.sums(self_ns(trace)[rows]).tolist(),
        groups.sums(np.where(outer, gpu_ns[rows], 0)).tolist(),
        groups.sums(np.where(outer, kernels[rows], 0)).tolist(),
        strict=True,
    )
    found = []
    for place, (spread, *sums) in zip(first.tolist(), columns, strict=True):
        shapes = given.fields(int(given.number[place])) if by == "shape" else {}
        fields = {"name": trace.name_of(int(rows[place])), **shapes}
        found.append(OpGroup(fields, spread, *sums))
    return tuple(sorted(found, key=lambda op: (-op.total_ns, str(list(op.fields.values())))))
