"""CPU ops grouped by name, or by name with the shapes and types of their inputs."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from fusetui.analysis.questions.totals import Spread, grouped, op_sums, spreads
from fusetui.gpu.roofline.inputs import type_of
from fusetui.gpu.roofline.many import distinct_rows, inputs_of_ops
from fusetui.trace.model.arguments import Arguments, parsed
from fusetui.trace.model.arrays import Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import exact_id

GROUPINGS = ("name", "shape")
TIMES = ("total_ns", "mean_ns", "min_ns", "p10_ns", "median_ns", "p90_ns", "max_ns")


class OpGroup(msgspec.Struct, frozen=True):
    """CPU ops of one group. An op inside another one of its group adds only to the spread, its
    count, and self.

    `fields` have the name, and by shape also `shapes` and `dtypes`, as in `ops --json`; and
    `captured` for the ops of a capture, whose count is that of the capture.
    """

    fields: dict[str, Any]
    spread: Spread  # of each call
    total_ns: int
    self_ns: int
    gpu_ns: int  # of the GPU events launched under it
    kernels: int


def op_groups(trace: Trace, by: str = "name") -> tuple[OpGroup, ...]:
    """All CPU ops grouped by one of GROUPINGS, the largest total first; then those that were
    captured and launched replayed kernels."""
    recorded = _groups(trace, by, trace.rows_of(Role.OP))
    taken = np.flatnonzero((trace.role == Role.CAPTURED) & (trace.source_role == Role.OP))
    captured = [_as_captured(group) for group in _groups(trace, by, taken) if group.gpu_ns]
    recorded.sort(key=lambda op: (-op.total_ns, str(list(op.fields.values()))))
    captured.sort(key=lambda op: (-op.gpu_ns, str(list(op.fields.values()))))
    return (*recorded, *captured)


def _as_captured(group: OpGroup) -> OpGroup:
    """Ops of a capture: their times are not of this trace, but those of their kernels are."""
    spread = replace(group.spread, **dict.fromkeys(TIMES, 0))
    fields = {**group.fields, "captured": True}
    return replace(group, fields=fields, spread=spread, total_ns=0, self_ns=0)


def _groups(trace: Trace, by: str, rows: Rows) -> list[OpGroup]:
    if not len(rows):
        return []
    given = input_keys(inputs_of_ops(trace, rows)) if by == "shape" else None
    keys = (trace.name[rows], *([given.number] if given else []))
    first, number = distinct_rows(keys)
    groups = grouped(number, trace.start[rows])
    columns = zip(
        first, spreads(number, trace.dur[rows]), op_sums(trace, rows, groups), strict=True
    )
    found = []
    for place, spread, sums in columns:
        shapes = given.fields(int(given.number[place])) if given else {}
        fields = {"name": trace.name_of(int(rows[place])), **shapes}
        found.append(OpGroup(fields, spread, *sums))
    return found


DEEPEST = 4  # levels of lists: the inputs, a list of tensors, a shape


class InputKeys(msgspec.Struct, frozen=True, eq=False):
    """`number[n]` is the index in `distinct` of the shapes and types of the inputs of op n.

    -1 if nothing was recorded. Each of `distinct` is the texts of `Input Dims` and `Input type`.
    """

    number: NDArray[np.int32]
    distinct: tuple[tuple[bytes, bytes], ...]

    def fields(self, number: int) -> dict[str, Any]:
        """`shapes` and `dtypes` as in JSON: lists, None if nothing was recorded."""
        if number < 0:
            return {"shapes": None, "dtypes": None}
        dims, types = (
            _plain(value) if isinstance(value, list) else None
            for value in map(parsed, self.distinct[number])
        )
        # our names of element types; other words, such as `Scalar`, unchanged
        words = types and [(type_of(w) or w) if isinstance(w, str) else w for w in types]
        return {"shapes": dims, "dtypes": words}


def input_keys(found: Arguments) -> InputKeys:
    """Ops with equal dims and types get equal numbers; strides and values do not matter.

    The args are those of `many.INPUTS`.
    """
    numbers: dict[tuple[bytes, bytes], int] = {}
    of_args = np.full(len(found.distinct) + 1, -1, dtype=np.int32)  # the last element is that of -1
    for number, texts in enumerate(found.distinct):
        dims, types, *_ = texts
        if dims or types:
            of_args[number] = numbers.setdefault((dims, types), len(numbers))
    return InputKeys(of_args[found.number], tuple(numbers))


def _plain(value: Any, levels: int = DEEPEST) -> Any:
    """Integers that a double cannot represent as text; None for anything nested deeper than lists
    of tensors."""
    if isinstance(value, list):
        return [_plain(inner, levels - 1) for inner in value] if levels else None
    if isinstance(value, int):
        return exact_id(value)
    return value if isinstance(value, str | float) else None
