"""From traces to the sides of a session: the origin of each, and what it shows first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from fusetui.analysis.diff.model import Diff, Row
from fusetui.text.urls import without_credentials
from fusetui.trace.layout.steps import steps_of
from fusetui.trace.model.columns import Trace
from fusetui.tui.layout.lanes import lanes_of
from fusetui.tui.layout.view import Side, View, first_view

Views = tuple[View, ...]


def make_sides(traces: Sequence[Trace], labels: Sequence[str]) -> tuple[Side, ...]:
    """One side counts from the start of its trace; several are aligned at their first steps."""
    together = len(traces) > 1
    return tuple(
        Side(trace, lanes_of(trace), _step_start(trace) if together else trace.begin_ns, label)
        for trace, label in zip(traces, labels, strict=True)
    )


def aligned(sides: Sequence[Side], diff: Diff) -> tuple[Side, ...]:
    """The sides with zero at the start of the steps that the diff compares."""
    pairs = ([row for r in diff.rows for row in rows(r)] for rows in (_rows_a, _rows_b))
    return tuple(_aligned(side, rows) for side, rows in zip(sides, pairs, strict=True))


def first_views(sides: Sequence[Side]) -> Views:
    """The whole trace; for several, the longest first step, from a little before it."""
    if len(sides) == 1:
        return (first_view(sides[0]),)
    longest = max(_step_length(side) for side in sides)
    return tuple(first_view(side, -longest // 20, longest + longest // 20) for side in sides)


def _rows_a(row: Row) -> Sequence[int]:
    return row.a_rows


def _rows_b(row: Row) -> Sequence[int]:
    return row.b_rows


def _aligned(side: Side, rows: Sequence[int]) -> Side:
    """Zero at the step during which the first of these rows was launched or ran."""
    if not rows:
        return side
    first = min(rows, key=lambda row: int(side.trace.start[row]))
    launch = int(side.trace.launch[first])
    time = int(side.trace.start[launch if launch >= 0 else first])
    steps = steps_of(side.trace)
    begins = steps.start[(steps.start <= time) & (time <= steps.end)].tolist()
    return replace(side, origin=begins[0] if begins else time)


def _step_start(trace: Trace) -> int:
    steps = steps_of(trace)
    return int(steps.start[0]) if len(steps) else trace.begin_ns


def _step_length(side: Side) -> int:
    steps = steps_of(side.trace)
    return int(steps.dur[0]) if len(steps) else side.end - side.begin


def short_label(path: str) -> str:
    """`runs/mlp/eager.json.gz` -> `mlp/eager`."""
    name = Path(without_credentials(path)).name
    for suffix in (".gz", ".zst", ".json", ".trace", ".pt"):
        name = name.removesuffix(suffix)
    return name
