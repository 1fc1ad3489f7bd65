"""What is around a row, by time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fusetui.trace.model.categories import Role
from fusetui.trace.program import regions
from fusetui.trace.program.regions import Spans, ThreadLine

Make = Callable[..., Any]
Names = dict[str, str]


def around(trace: Any) -> Names:
    """Of every op the annotation or frame around it."""
    rows = trace.rows_of(Role.ANNOTATION, Role.PYTHON)
    found = Spans(trace, ThreadLine(trace), rows)
    ops = trace.rows_of(Role.OP)
    over = found.rows_at(found.around(ops)).tolist()
    names = [trace.name_of(row) if row >= 0 else "" for row in over]
    return dict(zip([trace.name_of(row) for row in ops], names, strict=True))


def events(make: Make) -> list[dict[str, Any]]:
    frame, note = {"cat": "python_function"}, {"cat": "user_annotation"}
    return [
        make("note", 0, 50, **note),
        make("frame", 10, 60, **frame),
        make("other thread", 0, 500, tid=2, **note),
        make("in both", 20, 5),
        make("crosses the end of the note", 45, 10),
        make("ends with the frame", 65, 5),
        make("begins where the frame ends", 70, 0),
        make("no length", 10, 0),
        make("elsewhere", 20, 5, tid=2),
        make("elsewhere too", 20, 5, tid=3),
    ]


EXPECTED = {
    "in both": "frame",
    "crosses the end of the note": "frame",
    "ends with the frame": "frame",
    "begins where the frame ends": "",
    "no length": "frame",
    "elsewhere": "other thread",
    "elsewhere too": "",
}


def test_a_slice_is_inside_the_open_slice_that_started_last(
    trace_of: Make, event: Make
) -> None:
    assert around(trace_of(events(event))) == EXPECTED


def test_spans_far_apart_in_time_give_the_same_result(
    trace_of: Make, event: Make, monkeypatch: Any
) -> None:
    monkeypatch.setattr(regions, "MAX_LINE_LENGTH", 1000)
    assert around(trace_of(events(event))) == EXPECTED


def test_depths_and_ends(trace_of: Make, event: Make) -> None:
    note = {"cat": "user_annotation"}
    trace = trace_of(
        [
            event("a", 0, 100, **note),
            event("b", 10, 50, **note),
            event("c", 20, 10, **note),
            event("d", 70, 10, **note),
            event("e", 200, 10, **note),
        ]
    )
    found = Spans(trace, ThreadLine(trace), np.arange(len(trace)))
    assert found.depth.tolist() == [0, 1, 2, 1, 0]
    assert found.end_place.tolist() == [4, 3, 3, 4, 5]
    assert found.parent.tolist() == [-1, 0, 1, 0, -1]
