"""A data loader with workers: when its batches are ready after a change is not known,
but has bounds. Times of events are in us."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.analysis.replay.cases import CHANGES, LOADING, cases
from tests.analysis.replay.changes import changed as changed_program
from tests.analysis.replay.conftest import Ask
from tests.analysis.replay.events import Event, call, host, launched, step
from tests.analysis.replay.invented import KINDS, invented
from tests.analysis.replay.judge import by_command, judged
from tests.analysis.replay.recording import span_of, write
from tests.analysis.replay.simulator import simulate
from tests.analysis.replay.test_changes import gpu_bound
from tests.cases import Cases

from fusetui.analysis.ranks.joint_replay import CollectiveArrivals, replay_job
from fusetui.analysis.replay.apply import apply_changes
from fusetui.analysis.replay.build import build_graph
from fusetui.analysis.replay.changes import WrongChangeError, parse_change
from fusetui.analysis.replay.path import path
from fusetui.analysis.replay.replay import replay, replay_late
from fusetui.analysis.replay.whatif import whatif
from fusetui.analysis.replay.worth import with_worth
from fusetui.analysis.why.answer import why
from fusetui.report.whatif import format_whatif
from fusetui.trace import Trace, open_trace

Us = Callable[..., tuple[float, float | None]]
Make = Callable[..., Trace]
NEXT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
FASTER = ("op:/./ x0.5", "kernel:/./ x0.5", "python x0.5")


def trained(calls: Sequence[float], ops: int = 20, op: float = 400) -> list[Event]:
    """Of each call for a batch a step: ops of which each launches a kernel of 20, then
    a wait for the device. The op, its launch and the wait limit it."""
    events: list[Event] = []
    at, number = 0.0, 0
    for place, lasted in enumerate(calls):
        begin = at
        events.append(host(NEXT, at, lasted, "user_annotation"))
        at += lasted
        for _ in range(ops):
            number += 1
            events.append(host("aten::add", at, op))
            events += launched(at + op - 10, at + op - 5, 20, number)
            at += op
        number += 1
        events.append(call("cudaDeviceSynchronize", at, 20, number))
        at += 20
        events.append(step(place, begin, at - begin))
    return events


FEW = (80, 95, 1900, 2800, 110, 3515)  # 8.5 ms in all
STEP = 20 * 400 + 20
HALF_STEP = 20 * (398 // 2 + 2) + 24
"""A call of 2 takes as long as before, and the last kernel ends 4 later after the last
op."""


def test_the_path_gives_the_loader_what_its_calls_took(trace_of: Make) -> None:
    found = path(trace_of(trained(FEW)))
    assert (
        sum(row.ns for row in found.rows)
        == found.span_ns
        == 1000 * (6 * STEP + sum(FEW))
    )
    assert sum(row.ns for row in found.rows if row.what == NEXT) == 1000 * sum(FEW)


def test_calls_that_return_at_once_move_with_the_thread(asked: Ask) -> None:
    found = asked(trained([80] * 5), "op:/./ x0.5")
    assert found.after_ns == 1000 * (80 + HALF_STEP)
    assert found.certainty == "bound"
    assert "batches_unknown" in found.notes
    assert found.latest_ns == found.before_ns == 1000 * (80 + STEP)


def test_a_longer_call_may_not_have_waited(asked: Ask) -> None:
    """At best every call takes as long as it did, whatever it did in that time."""
    found = asked(trained(FEW), "op:/./ x0.5")
    halves = [1000 * (lasted + HALF_STEP) for lasted in FEW]
    assert [one.after_ns for one in found.steps] == halves
    assert found.certainty == "bound"


def test_a_call_that_waited_ends_when_its_batch_is_ready(asked: Ask) -> None:
    """The first call is at once; all others waited for 30 ms, for workers that begin a
    batch when an earlier one is taken: none was taken earlier, so no batch is ready
    earlier."""
    events = trained((80, 30_000, 30_000, 30_000))
    found = asked(events, "op:/./ x0.5")
    assert found.latest_ns is None
    assert "batches_unknown" not in found.notes
    assert found.after_ns == found.before_ns


def test_a_slower_thread_waits_less(asked: Ask) -> None:
    """Ops take 8 ms longer, and calls wait 8 ms less: a step takes as long as
    before."""
    found = asked(trained((80, 30_000, 30_000, 30_000)), "op:/./ x2")
    assert found.after_ns == found.before_ns
    assert found.certainty == "estimate"


def test_loader_says_what_waiting_costs(asked: Ask) -> None:
    found = asked(trained((80, 30_000, 20_000, 25_000)), "loader")
    assert found.after_ns == 1000 * (80 + STEP)
    assert found.certainty == "bound"
    assert "loader_never_waits" in found.notes
    assert "upper bound" in format_whatif(found, 1000)


def test_without_workers_nothing_is_unknown(asked: Ask) -> None:
    events = trained(FEW)
    for event in events:
        event["name"] = event["name"].replace("Multi", "Single")
    found = asked(events, "op:/./ x0.5")
    assert found.latest_ns is None
    assert found.certainty == "estimate"
    assert "batches_unknown" not in found.notes


def test_a_change_of_the_kernels_does_not_move_the_thread(asked: Ask) -> None:
    found = asked(trained([80] * 4), "kernel:/./ x1")
    assert (found.latest_ns, found.certainty) == (None, "estimate")
    assert found.after_ns == found.before_ns


def test_being_host_bound_is_worth_something(trace_of: Make) -> None:
    trace = trace_of(trained(FEW))
    found = with_worth(trace, why(trace))
    (bound,) = (one for one in found.findings if one.rule == "host-bound")
    assert (bound.worth_share or 0) > 0.5


def test_work_removed_at_x0_is_not_waited_for(us: Us) -> None:
    """An op around the second of three calls, with all that is in it."""
    events = [host(NEXT, 0, 80, "user_annotation"), host("aten::mm", 80, 20)]
    events += [host("fetch", 100, 40_000), host(NEXT, 100, 40_000, "user_annotation")]
    events += [host("aten::mm", 40_100, 20)]
    assert us(events, "op:fetch x0")[1] == 80 + 20 + 20


def test_steps_that_only_begin_earlier_say_so(asked: Ask) -> None:
    """The first step, which is not counted, ends earlier; the second waits so much
    longer."""
    events = trained((80, 30_000), ops=20)
    for event in events:
        if event["name"] == "aten::add" and event["ts"] > 30_000:
            event["name"] = "aten::mul"
    found = asked(events, "op:aten::add x0.5")
    assert found.after_ns is not None
    assert found.after_ns > found.before_ns
    assert "same_work_later" in found.notes
    assert "The work itself does not take longer:" in format_whatif(found, 1000)


@pytest.mark.parametrize("kind", sorted(LOADING))
def test_changes_of_simulated_loaders_are_predicted_within_bounds(
    kind: str, tmp_path: Path
) -> None:
    with Cases() as tried:
        for _, seed, change in cases(1, [kind]):
            program = invented(kind, seed)
            verdict = judged(program, CHANGES[change], by_command, tmp_path)
            with tried.case(change):
                assert verdict.is_right, verdict


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", sorted(LOADING))
@pytest.mark.parametrize(
    "change", ["op x0.5", "kernel x0.5", "kernel x2", "python x0.5"]
)
def test_the_end_lies_between_the_bounds(
    kind: str, seed: int, change: str, tmp_path: Path
) -> None:
    program, words = invented(kind, seed), CHANGES[change]
    run, then = simulate(program), simulate(changed_program(program, *words))
    trace = open_trace(str(write(run, tmp_path / "a.json")), cached=False)
    made, _ = apply_changes(
        trace, build_graph(trace), [parse_change(text) for text in words]
    )
    best, worst = (int(replay(made, late=late).end.max()) for late in (False, True))
    assert best <= span_of(then) <= worst


def test_only_batches_are_late(trace_of: Make) -> None:
    """Where workers load batches, the two bounds differ after a change; else they are
    the same, and not worked out twice."""
    for events, differ in ((trained((80, 20_000, 80)), True), (gpu_bound(), False)):
        trace = trace_of(events)
        made, _ = apply_changes(
            trace, build_graph(trace), [parse_change("op:/./ x0.5")]
        )
        early = replay(made)
        late = replay_late(made, early)
        assert late.end.tolist() == replay(made, late=True).end.tolist()
        assert (late is early) is not differ


@pytest.mark.parametrize("late", [None, False, True])
def test_each_rank_has_loaders_of_its_own(trace_of: Make, late: bool | None) -> None:
    """Two ranks without collectives, one of them with a change: each is replay_job as it
    is alone, by default as early as may be."""
    options = {} if late is None else {"late": late}
    traces = [
        trace_of(trained(calls)) for calls in ((80, 95, 30_000), (90, 20_000, 80))
    ]
    graphs = [build_graph(trace) for trace in traces]
    graphs[0], _ = apply_changes(traces[0], graphs[0], [parse_change("op:/./ x0.5")])
    none = np.empty(0, dtype=np.intp)
    found = replay_job(
        graphs, CollectiveArrivals(none, none, none, none, none), **options
    )
    assert found is not None
    for graph, times in zip(graphs, found.times, strict=True):
        assert times.end.tolist() == replay(graph, late=bool(late)).end.tolist()


def assert_explained(trace: Trace, change: str) -> None:
    found = whatif(trace, [change])
    if found.after_ns is not None and found.after_ns > found.before_ns:
        assert "same_work_later" in found.notes


@pytest.mark.parametrize("change", FASTER)
@pytest.mark.parametrize("kind", KINDS)
def test_replay_with_faster_work_ends_no_later(
    kind: str, change: str, tmp_path: Path
) -> None:
    file = write(simulate(invented(kind, 1)), tmp_path / "a.json")
    trace = open_trace(str(file), cached=False)
    graph = build_graph(trace)
    try:
        made, _ = apply_changes(trace, graph, [parse_change(change)])
    except WrongChangeError as reason:
        pytest.skip(str(reason))
    for late in (False, True):
        # rounded to whole ns
        assert (replay(made, late=late).end <= graph.ended + 2).all()
    assert_explained(trace, change)


def test_no_step_is_longer_without_a_reason(any_trace: Path) -> None:
    trace = open_trace(str(any_trace))
    found = path(trace)
    assert sum(row.ns for row in found.rows) == found.span_ns
    for change in FASTER:
        try:
            assert_explained(trace, change)
        except WrongChangeError:
            continue  # there is no such work
