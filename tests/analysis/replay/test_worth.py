"""What findings are worth, of replays that one can do in one's head: see
test_changes.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from tests.analysis.replay.events import Event, call, host, kernel, launched, step
from tests.analysis.replay.test_batches import trained
from tests.analysis.replay.test_changes import gpu_bound, host_bound, synced
from tests.corpus.files import LESSONS, RANKS, SAMPLES
from tests.corpus.fixtures import any_of

from fusetui.analysis.replay import whatif, worth
from fusetui.analysis.replay.whatif import select_steps_of_median
from fusetui.analysis.replay.whatif import whatif as whatif_of
from fusetui.analysis.replay.worth import with_worth
from fusetui.analysis.why.answer import why
from fusetui.analysis.why.model import (
    AsyncCalls,
    Finding,
    FreeThreadTime,
    ReducedDurations,
    RemovedCalls,
    SomeSteps,
    Wanted,
    Why,
)
from fusetui.analysis.why.selection import Selection
from fusetui.report.why import format_why, why_markdown
from fusetui.report.worth import describe_joint_gain, describe_worth
from fusetui.trace import Trace, open_trace
from fusetui.trace.model.arrays import Rows
from fusetui.trace.model.intervals import Cover

TraceOf = Callable[..., Trace]
Want = Callable[[Trace], Wanted | None]


def named(trace: Trace, name: str) -> Rows:
    return np.flatnonzero(trace.name == trace.names.index(name))


def finding(rule: str = "rule", at_stake_ns: int | None = 1_000) -> Finding:
    return Finding(
        rule=rule, text="It is slow.", certainty="certain", at_stake_ns=at_stake_ns
    )


def said(trace: Trace, *each: tuple[Finding, Wanted | None], **keys: Any) -> Why:
    """Of these findings."""
    findings, wanted = zip(*each, strict=True)
    return with_worth(
        trace, replace(why(trace), findings=findings, _wanted=wanted), **keys
    )


def shorter(us: int, name: str = "k") -> Want:
    def want(trace: Trace) -> Wanted:
        rows = named(trace, name)
        return ReducedDurations(rows, np.full(len(rows), us * 1000))

    return want


def at(trace: Trace, begin: int, end: int) -> Cover:
    edges = np.array([[begin], [end]]) * 1000 + trace.begin_ns
    return Cover(*edges)


def copied() -> list[Event]:
    """A copy from pageable memory, 5 to 52, which a call fills from 1 to 50 and another
    one awaits from 51 to 53; a launch at 100, and its kernel, 105 to 110."""
    copy = kernel(5, 47, 1, "Memcpy HtoD (Pageable -> Device)", cat="gpu_memcpy")
    filling = call("cudaMemcpyAsync", 1, 49, 1)
    waiting = call("cudaStreamSynchronize", 51, 2, 9)
    return [host("aten::to", 0, 110), filling, copy, waiting, *launched(100, 105, 5, 2)]


def rows_of(trace: Trace, *names: str) -> Rows:
    return np.concatenate([named(trace, name) for name in names])


COPY, FILLS, WAITS = (
    "Memcpy HtoD (Pageable -> Device)",
    "cudaMemcpyAsync",
    "cudaStreamSynchronize",
)
CASES: dict[str, tuple[Callable[[], list[Event]], Want, int | None]] = {
    "kernels that wait for each other": (gpu_bound, shorter(10), 50),
    # The last kernel starts 5 after its launch at 16.
    "no less than nothing": (gpu_bound, shorter(60), 255 - 21),
    "kernels that wait for the host": (host_bound, shorter(3), 3),
    # Of five calls of 2 each takes 1 less; nothing follows the last one.
    "launch calls": (host_bound, shorter(1, "cudaLaunchKernel"), 4),
    # The call takes the 3 that it takes to return.
    "no wait": (synced, lambda t: AsyncCalls(named(t, "cudaStreamSynchronize")), 47),
    # Nor that: the other kernel follows the first one, at 57.
    "no call": (synced, lambda t: RemovedCalls(named(t, "cudaStreamSynchronize")), 48),
    # The op of 40 after the wait.
    "a stretch of a thread": (synced, lambda t: FreeThreadTime(at(t, 58, 98)), 40),
    # The wait still is for when the copy would begin, at 5, and returns at 6 instead of
    # 53.
    "no copying thread": (copied, lambda t: AsyncCalls(rows_of(t, FILLS, COPY)), 47),
    # Without the 49 of the call and 1 of the wait the thread launches at 50.
    "nor a wait": (copied, lambda t: AsyncCalls(rows_of(t, FILLS, WAITS)), 50),
    "only a call that fills": (copied, lambda t: AsyncCalls(rows_of(t, FILLS)), None),
    "a change by its text": (gpu_bound, lambda t: "kernel:k x0.5", 125),
    "nothing to fuse": (gpu_bound, lambda t: "fuse", None),
    "nothing that waits": (gpu_bound, lambda t: AsyncCalls(named(t, "aten::mm")), None),
    "nothing to shorten": (gpu_bound, shorter(1, "aten::mm"), None),
    "no change": (gpu_bound, lambda t: None, None),
}


@pytest.mark.parametrize("name", CASES)
def test_estimated_gain_of_each_change_is_that_by_hand(
    trace_of: TraceOf, name: str
) -> None:
    events, want, us = CASES[name]
    trace = trace_of(events())
    (one,) = said(trace, (finding(), want(trace))).findings
    assert one.worth_ns == (None if us is None else us * 1000)


@pytest.mark.parametrize(
    ("one", "want", "note"),
    [
        (finding(), shorter(1), None),
        (finding(), lambda t: AsyncCalls(named(t, "k")), "not_found"),
        (finding(), lambda t: FreeThreadTime(at(t, 0, 5)), "own_time"),
        (finding(), lambda t: None, "no_change"),
        (finding("warm-up"), lambda t: None, "warm_up"),
        (finding(at_stake_ns=None), lambda t: None, "note"),
    ],
)
def test_note_says_why_a_gain_is_a_bound_or_unknown(
    trace_of: TraceOf, one: Finding, want: Want, note: str | None
) -> None:
    trace = trace_of(gpu_bound())
    assert said(trace, (one, want(trace))).findings[0].worth_note == note


def recorded_wait() -> list[Event]:
    """What the call waits for, as the profiler writes it where it knows."""
    args = {"cuda_sync_kind": "Stream Sync", "stream": 7, "correlation": 9, "device": 0}
    return [host("Stream Sync", 10, 50, "cuda_sync", pid=0, tid=7, args=args)]


@pytest.mark.parametrize(
    ("more", "note", "text"),
    [
        (recorded_wait, "at_most", "at most 47 us (32 % of the span)"),
        (list, None, "47 us (32 % of the span)"),
    ],
)
def test_a_wait_is_a_bound_unless_it_is_inferred(
    trace_of: TraceOf, more: Callable[[], list[Event]], note: str | None, text: str
) -> None:
    trace = trace_of([*synced(), *more()])
    found = said(trace, (finding(), AsyncCalls(named(trace, "cudaStreamSynchronize"))))
    assert found.findings[0].worth_note == note
    assert text in describe_worth(found, found.findings[0])
    told = whatif_of(trace, ["no-sync:Synchronize"]).certainty
    assert told == ("bound" if note else "estimate")


def drained_by_a_copy() -> list[Event]:
    """A copy to pageable memory blocks from 10 to 108, and a synchronization of 2 is
    behind it; the next kernel is launched at 150."""
    return [
        *launched(0, 5, 100, 1),
        host("aten::item", 9, 103),
        call("cudaMemcpyAsync", 10, 98, 2),
        kernel(105, 1, 2, "Memcpy DtoH (Device -> Pageable)", cat="gpu_memcpy"),
        call("cudaStreamSynchronize", 109, 2, 3),
        *launched(150, 155, 100, 4),
    ]


def drained(found: Why) -> Finding:
    return next(one for one in found.findings if one.rule == "drained-by-sync")


def test_no_wait_behind_a_copy_takes_the_place_of_its_own(trace_of: TraceOf) -> None:
    """Without both waits, the next kernel follows the copy, at 106 instead of 155."""
    trace = trace_of(drained_by_a_copy())
    one = drained(with_worth(trace, why(trace)))
    assert one.at_stake_ns == 40_000
    assert one.worth_ns == 49_000


def test_a_gain_of_more_than_is_at_stake_after_a_wait_has_a_reason(
    trace_of: TraceOf,
) -> None:
    trace = trace_of(drained_by_a_copy())
    found = with_worth(trace, why(trace))
    one = drained(found)
    reason = "bound because launches and other waits would also be hidden"
    assert reason in describe_worth(found, one)
    assert reason not in describe_worth(found, replace(one, worth_ns=40_000))


def stepped(*lasts: int, names: Sequence[str] = ()) -> list[Event]:
    """A step for each length: a kernel of 50 that the host waits for, until 60, and an
    op; one of less than 100 launches nothing."""
    events, begin = list[Event](), 0
    for number, (lasts_us, name) in enumerate(
        zip(lasts, names or "k" * len(lasts), strict=True)
    ):
        events += [step(number, begin, lasts_us)]
        if lasts_us >= 100:
            events += launched(begin + 2, begin + 7, 50, 2 * number + 1, name=name)
            events += [call("cudaStreamSynchronize", begin + 10, 50, 2 * number + 2)]
            events += [host("aten::item", begin + 60, lasts_us - 60)]
        begin += lasts_us
    return events


def test_a_step_is_neither_cold_nor_without_gpu_work(trace_of: TraceOf) -> None:
    """Each kernel takes 10 less, in a step of 100; the first one takes 1,000, the last
    one 20."""
    trace = trace_of(stepped(1000, 100, 20))
    found = said(trace, (finding(), shorter(10)(trace)), together=1)
    (one,) = found.findings
    assert (found.worth_before_ns, one.worth_ns, one.worth_share) == (
        100_000,
        10_000,
        0.1,
    )
    assert found.together is not None
    assert (
        found.together.saved_ns
        == found.together.before_ns - found.together.after_ns
        == 10_000
    )
    told = whatif_of(trace, ["kernel:k x0.8"])
    assert (told.before_ns, told.after_ns, told.saved_ns) == (100_000, 90_000, 10_000)
    assert [each.in_median for each in told.steps] == [False, True, False]


def test_the_only_step_with_gpu_work_is_told_though_it_is_the_first(
    trace_of: TraceOf,
) -> None:
    trace = trace_of(stepped(1000, 20))
    assert said(trace, (finding(), shorter(10)(trace))).worth_before_ns == 1_000_000


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ((100, 100, 100), "10 us per step (10 %)."),
        ((100, 150), "(6.7 % of the launched step, 150 us)"),
    ],
)
def test_a_step_that_the_headline_does_not_tell_is_named(
    trace_of: TraceOf, steps: Sequence[int], text: str
) -> None:
    """The headline tells the shorter one of two steps, of which a replay leaves out the
    first."""
    trace = trace_of(stepped(*steps))
    found = said(trace, (finding(), shorter(10)(trace)))
    assert text in describe_worth(found, found.findings[0])


def test_gain_in_some_steps_alone_is_reported_as_such(trace_of: TraceOf) -> None:
    trace = trace_of(stepped(100, 100, 100, 100, names="kkkr"))
    found = said(trace, (finding(), shorter(10, "r")(trace)))
    (one,) = found.findings
    assert (one.worth_note, one.worth_ns, one.worth_share) == ("some_steps", None, None)
    assert one.worth_steps == SomeSteps(steps=1, of=3, saved_ns=10_000)
    assert describe_worth(found, one) == (
        "Upper bound: 1 us over all steps. Estimated gain: 10 us in 1 of 3 steps, none "
        "in most others."
    )


def work_into_the_next_step() -> list[Event]:
    """Steps of 100. The work of the third one runs from 207 to 330, beyond its end; the
    fourth one waits for that and its own, until 383."""
    first, last = stepped(100, 100), stepped(100)
    moved = [one | {"ts": one["ts"] + 400} for one in last]
    moved[1]["args"] = {"correlation": 99}
    moved[2]["args"] = {**moved[2]["args"], "correlation": 99}
    return [
        *first,
        step(2, 200, 100),
        *launched(202, 207, 123, 11, name="r"),
        host("aten::add", 210, 90),
        step(3, 300, 100),
        *launched(302, 330, 50, 12),
        call("cudaStreamSynchronize", 310, 73, 13),
        host("aten::item", 383, 17),
        {**moved[0], "name": "ProfilerStep#4"},
        *moved[1:],
    ]


def test_a_step_that_becomes_longer_is_told(trace_of: TraceOf) -> None:
    """Without 45 of 123, the work of the third step ends at 285, within it: it becomes
    30 shorter. The fourth one ends at 377, but its own begins at 300: it takes 77
    instead of 70."""
    trace = trace_of(work_into_the_next_step())
    found = said(trace, (finding(), shorter(45, "r")(trace)))
    (one,) = found.findings
    assert one.worth_steps == SomeSteps(
        steps=1, of=4, saved_ns=30_000, longer=1, lost_ns=7_000
    )
    assert describe_worth(found, one) == (
        "Upper bound: 1 us over all steps. Estimated gain: 30 us in 1 of 4 steps, none "
        "in most others; 1 step gets 7 us longer, so the net gain is 23 us."
    )


def test_findings_that_make_steps_longer_rank_by_what_is_left(
    trace_of: TraceOf,
) -> None:
    """23 of 30 us are left of the third step; the last one saves 25 us."""
    events = work_into_the_next_step()
    kernel_of_last = max(
        (one for one in events if one["name"] == "k"), key=lambda one: one["ts"]
    )
    kernel_of_last["name"] = "s"
    trace = trace_of(events)
    found = said(
        trace,
        (finding("r"), shorter(45, "r")(trace)),
        (finding("s"), shorter(25, "s")(trace)),
    )
    assert [one.rule for one in found.findings] == ["s", "r"]


def test_a_phase_of_few_steps_is_no_gain_of_the_median_step(trace_of: TraceOf) -> None:
    """Five steps of 300, three of 100 (validation) and one of 200, after the first. A
    change of one step of 300 moves the median from 300 to 200, which is the gain of no
    step."""
    lasts = (300, 300, 100, 300, 100, 300, 200, 300, 100, 300)
    trace = trace_of(stepped(*lasts, names="kkvkvrkkvk"))
    found = said(
        trace,
        (finding(), shorter(45, "r")(trace)),
        (finding("v"), shorter(9, "v")(trace)),
    )
    in_one, in_three = sorted(found.findings, key=lambda one: one.rule)
    assert in_one.worth_steps == SomeSteps(steps=1, of=9, saved_ns=45_000)
    assert in_three.worth_steps == SomeSteps(steps=3, of=9, saved_ns=27_000)
    assert "27 us over 3 of 9 steps" in describe_worth(found, in_three)


def test_without_steps_a_worth_is_a_share_of_the_span_of_the_gpu(
    trace_of: TraceOf,
) -> None:
    """The program starts for 2.4 s before the first of kernels that take 250 us."""
    start = host("import torch", 0, 2_400_000)
    events = [event | {"ts": event["ts"] + 2_500_000} for event in gpu_bound()]
    trace = trace_of([start, *events])
    found = said(trace, (finding(), shorter(10)(trace)))
    (one,) = found.findings
    assert found.worth_before_ns == 250_000
    assert (one.worth_ns, one.worth_share) == (50_000, 0.2)
    assert describe_worth(found, one) == (
        "Upper bound: 1 us. Estimated gain: 50 us (20 % of the span). The gain "
        "exceeds the upper bound because later work would also start earlier."
    )


@pytest.mark.parametrize(
    ("kind", "note", "text"),
    [
        (
            "SingleProcess",
            "one_worker",
            "if one worker process loaded the batches ahead",
        ),
        (
            "MultiProcessing",
            "no_batch_waits",
            "if the workers had every batch ready in time",
        ),
    ],
)
def test_the_worth_of_loading_says_what_it_assumes(
    trace_of: TraceOf, kind: str, note: str, text: str
) -> None:
    """Three steps of 200, of which a batch takes 100 to 120, and a kernel 50."""
    events: list[Event] = []
    name = f"enumerate(DataLoader)#_{kind}DataLoaderIter.__next__"
    for number, lasts in enumerate((100, 110, 120)):
        begin = 200 * number
        events += [
            step(number, begin, 200),
            host(name, begin + 1, lasts, "user_annotation"),
        ]
        events += launched(begin + 130, begin + 135, 50, 2 * number + 1)
        events += [call("cudaStreamSynchronize", begin + 140, 50, 2 * number + 2)]
    trace = trace_of(events)
    loading = finding("data-loading", at_stake_ns=330_000)
    found = said(trace, (loading, "loader"))
    (one,) = found.findings
    assert one.worth_note == note
    assert text in describe_worth(found, one)
    if kind == "MultiProcessing":
        assert "at most" in describe_worth(found, one)
        assert one.worth_ns == whatif_of(trace, ["loader"]).saved_ns


def test_a_gain_that_workers_of_a_loader_may_hold_back_is_an_upper_bound(
    trace_of: TraceOf,
) -> None:
    """No call waits for a batch, so nothing shows how early the workers have one."""
    trace = trace_of(trained([80] * 5, ops=2))
    (one,) = said(trace, (finding(), "op:/./ x0.5")).findings
    assert one.worth_note == "at_most"


def late() -> list[Event]:
    """A kernel 5-60, and one of another stream that starts 10 later than its launch
    explains."""
    return [*launched(0, 5, 55, 1), *launched(54, 69, 81, 2, name="r", tid=8)]


def test_an_unknown_limit_is_noted_for_the_finding_it_concerns_alone(
    trace_of: TraceOf,
) -> None:
    """The other kernel may have waited for the first one."""
    trace = trace_of(late())
    found = said(
        trace,
        (finding(), shorter(10)(trace)),
        (finding("other"), shorter(10, "r")(trace)),
    )
    notes = {one.rule: one.worth_note for one in found.findings}
    assert notes == {"rule": "limit_unknown", "other": None}
    text = " ".join(format_why(found, 80).split())
    doubt = text.index(
        "Unexplained delays: 6.7 % of the time on GPU 0, 7.1 % of the time after a "
    )
    assert doubt < text.index("1. It is slow. Upper bound: 1 us. Estimated gain: 10 us")
    assert "Unexplained" in why_markdown(found)
    assert "Unexplained" not in format_why(replace(found, residual_share=0.05), 80)
    for below in range(20):  # lines that leave less room
        lines = format_why(found, 80, below)
        assert "worth 10 us" not in lines or "Unexplained" in lines


def test_the_largest_gain_comes_first(trace_of: TraceOf) -> None:
    """Where it is unknown, the upper bound counts in its place; notes come last. Each
    finding keeps its change."""
    trace = trace_of(gpu_bound())
    each = [
        (finding("note", None), None),
        (finding("none", 9_000), None),
        (finding("more", 99_000), None),
        (finding("small"), shorter(1)(trace)),
        (finding("large"), shorter(10)(trace)),
    ]
    found = said(trace, *each)
    rules = ["more", "large", "none", "small", "note"]
    assert [one.rule for one in found.findings] == rules
    assert [one is None for one in found._wanted] == [True, False, True, False, True]
    assert found.findings[1].worth_ns == 50_000
    assert found.findings[3].worth_ns == 5_000


def test_an_upper_bound_counts_with_its_part_of_a_step(trace_of: TraceOf) -> None:
    """Of three steps: 24 us in all are 8 us a step, less than the 10 us that are gained
    in each."""
    trace = trace_of(stepped(100, 100, 100))
    gained = finding("gained", 30_000), shorter(10)(trace)
    for at_stake_ns, rules in (
        (24_000, ["gained", "unknown"]),
        (33_000, ["unknown", "gained"]),
    ):
        found = said(trace, gained, (finding("unknown", at_stake_ns), None))
        assert [one.rule for one in found.findings] == rules


def test_no_upper_bound_counts_with_more_than_the_step(trace_of: TraceOf) -> None:
    """Both exceed the span, so the one with more time comes first, with any gain beside
    it."""
    trace = trace_of(gpu_bound())
    whole = said(trace, (finding(), shorter(10)(trace))).worth_before_ns
    assert whole is not None
    each = (finding("more", 3 * whole), None), (finding("much", 2 * whole), None)
    found = said(trace, *each, (finding("gained"), shorter(10)(trace)))
    assert [one.rule for one in found.findings] == ["more", "much", "gained"]
    gained = replace(found.findings[2], worth_ns=whole, at_stake_ns=4 * whole)
    ranked = sorted(
        [*found.findings[:2], gained],
        key=lambda one: worth._make_sort_key(one, steps=1, devices=1, usual_ns=whole),
    )
    assert [one.rule for one in ranked] == ["gained", "more", "much"]


def test_negligible_findings_come_after_notes(trace_of: TraceOf) -> None:
    trace = trace_of(gpu_bound())
    little = replace(finding("little"), negligible=True)
    found = said(trace, (little, shorter(10)(trace)), (finding("note", None), None))
    assert [one.rule for one in found.findings] == ["note", "little"]


def test_findings_replayed_together_are_counted_without_those_that_cannot_be(
    trace_of: TraceOf,
) -> None:
    """The first finding has no change that can be replayed."""
    trace = trace_of(gpu_bound())
    each = (finding("unknown", 99_000), None), (finding("known"), shorter(10)(trace))
    text = describe_joint_gain(said(trace, *each, together=1))
    assert text.startswith(
        "Fixing the first finding that can be replayed would shorten the span from "
        "250 us to 200 us"
    )


def test_finding_of_unknown_gain_comes_before_one_without_gain(
    trace_of: TraceOf,
) -> None:
    """And a CPU that takes no time counts with what is at stake, though it is worth
    40."""
    trace = trace_of(synced())
    each = [
        (finding("nothing"), shorter(0)(trace)),
        (finding("none", 9_000), None),
        (finding("own time", 2_000), FreeThreadTime(at(trace, 58, 98))),
        (finding("shorter"), shorter(5)(trace)),
    ]
    found = said(trace, *each)
    assert [one.rule for one in found.findings] == [
        "shorter",
        "none",
        "own time",
        "nothing",
    ]
    own_time = found.findings[2]
    assert own_time.worth_ns == 40_000
    assert "because the other CPU work would then overlap" in describe_worth(
        found, own_time
    )


def test_where_calls_that_wait_were_left_out_nothing_has_a_worth(
    trace_of: TraceOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whatif, "MANY_LAUNCHES", 3)
    for events, note in ((gpu_bound(), "no_waits"), (synced() + gpu_bound(), None)):
        trace = trace_of(events)
        assert (
            said(trace, (finding(), shorter(1)(trace))).findings[0].worth_note == note
        )


def test_gain_of_the_first_two_findings_together_is_exact(trace_of: TraceOf) -> None:
    """Both, and no third one: each of five kernels of 50 takes 20 + 10 less."""
    trace = trace_of(gpu_bound())
    found = said(
        trace, *((finding(), shorter(us)(trace)) for us in (20, 10, 5)), together=2
    )
    assert found.together is not None
    assert (found.together.findings, found.together.saved_ns) == (2, 150_000)
    assert describe_joint_gain(found) == (
        "Fixing the first 2 findings would shorten the span from 250 us to 100 us."
    )


def test_finding_off_the_critical_path_has_no_gain(trace_of: TraceOf) -> None:
    """Kernels that are followed by others, which the host launches no earlier."""
    trace = trace_of(host_bound())
    followed = named(trace, "k")[:-1]
    shortened = ReducedDurations(followed, np.full(len(followed), 3_000))
    found = said(trace, (finding(), shortened))
    assert describe_worth(found, found.findings[0]) == (
        "Upper bound: 1 us. No gain: not on the critical path."
    )


def test_a_finding_within_another_says_so(trace_of: TraceOf) -> None:
    trace = trace_of(gpu_bound())
    inner = replace(finding("inner"), part_of="outer")
    found = said(
        trace, (finding("outer"), shorter(20)(trace)), (inner, shorter(10)(trace))
    )
    first, second = (describe_worth(found, one) for one in found.findings)
    assert first.startswith("Upper bound")
    assert second.startswith("This is part of finding 1. Upper bound")


def test_upper_bound_is_reported_where_a_gain_is_unknown(trace_of: TraceOf) -> None:
    trace = trace_of(gpu_bound())
    found = said(trace, (finding(), None))
    (one,) = found.findings
    assert describe_worth(found, one).startswith(
        "Upper bound: 1 us. No gain is estimated, because the fix"
    )
    told = replace(one, text="1 us is lost")
    assert describe_worth(found, told).startswith(
        "No gain is estimated, because the fix"
    )


def test_a_part_has_none(trace_of: TraceOf) -> None:
    trace = trace_of(gpu_bound())
    found = why(trace, Selection(from_ns=0, to_ns=100_000))
    told = with_worth(
        trace, replace(found, findings=(finding(),), _wanted=(shorter(1)(trace),))
    )
    assert (told.findings[0].worth_ns, told.findings[0].worth_note) == (None, "part")
    assert describe_joint_gain(told) == "Gains are estimated for whole traces only."


def test_a_large_trace_has_none_unless_it_is_asked_for(
    trace_of: TraceOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worth, "MAX_REPLAYED_NODES", 10)
    trace = trace_of(gpu_bound())
    one = finding(), shorter(1)(trace)
    assert said(trace, one).findings[0].worth_note == "large"
    assert said(trace, one, asked=True).findings[0].worth_ns == 5_000


any_trace = any_of("training", *RANKS, *LESSONS, *SAMPLES)  # of equal steps


def test_no_finding_of_a_trace_has_a_negative_gain(any_trace: Path) -> None:
    """No change that a finding has makes a step longer; only those that let the CPU run
    ahead are worth more than what is at stake."""
    trace = open_trace(str(any_trace))
    found = with_worth(trace, why(trace))
    for one, wanted in zip(found.findings, found._wanted, strict=True):
        # part of it is hidden
        if isinstance(wanted, ReducedDurations) and one.rule != "small-collectives":
            rest = (one.at_stake_ns or 0) - int(wanted.ns.sum())
            assert 0 <= rest <= len(wanted.ns)  # each in whole ns
    steps = (
        select_steps_of_median(trace, None) if found.worth_of == "step" else ["span"]
    )
    for one in found.findings:
        assert (one.worth_ns or 0) >= 0
        if one.worth_ns and one.worth_ns * len(steps) > 1.001 * (one.at_stake_ns or 0):
            assert one.rule in ("host-bound", "allocation", "drained-by-sync")


@pytest.mark.parametrize(
    ("name", "since", "saved_us"),
    [
        ("autograd::engine::evaluate_function: MulBackward0", 245, 95 + 16),
        ("aten::other", 0, 16),
    ],
)
def test_the_lead_of_a_thread_is_that_of_the_engine_alone(
    trace_of: TraceOf, name: str, since: int, saved_us: int
) -> None:
    """Thread 1 waits from 10 to 107, and thread 2 from 246 to 264 before its launch at
    360, whose kernel is the last. The calls keep the 2 that they take to return. An
    engine is asked as much earlier as thread 1 is ahead; any other thread launches
    earlier by its own wait alone."""
    trace = trace_of(
        [
            host("aten::forward", 0, 230),
            *launched(0, 5, 100, 1),
            call("cudaStreamSynchronize", 10, 97, 8),
            *launched(127, 132, 130, 2),
            host(name, since, 400 - since, tid=2),
            call("cudaStreamSynchronize", 246, 18, 9, tid=2),
            call("cudaLaunchKernel", 360, 2, 3, tid=2),
            kernel(365, 5, 3),
        ]
    )
    one = drained(with_worth(trace, why(trace)))
    assert one.worth_ns == saved_us * 1_000
