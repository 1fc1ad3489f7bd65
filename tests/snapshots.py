"""A caching allocator in miniature, which writes memory snapshots as torch does:
rounding, pools, splitting, segments that grow page by page, and a device that runs
out."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MB = 1 << 20
PAGE = 2 * MB
SMALL = MB  # at most that goes into the pool of small blocks
Frames = Sequence[tuple[str, str, int]]
Pool = tuple[int, int]

TRAIN, MODEL = "/home/a/train.py", "/home/a/model.py"
TORCH = "/usr/lib/python3.12/site-packages/torch"
MAIN = ("<module>", TRAIN, 90)
CALL = ("_call_impl", f"{TORCH}/nn/modules/module.py", 1562)
ENGINE = ("torch::autograd::Engine::evaluate_function(...)", "??", 0)


def forward(line: int = 7, name: str = "forward") -> Frames:
    """A stack in a module of the person's own."""
    return (("at::_ops::mm::call(...)", "??", 0), (name, MODEL, line), CALL, MAIN)


def backward(node: str = "MmBackward0") -> Frames:
    """A stack in autograd's engine, without Python."""
    return ((f"torch::autograd::generated::{node}::apply(...)", "??", 0), ENGINE)


def stepping(line: int = 30) -> Frames:
    """A stack in the step of an optimizer."""
    inner = ("_single_tensor_adamw", f"{TORCH}/optim/adamw.py", line)
    return (inner, ("wrapper", f"{TORCH}/optim/optimizer.py", 493), MAIN)


def moving() -> Frames:
    """A stack in model.to(device)."""
    return (("_apply", f"{TORCH}/nn/modules/module.py", 900), ("<module>", TRAIN, 12))


def training(line: int = 20) -> Frames:
    """A stack in the person's loop, outside any module."""
    return (("at::_ops::clone::call(...)", "??", 0), ("train", TRAIN, line), MAIN)


