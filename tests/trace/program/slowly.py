"""The same questions answered from the events of a file, one by one, without
columns."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

from fusetui.trace.program.own_code import function_of, is_own

Event = dict[str, Any]


def ns(value: object) -> int:
    return int(Decimal(str(value)) * 1000)


class Slowly:
    """Events of a real trace, whose times are relative or whole numbers."""

    def __init__(self, path: Path) -> None:
        text = gzip.decompress(path.read_bytes())
        events = json.loads(text, parse_float=Decimal)["traceEvents"]
        self.events: list[Event] = [event for event in events if event["ph"] == "X"]
        for event in self.events:
            event["begin"] = ns(event["ts"])
            event["end"] = event["begin"] + ns(event["dur"])
            event["args"] = event.get("args") or {}

    def of(self, *categories: str) -> list[Event]:
        return [event for event in self.events if event.get("cat") in categories]

    @cached_property
    def gpu(self) -> list[Event]:
        return self.of("kernel", "gpu_memcpy", "gpu_memset")

    @cached_property
    def calls(self) -> dict[int, Event]:
        calls = self.of("cuda_runtime", "cuda_driver")
        return {
            c["args"]["correlation"]: c for c in calls if "correlation" in c["args"]
        }

    @cached_property
    def numbered(self) -> dict[int, list[Event]]:
        found = defaultdict(list)
        for op in self.of("cpu_op"):
            if op["args"].get("Fwd thread id") == 0:
                found[op["args"]["Sequence number"]].append(op)
        return found

    @cached_property
    def ops(self) -> dict[object, list[Event]]:
        return by_thread(self.of("cpu_op"))

    def forward_op(self, call: Event) -> Event | None:
        """Through the innermost backward op around a call whose number a forward op
        has."""
        over = [op for op in around(self.ops, call) if op["args"].get("Fwd thread id")]
        for op in reversed(over):
            number = op["args"]["Sequence number"]
            made = [f for f in self.numbered[number] if f["begin"] <= op["begin"]]
            if made:
                return max(made, key=lambda f: (f["begin"], -f["end"]))
        return None

    def credited(self, spans: Iterable[Event]) -> list[tuple[Event, list[Event], bool]]:
        """Each GPU event with the spans that it belongs to, the outermost first, and
        whether it belongs there by its forward op."""
        threads = by_thread(spans)
        found: list[tuple[Event, list[Event], bool]] = []
        for event in self.gpu:
            call = self.calls.get(event["args"].get("correlation"))
            if call is None:
                found.append((event, [], False))
                continue
            ahead = self.forward_op(call)
            through = around(threads, ahead) if ahead else []
            found.append((event, through or around(threads, call), ahead is not None))
        return found


def by_thread(events: Iterable[Event]) -> dict[object, list[Event]]:
    """The outer one first if two begin together."""
    found: dict[object, list[Event]] = defaultdict(list)
    for event in events:
        found[event["pid"], event["tid"]].append(event)
    for own in found.values():
        own.sort(key=lambda event: (event["begin"], -event["end"]))
    return found


def around(threads: dict[object, list[Event]], inner: Event) -> list[Event]:
    """What contains a slice on its thread, the outermost first."""
    own = threads.get((inner["pid"], inner["tid"]), [])
    return [e for e in own if e["begin"] <= inner["begin"] and inner["end"] <= e["end"]]


def regions(trace: Slowly) -> list[Event]:
    modules = [
        e for e in trace.of("python_function") if e["name"].startswith("nn.Module: ")
    ]
    return modules + [
        event
        for event in trace.of("user_annotation")
        if "ProfilerStep" not in event["name"] and not event["name"].startswith("nccl:")
    ]


def paths(spans: list[Event]) -> str:
    """Of spans around something, the outermost first."""
    names = [span["name"].removeprefix("nn.Module: ") for span in spans]
    return " > ".join(re.sub(r"(_|\b)\d+$", r"\1*", name) for name in names)


def gpu_by_path(trace: Slowly) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """GPU time (ns) and kernels of each path with what is in it, and the time of
    backward work that belongs there by its forward op."""
    total, kernels, back = Counter[str](), Counter[str](), Counter[str]()
    for event, spans, backward in trace.credited(regions(trace)):
        for depth in range(len(spans)):
            path = paths(spans[: depth + 1])
            total[path] += event["end"] - event["begin"]
            kernels[path] += event["cat"] == "kernel"
            back[path] += (event["end"] - event["begin"]) * backward
    return total, kernels, back


def calls_by_path(trace: Slowly) -> tuple[Counter[str], Counter[str]]:
    """Calls and CPU time (ns) of each path."""
    spans = regions(trace)
    threads = by_thread(spans)
    count, cpu = Counter[str](), Counter[str]()
    for span in spans:
        path = paths(around(threads, span))
        count[path] += 1
        cpu[path] += span["end"] - span["begin"]
    return count, cpu


def gpu_by_function(trace: Slowly) -> tuple[Counter[str], Counter[str]]:
    """GPU time (ns) by the name of the frame: its own, and with what it called."""
    own, total = Counter[str](), Counter[str]()
    for event, spans, _ in trace.credited(own_frames(trace)):
        dur = event["end"] - event["begin"]
        for name in {span["name"] for span in spans}:
            total[name] += dur
        if spans:
            own[spans[-1]["name"]] += dur
    return own, total


def cpu_by_function(trace: Slowly) -> tuple[Counter[str], Counter[str]]:
    """CPU time (ns) by the name of the frame: its own, and with what it called."""
    frames = own_frames(trace)
    threads = by_thread(frames)
    own, total = Counter[str](), Counter[str]()
    for frame in frames:
        *outer, _ = around(threads, frame)
        dur = frame["end"] - frame["begin"]
        own[frame["name"]] += dur
        if outer:
            own[outer[-1]["name"]] -= dur
        if frame["name"] not in {span["name"] for span in outer}:
            total[frame["name"]] += dur
    return own, total


def own_frames(trace: Slowly) -> list[Event]:
    found = [(e, function_of(e["name"])) for e in trace.of("python_function")]
    return [event for event, function in found if function and is_own(function.file)]
