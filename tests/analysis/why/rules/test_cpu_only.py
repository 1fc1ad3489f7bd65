"""What a trace without GPU events proves about the time of the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.analysis.why.test_account import call

from fusetui.analysis.why.engine import RULES

from .conftest import Ask

Make = Callable[..., Any]
NEXT = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
COMPILER = "_compile.compile_inner (dynamo_timed)"
SLEEP = "<built-in method sleep of module object at 0x7f>"


def loading(event: Make) -> list[Any]:
    """Of 100 us, a batch is fetched from 10 to 70, 50 us of it in `decode`."""
    return [
        event("aten::mm", 0, 5),
        event(NEXT, 10, 60, cat="user_annotation"),
        event("/home/x/data.py(7): decode", 15, 50, cat="python_function"),
        event("aten::mm", 90, 10),
    ]


def test_waiting_for_the_data_loader_is_reported(found: Ask, event: Make) -> None:
    (finding,) = found("cpu-data-loading", loading(event))
    assert finding.at_stake_ns == 60_000
    assert finding.share == 0.6
    assert finding.text == (
        "The program waits 60 us (60 % of the recorded 100 us) for the data "
        "loader, 50 us of it in "
        "decode (data.py:7)."
    )
    assert finding.certainty == "likely"  # stacks were recorded
    assert finding.try_ is not None
    assert finding.try_.startswith("Use DataLoader(num_workers=...")


def test_a_function_that_waits_is_named_with_its_caller(
    found: Ask, event: Make
) -> None:
    events = [*loading(event), event(SLEEP, 16, 40, cat="python_function")]
    (finding,) = found("cpu-data-loading", events)
    assert finding.text.endswith(
        "data loader, 40 us of it in sleep in decode (data.py:7)."
    )


def test_loader_with_workers_gets_other_advice(found: Ask, event: Make) -> None:
    name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    events = [event(name, 0, 60, cat="user_annotation"), event("aten::mm", 60, 40)]
    (finding,) = found("cpu-data-loading", events)
    assert finding.certainty == "certain"
    assert finding.try_ is not None
    assert finding.try_.startswith("Prepare more batches in advance")


def test_a_loader_that_returns_at_once_is_silent(found: Ask, event: Make) -> None:
    events = [event(NEXT, 0, 1, cat="user_annotation"), event("aten::mm", 1, 99)]
    assert found("cpu-data-loading", events) == []


def reading(event: Make, calls: int) -> list[Any]:
    """Calls of 8 us, each 10 us after the one before, each with a read of 6 us in
    it."""
    events = [event("aten::mm", 0, 100)]
    for n in range(calls):
        events.append(event("aten::item", 100 + 10 * n, 8))
        events.append(event("aten::_local_scalar_dense", 101 + 10 * n, 6))
    return events


def test_values_that_are_read_one_by_one(found: Ask, event: Make) -> None:
    """198 us are recorded."""
    (finding,) = found("cpu-scalars", reading(event, 10))
    assert finding.at_stake_ns == 80_000
    assert finding.text.startswith(
        "10 calls that read one value of a tensor (aten::item) take 80 us (40 % of the recorded 198 us)."
    )


def test_a_value_that_is_read_once_is_silent(found: Ask, event: Make) -> None:
    events = [event("aten::mm", 0, 1_000), event("aten::item", 1_000, 8)]
    assert found("cpu-scalars", events) == []


def test_waits_for_a_gpu_that_was_not_recorded(found: Ask, event: Make) -> None:
    """A note: how much of that time the GPU worked is not known."""
    events = [event("aten::mm", 0, 40), call("cudaStreamSynchronize", 50, 50)]
    (finding,) = found("cpu-waits-for-gpu", events)
    assert finding.at_stake_ns is None
    assert finding.text.startswith(
        "CPU threads wait 50 us (50 % of the recorded 100 us) in 1 call that "
        "waits for a GPU "
        "(cudaStreamSynchronize)."
    )
    short = [event("aten::mm", 0, 990), call("cudaStreamSynchronize", 990, 10)]
    assert found("cpu-waits-for-gpu", short) == []


def compiling(event: Make) -> list[Any]:
    """Three steps of 100 us; the first two compile for 60 us each."""
    events = []
    for n in range(3):
        events.append(event(f"ProfilerStep#{n}", 100 * n, 100, cat="user_annotation"))
        events.append(event("aten::mm", 100 * n + 90, 10))
        if n < 2:
            events.append(event("dynamo", 100 * n, 80))
            events.append(event(COMPILER, 100 * n + 5, 60))
    return events


def test_time_in_torch_compile_is_reported(found: Ask, event: Make) -> None:
    (finding,) = found("cpu-compilation", compiling(event))
    assert finding.at_stake_ns == 120_000
    assert finding.text == (
        "Compilation (torch.compile or Triton) takes 120 us (40 % of the recorded "
        "300 us): 2 compilations in 2 of 3 steps."
    )


def test_compiled_code_that_only_runs_is_silent(found: Ask, event: Make) -> None:
    events = [event("Torch-Compiled Region: 0/0", 0, 100), event("aten::mm", 0, 90)]
    assert found("cpu-compilation", events) == []


def test_cpu_hot_names_op_and_function_with_most_own_time(
    found: Ask, event: Make
) -> None:
    """Of 200 us: `work` 60 without its op, aten::sort 30, aten::mm 100 in two calls."""
    events = [
        event("/a.py(3): work", 0, 90, cat="python_function"),
        event("aten::sort", 50, 30),
        event("aten::mm", 90, 50),
        event("aten::mm", 140, 50),
        event("aten::add", 190, 10),
    ]
    op, function = found("cpu-hot", events)
    assert (op.at_stake_ns, function.at_stake_ns) == (100_000, 60_000)
    assert op.text == (
        "aten::mm takes 100 us (50 % of the recorded 200 us) in "
        "2 calls, excluding nested calls."
    )
    assert function.text.startswith(
        "work (a.py:3) takes 60 us (30 % of the recorded 200 us) in 1 "
    )


def test_ops_of_several_threads_count_no_more_than_the_time(
    found: Ask, event: Make
) -> None:
    events = [event("aten::mm", 0, 80), event("aten::mm", 20, 80) | {"tid": 2}]
    (finding,) = found("cpu-hot", events)
    assert finding.at_stake_ns == 100_000


def test_many_short_ops_are_silent(found: Ask, event: Make) -> None:
    events = [event(f"aten::op{n}", 9 * n, 9) for n in range(12)]
    assert found("cpu-hot", events) == []


def test_data_loading_is_no_longest_op_of_a_cpu_only_trace(
    found: Ask, event: Make
) -> None:
    assert found("cpu-hot", reading(event, 100)) == []
    batch = event(NEXT, 0, 90, cat="user_annotation")
    assert (
        found("cpu-hot", [batch, event("aten::stack", 0, 90), event("aten::mm", 90, 9)])
        == []
    )


def test_unrecorded_time_of_the_cpu_is_reported(found: Ask, event: Make) -> None:
    events = [event("aten::mm", 0, 20), event("aten::mm", 80, 20)]
    (finding,) = found("cpu-unrecorded", events)
    assert finding.at_stake_ns == 60_000
    assert "with_stack=True" in (finding.try_ or "")


def test_an_annotation_with_most_of_the_unrecorded_time_is_named(
    found: Ask, event: Make
) -> None:
    step = event("ProfilerStep#1", 0, 100, cat="user_annotation")
    log = event("log metrics", 20, 50, cat="user_annotation")
    events = [step, event("aten::mm", 0, 20), log, event("aten::mm", 80, 20)]
    (finding,) = found("cpu-unrecorded", events)
    assert finding.at_stake_ns == 60_000
    assert "50 us of that is inside the annotation log metrics." in finding.text
    assert finding.try_ == (
        "Record stacks (with_stack=True) to see what log metrics does in that time."
    )


@pytest.mark.parametrize(
    ("name", "category"),
    [("gloo:all_reduce", "user_annotation"), (NEXT, "user_annotation")],
)
def test_time_that_an_annotation_explains_is_recorded(
    found: Ask, event: Make, name: str, category: str
) -> None:
    events = [
        event("aten::mm", 0, 20),
        event(name, 20, 60, cat=category),
        event("aten::mm", 80, 20),
    ]
    assert found("cpu-unrecorded", events) == []


def test_a_thread_that_waits_for_work_is_not_unrecorded(
    found: Ask, event: Make
) -> None:
    """Each of two threads runs half of the ops."""
    events = [event("aten::mm", ts, 20) for ts in (0, 80)]
    assert (
        found("cpu-unrecorded", [*events, *({**one, "tid": 2} for one in events)]) == []
    )


@pytest.mark.parametrize(
    "rule", [rule.id for rule in RULES if rule.id.startswith("cpu-")]
)
def test_with_a_gpu_the_rules_about_idle_time_answer(
    found: Ask, event: Make, launched: Make, rule: str
) -> None:
    if rule in ("cpu-work", "cpu-collectives"):
        return  # which are about the idle time of a GPU
    every = [*loading(event), *reading(event, 10), *compiling(event)]
    assert found(rule, [*every, *launched(1, 0, 5, dur=400)]) == []


def test_slow_first_call_of_an_op_is_named_as_set_up(found: Ask, event: Make) -> None:
    """Of 1,000 us the first call takes 900, the others 20 each."""
    others = [event("aten::conv2d", 900 + 20 * n, 20) for n in range(5)]
    ops = [event("aten::conv2d", 0, 900), *others]
    (finding,) = found("cpu-hot", ops)
    assert finding.text.endswith(
        "first call takes 900 us of this time; the median of the others is 20 us."
    )
    assert finding.try_ is not None
    assert finding.try_.startswith("Call the op once before recording")


@pytest.mark.parametrize("lengths", [[200] * 5, [20, 900, 20, 60], [1_000]])
def test_calls_without_a_slow_first_one_are_no_set_up(
    found: Ask, event: Make, lengths: list[int]
) -> None:
    """Alike, a later one that is slow, and a single one."""
    starts = [sum(lengths[:n]) for n in range(len(lengths))]
    ops = [
        event("aten::conv2d", ts, dur) for ts, dur in zip(starts, lengths, strict=True)
    ]
    (finding,) = found("cpu-hot", ops)
    assert "first call" not in finding.text
    assert finding.try_ is not None
    assert finding.try_.startswith("Check the input sizes of the op (fusetui")


def filling(event: Make) -> list[Any]:
    return [event("aten::normal_", 0, 400), event("aten::normal_", 400, 400)]


def test_a_tensor_that_is_filled_on_the_cpu_beside_a_gpu(
    found: Ask, event: Make
) -> None:
    """The launch proves that the program uses a GPU, although no event of it was
    recorded."""
    (finding,) = found("cpu-hot", [*filling(event), call("cudaLaunchKernel", 900, 10)])
    assert finding.try_ is not None
    assert finding.try_.startswith(
        "Create the tensor on the GPU, for example with torch.randn("
    )
    (without_gpu,) = found("cpu-hot", filling(event))
    assert without_gpu.try_ is not None
    assert without_gpu.try_.startswith("Check the input sizes of the op (fusetui")


def test_calls_of_the_runtime_are_not_called_less_often(
    found: Ask, event: Make
) -> None:
    events = [event("aten::mm", 0, 10), call("cudaMemcpyAsync", 10, 90)]
    (finding,) = found("cpu-hot", events)
    assert finding.try_ is not None
    assert finding.try_.startswith(
        "Check what the call waits for. A runtime call launches work,"
    )


def test_calls_in_which_counters_are_measured_are_silent(
    found: Ask, event: Make
) -> None:
    """Their time is that of the profiler, not of the program."""
    launch = call("cudaLaunchKernel", 10, 90)
    counters = event("gemm", 10, 80, cat="cuda_profiler_range", tid=7)
    assert len(found("cpu-hot", [event("aten::mm", 0, 10), launch])) == 1
    (hot,) = found("cpu-hot", [event("aten::mm", 0, 40), launch, counters])
    assert hot.text.startswith("aten::mm takes")


@pytest.mark.parametrize(
    "name",
    [
        "<built-in method _record_function_enter_new of pybind11_builtins object at 0x7f>",
        "torch/autograd/profiler.py(806): __exit__",
        "torch/profiler/profiler.py(912): _transit_action",
    ],
)
def test_functions_of_the_profiler_are_no_hot_spot(
    found: Ask, event: Make, name: str
) -> None:
    """They take longest, but the program does not pay for them without the profiler."""
    recording = event(name, 0, 100, cat="python_function")
    work = event("a.py(3): work", 100, 60, cat="python_function")
    op = event("aten::mm", 160, 40)
    texts = [one.text for one in found("cpu-hot", [recording, work, op])]
    assert len(texts) == 2
    assert texts[0].startswith("work (a.py:3) takes 60 us")
    assert texts[1].startswith("aten::mm takes 40 us")


def remedies(found: Ask, events: list[Any]) -> list[str]:
    return [one.try_ or "" for one in found("cpu-hot", events)]


def test_fewer_calls_are_advised_where_there_are_many_short_ones(
    found: Ask, event: Make
) -> None:
    short = [event("aten::mm", 10 * n, 10) for n in range(20)]
    (remedy,) = remedies(found, short)
    assert "fewer calls on larger tensors" in remedy
    few, long = short[:5], [event("aten::mm", 300 * n, 300) for n in range(20)]
    for events in (few, long):
        (remedy,) = remedies(found, events)
        assert remedy.startswith(
            "Check the input sizes of the op (fusetui ops --by shape), and"
        )


def test_no_tensors_are_advised_to_a_function(found: Ask, event: Make) -> None:
    for calls, dur, advice in (
        (20, 10, "Reduce the number of calls,"),
        (3, 300, "code of the function itself"),
    ):
        events = [
            event("/a.py(3): work", dur * n, dur, cat="python_function")
            for n in range(calls)
        ]
        (remedy,) = remedies(found, events)
        assert advice in remedy


@pytest.mark.parametrize("name", ["aten::cat", "aten::stack"])
def test_tensors_that_are_joined_again_and_again(
    found: Ask, event: Make, name: str
) -> None:
    """Many calls of any length."""
    (remedy,) = remedies(found, [event(name, 10 * n, 10) for n in range(20)])
    assert remedy.startswith(
        "Write into slices of one buffer instead of calling torch.cat"
    )
