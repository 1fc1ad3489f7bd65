"""What findings are worth, of replays that one can do in one's head: see test_changes.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from tests.analysis.replay.events import Event, call, host, kernel, launched
from tests.analysis.replay.test_changes import gpu_bound, host_bound, synced
from tests.places import TRACES

from fusetui.analysis.replay import whatif, worth
from fusetui.analysis.replay.worth import with_worth
from fusetui.analysis.why.answer import why
from fusetui.analysis.why.model import Finding, Hurried, Shorter, Unawaited, Unmade, Wanted, Why
from fusetui.analysis.why.selection import Selection
from fusetui.report.worth import replayed_text, worth_text
from fusetui.trace import Trace, open_trace
from fusetui.trace.model.arrays import Rows
from fusetui.trace.model.intervals import Cover

TraceOf = Callable[..., Trace]
Want = Callable[[Trace], Wanted | None]


def named(trace: Trace, name: str) -> Rows:
    return np.flatnonzero(trace.name == trace.names.index(name))


def finding(rule: str = "rule", at_stake_ns: int | None = 1_000) -> Finding:
    return Finding(rule=rule, text="It is slow.", certainty="certain", at_stake_ns=at_stake_ns)


def said(trace: Trace, *each: tuple[Finding, Wanted | None], **keys: Any) -> Why:
    """Of these findings."""
    findings, wanted = zip(*each, strict=True)
    return with_worth(trace, replace(why(trace), findings=findings, wanted=wanted), **keys)


def shorter(us: int, name: str = "k") -> Want:
    def want(trace: Trace) -> Wanted:
        rows = named(trace, name)
        return Shorter(rows, np.full(len(rows), us * 1000))

    return want


def at(trace: Trace, begin: int, end: int) -> Cover:
    edges = np.array([[begin], [end]]) * 1000 + trace.begin_ns
    return Cover(*edges)


def copied() -> list[Event]:
    """A copy from pageable memory, 5 to 52, which a call fills from 1 to 50 and another one awaits
    from 51 to 53; a launch at 100, and its kernel, 105 to 110."""
    copy = kernel(5, 47, 1, "Memcpy HtoD (Pageable -> Device)", cat="gpu_memcpy")
    filling = call("cudaMemcpyAsync", 1, 49, 1)
    waiting = call("cudaStreamSynchronize", 51, 2, 9)
    return [host("aten::to", 0, 110), filling, copy, waiting, *launched(100, 105, 5, 2)]


def rows_of(trace: Trace, *names: str) -> Rows:
    return np.concatenate([named(trace, name) for name in names])


COPY, FILLS, WAITS = "Memcpy HtoD (Pageable -> Device)", "cudaMemcpyAsync", "cudaStreamSynchronize"
CASES: dict[str, tuple[Callable[[], list[Event]], Want, int | None]] = {
    "kernels that wait for each other": (gpu_bound, shorter(10), 50),
    # The last kernel starts 5 after its launch at 16.
    "no less than nothing": (gpu_bound, shorter(60), 255 - 21),
    "kernels that wait for the host": (host_bound, shorter(3), 3),
    # Of five calls of 2 each takes 1 less; nothing follows the last one.
    "launch calls": (host_bound, shorter(1, "cudaLaunchKernel"), 4),
    # The call takes the 3 that it takes to return.
    "no wait": (synced, lambda t: Unawaited(named(t, "cudaStreamSynchronize")), 47),
    # Nor that: the other kernel follows the first one, at 57.
    "no call": (synced, lambda t: Unmade(named(t, "cudaStreamSynchronize")), 48),
    # The op of 40 after the wait.
    "a stretch of a thread": (synced, lambda t: Hurried(at(t, 58, 98)), 40),
    # The wait still is for when the copy would begin, at 5, and returns at 6 instead of 53.
    "no copying thread": (copied, lambda t: Unawaited(rows_of(t, FILLS, COPY)), 47),
    # Without the 49 of the call and 1 of the wait the thread launches at 50.
    "nor a wait": (copied, lambda t: Unawaited(rows_of(t, FILLS, WAITS)), 50),
    "only a call that fills": (copied, lambda t: Unawaited(rows_of(t, FILLS)), None),
    "a change by its text": (gpu_bound, lambda t: "kernel:k x0.5", 125),
    "nothing to fuse": (gpu_bound, lambda t: "fuse", None),
    "nothing that waits": (gpu_bound, lambda t: Unawaited(named(t, "aten::mm")), None),
    "nothing to shorten": (gpu_bound, shorter(1, "aten::mm"), None),
    "no change": (gpu_bound, lambda t: None, None),
}


@pytest.mark.parametrize("name", CASES)
def test_worth(trace_of: TraceOf, name: str) -> None:
    events, want, us = CASES[name]
    trace = trace_of(events())
    (one,) = said(trace, (finding(), want(trace))).findings
    assert one.worth_ns == (None if us is None else us * 1000)


@pytest.mark.parametrize(
    ("one", "want", "note"),
    [
        (finding(), shorter(1), None),
        (finding(), lambda t: Unawaited(named(t, "k")), "not_found"),
        (finding(), lambda t: Hurried(at(t, 0, 5)), "own_time"),
        (finding(), lambda t: None, "no_change"),
        (finding("warm-up"), lambda t: None, "warm_up"),
        (finding(at_stake_ns=None), lambda t: None, "note"),
    ],
)
def test_notes(trace_of: TraceOf, one: Finding, want: Want, note: str | None) -> None:
    trace = trace_of(gpu_bound())
    assert said(trace, (one, want(trace))).findings[0].worth_note == note


def test_a_wait_is_a_bound(trace_of: TraceOf) -> None:
    trace = trace_of(synced())
    found = said(trace, (finding(), Unawaited(named(trace, "cudaStreamSynchronize"))))
    assert found.findings[0].worth_note == "at_most"
    assert "worth at most 47 us of the span" in worth_text(found, found.findings[0])


def test_the_most_worth_comes_first(trace_of: TraceOf) -> None:
    """Then what has none by what is at stake; notes last. Each keeps its change."""
    trace = trace_of(gpu_bound())
    each = [
        (finding("note", None), None),
        (finding("none", 9_000), None),
        (finding("more", 99_000), None),
        (finding("small"), shorter(1)(trace)),
        (finding("large"), shorter(10)(trace)),
    ]
    found = said(trace, *each)
    rules = ["large", "small", "more", "none", "note"]
    assert [one.rule for one in found.findings] == rules
    assert [one is None for one in found.wanted] == [False, False, True, True, True]


def test_what_is_unknown_comes_before_what_is_worth_nothing(trace_of: TraceOf) -> None:
    """And a CPU that takes no time counts with what is at stake, though it is worth 40."""
    trace = trace_of(synced())
    each = [
        (finding("nothing"), shorter(0)(trace)),
        (finding("none", 9_000), None),
        (finding("own time", 2_000), Hurried(at(trace, 58, 98))),
        (finding("shorter"), shorter(5)(trace)),
    ]
    found = said(trace, *each)
    assert [one.rule for one in found.findings] == ["shorter", "own time", "none", "nothing"]
    assert found.findings[1].worth_ns == 40_000
    assert "its calls, as what else it does would then run beside" in (
        worth_text(found, found.findings[1])
    )


def test_where_calls_that_wait_were_left_out_nothing_has_a_worth(
    trace_of: TraceOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whatif, "MANY", 3)
    for events, note in ((gpu_bound(), "no_waits"), (synced() + gpu_bound(), None)):
        trace = trace_of(events)
        assert said(trace, (finding(), shorter(1)(trace))).findings[0].worth_note == note


def test_together(trace_of: TraceOf) -> None:
    """Both, and no third one: each of five kernels of 50 takes 20 + 10 less."""
    trace = trace_of(gpu_bound())
    found = said(trace, *((finding(), shorter(us)(trace)) for us in (20, 10, 5)), together=2)
    assert found.together is not None
    assert (found.together.findings, found.together.saved_ns) == (2, 150_000)
    assert replayed_text(found) == (
        "With the first 2 findings mended, the span of 255 us would take 105 us."
    )


def test_what_is_worth_nothing(trace_of: TraceOf) -> None:
    trace = trace_of([*host_bound(), host("aten::add", 100, 200)])
    found = said(trace, (finding(), shorter(3)(trace)))
    assert worth_text(found, found.findings[0]) == (
        "At stake 1 us, worth nothing: other work limits the time."
    )


def test_a_part_has_none(trace_of: TraceOf) -> None:
    trace = trace_of(gpu_bound())
    found = why(trace, Selection(from_ns=0, to_ns=100_000))
    told = with_worth(trace, replace(found, findings=(finding(),), wanted=(shorter(1)(trace),)))
    assert (told.findings[0].worth_ns, told.findings[0].worth_note) == (None, "part")
    assert replayed_text(told) == "What findings are worth is told of whole traces only."


def test_a_large_trace_has_none_unless_it_is_asked_for(
    trace_of: TraceOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worth, "MOST", 10)
    trace = trace_of(gpu_bound())
    one = finding(), shorter(1)(trace)
    assert said(trace, one).findings[0].worth_note == "large"
    assert said(trace, one, asked=True).findings[0].worth_ns == 5_000


@pytest.mark.skipif(not TRACES.is_dir(), reason=f"there are no traces in {TRACES}")
@pytest.mark.parametrize("path", sorted(TRACES.glob("*.json.gz")), ids=lambda path: path.name)
def test_nothing_costs_time(path: Any) -> None:
    """No change that a finding has makes a real step longer; only those that let the CPU run ahead
    are worth more than what is at stake."""
    trace = open_trace(str(path))
    found = with_worth(trace, why(trace))
    for one, wanted in zip(found.findings, found.wanted, strict=True):
        if isinstance(wanted, Shorter) and one.rule != "small-collectives":  # part of it is hidden
            rest = (one.at_stake_ns or 0) - int(wanted.ns.sum())
            assert 0 <= rest <= len(wanted.ns)  # each in whole ns
    steps: Sequence[object] = found.steps if found.worth_of == "step" else ["span"]
    for one in found.findings:
        assert (one.worth_ns or 0) >= 0
        if one.worth_ns and one.worth_ns * len(steps) > 1.001 * (one.at_stake_ns or 0):
            assert one.rule in ("host-bound", "allocation")
