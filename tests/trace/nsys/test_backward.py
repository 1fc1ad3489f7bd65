"""Backward ops of emit_nvtx belong to the forward ops of their process with the same
number."""

from __future__ import annotations

from pathlib import Path

from tests.trace.nsys.export import span, thread, write

from fusetui.trace import open_trace
from fusetui.trace.program.backward import backward_ops


def test_nsys_backward_ops_belong_to_forward_ops_of_their_process(
    tmp_path: Path,
) -> None:
    ranges = [
        ranged
        for pid, at in ((7, 0), (8, 3))
        for ranged in (
            span(at, at + 10, "aten::mul, seq = 5, op_id = 1", pid),
            span(
                *(at + 50, at + 60, "MulBackward0, seq = 5, op_id = 2", pid),
                globalTid=thread(pid, pid + 90),
            ),
        )
    ]
    trace = open_trace(write(tmp_path / "a.sqlite", NVTX_EVENTS=ranges), cached=False)
    found = backward_ops(trace)
    names = [
        (trace.name_of(a), trace.name_of(b))
        for a, b in zip(found.rows, found.forward, strict=True)
    ]
    pids = [
        (trace.track_of(int(a)).pid, trace.track_of(int(b)).pid)
        for a, b in zip(found.rows, found.forward, strict=True)
    ]
    assert names == [("MulBackward0", "aten::mul")] * 2
    assert sorted(pids) == [(7, 7), (8, 8)]
