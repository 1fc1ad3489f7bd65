"""Makes a memory snapshot of any size, with the objects that torch makes.

Each allocation has a list of frames, which its block and the events of its segment
share. So has each free, for all of its events. Texts are not shared.

    python -P benchmarks/generate_snapshot.py big.pickle --megabytes 100 --protocol 4
"""

from __future__ import annotations

import argparse
import pickle
import random
from pathlib import Path
from typing import Any, NamedTuple

MAX_LIVE = 200  # allocations at once
STACKS = 400
BLOCK_BYTES = (4, 512, 70_000, 25_165_824)
MIN_SEGMENT_BYTES = 2 << 20
FIRST_ADDRESS = 0x7F0000000000
ADDRESS_STEP = 1 << 26
START_US = 1_748_730_219_000_000
SAMPLE_STEPS = 2_000
"""From which the size of a step follows."""
Entry = dict[str, Any]


class _Block(NamedTuple):
    """An allocation, which has a segment of its own."""

    address: int
    size: int
    frames: list[Entry] | None

    @property
    def segment_size(self) -> int:
        return max(self.size, MIN_SEGMENT_BYTES)


class Allocator:
    """Writes the history of blocks that come and go. `depth` is the number of frames of
    a stack; `copied`: every event has a list of frames of its own."""

    def __init__(self, depth: int, copied: bool) -> None:
        self.random = random.Random(depth)
        self.copied = copied
        self.stacks: list[list[Entry]] = []

        if depth:
            frames = [_make_frame(number) for number in range(max(STACKS, depth))]
            self.stacks = [self.random.sample(frames, depth) for _ in range(STACKS)]

        self.events: list[Entry] = []
        self.live: list[_Block] = []
        self.free_addresses = [
            FIRST_ADDRESS + number * ADDRESS_STEP for number in range(4 * MAX_LIVE)
        ]

    def step(self) -> None:
        """Make one allocation, and free one at random if more than MAX_LIVE live."""
        address = self.free_addresses.pop(0)
        size = self.random.choice(BLOCK_BYTES)
        block = _Block(address=address, size=size, frames=self._stack())
        self._event("segment_alloc", address, block.segment_size, block.frames)
        self._event("alloc", address, size, block.frames)
        self.live.append(block)
        if len(self.live) > MAX_LIVE:
            self._free_block(self.live.pop(self.random.randrange(MAX_LIVE)))

    def _free_block(self, block: _Block) -> None:
        """Record the events that free a block, and make its address free again."""
        frames = self._stack()
        self._event("free_requested", block.address, block.size, frames)
        self._event("free_completed", block.address, block.size, frames)
        self._event("segment_free", block.address, block.segment_size, frames)
        self.free_addresses.append(block.address)

    def snapshot(self) -> Entry:
        """Return the content of a snapshot, in the form that torch writes."""
        return {
            "segments": [_make_segment(block) for block in self.live],
            "device_traces": [self.events, []],
            "external_annotations": [],
        }

    def _stack(self) -> list[Entry] | None:
        """Return a new list of frames; None if there are to be none."""
        return list(self.random.choice(self.stacks)) if self.stacks else None

    def _event(
        self, action: str, address: int, size: int, frames: list[Entry] | None
    ) -> None:
        """Add an event to the history. Texts are not shared between events, as torch
        does not share them."""
        entry: Entry = {
            "action": action,
            "addr": address,
            "size": size,
            "stream": 0,
            "time_us": START_US + 7 * len(self.events),
            "compile_context": "".join(
                ("N/", "A")
            ),  # not shared, as a literal would be
            "user_metadata": "",
        }
        if frames is not None:
            entry["frames"] = list(frames) if self.copied else frames

        self.events.append(entry)


def _make_frame(number: int) -> Entry:
    """Return a frame of a stack: every third one of C++, the others of Python."""
    if number % 3 == 0:
        return {"name": f"at::_ops::call_{number}", "filename": "??", "line": number}
    return {
        "name": f"forward_{number}",
        "filename": f"/home/user/project/layer_{number % 40}.py",
        "line": number,
    }


def _make_segment(block: _Block) -> Entry:
    """Return the segment of a block, which takes all of it."""
    return {
        "device": 0,
        "address": block.address,
        "total_size": block.segment_size,
        "allocated_size": block.segment_size,
        "active_size": block.segment_size,
        "requested_size": block.size,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "blocks": [
            {
                "address": block.address,
                "size": block.segment_size,
                "requested_size": block.size,
                "state": "active_allocated",
                "frames": block.frames or [],
            }
        ],
        "frames": block.frames or [],
    }


def generate(
    target: Path, megabytes: int, protocol: int, depth: int, copied: bool = False
) -> int:
    """Write a snapshot of about `megabytes`, in a protocol of pickle, and return the
    number of its events. `depth` is the number of frames of a stack; with `copied`
    every event has its own list."""
    sample = Allocator(depth, copied)
    for _ in range(SAMPLE_STEPS):
        sample.step()

    sample_bytes = len(pickle.dumps(sample.snapshot(), protocol))
    allocator = Allocator(depth, copied)
    for _ in range(SAMPLE_STEPS * megabytes * 1_000_000 // sample_bytes):
        allocator.step()

    with target.open("wb") as out:
        pickle.dump(allocator.snapshot(), out, protocol)

    return len(allocator.events)


def main() -> None:
    """Write the snapshot that the command line asks for, and print its number of
    events."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--protocol", type=int, default=4)
    parser.add_argument("--depth", type=int, default=40, help="frames of a stack")
    parser.add_argument("--copied", action="store_true")
    args = parser.parse_args()
    events = generate(
        args.target, args.megabytes, args.protocol, args.depth, args.copied
    )
    print(events, "events")


if __name__ == "__main__":
    main()
