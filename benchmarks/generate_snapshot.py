"""Makes a memory snapshot of any size, with the objects that torch makes: a list of
frames for each allocation, which its block and the events of its segment share, one for
each free, which all of its events share, and texts that are not shared.

    python -P benchmarks/generate_snapshot.py big.pickle --megabytes 100 --protocol 4
"""

from __future__ import annotations

import argparse
import pickle
import random
from pathlib import Path
from typing import Any

A_SITE = 200  # allocations that live at once
SITES = 400
PAGE = 2 << 20
START_US = 1_748_730_219_000_000
Entry = dict[str, Any]


class Allocator:
    """Writes the history of blocks that come and go, each in a segment of its own."""

    def __init__(self, depth: int, copied: bool) -> None:
        self.random = random.Random(depth)
        self.depth, self.copied = depth, copied
        frames = [_frame(number) for number in range(max(SITES, depth))]
        self.sites = [
            self.random.sample(frames, depth) for _ in range(SITES if depth else 0)
        ]
        self.events: list[Entry] = []
        self.live: list[tuple[int, int, list[Entry] | None]] = []
        self.addresses = [
            0x7F0000000000 + number * (1 << 26) for number in range(4 * A_SITE)
        ]

    def step(self) -> None:
        """One allocation; one free, where enough lives."""
        address, size = (
            self.addresses.pop(0),
            self.random.choice((4, 512, 70_000, 25_165_824)),
        )
        frames = self._stack()
        self._event("segment_alloc", address, max(size, PAGE), frames)
        self._event("alloc", address, size, frames)
        self.live.append((address, size, frames))
        if len(self.live) > A_SITE:
            address, size, _ = self.live.pop(self.random.randrange(A_SITE))
            frames = self._stack()
            self._event("free_requested", address, size, frames)
            self._event("free_completed", address, size, frames)
            self._event("segment_free", address, max(size, PAGE), frames)
            self.addresses.append(address)

    def snapshot(self) -> Entry:
        return {
            "segments": [_segment(*one) for one in self.live],
            "device_traces": [self.events, []],
            "external_annotations": [],
        }

    def _stack(self) -> list[Entry] | None:
        return list(self.random.choice(self.sites)) if self.depth else None

    def _event(
        self, action: str, address: int, size: int, frames: list[Entry] | None
    ) -> None:
        entry = {"action": action, "addr": address, "size": size, "stream": 0}
        entry["time_us"] = START_US + 7 * len(self.events)
        entry["compile_context"], entry["user_metadata"] = "".join(("N/", "A")), ""
        if frames is not None:
            entry["frames"] = list(frames) if self.copied else frames
        self.events.append(entry)


def _frame(number: int) -> Entry:
    cpp = number % 3 == 0
    file = "??" if cpp else f"/home/user/project/layer_{number % 40}.py"
    return {
        "name": f"{'at::_ops::call' if cpp else 'forward'}_{number}",
        "filename": file,
        "line": number,
    }


def _segment(address: int, size: int, frames: list[Entry] | None) -> Entry:
    total = max(size, PAGE)
    used = {"allocated_size": total, "active_size": total, "requested_size": size}
    block: Entry = {"address": address, "size": total, "requested_size": size}
    block |= {"state": "active_allocated", "frames": frames or []}
    place = {"device": 0, "address": address, "total_size": total} | used
    kind = {
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
    }
    return place | kind | {"blocks": [block], "frames": frames or []}


def generate(
    target: Path, megabytes: int, protocol: int, depth: int, copied: bool = False
) -> int:
    """Returns how many events it wrote; `copied`: every event has a list of frames of
    its own."""
    tried = Allocator(depth, copied)
    for _ in range(2_000):
        tried.step()
    size = len(pickle.dumps(tried.snapshot(), protocol))
    allocator = Allocator(depth, copied)
    for _ in range(2_000 * megabytes * 1_000_000 // size):
        allocator.step()
    with target.open("wb") as out:
        pickle.dump(allocator.snapshot(), out, protocol)
    return len(allocator.events)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--protocol", type=int, default=4)
    parser.add_argument("--depth", type=int, default=40, help="frames of a stack")
    parser.add_argument("--copied", action="store_true")
    args = parser.parse_args()
    print(
        generate(args.target, args.megabytes, args.protocol, args.depth, args.copied),
        "events",
    )


if __name__ == "__main__":
    main()
