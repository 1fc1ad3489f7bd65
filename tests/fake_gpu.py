"""A GPU that is not there: what capture asks of torch.cuda, answered on the CPU.

Tensors stay on the CPU, events take the time of a clock, and the profiler writes a
trace that was made before. Nothing else differs, so every line of capture for a GPU
runs.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter_ns
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerAction, ProfilerActivity

NAME, CACHE_BYTES, PEAK_BYTES = "NVIDIA Stand-in", 1000, 4242
STEP, MOST_IDS = "ProfilerStep#", 1000


class Event:
    """A CUDA event, on the clock of the CPU."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self._ns = 0

    def record(self) -> None:
        self._ns = perf_counter_ns()

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds."""
        assert self._ns, "the first event was not recorded"
        return (end._ns - self._ns) / 1e6


class Profiler:
    """torch.profiler.profile that follows its schedule, and writes `trace` instead of
    its own."""

    trace = Path()

    def __init__(
        self,
        *,
        activities: list[ProfilerActivity],
        schedule: Callable[[int], ProfilerAction],
        on_trace_ready: Callable[[Profiler], None],
        **options: bool,
    ) -> None:
        assert ProfilerActivity.CUDA in activities
        self._schedule, self._ready = schedule, on_trace_ready
        self._steps = self._recorded = 0

    def __enter__(self) -> Profiler:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    start = stop = __exit__

    def step(self) -> None:
        action = self._schedule(self._steps)
        self._recorded += action in (
            ProfilerAction.RECORD,
            ProfilerAction.RECORD_AND_SAVE,
        )
        if action is ProfilerAction.RECORD_AND_SAVE:
            self._ready(self)
        self._steps += 1

    def export_chrome_trace(self, path: str) -> None:
        document = json.loads(gzip.decompress(self.trace.read_bytes()))
        document["traceEvents"] = repeated(document["traceEvents"], self._recorded)
        Path(path).write_text(json.dumps(document))


def repeated(
    events: Sequence[Mapping[str, Any]], count: int
) -> list[Mapping[str, Any]]:
    """The first step of a trace `count` times over, each with correlations of its
    own."""
    steps = [
        e
        for e in events
        if e["name"].startswith(STEP) and e["cat"] == "user_annotation"
    ]
    begin, end = (step["ts"] for step in steps[:2])
    found = [event for event in events if event["ph"] == "M"]
    for event in events:
        if event["ph"] != "M" and begin <= event["ts"] < end:
            found += [
                _later(event, number, number * (end - begin)) for number in range(count)
            ]
    return found


def _later(event: Mapping[str, Any], number: int, by_us: float) -> Mapping[str, Any]:
    """The event as it is in another step: later, with other numbers."""
    copy: dict[str, Any] = {**event, "ts": event["ts"] + by_us}
    if event["name"].startswith(STEP):
        copy["name"] = f"{STEP}{number}"
    if "id" in event:
        copy["id"] += number * MOST_IDS
    numbers = {
        key: event["args"][key] + number * MOST_IDS
        for key in ("correlation", "External id")
        if key in event.get("args", {})
    }
    return {**copy, "args": {**event["args"], **numbers}} if numbers else copy


def stand_in(
    patch: pytest.MonkeyPatch, trace: Path, capability: tuple[int, int] = (8, 0)
) -> Mapping[str, int]:
    """Puts the GPU into torch until the patch ends; gives how often its functions were
    called."""
    calls: dict[str, int] = {}

    def counted(name: str, result: object = None) -> Callable[..., Any]:
        def call(*_: object) -> Any:
            calls[name] = calls.get(name, 0) + 1
            return result

        return call

    properties = SimpleNamespace(
        name=NAME,
        L2_cache_size=CACHE_BYTES,
        multi_processor_count=108,
        total_memory=40 * 2**30,
        major=capability[0],
        minor=capability[1],
        uuid="0",
    )
    answers = {
        "is_available": True,
        "get_device_name": NAME,
        "get_device_properties": properties,
        "get_device_capability": capability,
        "current_device": 0,
        "synchronize": None,
        "empty_cache": None,
        "reset_peak_memory_stats": None,
        "max_memory_allocated": PEAK_BYTES,
    }
    for name, result in answers.items():
        patch.setattr(torch.cuda, name, counted(name, result))
    patch.setattr(torch.cuda, "Event", Event)
    for owner in (torch.Tensor, torch.nn.Module):
        patch.setattr(owner, "to", _on_the_cpu(owner.to))
    patch.setattr(Profiler, "trace", trace)
    for module in (
        "fusetui.capture.recorder",
        "fusetui.capture.recorder",
        "torch.profiler",
    ):
        patch.setattr(f"{module}.profile", Profiler)
    return calls


def _on_the_cpu(to: Callable[..., Any]) -> Callable[..., Any]:
    def moved(tensor: Any, *args: Any, device: object = None, **options: Any) -> Any:
        assert device in (None, "cuda")
        return to(tensor, *args, **options)

    return moved
