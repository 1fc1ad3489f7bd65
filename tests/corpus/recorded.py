"""What a profiler records of a simulated run beside its slices: shapes with strides,
launch configurations, memory, counters."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import prod
from typing import Any

from tests.analysis.replay.recording import document
from tests.analysis.replay.simulator import Slice

Event = dict[str, Any]
FLOAT_BYTES = 4
LIVE_TENSORS = 12
"""So many results of ops live at once; each is freed when a later one needs room."""
FIRST_ADDRESS = 0x7F2000000000
RESERVED_BYTES = 256 << 20
WEIGHT_BYTES = 24 << 20
"""Allocated before the recording began."""
FLAGS = ("record_shapes", "with_stack", "with_modules", "profile_memory")
PRIVATE = {
    "host_name": "gpu-node-17",
    "metadata": {"username": "grace-h", "cwd": "/home/grace-h/secret-project/"},
}
"""What scrubbing removes."""
LAUNCHES = {"gemm": [8, 16, 1], "vectorized": [512, 1, 1], "fmha": [4, 4, 8]}
"""The grid of kernels with this in their name."""
IN_FILE = re.compile(r"(\S+\.py)\((\d+)\): ")
"""The file and the line of a frame."""


def recorded(run: Sequence[Slice]) -> dict[str, Any]:
    """The document of a run with all options of the profiler."""
    whole = document(run)
    events = whole["traceEvents"]
    for event in events:
        args = event.get("args", {})
        if "Input Dims" in args:
            args |= _layout(args["Input Dims"])
        if event.get("cat") == "kernel":
            args["grid"] = _grid(event["name"])
    _add_lines([event for event in events if event.get("cat") == "python_function"])
    events += [*_memory(events), *_counters(events)]
    return whole | dict.fromkeys(FLAGS, 1) | PRIVATE


def _layout(shapes: Sequence[Sequence[int]]) -> Event:
    """The strides of contiguous tensors, and no values of scalars."""
    strides = [
        [*accumulate(reversed(shape[1:]), lambda a, b: a * b, initial=1)][::-1]
        for shape in shapes
    ]
    return {"Input Strides": strides, "Concrete Inputs": [""] * len(shapes)}


def _add_lines(frames: Sequence[Event]) -> None:
    """Each frame has the line of the file that called it."""
    lines: dict[int | None, str] = {None: ""}  # by the number of the frame
    for frame in frames:  # those around a frame come before it
        parent_line = lines[frame["args"]["Python parent id"]]
        frame["args"]["CallFrom"] = parent_line
        own = IN_FILE.match(frame["name"])
        lines[frame["args"]["Python id"]] = (
            f"{own[1]}:{int(own[2]) + 1}" if own else parent_line
        )


def _grid(kernel: str) -> list[int]:
    grids = (grid for word, grid in LAUNCHES.items() if word in kernel)
    return next(grids, [864, 1, 1])


def _memory(events: Sequence[Event]) -> Iterator[Event]:
    """Each op with shapes allocates a result as large as its first input."""
    ops = [event for event in events if "Input Dims" in event.get("args", {})]
    live: deque[tuple[int, int]] = deque()  # address and bytes
    allocated = WEIGHT_BYTES
    address = FIRST_ADDRESS
    for event in sorted(ops, key=lambda op: op["ts"]):
        size = FLOAT_BYTES * prod(event["args"]["Input Dims"][0])
        changes = [(address, size)]
        live.append((address, size))
        address += size
        if len(live) > LIVE_TENSORS:
            oldest, freed = live.popleft()
            changes.append((oldest, -freed))
        for number, (at, change) in enumerate(changes):
            allocated += change
            yield {
                "ph": "i",
                "cat": "cpu_instant_event",
                "s": "t",
                "name": "[memory]",
                "pid": event["pid"],
                "tid": event["tid"],
                "ts": round(event["ts"] + 0.1 + 0.1 * number, 3),
                "args": {
                    "Total Reserved": RESERVED_BYTES,
                    "Total Allocated": allocated,
                    "Bytes": change,
                    "Addr": at,
                    "Device Id": 0,
                    "Device Type": 1,
                },
            }


def _counters(events: Sequence[Event]) -> Iterator[Event]:
    """The power of the GPU, higher where a matrix product runs."""
    for event in events:
        if event.get("cat") == "kernel":
            watts = 300 if "gemm" in event["name"] else 120
            yield {
                "ph": "C",
                "name": "GPU 0 power",
                "pid": 0,
                "ts": event["ts"],
                "args": {"power (W)": watts},
            }
