"""Which ops a call of a compiled graph makes."""

from __future__ import annotations

import json
from pathlib import Path

from fusetui.analysis.compiled.regions import _find_ops_of_calls, find_compiled_code
from fusetui.trace import open_trace

CALL = ("## Call CompiledFxGraph fabc ##", 0, 200)


def ops_of_call(folder: Path, *slices: tuple[str, int, int]) -> list[str]:
    """The ops that are found among slices of one thread: their names, starts and
    durations in us."""
    events = [
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": name,
            "pid": 1,
            "tid": 1,
            "ts": start_us,
            "dur": duration_us,
        }
        for name, start_us, duration_us in (CALL, *slices)
    ]
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    trace = open_trace(str(path), cached=False)
    return [
        trace.name_of(row)
        for row in _find_ops_of_calls(find_compiled_code(trace)).tolist()
    ]


def test_op_inside_another_op_of_the_call_is_not_made_by_it(tmp_path: Path) -> None:
    found = ops_of_call(tmp_path, ("aten::mul_", 40, 40), ("aten::mul", 45, 10))
    assert found == ["aten::mul_"]


def test_op_behind_a_view_inside_another_op_is_not_made_by_the_call(
    tmp_path: Path,
) -> None:
    found = ops_of_call(
        tmp_path,
        ("aten::convolution", 2, 90),
        ("aten::contiguous", 5, 20),
        ("aten::clone", 6, 15),
    )
    assert found == ["aten::convolution"]


def test_op_inside_a_view_of_the_call_itself_is_made_by_it(tmp_path: Path) -> None:
    found = ops_of_call(tmp_path, ("aten::contiguous", 5, 20), ("aten::clone", 6, 15))
    assert found == ["aten::clone"]
