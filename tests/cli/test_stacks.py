"""Folded stacks and files of speedscope: their times are those of the file and of
--json."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.hostile import obeyed, write_trace

from fusetui.commands.sources import one_trace

Run = Callable[..., Any]
EAGER = "lesson:mlp-eager"


def folded(text: str) -> list[tuple[list[str], int]]:
    lines = (line.rsplit(" ", 1) for line in text.splitlines())
    return [(stack.split(";"), int(ns)) for stack, ns in lines]


def test_gpu_time_is_that_of_the_kernels(fusetui: Run) -> None:
    with gzip.open(one_trace(EAGER)) as file:
        events = json.load(file)["traceEvents"]
    kernels = sum(round(1000 * e["dur"]) for e in events if e.get("cat") == "kernel")
    for of in ("ops", "modules", "python"):
        found = folded(fusetui("stacks", EAGER, f"--of={of}").out)
        assert sum(ns for _, ns in found) == kernels
        assert len({";".join(stack) for stack, _ in found}) == len(found)


def test_cpu_time_is_the_self_time_of_ops(fusetui: Run) -> None:
    sums = Counter[str]()
    for stack, ns in folded(fusetui("stacks", EAGER, "--time=cpu", "--folded").out):
        sums[stack[-1]] += ns
    ops = {
        one["name"]: one["self_ns"]
        for one in fusetui("ops", EAGER, "--json").json["ops"]
    }
    named = {name: ns for name, ns in ops.items() if name.startswith("aten::") and ns}
    assert len(named) > 3
    assert {name: sums[name] for name in named} == named


@pytest.mark.parametrize("of", ["ops", "modules", "python"])
def test_speedscope_has_the_same(fusetui: Run, of: str, tmp_path: Path) -> None:
    out = tmp_path / "a.speedscope.json"
    assert fusetui("stacks", EAGER, out, f"--of={of}", "--speedscope").code == 0
    document = json.loads(out.read_text())
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    (profile,) = document["profiles"]
    assert (profile["type"], profile["unit"]) == ("sampled", "nanoseconds")
    names = [frame["name"] for frame in document["shared"]["frames"]]
    found = [
        ([names[number] for number in sample], ns)
        for sample, ns in zip(profile["samples"], profile["weights"], strict=True)
    ]
    assert found == folded(fusetui("stacks", EAGER, f"--of={of}").out)
    assert profile["endValue"] - profile["startValue"] == sum(profile["weights"])


def test_a_name_makes_no_line_and_no_stack(fusetui: Run, tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "a.json", ["a;b 7\nc", "\x1b[31mPWN"])
    text = fusetui("stacks", str(trace), "--time=cpu").out
    assert obeyed(text) == set()
    assert all(ns > 0 for _, ns in folded(text))
    assert not [stack for stack, _ in folded(text) if "b 7" in stack]


def test_stacks_that_cannot_be_made_are_one_sentence(fusetui: Run) -> None:
    told = fusetui("stacks", "sample:mlp-eager", "--time=gpu")
    assert told.code == 2
    assert "no GPU time" in told.sentence
    assert "not both" in fusetui("stacks", EAGER, "--folded", "--speedscope").sentence


def test_gpu_time_in_no_module_is_stated_beside_the_stacks(
    fusetui: Callable[..., Any], tmp_path: Path, event: Callable[..., Any]
) -> None:
    """GPU time of no module is stated, and nothing where all of it is in one."""
    part = event("part", 0, 9, cat="user_annotation")
    call = event("cudaLaunchKernel", 1, 2, cat="cuda_runtime", args={"correlation": 1})
    inside = event("inside", 30, 4, cat="kernel", pid=0, tid=7, args={"correlation": 1})
    outside = event("outside", 40, 6, cat="kernel", pid=0, tid=7)
    said = {}
    for name, events in {
        "all": [part, call, inside],
        "some": [part, call, inside, outside],
    }.items():
        (tmp_path / name).write_text(json.dumps({"traceEvents": events}))
        said[name] = fusetui("stacks", str(tmp_path / name), "--of", "modules").err
    assert said["all"] == ""
    assert (
        "The stacks cover 4 us of 10 us of GPU time; the rest belongs to no module"
    ) in said["some"]
