"""The history of allocations is what a replay in plain Python over the pickle finds, to
the byte, and every table adds up to it."""

from __future__ import annotations

import pickle
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.scripts import benchmark
from tests.snapshots import MB, Machine, backward, forward, stepping, train

from fusetui.analysis.memory.answer import DeviceMemory, memory
from fusetui.analysis.memory.history import build_histories
from fusetui.report.memory import format_memory
from fusetui.trace.snapshot.columns import Snapshot
from fusetui.trace.snapshot.reading import read_snapshot


def replayed(document: dict[str, Any], device: int) -> dict[str, int]:
    """The live set by address: backwards from the blocks, then forward."""
    blocks = [
        b for s in document["segments"] if s["device"] == device for b in s["blocks"]
    ]
    kept = [b for b in blocks if b["state"] == "active_allocated"]
    events = (
        document["device_traces"][device]
        if device < len(document["device_traces"])
        else []
    )
    live = {b["address"]: b["requested_size"] for b in kept}
    for event in reversed(events):
        if event["action"] == "alloc":
            live.pop(event["addr"], None)
        elif event["action"] == "free_requested":
            live[event["addr"]] = event["size"]
    start = held = peak = sum(live.values())
    at = -1
    for index, event in enumerate(events):
        if event["action"] == "alloc":
            held += event["size"] - live.pop(event["addr"], 0)
            live[event["addr"]] = event["size"]
        elif event["action"] == "free_requested":
            held -= live.pop(event["addr"], 0)
        if held > peak:
            peak, at = held, index
    return {
        "allocated_start_bytes": start,
        "peak_allocated_bytes": peak,
        "peak_index": at,
        "allocated_end_bytes": held,
        "difference_end_bytes": held - sum(b["requested_size"] for b in kept),
    }


@cache
def read(path: Path) -> Snapshot:
    return read_snapshot(str(path))


def answers(path: Path, at: str = "peak") -> tuple[DeviceMemory, ...]:
    return memory(read(path), at).devices


def check(path: Path) -> None:
    document = pickle.loads(path.read_bytes())
    for found in answers(path):
        want = replayed(document, found.device)
        assert {key: getattr(found, key) for key in want} == want
    for at in ("peak", "end"):
        for found in answers(path, at):
            for rows in (found.categories, found.by_code, found.by_module):
                assert sum(row.bytes for row in rows) == found.at_allocated_bytes


def test_histories_of_snapshots_equal_a_plain_replay(any_snapshot: Path) -> None:
    check(any_snapshot)
    assert {one.difference_end_bytes for one in answers(any_snapshot)} == {0}


def by_own_code(document: dict[str, Any], device: int, peak: int) -> dict[str, int]:
    """What lives after an event by the innermost frame that is in nobody's library."""
    segments = [s for s in document["segments"] if s["device"] == device]
    blocks = [b for s in segments for b in s["blocks"]]
    live = {b["address"]: b for b in blocks if b["state"] == "active_allocated"}
    live = {a: (b["requested_size"], b.get("frames", [])) for a, b in live.items()}
    events = document["device_traces"][device]
    for event in reversed(events):
        if event["action"] == "alloc":
            live.pop(event["addr"], None)
        elif event["action"] == "free_requested":
            live[event["addr"]] = (event["size"], [])
    for event in events[: peak + 1]:
        if event["action"] == "alloc":
            live[event["addr"]] = (event["size"], event["frames"])
        elif event["action"] == "free_requested":
            del live[event["addr"]]
    found: dict[str, int] = {}
    for size, frames in live.values():
        own = [
            f
            for f in frames
            if f["filename"].endswith(".py") and "/lib/" not in f["filename"]
        ]
        own = [f for f in own if "torchinductor" not in f["filename"]]
        if own:
            place = f"{own[0]['filename']}:{own[0]['line']} {own[0]['name']}"
            found[place] = found.get(place, 0) + size
    return found


def test_own_code_of_snapshots_equals_a_plain_count(any_snapshot: Path) -> None:
    found = answers(any_snapshot)[0]
    document = pickle.loads(any_snapshot.read_bytes())
    want = by_own_code(document, found.device, found.at_index)
    assert {one.place: one.bytes for one in found.by_code if one.place in want} == want
    others = {one.place for one in found.by_code} - {*want}
    assert all(
        one == "before_recording" or one.startswith("backward") for one in others
    ), others


def run(machine: Machine, seed: int, steps: int) -> None:
    """Allocations of all sizes that come and go on two streams."""
    chance, live = random.Random(seed), list[int | None]()
    for _ in range(steps):
        if live and chance.random() < 0.45:
            machine.free(
                live.pop(chance.randrange(len(live))), backward(), chance.random() < 0.9
            )
        else:
            size = chance.choice((1, 700, 300_000, 3 * MB, 40 * MB + 5))
            live.append(
                machine.alloc(size, forward(chance.randrange(9)), chance.randrange(2))
            )


