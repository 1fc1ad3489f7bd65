"""What reading a snapshot makes of all that torch writes, and of what it never does."""

from __future__ import annotations

import gzip
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from fusetui.trace import CannotReadError, NotATraceError
from fusetui.trace.snapshot.columns import MemoryAction, Snapshot
from fusetui.trace.snapshot.reading import read_snapshot

FRAME = {"name": "forward", "filename": "/home/a/model.py", "line": 7}
STACK = [FRAME, {"name": "main", "filename": "/home/a/train.py", "line": 3}]
BLOCK = {
    "address": 4096,
    "size": 512,
    "requested_size": 500,
    "state": "active_allocated",
}


def segment(**changes: Any) -> dict[str, Any]:
    sizes = {
        "total_size": 2048,
        "allocated_size": 512,
        "active_size": 512,
        "requested_size": 500,
    }
    place = {"device": 0, "address": 4096, "stream": 0, "segment_type": "large"}
    rest = {"segment_pool_id": (0, 0), "is_expandable": False, "blocks": [BLOCK]}
    return place | sizes | rest | changes


def event(action: str = "alloc", **changes: Any) -> dict[str, Any]:
    return {
        "action": action,
        "addr": 4096,
        "size": 500,
        "stream": 0,
        "time_us": 5,
        **changes,
    }


def read(folder: Path, value: Any, protocol: int = 4) -> Snapshot:
    data = value if isinstance(value, bytes) else pickle.dumps(value, protocol)
    (folder / "snapshot.pickle").write_bytes(data)
    return read_snapshot(str(folder / "snapshot.pickle"))


def refusal(folder: Path, value: Any) -> str:
    with pytest.raises((NotATraceError, CannotReadError)) as found:
        read(folder, value)
    return str(found.value)


def with_events(*events: Any) -> dict[str, Any]:
    return {"segments": [], "device_traces": [list(events)]}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_snapshot_of_each_pickle_protocol_is_read(
    tmp_path: Path, protocol: int
) -> None:
    events = [event(frames=STACK, addr=addr) for addr in range(0, 3_000_000, 1000)]
    found = read(tmp_path, with_events(*events), protocol)
    assert found.events[0].addr.tolist() == [one["addr"] for one in events]
    assert len(found.stacks) == 1
    assert [tuple(frame) for frame in found.stacks[0]] == [
        tuple(one.values()) for one in STACK
    ]


@pytest.mark.parametrize("protocol", [2, 4])
def test_runs_of_events_are_interrupted_by_others(
    tmp_path: Path, protocol: int
) -> None:
    """By new frames, by events with other keys, by stacks of more than a batch, by long
    texts."""
    events = [
        event(frames=STACK, user_metadata="".join(("s", str(n)))) for n in range(3000)
    ]
    events[700] = {
        "action": "oom",
        "device_free": 7,
        "size": 9,
        "stream": 0,
        "time_us": 5,
    }
    events[900]["frames"] = [FRAME | {"line": 8}, *STACK]
    events[1100]["frames"] = STACK * 800
    events[1300]["user_metadata"] = "x" * 300
    events[1500]["pool_id"] = (0, 2)
    events[1700]["frames"] = events[900]["frames"]
    for one in events[1900:]:
        del one["frames"]
    found = read(tmp_path, with_events(*events), protocol)
    rows = found.events[0]
    for key in ("addr", "size", "time_us", "device_free"):
        assert getattr(rows, key).tolist() == [one.get(key, -1) for one in events]
    texts = [found.strings[one] if one >= 0 else None for one in rows.user_metadata]
    assert texts == [one.get("user_metadata") for one in events]
    assert [
        [tuple(frame) for frame in found.stacks[one]] for one in rows.stack.tolist()
    ] == [[tuple(frame.values()) for frame in one.get("frames", ())] for one in events]


def test_compressed_snapshot_is_read(tmp_path: Path) -> None:
    found = read(tmp_path, gzip.compress(pickle.dumps(with_events(event()))))
    assert found.events[0].size.tolist() == [500]


def test_stacks_of_equal_frames_are_one_whether_shared_or_not(tmp_path: Path) -> None:
    copied = [dict(one) for one in STACK]
    found = read(
        tmp_path, with_events(*(event(frames=one) for one in (STACK, STACK, copied)))
    )
    assert found.events[0].stack.tolist() == [0, 0, 0]


def test_no_stack_and_an_empty_one_are_none(tmp_path: Path) -> None:
    found = read(tmp_path, with_events(event(), event(frames=[])))
    assert found.events[0].stack.tolist() == [-1, -1]


def test_devices_without_events_are_left_out(tmp_path: Path) -> None:
    found = read(tmp_path, {"segments": [], "device_traces": [[], [event()], []]})
    assert [one.device for one in found.events] == [1]


