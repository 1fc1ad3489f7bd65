"""Each planted fault gives its finding and no other, and what is no fault gives
none."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.snapshots import (
    MB,
    Machine,
    backward,
    failed,
    forward,
    train,
    trained,
    training,
)

from fusetui.analysis.memory.answer import DeviceMemory, memory
from fusetui.analysis.memory.oom import Inactive
from fusetui.trace.snapshot.reading import read_snapshot


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "made.pickle"


def told(path: Path, at: str = "peak") -> DeviceMemory:
    return memory(read_snapshot(str(path)), at).devices[0]


def rules(path: Path) -> list[str]:
    found = memory(read_snapshot(str(path)))
    assert [one.difference_end_bytes for one in found.devices] == [0] * len(
        found.devices
    )
    return [
        f"{one.device} {finding.rule}"
        for one in found.devices
        for finding in one.findings
    ]


def test_ordinary_training_has_no_finding(tmp_path: Path) -> None:
    assert rules(trained(tmp_path, 6)) == []


@pytest.mark.parametrize("steps", [4, 6])
def test_leak_of_one_tensor_a_step_is_found_with_its_bytes(
    place: Path, steps: int
) -> None:
    machine = Machine()
    train(machine, steps, leaking=3 * MB)
    machine.write(place)
    assert rules(place) == ["0 memory-leak"]
    found = told(place).findings[0]
    assert (found.each_bytes, found.bytes) == (3 * MB, 3 * MB * steps)
    assert found.places == ("/home/a/train.py:33 train",)


def test_leak_without_an_optimizer_is_found_by_steps(place: Path) -> None:
    machine = Machine()
    for number in range(6):
        with machine.annotated(f"ProfilerStep#{number}"):
            machine.alloc(MB, training())
            machine.free(machine.alloc(5 * MB, forward()), training())
    assert rules(machine.write(place)) == ["0 memory-leak"]


def test_three_steps_settle_no_leak(place: Path) -> None:
    machine = Machine()
    train(machine, 3, leaking=3 * MB)
    assert rules(machine.write(place)) == []


def test_memory_that_grows_and_shrinks_is_no_leak(place: Path) -> None:
    machine = Machine()
    kept: list[int | None] = []
    for number in range(8):
        kept.append(machine.alloc(MB, training()))
        if number % 2:
            for address in kept:
                machine.free(address, training())
        with machine.annotated("Optimizer.step#SGD.step"):
            machine.free(machine.alloc(MB, backward()), backward())
    assert "0 memory-leak" not in rules(machine.write(place))


def small_pairs(machine: Machine, count: int) -> list[int | None]:
    """Blocks of 9 MB and 11 MB in segments of 20 MB; the addresses of the smaller
    ones."""
    found: list[int | None] = []
    for _ in range(count):
        found.append(machine.alloc(9 * MB, forward(1)))
        machine.alloc(11 * MB, forward(2))
    return found


def test_fragmented_pool_is_found(place: Path) -> None:
    machine = Machine()
    for address in small_pairs(machine, 10):
        machine.free(address, training())
    machine.write(place)
    assert rules(place) == ["0 fragmentation"]
    assert (told(place).findings[0].bytes, told(place).findings[0].each_bytes) == (
        90 * MB,
        9 * MB,
    )


def test_few_pieces_are_no_fragmentation(place: Path) -> None:
    """One small block in a segment; two holes; the end of a segment that was never
    used."""
    machine = Machine()
    machine.alloc(500)
    assert rules(machine.write(place)) == []
    for address in small_pairs(machine, 2):
        machine.free(address)
    assert rules(machine.write(place)) == []
    machine = Machine()
    for _ in range(9):
        machine.free(machine.alloc(1, stream=1))
        machine.alloc(9 * MB + 1)
        machine.alloc(9 * MB + 1)
    assert rules(machine.write(place)) == []


def fragmented(free: int, asked: int) -> Machine:
    """Ten segments of 20 MB with a hole of 9 MB each, and then memory runs out."""
    machine = Machine(total=200 * MB + free)
    for address in small_pairs(machine, 10):
        machine.free(address, training())
    assert machine.alloc(asked, forward(3)) is None
    return machine


def test_expandable_segments_would_have_avoided_it(place: Path) -> None:
    fragmented(2 * MB, 60 * MB).write(place)
    assert rules(place) == ["0 fragmentation"]
    oom = told(place).ooms[0]
    assert (oom.reason, oom.expandable_would_fit) == ("fragmented", True)
    assert (oom.usable_bytes, oom.inactive_bytes, oom.largest_bytes) == (
        80 * MB,
        90 * MB,
        9 * MB,
    )
    assert oom.pinned[0].holders == ("/home/a/model.py:2 forward",)


def test_whole_pages_are_too_few(place: Path) -> None:
    """90 MB are inactive, 80 MB of them in whole pages."""
    fragmented(2 * MB, 88 * MB).write(place)
    assert rules(place) == ["0 fragmentation"]
    assert told(place).ooms[0].reason == "fragmented"
    assert told(place).ooms[0].expandable_would_fit is False


def test_expandable_segments_would_not_have_avoided_it(tmp_path: Path) -> None:
    found = told(failed(tmp_path))
    assert [(one.reason, one.expandable_would_fit) for one in found.ooms] == [
        ("live", False)
    ]
    assert found.findings == ()


def test_more_than_the_process_and_the_device_have(place: Path) -> None:
    """Others hold the device: what lives here is not why."""
    machine = Machine(total=1000 * MB, others=900 * MB)
    machine.alloc(20 * MB, forward())
    assert machine.alloc(200 * MB, forward()) is None
    assert told(machine.write(place)).ooms[0].reason == "unknown"
    assert rules(place) == []


def test_blocks_freed_after_the_moment_are_put_back(place: Path) -> None:
    """The snapshot is written later, when the blocks that were too many are gone."""
    machine = fragmented(2 * MB, 60 * MB)
    before = told(machine.write(place)).ooms
    for segment in machine.segments:
        for block in segment["blocks"]:
            machine.free(block["address"], training())
    machine.release()
    after = told(machine.write(place)).ooms
    assert (after[0].reason, after[0].allocated_bytes) == (
        "fragmented",
        before[0].allocated_bytes,
    )
    assert after[0].inactive_bytes == before[0].inactive_bytes
    assert after[0].reserved_bytes == before[0].reserved_bytes == 200 * MB
    assert after[0].expandable_would_fit is True


def test_blocks_that_are_gone_may_have_been_larger(place: Path) -> None:
    """A block keeps what is not worth splitting off, up to 1 MB: it is that of 5 pages
    or of 4. What followed it when it was allocated settles that, unless the ring lost
    it."""
    machine, half = Machine(total=40 * MB), MB // 2
    kept = [machine.alloc(n * half, forward()) for n in (19, 21, 19, 21)]
    for address in kept[1::2]:
        machine.free(address)
    assert machine.alloc(18 * MB, forward()) is None
    assert told(machine.write(place)).ooms[0].expandable_would_fit is True
    for address in kept[::2]:
        machine.free(address)
    assert told(machine.write(place)).ooms[0].expandable_would_fit is True
    after_frees = next(
        n for n, one in enumerate(machine.events) if one["action"] == "oom"
    )
    assert (
        told(machine.write(place, lost=after_frees)).ooms[0].expandable_would_fit
        is None
    )


def test_whether_enough_is_inactive_may_not_be_known(place: Path) -> None:
    """Two blocks that are gone, from before the recording, had up to 1 MB more each."""
    machine = Machine(total=40 * MB)
    kept = [machine.alloc(size) for size in (9 * MB, 11 * MB, 9 * MB, 11 * MB)]
    for address in kept[1::2]:
        machine.free(address)
    lost = len(machine.events)
    for size in (23 * MB, 21 * MB, 20 * MB):
        assert machine.alloc(size) is None
    for address in kept[::2]:
        machine.free(address)
    reasons = [one.reason for one in told(machine.write(place, lost=lost)).ooms]
    assert reasons == ["live", "unknown", "fragmented"]


def test_segments_that_are_expandable_already(place: Path) -> None:
    machine = Machine(total=100 * MB, expandable=True)
    kept = [machine.alloc(10 * MB, forward(n % 2)) for n in range(10)]
    for address in kept[::2]:
        machine.free(address)
    assert machine.alloc(40 * MB, forward(3)) is None
    found = told(machine.write(place))
    assert (found.ooms[0].reason, found.ooms[0].expandable_would_fit) == (
        "fragmented",
        None,
    )
    assert [one.helps for one in found.findings] == ["order"]


def test_where_inactive_bytes_are(place: Path) -> None:
    """Those of another stream, of another pool or of the other size help nothing."""
    machine = Machine(total=62 * MB)
    holes = machine.alloc(9 * MB, stream=1), machine.alloc(9 * MB, pool=(0, 1))
    (
        machine.alloc(11 * MB, stream=1),
        machine.alloc(11 * MB, pool=(0, 1)),
        machine.alloc(20 * MB),
    )
    machine.alloc(MB)
    for address in holes:
        machine.free(address)
    assert machine.alloc(12 * MB) is None
    found = told(machine.write(place))
    assert found.ooms[0].inactive == Inactive(9 * MB, MB, 9 * MB, 0)
    assert [one.helps for one in found.findings] == ["whole_segments"]


def test_the_rest_of_a_block_is_rounding(place: Path) -> None:
    """Half a MB at the end of a segment is not worth splitting off, though the block is
    gone."""
    machine = Machine()
    rest = machine.alloc(19 * MB + MB // 2)
    machine.free(rest)
    machine.release()
    found = told(machine.write(place)).waste
    assert (found.rounding_bytes, found.split_bytes, found.is_exact) == (
        MB // 2,
        0,
        True,
    )


def test_pages_that_were_given_back_are_of_one_segment(place: Path) -> None:
    machine = Machine(expandable=True)
    first = machine.alloc(30 * MB)
    machine.alloc(30 * MB)
    machine.free(first)
    segment = machine.segments[0]
    machine._event("segment_unmap", addr=segment["address"], size=20 * MB)
    segment["address"] += 20 * MB
    segment["total_size"] -= 20 * MB
    segment["blocks"][0] = segment["blocks"][0] | {
        "address": segment["address"],
        "size": 10 * MB,
    }
    found = told(machine.write(place)).waste
    assert (found.rounding_bytes, found.split_bytes, found.cached_bytes) == (0, 0, 0)


def test_blocks_outside_of_segments_tell_no_waste(place: Path) -> None:
    machine = Machine()
    machine._event("alloc", addr=MB, size=MB)
    machine._event("free_requested", addr=MB, size=MB)
    assert told(machine.write(place)).waste.rounding_bytes is None


def test_memory_not_freed_by_backward_is_no_activation(place: Path) -> None:
    machine = Machine()
    train(machine, 3)
    machine.alloc(6 * MB, forward(0))
    shares = told(machine.write(place), "end").categories
    assert {one.category for one in shares} == {
        "parameters",
        "optimizer_state",
        "unknown",
    }


def test_ring_that_lost_its_beginning_gives_no_false_finding(place: Path) -> None:
    machine = Machine()
    train(machine, 3)
    for lost in range(1, len(machine.events) // 2, 7):
        assert rules(machine.write(place, lost=lost)) == []


def test_second_private_pool_is_reported_as_a_pool_per_graph(place: Path) -> None:
    machine = Machine()
    machine.alloc(40 * MB, forward(), pool=(0, 1))
    assert rules(machine.write(place)) == []
    machine.alloc(60 * MB, forward(), pool=(0, 2))
    assert rules(machine.write(place)) == ["0 pool-per-graph"]
    found = told(place)
    assert found.findings[0].at_stake_bytes == 40 * MB
    assert [one.category for one in found.categories] == ["graph_pool"]


def test_expandable_segments_give_no_fragmentation_finding(place: Path) -> None:
    machine = Machine(total=400 * MB, expandable=True)
    train(machine, 4)
    machine.free(machine.alloc(100 * MB, training()), training())
    machine.release()
    assert rules(machine.write(place)) == []


def test_leak_on_one_of_two_devices_names_the_device(place: Path) -> None:
    machines = Machine(0), Machine(1)
    train(machines[0], 5)
    train(machines[1], 5, leaking=MB)
    assert rules(machines[0].write(place, machines[1])) == ["1 memory-leak"]


def test_snapshot_without_stacks_groups_under_no_stack(place: Path) -> None:
    machine = Machine()
    train(machine, 5, bare=True)
    assert rules(machine.write(place)) == []
    found = told(place, "end")
    assert {one.place for one in found.by_code} == {"no stack"}
    assert {one.category for one in found.categories} <= {"optimizer_state", "unknown"}


def test_stacks_of_c_alone_are_no_python_frame(place: Path) -> None:
    machine = Machine()
    machine.alloc(30 * MB, (("at::empty(...)", "??", 0), ("main", "main.cpp", 0)))
    assert rules(machine.write(place)) == []
    assert [one.place for one in told(place).by_code] == ["no Python frame"]


def test_gradients_of_a_step_that_is_over(place: Path) -> None:
    machine = Machine()
    train(machine, 3, late=True, activation=11 * MB)
    assert rules(machine.write(place)) == ["0 peak-not-needed"]
    found, layers = told(place).findings[0], 4
    assert (found.bytes, found.count) == (layers * 8 * MB, layers)
    without = Machine()
    train(without, 3, activation=11 * MB)
    lower = told(without.write(place)).peak_allocated_bytes
    assert found.of_bytes - (found.at_stake_bytes or 0) == lower


def test_optimizer_state_above_its_threshold_is_reported(place: Path) -> None:
    machine = Machine()
    train(machine, 3, state=24 * MB)
    assert rules(machine.write(place)) == ["0 optimizer-state-large"]


def test_activations_above_their_threshold_are_reported(place: Path) -> None:
    machine = Machine()
    train(machine, 3, activation=40 * MB)
    assert rules(machine.write(place)) == ["0 activations-large"]