@pytest.mark.parametrize("lost", [0, 1, 77, 300])
@pytest.mark.parametrize("expandable", [False, True])
def test_histories_of_generated_snapshots_equal_a_plain_replay(
    tmp_path: Path, lost: int, expandable: bool
) -> None:
    machines = [Machine(device, 1 << 30, expandable=expandable) for device in (0, 2)]
    for machine in machines:
        run(machine, lost + machine.device, 300)
    path = machines[0].write(tmp_path / "a.pickle", machines[1], lost=lost)
    check(path)
    assert [one.device for one in answers(path)] == [0, 2]
    assert [one.difference_end_bytes for one in answers(path)] == [0, 0]


def test_device_without_events_has_blocks_and_no_peak(tmp_path: Path) -> None:
    machine = Machine()
    machine.alloc(500, forward())
    found = answers(machine.write(tmp_path / "a.pickle", lost=9))[0]
    assert (found.events, found.peak_index, found.peak_time_us) == (0, -1, None)
    assert found.peak_allocated_bytes == found.allocated_end_bytes == 500


def test_a_file_that_contradicts_itself(tmp_path: Path) -> None:
    machine = Machine()
    machine.alloc(500)
    document = machine.snapshot()
    document["segments"][0]["blocks"][0]["state"] = "inactive"
    (tmp_path / "a.pickle").write_bytes(pickle.dumps(document))
    check(tmp_path / "a.pickle")
    assert answers(tmp_path / "a.pickle")[0].difference_end_bytes == 500


def test_generated_benchmark_snapshot_contradicts_nothing(tmp_path: Path) -> None:
    """More is never in use than reserved, and nothing contradicts itself."""
    allocator = benchmark("generate_snapshot").Allocator(depth=2, copied=False)
    for _ in range(900):
        allocator.step()
    (path := tmp_path / "a.pickle").write_bytes(pickle.dumps(allocator.snapshot()))
    check(path)
    (found,) = build_histories(read(path))
    assert (found.active <= found.reserved).all()
    assert (found.difference_end_bytes, found.unrecorded) == (0, ())


@pytest.mark.parametrize(
    ("skipped", "follows"),
    [
        (("free_requested",), "an allocation counts until its memory is free"),
        (("free_completed",), "memory that a stream still uses counts as free"),
        (("alloc",), "figures of moments before the end are not exact"),
        (
            ("free_requested", "free_completed"),
            "figures of moments before the end are not exact",
        ),
        (("segment_free",), "earlier reserved sizes are not exact"),
        (("segment_alloc",), "earlier reserved sizes are not exact"),
    ],
)
@pytest.mark.parametrize("lost", [0, 77])
def test_actions_that_torch_was_told_to_skip(
    tmp_path: Path, skipped: tuple[str, ...], follows: str, lost: int
) -> None:
    machine = Machine(total=3 << 30)
    for _ in range(4):
        train(machine, 1)
        # the device gives what it took
        begin, machine.next = machine.next, 0x7E0000000000
        machine.free(machine.alloc(300 * MB))
        machine.release()
        machine.next = begin
    whole = answers(machine.write(tmp_path / "whole.pickle", lost=lost))[0]
    assert whole.unrecorded == ()
    path = machine.write(tmp_path / "a.pickle", lost=lost, skipped=skipped)
    found = answers(path)[0]
    assert found.unrecorded == skipped
    said = format_memory(memory(read(path)), "code", 5, 400).replace("\n", " ")
    assert f"Events {' and '.join(skipped)} were not recorded: {follows}." in said
    assert "contradict" not in said
    if len(skipped) == 1 and skipped != ("alloc",):
        assert found.peak_allocated_bytes == whole.peak_allocated_bytes
        assert found.difference_end_bytes == 0
    else:
        assert found.findings == ()


def test_reserved_is_what_segments_add_up_to(tmp_path: Path) -> None:
    machine = Machine()
    first = machine.alloc(30 * MB)
    machine.free(first)
    machine.release()
    machine.alloc(5 * MB)
    found = answers(machine.write(tmp_path / "a.pickle", lost=1))[0]
    assert (found.peak_reserved_bytes, found.reserved_end_bytes) == (30 * MB, 20 * MB)


def test_block_awaiting_free_is_active_and_not_allocated(tmp_path: Path) -> None:
    machine = Machine()
    machine.free(machine.alloc(500), complete=False)
    found = answers(machine.write(tmp_path / "a.pickle"))[0]
    assert (found.allocated_end_bytes, found.active_end_bytes) == (0, 500)


def test_steps_are_not_those_of_the_model(tmp_path: Path) -> None:
    """A closure: the optimizer's step runs forward and backward."""
    machine = Machine()
    with machine.annotated("Optimizer.step#LBFGS.step"):
        kept = machine.alloc(MB, (*forward()[:-1], *stepping()))
        machine.alloc(2 * MB, stepping())
        machine.free(kept, backward())
    found = answers(machine.write(tmp_path / "a"), "end")[0]
    assert {one.category: one.bytes for one in found.categories} == {
        "optimizer_state": 2 * MB
    }
