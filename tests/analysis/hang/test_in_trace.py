"""The collective at which dumps stop, in a trace of the same job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.flight_dumps import Job

from fusetui.analysis.hang.answer import why_it_hangs
from fusetui.analysis.hang.in_trace import CollectiveInStep, InTrace, find_hang_in_trace
from fusetui.trace import open_trace
from fusetui.trace.flight.reading import read_dumps

STEPS = 3
STEP_US = 1_000.0
FLOAT_BYTES = 4


class Program:
    """What each step of a job issues: operations and numbers of floats."""

    def __init__(self, *collectives: tuple[str, int]) -> None:
        self.collectives = collectives

    def dumps(self, folder: Path, *, stops_at: int) -> list[str]:
        """Those of two ranks after one step; in the next, rank 1 does not issue the
        collective with this number, from 1."""
        job = Job(2)
        in_order = [*self.collectives, *self.collectives[:stops_at]]
        for number, (operation, floats) in enumerate(in_order, 1):
            is_last = number == len(in_order)
            job.issue(0, operation, over=not is_last, sizes=[[floats]])
            if not is_last:
                job.issue(1, operation, sizes=[[floats]])
        return job.write(folder)

    def trace(self, path: Path, group: str = "0") -> str:
        """A trace of three steps of a rank."""
        events: list[dict[str, Any]] = []
        for step in range(STEPS):
            begin_us = 100 + step * STEP_US
            events.append(
                _slice(f"ProfilerStep#{step}", "user_annotation", begin_us, 900)
            )
            for number, (operation, floats) in enumerate(self.collectives):
                at_us = begin_us + 10 + 50 * number
                correlation = 100 * step + number + 1
                events += _collective(operation, floats, group, at_us, correlation)
        path.write_text(json.dumps({"traceEvents": events}))
        return str(path)


def _slice(
    name: str, category: str, ts: float, dur: float, **args: Any
) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 1,
        "tid": 1,
        "ts": ts,
        "dur": dur,
        "args": args,
    }


def _collective(
    operation: str, floats: int, group: str, at_us: float, correlation: int
) -> list[dict[str, Any]]:
    """The op, the launch and the kernel of a collective of NCCL."""
    kernel = _slice(
        f"ncclDevKernel_{operation}",
        "kernel",
        at_us + 5,
        20,
        correlation=correlation,
        device=0,
        stream=20,
        dtype="Float",
        **{
            "Collective name": operation,
            "In msg nelems": floats,
            "Out msg nelems": floats,
            "Group size": 2,
            "Process Group Name": group,
            "Process Group Description": "default_pg",
        },
    )
    kernel |= {"pid": 0, "tid": 20}
    return [
        _slice(f"c10d::{operation}_", "cpu_op", at_us, 10),
        _slice(
            "cudaLaunchKernelExC", "cuda_runtime", at_us + 2, 3, correlation=correlation
        ),
        kernel,
    ]


def found(
    program: Program, folder: Path, *, stops_at: int, group: str = "0"
) -> InTrace:
    dumps = read_dumps(program.dumps(folder, stops_at=stops_at))
    path = program.trace(folder / "trace.json", group)
    result = find_hang_in_trace(why_it_hangs(dumps), dumps, open_trace(path), path)
    assert result is not None
    return result


def test_an_operation_that_occurs_once_in_a_step_is_found(tmp_path: Path) -> None:
    program = Program(("all_reduce", 64), ("broadcast", 8), ("all_reduce", 64))
    result = found(program, tmp_path, stops_at=2)
    assert result.reason == ""
    assert result.place == CollectiveInStep(number=2, of=3)
    assert result.step == "ProfilerStep#2"
    assert result.issued_by[:2] == ("cudaLaunchKernelExC", "c10d::broadcast_")


def test_sizes_tell_two_of_one_operation_apart(tmp_path: Path) -> None:
    program = Program(("all_reduce", 64), ("all_reduce", 32))
    assert found(program, tmp_path, stops_at=2).place == CollectiveInStep(2, 2)


def test_two_equal_collectives_are_told_apart_by_those_before_them(
    tmp_path: Path,
) -> None:
    program = Program(("broadcast", 8), ("all_reduce", 64), ("all_reduce", 64))
    result = found(program, tmp_path, stops_at=3)
    assert result.place == CollectiveInStep(3, 3)
    assert result.agreeing > 3


def test_equal_ones_all_through_the_step_are_not_told_apart(tmp_path: Path) -> None:
    program = Program(("all_reduce", 64), ("all_reduce", 64))
    result = found(program, tmp_path, stops_at=2)
    assert (result.reason, result.row) == ("several_places", -1)


def test_equal_ones_are_not_told_apart_by_the_beginning_of_the_trace(
    tmp_path: Path,
) -> None:
    """The dump has more of them than the trace."""
    job = Job(2)
    for _ in range(50):
        job.everywhere()
    job.issue(0, over=False)
    dumps = read_dumps(job.write(tmp_path))
    path = Program(("all_reduce", 64), ("all_reduce", 64)).trace(
        tmp_path / "trace.json"
    )
    result = find_hang_in_trace(why_it_hangs(dumps), dumps, open_trace(path), path)
    assert result is not None
    assert (result.reason, result.places) == ("several_places", 2)


def test_a_trace_of_another_group_does_not_show_it(tmp_path: Path) -> None:
    program = Program(("all_reduce", 64))
    assert found(program, tmp_path, stops_at=1, group="7").reason == "no_group"


def test_a_trace_of_another_program_does_not_show_it(tmp_path: Path) -> None:
    dumps = read_dumps(Program(("all_gather", 64)).dumps(tmp_path, stops_at=1))
    path = Program(("all_reduce", 64)).trace(tmp_path / "trace.json")
    result = find_hang_in_trace(why_it_hangs(dumps), dumps, open_trace(path), path)
    assert result is not None
    assert result.reason == "not_recorded"


def test_where_nobody_waits_nothing_is_sought(tmp_path: Path) -> None:
    job = Job(2)
    job.everywhere()
    dumps = read_dumps(job.write(tmp_path))
    path = Program(("all_reduce", 64)).trace(tmp_path / "trace.json")
    assert (
        find_hang_in_trace(why_it_hangs(dumps), dumps, open_trace(path), path) is None
    )
