"""Every number in every --json document is exact as a double, as in jq and
JavaScript."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
EPOCH = "17121954954067"  # and two digits more: microseconds since 1970
LARGEST = 2**53 - 1
COMMANDS = (
    ("summary", "TRACE"),
    ("kernels", "TRACE"),
    ("kernels", "TRACE", "--by", "stream"),
    ("ops", "TRACE"),
    ("ops", "TRACE", "--by", "shape"),
    ("launches", "TRACE"),
    ("modules", "TRACE"),
    ("lines", "TRACE"),
    ("diff", "TRACE", "TRACE"),
    ("check", "TRACE", "--expect", "kernels=1"),
    ("decode", "ampere_bf16_s16816gemm_bf16_128x9007199254740993_tn"),
    ("samples",),
)


def numbers(value: object, path: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a document, and where it is."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from numbers(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from numbers(inner, f"{path}[]")
    elif isinstance(value, int | float):
        yield path, value


@pytest.fixture
def epoch(tmp_path: Path) -> Path:
    """Six steps with a kernel each, in times since 1970 and with ids beyond 2**53."""
    plain = {"ph": "X", "pid": 2**62 + 1, "tid": 2**60 + 1}
    events: list[dict[str, Any]] = []
    for n in range(6):
        args = {
            "correlation": 2**60 + n,
            "External id": 2**61 + n,
            "Input Dims": [[2**62], [3]],
        }
        slices = (
            (f"ProfilerStep#{n}", "user_annotation", "00.123", 9, plain),
            ("aten::mm", "cpu_op", "01.001", 7, plain),
            ("cudaLaunchKernel", "cuda_runtime", "02.002", 1, plain),
            ("gemm", "kernel", "04.999", 3.5, {"ph": "X", "pid": 0, "tid": 2**61 + 7}),
        )
        for name, cat, ts, dur, place in slices:
            found = {**place, "name": name, "cat": cat, "dur": dur, "args": args}
            events.append({**found, "ts": f"{EPOCH}{n}{ts[1:]}"})
    path = tmp_path / "epoch.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def numbers_are_doubles(fusetui: Run, path: Path, command: tuple[str, ...]) -> None:
    found = fusetui(*(path if word == "TRACE" else word for word in command), "--json")
    assert found.code in (0, 1)
    assert {(where, n) for where, n in numbers(found.json) if abs(n) > LARGEST} == set()


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_number_is_beyond_a_double(
    fusetui: Run, epoch: Path, command: tuple[str, ...]
) -> None:
    numbers_are_doubles(fusetui, epoch, command)


def test_a_start_is_found_again_in_the_file(fusetui: Run, epoch: Path) -> None:
    figures = fusetui("summary", epoch, "--json").json
    found = [int(figures["base_ns"]) + step["start_ns"] for step in figures["steps"]]
    assert found == [int(f"{EPOCH}{n}0123") for n in range(6)]
    assert [(track["pid"], track["tid"]) for track in figures["tracks"]][-1] == (
        0,
        str(2**61 + 7),
    )
