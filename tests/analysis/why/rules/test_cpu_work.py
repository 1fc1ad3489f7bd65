"""The CPU does something else than launching."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Ask, Lack

Make = Callable[..., Any]


def test_one_long_gap_is_not_for_want_of_graphs(
    found: Ask, event: Make, launched: Make
) -> None:
    """Of the gap from 15 to 217,000 us one op, which decodes a video, takes 216 ms."""
    events = [
        *launched(1, 0, 5),
        event("torchcodec::get_frames", 500, 216_000),
        *launched(2, 216_995, 217_000),
    ]
    (finding,) = found("cpu-work", events)
    assert finding.at_stake_ns == 216_980_000
    assert "in 1 gap of more than 5 ms while the CPU launches nothing" in finding.text
    assert "216 ms in ops, mostly torchcodec::get_frames (1 x, 216 ms)" in finding.text
    assert finding.try_ is not None
    assert "graphs does not help" in finding.try_
    assert found("host-bound", events) == []


def test_many_ops_in_a_gap_are_the_way_to_a_launch(
    found: Ask, event: Make, launched: Make
) -> None:
    """100 ops of 100 us each: the CPU is slow, but does nothing else."""
    ops = [event("aten::view", 100 * n, 100) for n in range(100)]
    events = [*launched(1, 0, 5), *ops, *launched(2, 10_000, 10_005)]
    assert found("cpu-work", events) == []
    (finding,) = found("host-bound", events)
    assert "mostly aten::view (100 x, 9.985 ms)" in finding.text


def test_the_wait_after_a_synchronization_is_part_of_it(
    found: Ask, event: Make, launched: Make
) -> None:
    wait = event("cudaStreamSynchronize", 3, 400, cat="cuda_runtime")
    events = [
        *launched(1, 0, 5),
        wait,
        event("work", 500, 9_000),
        *launched(2, 9_995, 10_000),
    ]
    (finding,) = found("drained-by-sync", events)
    assert finding.part_of == "cpu-work"


def around(launched: Make, *between: dict[str, Any]) -> list[dict[str, Any]]:
    """A gap from 15 us to 500 us, whose host part ends at 490 us."""
    return [*launched(1, 0, 5), *between, *launched(2, 490, 500)]


def test_a_tensor_that_is_filled_on_the_cpu(
    found: Ask, event: Make, launched: Make
) -> None:
    """Of 475 us aten::normal_ takes 400 us in aten::randn, and launches nothing."""
    ops = [event("aten::randn", 20, 420), event("aten::normal_", 30, 400)]
    events = around(launched, *ops)
    (finding,) = found("cpu-work", events)
    assert finding.at_stake_ns == 475_000
    assert "in 1 gap while the CPU launches nothing" in finding.text
    assert finding.try_ == (
        "Create the tensor on the GPU, for example with "
        'torch.randn(..., device="cuda"). In this trace, aten::normal_ runs on the CPU. '
        "Replaying launches as graphs does not help here, because the CPU launches nothing during this time."
    )
    assert found("host-bound", events) == []


def test_product_computed_on_the_cpu_is_named_in_the_remedy(
    found: Ask, event: Make, launched: Make
) -> None:
    """A quarter of the host part, and a bit more."""
    (finding,) = found("cpu-work", around(launched, event("aten::bmm", 100, 125)))
    assert finding.try_ is not None
    assert finding.try_.startswith(
        'Keep the inputs of aten::bmm on the GPU (.to("cuda")) instead of in host memory.'
    )


@pytest.mark.parametrize(
    ("name", "dur"),
    [
        ("aten::bmm", 118),  # less than a quarter of the gap
        ("aten::normal_", 99),  # as short as dispatching may take
        ("aten::empty_strided", 400),  # allocates
        ("aten::select", 400),  # describes
        ("aten::to", 400),
        # its launches come later
        ("autograd::engine::evaluate_function: AddmmBackward0", 400),
        ("triton_poi_fused_add_0", 400),  # launches of Triton are not in every trace
    ],
)
def test_the_way_to_a_launch_is_no_computing(
    found: Ask, event: Make, launched: Make, name: str, dur: int
) -> None:
    events = around(launched, event(name, 20, dur))
    assert found("cpu-work", events) == []
    assert len(found("host-bound", events)) == 1


def test_an_op_that_launches_does_not_compute_on_the_cpu(
    found: Ask, event: Make, launched: Make
) -> None:
    """470 us in aten::bmm before its launch call."""
    events = [*launched(1, 0, 5), event("aten::bmm", 20, 480), *launched(2, 490, 505)]
    assert found("cpu-work", events) == []
    assert len(found("host-bound", events)) == 1


def test_an_op_whose_launch_has_no_event_does_not_compute_on_the_cpu(
    found: Ask, event: Make, launched: Make
) -> None:
    lost = event(
        "cudaLaunchKernel", 100, 5, cat="cuda_runtime", args={"correlation": 77}
    )
    events = around(launched, event("aten::bmm", 20, 400), lost)
    assert found("cpu-work", events) == []


def test_an_op_that_only_calls_others_does_not_compute(
    found: Ask, event: Make, launched: Make
) -> None:
    """Ten views of 40 us in an op of 401 us: 1 us of its own."""
    views = [event("aten::view", 20 + 40 * n, 40) for n in range(10)]
    assert (
        found("cpu-work", around(launched, event("aten::stack", 20, 401), *views)) == []
    )


def test_an_op_inside_one_that_launches_is_on_the_way_to_it(
    found: Ask, event: Make, launched: Make
) -> None:
    """As DTensor does: aten::mul of tensors without data in aten::mul, then the
    launch."""
    ops = [event("aten::mul", 20, 480), event("aten::mul", 50, 350)]
    events = [*launched(1, 0, 5), *ops, *launched(2, 490, 505)]
    assert found("cpu-work", events) == []


def test_an_op_that_spends_most_of_its_time_in_views_is_no_cpu_work(
    found: Ask, event: Make, launched: Make
) -> None:
    """aten::unflatten_dense_tensors makes views, which take 250 of its 400 us; then
    150."""
    whole = event("aten::unflatten_dense_tensors", 20, 400)
    for views_us, findings in ((250, 0), (150, 1)):
        views = event("aten::narrow", 100, views_us)
        assert len(found("cpu-work", around(launched, whole, views))) == findings


def test_an_op_of_another_thread_does_not_compute_for_this_one(
    found: Ask, event: Make, launched: Make
) -> None:
    events = around(launched, event("aten::normal_", 20, 400, tid=9))
    assert found("cpu-work", events) == []


def test_without_launches_it_cannot_tell(lacking: Lack, event: Make) -> None:
    kernels = [event("k", ts, 10, cat="kernel", pid=0, tid=7) for ts in (0, 9_000)]
    (lack,) = lacking("cpu-work", kernels)
    assert "launch calls" in lack.missing


def test_time_before_the_first_kernel_is_set_up(
    found: Ask, event: Make, launched: Make
) -> None:
    """Weights are read from a file between two copies, for 200 ms; what comes after the
    first kernel counts, and with steps all of it."""
    copy = launched(1, 0, 5)
    copy[1] |= {"cat": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)"}
    reads = event("load_weights", 500, 200_000)
    events = [*copy, reads, *launched(2, 200_995, 201_000)]
    assert found("cpu-work", events) == []
    step = event("ProfilerStep#1", 0, 300_000, cat="user_annotation")
    (finding,) = found("cpu-work", [step, *events])
    assert finding.at_stake_ns == 200_980_000
    later = [event("decode", 201_100, 50_000), *launched(3, 251_995, 252_000)]
    (finding,) = found("cpu-work", [*events, *later])
    assert finding.at_stake_ns == 251_995_000 - 201_010_000
    assert "excluding setup before the first kernel" in finding.text
