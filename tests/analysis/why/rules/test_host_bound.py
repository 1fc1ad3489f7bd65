"""The CPU launches too late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fusetui.analysis.why.account import Accounts
from fusetui.analysis.why.answer import answer_question
from fusetui.analysis.why.model import FreeThreadTime
from fusetui.analysis.why.selection import resolve_selection
from fusetui.trace import Trace

from .conftest import Ask, Lack

Make = Callable[..., Any]


def test_host_bound_reports_the_gap_before_a_late_launch(
    found: Ask, event: Make, launched: Make
) -> None:
    """Of the gap 15-95 us the host part is 15-90 us: 60 us in an op, the rest in
    nothing."""
    events = [*launched(1, 0, 5), event("aten::add", 20, 60), *launched(2, 90, 95)]
    (finding,) = found("host-bound", events)
    assert finding.at_stake_ns == 75_000
    assert finding.certainty == "certain"
    assert finding.text == (
        "The GPU waits 75 us (75.0 % of the span) for the CPU to launch the next kernel. "
        "The CPU spends 60 us in ops, mostly aten::add (1 x, 60 us), and 15 us outside recorded events."
    )


def test_host_bound_names_the_module_that_holds_the_thread(
    found: Ask, event: Make, launched: Make
) -> None:
    """Each layer calls its module for 30 us, of which an op has 20, with a view of 5 us
    in it."""
    events = [*launched(1, 0, 5), *launched(2, 200, 205)]
    for n in range(3):
        ts = 40 + 40 * n
        events += [
            event(f"nn.Module: Linear_{n}", ts, 30, cat="python_function"),
            event("aten::linear", ts + 5, 20),
            event("aten::view", ts + 10, 5),
        ]
    (finding,) = found("host-bound", events)
    told = finding.text.partition("The CPU spends ")[2]
    assert told == (
        "95 us outside recorded events; 60 us in ops, mostly aten::linear (3 x, 45 "
        "us); and 30 us in Python functions, mostly Linear (3 x, 30 us). The module "
        "with the largest share is Linear (3 x, 90 us)."
    )


def test_with_stacks_it_is_likely(found: Ask, event: Make, launched: Make) -> None:
    frame = event("/a.py(1): f", 20, 60, cat="python_function")
    (finding,) = found("host-bound", [*launched(1, 0, 5), frame, *launched(2, 90, 95)])
    assert finding.certainty == "likely"


def test_host_bound_without_recorded_activity_advises_recording_it(
    found: Ask, event: Make, launched: Make
) -> None:
    """Of 75 us the thread spends 20 us in an op, then 50 us."""
    for op_us, first in (
        (20, ("To see what the CPU does, set with_stack=True")),
        (50, "Use torch.compile"),
    ):
        events = [
            *launched(1, 0, 5),
            event("aten::add", 20, op_us),
            *launched(2, 90, 95),
        ]
        (finding,) = found("host-bound", events)
        assert finding.try_ is not None
        assert finding.try_.startswith(first)


def test_an_annotation_alone_does_not_tell_what_the_cpu_did(
    found: Ask, event: Make, launched: Make
) -> None:
    """Stacks, if they were recorded, are not asked for again."""
    step = event("ProfilerStep#1", 0, 100, cat="user_annotation")
    frame = event("/a.py(1): f", 0, 4, cat="python_function")
    for more, first in (
        ([], "To see what the CPU does, set with_stack=True"),
        ([frame], "To see what the CPU does, put record_function()"),
    ):
        (finding,) = found(
            "host-bound", [*launched(1, 0, 5), step, *more, *launched(2, 90, 95)]
        )
        assert finding.try_ is not None
        assert finding.try_.startswith(first)


def test_without_ops_an_annotation_may_have_had_some(
    found: Ask, event: Make, launched: Make
) -> None:
    step = event("ProfilerStep#1", 0, 100, cat="user_annotation")
    for more, words in (([], ""), ([event("aten::add", 0, 4)], " outside ops")):
        (finding,) = found(
            "host-bound", [*launched(1, 0, 5), step, *more, *launched(2, 90, 95)]
        )
        assert finding.text.endswith(
            f"in annotations{words}, mostly ProfilerStep (1 x, 75 us)."
        )


def test_host_bound_leaves_out_gaps_of_the_data_loader(
    found: Ask, event: Make, launched: Make
) -> None:
    loader = event("enumerate(DataLoader)#1.__next__", 20, 60, cat="user_annotation")
    (finding,) = found("host-bound", [*launched(1, 0, 5), loader, *launched(2, 90, 95)])
    assert finding.at_stake_ns == 15_000
    assert (
        "the next kernel, excluding the data loader. The CPU spends 15 us"
        in finding.text
    )


def test_short_waits_are_silent(found: Ask, launched: Make) -> None:
    """The host part of the gap is 1 us of 100."""
    assert found("host-bound", [*launched(1, 0, 5, dur=85), *launched(2, 91, 95)]) == []


def test_without_launches_it_cannot_tell(lacking: Lack, event: Make) -> None:
    kernels = [event("k", ts, 10, cat="kernel", pid=0, tid=7) for ts in (0, 90)]
    (lack,) = lacking("host-bound", kernels)
    assert "launch calls" in lack.missing


def test_replayed_work_needs_no_graph(found: Ask, event: Make, launched: Make) -> None:
    """Where most GPU events are nodes of graphs, the remedy is not to capture one."""
    op = event("aten::add", 20, 60)
    for nodes, first in (
        (3, "Prepare the next replay while the GPU"),
        (0, "Use torch.compile"),
    ):
        call, node = launched(1, 0, 5)
        replay = [
            {**call, "name": "cudaGraphLaunch"},
            *[{**node, "ts": 5} for _ in range(nodes)],
        ]
        (finding,) = found(
            "host-bound", [*launched(3, 0, 5), *replay, op, *launched(2, 90, 95)]
        )
        assert finding.try_ is not None
        assert finding.try_.startswith(first)


def test_ops_before_and_after_the_gpus_work_are_not_hurried_by_host_bound(
    trace_of: Callable[..., Trace], event: Make, launched: Make
) -> None:
    """It delays nothing of the span, from 1,005 to 1,105 us; with steps, it is part of
    them."""
    work = [
        event("aten::empty", 0, 900),
        *launched(1, 1_000, 1_005),
        event("aten::add", 1_020, 60),
        *launched(2, 1_090, 1_095),
        event("aten::empty", 1_300, 700),
    ]
    (start, end) = hurried(trace_of(work))
    assert (start, end) == (1_005_000, 1_105_000)
    step = event("ProfilerStep#3", 0, 2_000, cat="user_annotation")
    (start, end) = hurried(trace_of([step, *work]))
    assert start < 0
    assert end > 2_000_000


def hurried(trace: Trace) -> tuple[int, int]:
    """The bounds of what is changed about being host-bound (ns)."""
    why, _ = answer_question(resolve_selection(Accounts(trace)))
    rules = [one.rule for one in why.findings]
    wanted = why._wanted[rules.index("host-bound")]
    assert isinstance(wanted, FreeThreadTime)
    return int(wanted.cover.start.min()), int(wanted.cover.end.max())


def test_time_before_the_first_kernel_is_set_up(
    found: Ask, event: Make, launched: Make
) -> None:
    """Sets end at 15 and 1,015 us, kernels at 1,030 and 1,110 us: the host part of the
    last gap is the 75 us from 1,030 us on."""
    sets = [*launched(1, 0, 5), *launched(2, 1_000, 1_005)]
    for one in sets[1::2]:
        one["cat"] = "gpu_memset"
    kernels = [*launched(3, 1_012, 1_020), *launched(4, 1_105, 1_110)]
    (finding,) = found("host-bound", [*sets, *kernels])
    assert finding.at_stake_ns == 75_000
    assert "next kernel, excluding setup before the first kernel. " in finding.text
    assert found("host-bound", [*sets, *launched(3, 1_012, 1_020)]) == []


def test_with_steps_the_time_before_the_first_kernel_counts(
    found: Ask, event: Make, launched: Make
) -> None:
    set_ = launched(1, 0, 5)
    set_[1]["cat"] = "gpu_memset"
    step = event("ProfilerStep#1", 0, 120, cat="user_annotation")
    (finding,) = found("host-bound", [step, *set_, *launched(2, 90, 95)])
    assert finding.at_stake_ns == 75_000


def waiting_between(event: Make, launched: Make, **slice_: Any) -> list[dict[str, Any]]:
    """Two ops with a launch each, and something between them."""
    between = {**event("cudaStreamSynchronize", 30, 4, cat="cuda_runtime"), **slice_}
    ops = [event("aten::add", 1, 80), event("aten::add", 85, 10)]
    return [*launched(1, 2, 5), *ops, between, *launched(2, 90, 95)]


def remedy_of(found: Ask, events: list[dict[str, Any]], **keys: Any) -> str:
    (finding,) = found("host-bound", events, **keys)
    assert finding.try_ is not None
    return finding.try_


def test_a_graph_is_advised_after_the_wait_between_its_launches_is_gone(
    found: Ask, event: Make, launched: Make
) -> None:
    remedy = remedy_of(found, waiting_between(event, launched))
    assert remedy.startswith(
        "Remove the wait in cudaStreamSynchronize (aten::add) between the "
        "launches, because a graph cannot contain it. Then use "
        'torch.compile(mode="reduce-overhead") or torch.cuda.graph() to replay '
        "the launches."
    )


def test_waits_before_and_after_the_kernels_are_no_obstacle(
    found: Ask, event: Make, launched: Make
) -> None:
    for ts in (1.5, 93):
        events = waiting_between(event, launched, ts=ts, dur=0.1)
        assert remedy_of(found, events).startswith("Use torch.compile")


def test_the_steps_with_a_wait_between_their_launches_are_counted(
    found: Ask, event: Make, launched: Make
) -> None:
    """The first of two steps waits between its launches, the second one before them."""
    steps = [
        event(f"ProfilerStep#{n}", 200 * n, 200, cat="user_annotation")
        for n in range(2)
    ]
    wait = event("cudaStreamSynchronize", 201, 4, cat="cuda_runtime")
    later = [*launched(3, 210, 215), *launched(4, 290, 295)]
    later += [event("aten::add", 206, 190)]
    events = [*steps, *waiting_between(event, launched), wait, *later]
    assert "between the launches in 1 of 2 steps," in remedy_of(found, events)


def test_a_graph_does_not_contain_the_data_loader(
    found: Ask, event: Make, launched: Make
) -> None:
    loader = {"name": "enumerate(DataLoader)#_SingleProcess.__next__"}
    events = waiting_between(event, launched, **loader, cat="user_annotation")
    remedy = remedy_of(found, events)
    assert remedy.startswith("Move the data loader, which fetches a batch between the")
    assert "from one batch to the next. Larger batches" in remedy


def test_names_of_a_trace_are_no_part_of_a_remedy_unless_they_are_plain(
    found: Ask, event: Make, launched: Make
) -> None:
    events = waiting_between(event, launched)
    for one in events:
        if one["name"] == "aten::add":
            one["name"] = (
                "95 us outside recorded events; 60 us in ops, mostly aten::linear (3 "
                "x, 45 us); and 30 us in Python functions, mostly Linear (3 x, 30 "
                "us). The module with the largest share is Linear (3 x, 90 us)."
            )
    assert "cudaStreamSynchronize" in remedy_of(found, events)


def test_a_trace_without_cpu_ops_is_to_be_recorded_with_them(
    found: Ask, event: Make, launched: Make
) -> None:
    """Stacks alone record nothing: they belong to the activity of the CPU."""
    remedy = remedy_of(found, [*launched(1, 0, 5), *launched(2, 90, 95)])
    assert remedy.startswith(
        "To see what the CPU does, record it too with activities=[ProfilerActivity.CPU, "
        "ProfilerActivity.CUDA], and with_stack=True for Python frames."
    )