class Machine:
    """One device of `total` bytes, of which others hold `others`. Every call is an
    event, 10 us after the one before."""

    def __init__(
        self,
        device: int = 0,
        total: int = 1 << 40,
        others: int = 0,
        expandable: bool = False,
    ) -> None:
        self.device, self.total, self.others = device, total, others
        self.expandable = expandable
        self.time = 1_700_000_000_000_000
        self.events: list[dict[str, Any]] = []
        self.annotations: list[dict[str, Any]] = []
        self.segments: list[dict[str, Any]] = []
        self.next = 0x7F0000000000 + (device << 40)

    @property
    def free_bytes(self) -> int:
        reserved: int = sum(one["total_size"] for one in self.segments)
        return self.total - self.others - reserved

    def alloc(
        self, size: int, frames: Frames = (), stream: int = 0, pool: Pool = (0, 0)
    ) -> int | None:
        """The address; None after an event `oom`."""
        need, kind = (
            max(512, -(-size // 512) * 512),
            "small" if size <= SMALL else "large",
        )
        place = (stream, kind, pool)
        block = self._best(need, place) or self._grown(need, place, frames)
        if block is None:
            self._event(
                "oom",
                size=need,
                stream=stream,
                frames=frames,
                device_free=self.free_bytes,
            )
            return None
        segment = next(one for one in self.segments if block in one["blocks"])
        rest, least = block["size"] - need, 512 if kind == "small" else SMALL + 1
        if rest >= least or (self.expandable and rest):
            at = segment["blocks"].index(block) + 1
            segment["blocks"].insert(at, _block(block["address"] + need, rest))
            block["size"] = need
        block |= {
            "state": "active_allocated",
            "requested_size": size,
            "frames": _listed(frames),
        }
        self._event(
            "alloc", addr=block["address"], size=size, stream=stream, frames=frames
        )
        self.events[-1]["pool_id"] = pool
        return int(block["address"])

    def free(
        self, address: int | None, frames: Frames = (), complete: bool = True
    ) -> None:
        for segment in self.segments:
            for block in segment["blocks"]:
                if block["address"] == address and block["state"] == "active_allocated":
                    self._freed(segment, block, frames, complete)
                    return

    def release(self) -> None:
        """empty_cache: gives wholly free segments back."""
        for segment in [*self.segments]:
            if all(block["state"] == "inactive" for block in segment["blocks"]):
                self.segments.remove(segment)
                name = "segment_unmap" if segment["is_expandable"] else "segment_free"
                self._event(name, addr=segment["address"], size=segment["total_size"])

    @contextmanager
    def annotated(self, name: str) -> Iterator[None]:
        self._annotation(name, "START")
        yield
        self._annotation(name, "END")

    def snapshot(self, *more: Machine, lost: int = 0) -> dict[str, Any]:
        """Of this device and `more`; `lost`: the entries that the ring has dropped."""
        machines = (self, *more)
        traces: list[list[dict[str, Any]]] = [
            [] for _ in range(max(m.device for m in machines) + 1)
        ]
        for machine in machines:
            traces[machine.device] = machine.events[lost:]
            for segment in machine.segments:
                _add_up(segment)
        return {
            "segments": [one for machine in machines for one in machine.segments],
            "device_traces": traces,
            "allocator_settings": {"expandable_segments": self.expandable},
            "external_annotations": [
                one for machine in machines for one in machine.annotations
            ],
        }

    def write(
        self, path: Path, *more: Machine, lost: int = 0, skipped: Sequence[str] = ()
    ) -> Path:
        """`skipped`: actions of which no event is recorded."""
        document = self.snapshot(*more, lost=lost)
        document["device_traces"] = [
            [event for event in events if event["action"] not in skipped]
            for events in document["device_traces"]
        ]
        path.write_bytes(pickle.dumps(document))
        return path

    def _best(self, need: int, place: tuple[int, str, Pool]) -> dict[str, Any] | None:
        """The smallest inactive block that is large enough."""
        fitting: list[dict[str, Any]] = [
            block
            for one in self.segments
            if (one["stream"], one["segment_type"], one["segment_pool_id"]) == place
            for block in one["blocks"]
            if block["state"] == "inactive" and block["size"] >= need
        ]
        fitting.sort(key=lambda block: int(block["size"]))
        return fitting[0] if fitting else None

    def _grown(
        self, need: int, place: tuple[int, str, Pool], frames: Frames
    ) -> dict[str, Any] | None:
        """A block of a new segment, or at the end of an expandable one."""
        stream, kind, pool = place
        size = -(-need // PAGE) * PAGE
        if kind == "large" and need < 10 * MB and not self.expandable:
            size = 20 * MB
        if self.free_bytes < size:
            self.release()
        if self.free_bytes < size:
            return None
        own = (
            one
            for one in self.segments
            if (one["stream"], one["segment_type"]) == place[:2]
        )
        segment: dict[str, Any] | None = next(own, None) if self.expandable else None
        if segment is None:
            segment = {"device": self.device, "address": self.next, "total_size": 0}
            segment |= {"stream": stream, "segment_type": kind, "segment_pool_id": pool}
            segment |= {
                "is_expandable": self.expandable,
                "blocks": [],
                "frames": _listed(frames),
            }
            self.segments.append(segment)
            self.next += 1 << 36 if self.expandable else size + PAGE
        address = segment["address"] + segment["total_size"]
        segment["total_size"] += size
        segment["blocks"].append(_block(address, size))
        name = "segment_map" if self.expandable else "segment_alloc"
        self._event(name, addr=address, size=size, stream=stream, frames=frames)
        _merge(segment)
        blocks: list[dict[str, Any]] = segment["blocks"]
        return [block for block in blocks if block["state"] == "inactive"][-1]

    def _freed(
        self,
        segment: dict[str, Any],
        block: dict[str, Any],
        frames: Frames,
        complete: bool,
    ) -> None:
        said = {"addr": block["address"], "size": block["requested_size"]}
        said |= {"stream": segment["stream"], "frames": frames}
        self._event("free_requested", **said)
        block["state"] = "active_awaiting_free"
        if complete:
            self._event("free_completed", **said)
            block |= {"state": "inactive", "frames": []}
            _merge(segment)

    def _event(self, action: str, frames: Frames = (), **fields: Any) -> None:
        self.time += 10
        entry = {"action": action, "addr": 0, "size": 0, "stream": 0, **fields}
        entry |= {"time_us": self.time, "frames": _listed(frames)}
        if action == "oom":
            del entry["addr"]
        self.events.append(entry)

    def _annotation(self, name: str, stage: str) -> None:
        self.time += 10
        entry = {
            "stage": stage,
            "name": name,
            "device": self.device,
            "time_us": self.time,
        }
        self.annotations.append(entry)


def trained(folder: Path, steps: int = 3) -> Path:
    """A snapshot of a training in which nothing is wrong."""
    machine = Machine(total=1 << 30)
    train(machine, steps)
    return machine.write(folder / "trained.pickle")


ALLOCATED = {"Device Type": 1, "Device Id": 0, "Addr": 1, "Bytes": 512}
ALLOCATED |= {"Total Allocated": 1536, "Total Reserved": 4096}
TRACED: tuple[dict[str, Any], ...] = (
    {
        "ph": "X",
        "cat": "cpu_op",
        "name": "aten::mm",
        "pid": 1,
        "tid": 1,
        "ts": 1,
        "dur": 9,
    },
    {
        "ph": "i",
        "name": "[memory]",
        "pid": 1,
        "tid": 1,
        "ts": 4,
        "s": "t",
        "args": ALLOCATED,
    },
)
"""Events of a trace: an op that allocates."""


def traced(folder: Path) -> Path:
    """A trace with them."""
    (path := folder / "traced.json").write_text(json.dumps(TRACED))
    return path


def failed(folder: Path) -> Path:
    """A snapshot of one that ran out of memory in its forward pass."""
    machine = Machine(total=600 * MB)
    train(machine, 2)
    while machine.alloc(100 * MB, forward()):
        pass
    return machine.write(folder / "failed.pickle")


def train(machine: Machine, steps: int, layers: int = 4, **changes: Any) -> None:
    """Steps of AdamW over some layers, as torch runs them; the first allocates the
    state.

    `state` and `activation`: bytes a layer. `leaking` bytes that each step keeps;
    `late`: gradients are freed before the next backward pass, not after the step;
    `bare`: without any stack.
    """
    asked = {
        "state": 8 * MB,
        "activation": 6 * MB,
        "leaking": 0,
        "late": False,
        "bare": False,
    }
    asked |= changes
    size, gradients = 8 * MB, list[int | None]()

    def stack(frames: Frames) -> Frames:
        return () if asked["bare"] else frames

    parameters = [machine.alloc(size, stack(moving())) for _ in range(layers)]
    for number in range(steps):
        kept = [
            machine.alloc(asked["activation"], stack(forward(n))) for n in range(layers)
        ]
        if asked["leaking"]:
            machine.alloc(asked["leaking"], stack(training(33)))
        for address in gradients:
            machine.free(address, stack(training(40)))
        gradients = []
        for address in reversed(kept):
            gradients.append(machine.alloc(size, stack(backward())))
            scratch = machine.alloc(size // 4, stack(backward("ReluBackward0")))
            machine.free(scratch, stack(backward("ReluBackward0")))
            machine.free(address, stack(backward()))
        with machine.annotated("Optimizer.step#AdamW.step"):
            for _ in parameters:
                if not number:
                    machine.alloc(asked["state"], stack(stepping(28)))
                machine.free(
                    machine.alloc(size // 2, stack(stepping(31))), stack(stepping(32))
                )
        if not asked["late"]:
            for address in gradients:
                machine.free(address, stack(training(40)))
            gradients = []


def _block(address: int, size: int) -> dict[str, Any]:
    said = {"address": address, "size": size, "requested_size": 0, "state": "inactive"}
    return {**said, "frames": []}


def _listed(frames: Frames) -> list[dict[str, Any]]:
    return [
        {"name": name, "filename": file, "line": line} for name, file, line in frames
    ]


def _merge(segment: dict[str, Any]) -> None:
    """Inactive neighbors become one block."""
    merged: list[dict[str, Any]] = []
    for block in segment["blocks"]:
        if merged and block["state"] == merged[-1]["state"] == "inactive":
            merged[-1]["size"] += block["size"]
        else:
            merged.append(block)
    segment["blocks"] = merged


def _add_up(segment: dict[str, Any]) -> None:
    """Puts the sums of its blocks into a segment."""
    allocated = active = requested = 0
    for block in segment["blocks"]:
        if block["state"] == "inactive":
            continue
        active += block["size"]
        requested += block["requested_size"]
        if block["state"] == "active_allocated":
            allocated += block["size"]
    segment["allocated_size"] = allocated
    segment["active_size"] = active
    segment["requested_size"] = requested