def test_out_of_memory_entry_is_an_event_with_its_sizes(tmp_path: Path) -> None:
    entry = {"action": "oom", "device_free": 7, "size": 9, "stream": 0, "time_us": 5}
    events = read(tmp_path, with_events(event(), entry)).events[0]
    assert events.action.tolist() == [MemoryAction.ALLOC, MemoryAction.OOM]
    assert events.device_free.tolist() == [-1, 7]
    assert events.addr.tolist() == [4096, -1]


def test_private_pool_of_segment_and_event_is_the_same(tmp_path: Path) -> None:
    entry = event(pool_id=(0, 3))
    found = read(
        tmp_path,
        {"segments": [segment(segment_pool_id=(0, 3))], "device_traces": [[entry]]},
    )
    assert (
        found.pools[found.segments.pool[0]]
        == found.pools[found.events[0].pool[0]]
        == (0, 3)
    )


def test_unknown_action_of_a_later_torch_is_other(tmp_path: Path) -> None:
    found = read(tmp_path, with_events(event("defragment")))
    assert found.events[0].action.tolist() == [MemoryAction.OTHER]


def test_blocks_of_old_files_get_their_addresses_from_sizes(tmp_path: Path) -> None:
    history = [{"addr": 4096, "real_size": 400, "frames": STACK}]
    old = [
        {"size": 512, "state": "active_allocated", "history": history},
        {"size": 1536, "state": "inactive"},
    ]
    found = read(tmp_path, [segment(blocks=old)])
    assert found.blocks.address.tolist() == [4096, 4608]
    assert found.blocks.requested_size.tolist() == [400, -1]
    assert found.blocks.stack.tolist() == [0, -1]


class Call:
    def __reduce__(self) -> Any:
        return os.system, ("touch called",)


def test_snapshot_pickle_calls_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "import or call" in refusal(tmp_path, with_events(Call()))
    assert not (tmp_path / "called").exists()


HOSTILE = {
    "a large index": b"\x80\x04]r\x00\xe1\xf5\x05.",
    "a text of 4 GB": b"\x80\x04X\xff\xff\xff\xff.",
    "nesting": b"\x80\x04" + b"]" * 300_000 + b"a" * 299_999 + b".",
    "a tuple of itself": b"\x80\x04]\x94h\x00\x85a.",
    "nested keys": b"\x80\x04})" + b"\x85" * 300_000 + b"Ns.",
    "nothing": b"\x80\x04.",
    "no mark": b"\x80\x04]K\x01e.",
    "bytes": pickle.dumps(with_events(event(size=b"5"))),
    "a set": pickle.dumps(with_events({1})),
    "the whole in itself": b"\x80\x04}\x94\x8c\x08segmentsh\x00s.",
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_pickles_are_refused(tmp_path: Path, data: bytes) -> None:
    assert "snapshot.pickle is" in refusal(tmp_path, data)


@pytest.mark.parametrize(
    "value",
    [
        7,
        [],
        {},
        {"a": 1},
        {"segments": 5},
        {"segments": [5]},
        {"segments": [event()]},
        {"segments": [], "device_traces": [[segment()]]},
        {"segments": [], "device_traces": [[event(), 5]]},
        {"segments": [], "device_traces": [5]},
        with_events(event(size="5")),
        with_events(event(size=1 << 63)),
        with_events(event(size=1 << 62), event(size=1 << 62)),
        with_events(event(size=-2)),
        {
            "segments": [
                segment(
                    address=(1 << 63) - 1, blocks=[{"size": 9, "state": "inactive"}] * 2
                )
            ]
        },
        with_events(event(frames=5)),
        with_events(event(frames=[5])),
        with_events(event(frames=[event()])),
        {"segments": [segment(blocks=[FRAME])]},
        {"segments": [segment(blocks=[BLOCK | {"state": "other"}])]},
    ],
    ids=lambda value: str(value)[:60],
)
def test_pickles_that_are_no_snapshots_are_refused(tmp_path: Path, value: Any) -> None:
    assert "memory snapshot" in refusal(tmp_path, value)


def test_a_file_that_is_cut_short(tmp_path: Path) -> None:
    whole = pickle.dumps(
        {"segments": [segment()], "device_traces": [[event(frames=STACK)]]}
    )
    for end in range(2, len(whole)):
        assert "memory snapshot" in refusal(tmp_path, whole[:end])


def test_progress_of_a_snapshot_is_reported_within_long_runs(tmp_path: Path) -> None:
    """Also within one long run of events."""
    read(tmp_path, with_events(*(event(addr=n, frames=STACK) for n in range(50_000))))
    path, seen = str(tmp_path / "snapshot.pickle"), list[tuple[int, int]]()
    read_snapshot(path, lambda *done: seen.append(done))
    assert len(seen) > 2
    assert seen == sorted(seen)
    assert all(done <= whole for done, whole in seen)
