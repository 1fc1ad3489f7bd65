"""Snapshots: every value of every column is what Python's own pickle finds in the
file."""

from __future__ import annotations

import pickle
from functools import cache
from pathlib import Path
from typing import Any

from fusetui.trace.snapshot.columns import BlockState, MemoryAction, Snapshot
from fusetui.trace.snapshot.reading import read_snapshot

UNKNOWN_LINE = (1 << 64) - 1


@cache
def ours(path: Path) -> Snapshot:
    return read_snapshot(str(path))


@cache
def theirs(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = pickle.loads(path.read_bytes())
    return found


def frames(entry: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [
        (
            one["name"],
            one["filename"],
            one["line"] if one["line"] != UNKNOWN_LINE else 0,
        )
        for one in entry.get("frames", ())
    ]


def same_stacks(
    found: Snapshot, stacks: list[int], entries: list[dict[str, Any]]
) -> None:
    assert [list(found.stacks[one]) for one in stacks] == [
        frames(entry) for entry in entries
    ]


def test_events_of_snapshots_equal_pickle(any_snapshot: Path) -> None:
    found, want = ours(any_snapshot), theirs(any_snapshot)["device_traces"]
    assert [one.device for one in found.events] == [
        at for at, one in enumerate(want) if one
    ]
    for events in found.events:
        entries = want[events.device]
        assert [MemoryAction(one).name.lower() for one in events.action] == [
            entry["action"] for entry in entries
        ]
        for key in ("addr", "size", "stream", "time_us", "device_free"):
            assert getattr(events, key).tolist() == [
                entry.get(key, -1) for entry in entries
            ]
        for key in ("compile_context", "user_metadata"):
            texts = [
                found.strings[one] if one >= 0 else None for one in getattr(events, key)
            ]
            assert texts == [entry.get(key) for entry in entries]
        same_stacks(found, events.stack.tolist(), entries)


def test_segments_of_snapshots_equal_pickle(any_snapshot: Path) -> None:
    found, want = ours(any_snapshot), theirs(any_snapshot)["segments"]
    segments = found.segments
    sizes = ("total_size", "allocated_size", "active_size", "requested_size")
    for key in ("device", "address", *sizes, "stream", "is_expandable"):
        assert getattr(segments, key).tolist() == [entry[key] for entry in want]
    assert [found.pools[one] for one in segments.pool] == [
        one["segment_pool_id"] for one in want
    ]
    assert segments.is_large.tolist() == [
        one["segment_type"] == "large" for one in want
    ]
    same_stacks(found, segments.stack.tolist(), want)


def test_blocks_of_snapshots_equal_pickle(any_snapshot: Path) -> None:
    found = ours(any_snapshot)
    want = [
        (at, one)
        for at, segment in enumerate(theirs(any_snapshot)["segments"])
        for one in segment["blocks"]
    ]
    blocks = found.blocks
    assert blocks.segment.tolist() == [at for at, _ in want]
    for key in ("address", "size", "requested_size"):
        assert getattr(blocks, key).tolist() == [one[key] for _, one in want]
    assert [BlockState(one).name.lower() for one in blocks.state] == [
        one["state"] for _, one in want
    ]
    same_stacks(found, blocks.stack.tolist(), [one for _, one in want])


def test_annotations_and_settings_of_snapshots_equal_pickle(any_snapshot: Path) -> None:
    found, want = ours(any_snapshot), theirs(any_snapshot)
    rows = found.annotations
    assert [
        (found.strings[name], "START" if start else "END", device, time)
        for name, start, device, time in zip(
            rows.name, rows.is_start, rows.device, rows.time_us, strict=True
        )
    ] == [
        (one["name"], one["stage"], one["device"], one["time_us"])
        for one in want.get("external_annotations", ())
    ]
    assert found.settings == want.get("allocator_settings", {})


def test_equal_stacks_are_one(any_snapshot: Path) -> None:
    stacks = ours(any_snapshot).stacks
    assert len({stacks[one] for one in range(len(stacks))}) == len(stacks)
    assert len(set(stacks.frames)) == len(stacks.frames)
