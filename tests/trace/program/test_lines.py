"""What the lines of the user's own functions cost, by the lines that frames were called
from."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.corpus.files import corpus_path

from fusetui.trace import open_trace
from fusetui.trace.program.functions import FunctionTime, function_times, has_lines
from fusetui.trace.program.origin import origins

Make = Callable[..., Any]


def frame(make: Make, name: str, ts: int, dur: int, called_from: str) -> dict[str, Any]:
    found: dict[str, Any] = make(name, ts, dur, cat="python_function")
    return {**found, "args": {"CallFrom": called_from}}


def lines(events: list[dict[str, Any]], trace_of: Make) -> dict[str, FunctionTime]:
    found = function_times(origins(trace_of(events)), by_line=True).functions
    return {f"{time.file}:{time.line} {time.function}": time for time in found}


def test_a_line_has_the_time_of_what_it_calls(
    trace_of: Make, event: Make, launched: Make
) -> None:
    """A line of a library counts for the user's line that led there."""
    events = [
        frame(event, "train.py(1): main", 0, 100, "train.py:99"),
        frame(event, "<built-in method a>", 5, 20, "train.py:3"),
        *launched(1, 6, 200, dur=7),
        frame(event, "torch/x.py(1): b", 30, 40, "train.py:4"),
        frame(event, "<built-in method c>", 35, 10, "torch/x.py:2"),
        *launched(2, 36, 210, dur=5),
    ]
    found = lines(events, trace_of)
    assert list(found) == ["train.py:3 main", "train.py:4 main", "train.py:99 "]
    third, fourth, root = found.values()
    assert (third.gpu_ns, third.cpu_ns, third.count) == (7_000, 20_000, 1)
    assert (fourth.gpu_ns, fourth.cpu_ns, fourth.kernels) == (5_000, 40_000, 1)
    assert (root.gpu_ns, root.gpu_self_ns, root.cpu_self_ns) == (12_000, 0, 40_000)


def test_a_line_that_calls_twice_adds_up(trace_of: Make, event: Make) -> None:
    calls = [frame(event, f"<built-in {n}>", 10 * n, 5, "a.py:3") for n in (1, 2)]
    (only,) = lines(
        [frame(event, "a.py(1): f", 0, 90, "torch/y.py:1"), *calls], trace_of
    ).values()
    assert (only.count, only.cpu_ns) == (2, 10_000)


def test_a_line_within_itself_counts_once(trace_of: Make, event: Make) -> None:
    events = [frame(event, "a.py(1): f", n, 90 - 2 * n, "a.py:3") for n in range(3)]
    found = lines(events, trace_of)
    assert found["a.py:3 f"].cpu_ns == 88_000
    assert found["a.py:3 f"].count == 2


@pytest.mark.parametrize(
    "text", ["", "a.py", "a.py:", ":3", "a.py:x", "a.py:9999999999"]
)
def test_a_line_that_is_none_is_left_out(
    trace_of: Make, event: Make, text: str
) -> None:
    assert not lines([frame(event, "a.py(1): f", 0, 9, text)], trace_of)


def test_older_traces_have_no_lines(trace_of: Make, event: Make) -> None:
    events = [event("a.py(1): f", 0, 9, cat="python_function")]
    assert not has_lines(trace_of(events))
    assert not lines(events, trace_of)


def agree_with_events(path: Path, script: str, but: str = "") -> None:
    """Counts and CPU times of the lines of `script`, from the events alone: a frame
    inside another of its line adds nothing. `but`: a line whose time is not compared."""
    frames = [
        (event["ts"], event["ts"] + event["dur"], event["args"]["CallFrom"])
        for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        if event.get("cat") == "python_function"
    ]
    count: dict[str, int] = defaultdict(int)
    taken: dict[str, float] = defaultdict(float)
    for begin, end, line in frames:
        if line.startswith(f"{script}:"):
            count[line] += 1
            if not any(
                a <= begin and end <= b and b - a > end - begin and own == line
                for a, b, own in frames
            ):
                taken[line] += end - begin
    assert len(count) > 1
    functions = function_times(origins(open_trace(str(path))), by_line=True).functions
    by_line: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for time in functions:
        figures = by_line[f"{time.file}:{time.line}"]
        figures[0] += time.count
        figures[1] = max(figures[1], time.cpu_ns)
    for line, calls in count.items():
        assert by_line[line][0] == calls
        if line != but:
            assert abs(by_line[line][1] - round(taken[line] * 1000)) < 10


def test_lines_of_a_program_add_up() -> None:
    agree_with_events(corpus_path("training"), script="train.py")
