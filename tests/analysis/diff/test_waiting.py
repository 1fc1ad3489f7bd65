"""Why the GPU was idle for longer, or less long: by what it waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.model import Diff
from fusetui.report.diff import document, format_diff
from fusetui.trace import Trace

Trained = Callable[..., Trace]
US = 1_000
BY_ITSELF = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
OF_WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


@pytest.fixture
def trained(
    trace_of: Callable[..., Trace], launched: Callable[..., list[dict[str, Any]]]
) -> Trained:
    """Some steps: a batch is fetched, then an op takes some time, then it launches a
    kernel of 100 us, which begins after a delay, and which the step waits for; times in
    us."""

    def made(
        loader: str,
        fetching: int,
        preparing: int = 20,
        compiling: int = 0,
        delay: int = 10,
        steps: int = 5,
    ) -> Trace:
        events, begin = [], 0
        for step in range(steps):
            plain = {"ph": "X", "pid": 1, "tid": 1}
            note = {**plain, "cat": "user_annotation"}
            ready, launch = begin + fetching, begin + fetching + compiling + preparing
            dur = launch - begin + delay + 100
            events += [
                {**note, "name": f"ProfilerStep#{step}", "ts": begin, "dur": dur},
                {**note, "name": loader, "ts": begin, "dur": fetching},
                {
                    **plain,
                    "cat": "cpu_op",
                    "name": "aten::mm",
                    "ts": ready + compiling,
                    "dur": preparing + 5,
                },
                *launched(step + 1, launch, launch + delay, 100, "gemm"),
            ]
            if compiling:
                name = "_compile.compile_inner (dynamo_timed)"
                events.append({**note, "name": name, "ts": ready, "dur": compiling})
            begin += dur
        return trace_of(events)

    return made


def causes(found: Diff) -> dict[str, int]:
    """Of each cause the change, from the JSON."""
    a, b = (
        side["idle"] for side in msgspec.to_builtins(document(found).sides).values()
    )
    changes = {name: b.get(name, 0) - a.get(name, 0) for name in {**a, **b}}
    return {name: ns for name, ns in changes.items() if ns}


def test_without_workers_and_with_four_the_story_names_the_data_loader(
    trained: Trained,
) -> None:
    found = diff(trained(BY_ITSELF, 400), trained(OF_WORKERS, 10))
    assert found.story == (
        "B takes 390 us less per step: -390 us idle waiting for the data loader"
    )
    assert causes(found) == {"data_loading": -390 * US}


def test_turned_round_it_takes_as_much_more(trained: Trained) -> None:
    found = diff(trained(OF_WORKERS, 10), trained(BY_ITSELF, 400))
    assert "+390 us idle waiting for the data loader" in found.story


def test_a_loader_that_takes_as_long_as_before_is_not_named(trained: Trained) -> None:
    found = diff(trained(BY_ITSELF, 400), trained(BY_ITSELF, 400, preparing=150))
    assert found.story == (
        "B takes 130 us more per step: +130 us idle waiting for launches"
    )
    assert causes(found) == {"host_op": 130 * US}


def test_less_loading_does_not_hide_more_launching(trained: Trained) -> None:
    """A sum of the two would be +10 us of idle time."""
    found = diff(trained(BY_ITSELF, 400), trained(OF_WORKERS, 10, preparing=420))
    assert found.accounting.idle_ns == 10 * US
    assert "+400 us idle waiting for launches;" in found.story
    assert "-390 us idle waiting for the data loader" in found.story


def test_launches_that_come_sooner_do_not_hide_that_they_take_longer(
    trained: Trained,
) -> None:
    """As on another vendor's GPU. A sum of the two would be -70 us waiting for
    launches."""
    a = trained(OF_WORKERS, 10, preparing=120, steps=25)
    found = diff(a, trained(OF_WORKERS, 10, delay=40, steps=25))
    assert found.story == (
        "B takes 70 us less per step: -100 us idle waiting for launches; offset by "
        "+30 us idle in launch latency"
    )


def test_compilation_is_told_apart(trained: Trained) -> None:
    found = diff(trained(BY_ITSELF, 100), trained(BY_ITSELF, 100, compiling=300))
    assert causes(found) == {"compilation": 300 * US}
    assert "+300 us idle while code is compiled" in found.story


def test_the_idle_line_says_what_the_gpu_waited_for(trained: Trained) -> None:
    found = diff(trained(BY_ITSELF, 400), trained(OF_WORKERS, 10))
    (line,) = [
        line for line in format_diff(found, 200).splitlines() if " idle  " in line
    ]
    assert line.endswith("   GPU idle   -390 us waiting for the data loader")


def test_the_causes_add_up_to_the_idle_time(trained: Trained) -> None:
    found = diff(
        trained(BY_ITSELF, 400), trained(OF_WORKERS, 10, preparing=421, compiling=7)
    )
    for side in (found.side_a, found.side_b):
        assert sum(side.idle.values()) == side.idle_ns > 0


def test_without_a_gpu_idle_time_has_no_causes(trace_of: Callable[..., Trace]) -> None:
    op = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "dur": 5}
    trace = trace_of([{**op, "ts": 10 * n} for n in range(5)])
    assert diff(trace, trace).side_a.idle == {}
