"""The trace as it would have been recorded with a change, against what `whatif` says of
it."""

from __future__ import annotations

import numpy as np
import pytest

from fusetui.analysis.replay.predicted import predict_slices
from fusetui.analysis.replay.whatif import whatif
from fusetui.sample_traces import lessons
from fusetui.trace import Trace, open_trace
from fusetui.trace.model.categories import GPU_ROLES, Layer, Role

LESSON = str(lessons.path("mlp-eager"))


def ends_of_steps(trace: Trace, recorded: Trace) -> list[int]:
    """When each annotated step has ended, and all that was launched in it, as recorded,
    too."""
    steps = [
        row
        for row in range(len(recorded))
        if recorded.role[row] == Role.ANNOTATION
        and recorded.name_of(row).startswith("ProfilerStep#")
    ]
    calls = {int(order): row for row, order in enumerate(recorded.order)}
    ends: list[int] = []
    for step in sorted(steps, key=lambda row: int(recorded.start[row])):
        order, began, ended = (
            recorded.order[step],
            recorded.start[step],
            recorded.end[step],
        )
        found = [int(trace.end[trace.order == order][0])]
        for row in range(len(trace)):
            launch = int(trace.launch[row])
            if trace.role[row] in GPU_ROLES and launch >= 0:
                call = int(recorded.start[calls[int(trace.order[launch])]])
                if began <= call < ended:
                    found.append(int(trace.end[row]))
        ends.append(max([*found, *ends[-1:]]))
    return ends


CHANGES = (
    "family:gemm x0.5",
    "kernel:gemm x3",
    "op:aten::gelu x0",
    "python x0.5",
    "graph",
)


@pytest.mark.parametrize("change", CHANGES)
def test_steps_of_the_predicted_trace_end_when_whatif_says(change: str) -> None:
    trace = open_trace(LESSON)
    found = predict_slices(trace, [change])
    ends = ends_of_steps(found.make_trace(trace), trace)
    told = [step.after_ns for step in whatif(trace, [change]).steps]
    assert np.diff(ends).tolist() == told[1:]
    assert np.diff(found.bounds[1]).tolist() == told


def test_a_halved_kernel_is_drawn_half_as_long_and_a_removed_op_not_at_all() -> None:
    trace = open_trace(LESSON)
    kernels = [
        r for r in trace.rows_of(Role.KERNEL).tolist() if "gemm" in trace.name_of(r)
    ]
    found = predict_slices(trace, ["kernel:gemm x0.5"])
    place = found.find_predicted_rows(trace)[kernels]
    assert np.abs(2 * found.dur[place] - trace.dur[kernels]).max() <= 1
    without = predict_slices(trace, ["op:aten::linear x0"])
    left = without.make_trace(trace)
    names = {left.name_of(row) for row in range(len(left))}
    assert "aten::gelu" in names
    assert not {"aten::linear", *(trace.name_of(row) for row in kernels)} & names


@pytest.mark.parametrize(
    "change", ["kernel:gemm x0.1", "python x0.2", "op:aten::mul x0"]
)
def test_slices_nest_and_those_of_a_stream_do_not_overlap(change: str) -> None:
    trace = open_trace(LESSON)
    found = predict_slices(trace, [change]).make_trace(trace)
    inner = np.flatnonzero(found.parent >= 0)
    assert len(inner)
    assert (found.start[inner] >= found.start[found.parent[inner]]).all()
    assert (found.end[inner] <= found.end[found.parent[inner]]).all()
    for track in found.tracks:
        start, end = found.start[track.rows], found.end[track.rows]
        assert (np.diff(start) >= 0).all()
        if track.layer is Layer.STREAM:
            assert (start[1:] >= end[:-1]).all()


def test_a_step_begins_where_the_recorded_one_does() -> None:
    trace = open_trace(LESSON)
    found = predict_slices(trace, ["family:gemm x0.5"])
    before, after = found.bounds.tolist()
    at = before[2]
    assert found.measure_step_shift_ns(at - 10, at + 10) == at - after[2]
    assert found.measure_step_shift_ns(at + 10, at + 20) == at - after[2]
    assert found.measure_step_shift_ns(before[0] - 20, before[0] - 10) == 0
