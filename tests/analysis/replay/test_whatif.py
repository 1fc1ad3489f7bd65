"""`fusetui whatif` beside what invented programs do when they are changed: exact to the
nanosecond where nothing comes late by chance."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.analysis.replay.cases import CHANGES
from tests.analysis.replay.invented import invented, warm_up
from tests.analysis.replay.judge import by_command, judged
from tests.analysis.replay.programs import (
    Copy,
    Host,
    Item,
    Launch,
    Machine,
    Own,
    Program,
    Record,
    Sync,
    WaitEvent,
    note,
    op,
    program,
    steps,
)
from tests.analysis.replay.recording import write
from tests.analysis.replay.simulator import Residuals, simulate

from fusetui.analysis.replay.whatif import WhatIf, whatif
from fusetui.report.whatif import format_gain
from fusetui.trace import open_trace

CASES = (
    *(
        ("host-bound", "op x0"),
        ("host-bound", "python x0.5"),
        ("GPU-bound", "kernel x0.5"),
    ),
    *(("GPU-bound", "module x0"), ("mixed", "several"), ("mixed", "op x0.5")),
    *(
        ("switches", "kernel x2"),
        ("modules loaded", "op x0"),
        ("streams", "kernel 40us"),
    ),
    *(
        ("waits", "kernel x2"),
        ("waits, not recorded", "family x0.5"),
        ("collectives", "comm x0"),
    ),
    *(("graphs", "no-sync"), ("graphs", "family x0.5"), ("full queue", "kernel x2")),
    *(("training", "loader"), ("training", "op x0"), ("threads", "op x0")),
    *(("graphs", "graph"), ("full queue", "op x0"), ("training", "python x0.5")),
)


@pytest.mark.parametrize(("kind", "change"), CASES)
def test_a_random_program_is_predicted_exactly(
    kind: str, change: str, tmp_path: Path
) -> None:
    verdict = judged(invented(kind, 1), CHANGES[change], by_command, tmp_path)
    assert not verdict.abstained, verdict.prediction.said
    assert verdict.wrong == ()


@pytest.mark.parametrize(("kind", "change"), CASES)
def test_with_residuals_it_is_near(kind: str, change: str, tmp_path: Path) -> None:
    chance = Residuals(1, launch=1500, switch=500, event=800)
    verdict = judged(invented(kind, 1), CHANGES[change], by_command, tmp_path, chance)
    assert not verdict.abstained, verdict.prediction.said
    assert abs(verdict.error) < 0.05


def kernel(name: str, us: int, stream: int = 7) -> Launch:
    return Launch(Item(name, us * 1000, stream), 5000)


def repeated(*body: Host, machine: Machine | None = None) -> Program:
    """Four equal steps, after launches that tell the latency of 4 us."""
    chosen = machine or Machine()
    return program(
        note("warm-up", *warm_up(chosen)),
        Own(5000),
        *steps(*[body] * 4),
        machine=chosen,
    )


AHEAD = (kernel("long", 100), kernel("long", 100), kernel("long", 100))
BY_HAND: dict[str, tuple[Program, str, int]] = {
    # One launch and 200 us of the thread's own: the kernel ends long before.
    "a kernel that nobody waits for": (
        repeated(kernel("k", 100), Own(200_000)),
        "kernel:k x0.5",
        205,
    ),
    # The wait ends 3 us after the kernel, which starts 4 us after its call: 4 + 50 + 3
    # us.
    "a kernel that is waited for": (
        repeated(kernel("k", 100), Sync("stream", 3000)),
        "kernel:k x0.5",
        57,
    ),
    # The copy comes after the kernel: 4 + 50 + 2 + 3 us.
    "a copy that its call waits for": (
        repeated(
            kernel("k", 100),
            Copy(Item("Memcpy DtoH (Device -> Pageable)", 2000, 7), 3000),
        ),
        "kernel:k x0.5",
        59,
    ),
    # 4 us latency, the half of 100 us, then the other stream's 30 us, and 3 us to
    # return.
    "an event of another stream": (
        repeated(
            *(kernel("k", 100), Record(1, 7, 1000), WaitEvent(1, 20, 1000)),
            *(kernel("other", 30, stream=20), Sync("device", 3000)),
        ),
        "kernel:k x0.5",
        87,
    ),
    # Two in flight: the third call waits until the first kernel ends, at 4 + 50 us;
    # then 5 us of its own and 200 us of the thread's.
    "a launch that waits for room": (
        repeated(*AHEAD, Own(200_000), machine=Machine(depth=2)),
        "kernel:long x0.5",
        259,
    ),
    # With 10 us each all kernels of the op but the last have ended: there is room.
    "a launch that no longer waits": (
        repeated(*AHEAD, Own(200_000), machine=Machine(depth=2)),
        "kernel:long 1us",
        215,
    ),
    # Of ten kernels of 50 us every other one goes: five calls, three in flight at most.
    # The last two wait until the first two kernels end, at 4 + 50 and 4 + 100 us; then
    # come 5 us of the call, and 300 us of the thread's own.
    "room when launches before are gone": (
        repeated(
            *[
                op(name, kernel(name, 50))
                for _ in range(5)
                for name in ("stays", "gone")
            ],
            *(Own(300_000), Sync("device", 3000)),
            machine=Machine(depth=3),
        ),
        "op:gone x0",
        412,
    ),
    # One call of 10 us instead of two ops of 25 us; then 30 us of the thread's own.
    "a range as a graph": (
        repeated(
            note(
                "forward",
                *[op("a", Own(20_000), kernel("k", 5)) for _ in range(2)],
            ),
            Own(30_000),
        ),
        "graph:forward",
        40,
    ),
    # The op's 30 us and its launch of 5 us go, and its kernel: 10 + 4 + 20 + 3 us are
    # left.
    "an op that goes": (
        repeated(
            op("gone", Own(30_000), kernel("k", 500)),
            *(op("stays", Own(10_000), kernel("l", 20)), Sync("device", 3000)),
        ),
        "op:gone x0",
        37,
    ),
}


@pytest.mark.parametrize("case", BY_HAND)
def test_whatif_and_simulator_equal_results_by_hand(case: str, tmp_path: Path) -> None:
    """The simulator and the command both give what was worked out by hand."""
    whole, change, after_us = BY_HAND[case]
    verdict = judged(whole, [change], by_command, tmp_path)
    assert verdict.after == after_us * 1000
    assert verdict.wrong == ()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("streams", False),
        ("streams, not recorded", True),
        ("waits, not recorded", False),
    ],
)
def test_unrecorded_events_between_streams_are_noted(
    kind: str, said: bool, tmp_path: Path
) -> None:
    path = write(simulate(invented(kind, 0)), tmp_path / "trace.json")
    found = whatif(open_trace(str(path), cached=False), ["kernel:sgemm x0.5"])
    assert ("events_unknown" in found.notes) is said


def test_whatif_change_that_matches_nothing_is_refused(tmp_path: Path) -> None:
    refused = judged(
        repeated(kernel("k", 100)), ["kernel:absent x0.5"], by_command, tmp_path
    )
    assert refused.prediction.refused == 2
    assert refused.prediction.said == "No kernel matches kernel:absent."


ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
WITH_COLLECTIVE = repeated(
    kernel("k", 100), kernel(ALL_REDUCE, 50), Sync("device", 3000)
)


def answered(tested: Program, change: str, folder: Path) -> WhatIf:
    path = write(simulate(tested), folder / "trace.json")
    return whatif(open_trace(str(path), cached=False), [change])


@pytest.mark.parametrize("change", ["comm x0.5", "kernel:nccl x0.5"])
def test_a_change_of_collectives_says_that_it_scales_waiting(
    change: str, tmp_path: Path
) -> None:
    notes = answered(WITH_COLLECTIVE, change, tmp_path).notes
    assert "waits_scaled" in notes
    assert "other_ranks_unchanged" not in notes


def test_a_change_of_other_kernels_leaves_waiting_for_ranks_as_it_was(
    tmp_path: Path,
) -> None:
    notes = answered(WITH_COLLECTIVE, "kernel:k x0.5", tmp_path).notes
    assert "other_ranks_unchanged" in notes
    assert "waits_scaled" not in notes


@pytest.mark.parametrize(
    ("after_ns", "said"),
    [
        (43_419_000_000, "714 us less, negligible"),
        (43_419_715_000, "1 us more, negligible"),
        (43_419_714_000, "no change"),
        (21_709_857_000, "50.0 % less"),
    ],
)
def test_a_saving_that_is_next_to_nothing_is_told(after_ns: int, said: str) -> None:
    assert format_gain(43_419_714_000, after_ns) == said
