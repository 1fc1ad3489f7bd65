"""The GPU waits while a batch is fetched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fusetui.analysis.why.account import Accounts
from fusetui.analysis.why.engine import collect_findings
from fusetui.analysis.why.facts import Facts

from .conftest import Ask

Make = Callable[..., Any]

NEXT = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def test_data_loading_reports_gaps_inside_the_loader(
    found: Ask, event: Make, launched: Make
) -> None:
    """The gap is 15-95 us; of it 16-90 us lie in the loader, and 20-80 us of these in
    `decode`."""
    events = [
        *launched(1, 0, 5),
        event(NEXT, 16, 74, cat="user_annotation"),
        event("/home/x/data.py(7): decode", 20, 60, cat="python_function"),
        *launched(2, 91, 95),
    ]
    (finding,) = found("data-loading", events)
    assert finding.at_stake_ns == 74_000
    assert finding.share == 0.74
    assert finding.text == (
        "The GPU waits 74 us (74.0 % of the span) for the data loader, 60 us of it in "
        "decode (data.py:7)."
    )


def test_workers_that_are_there_are_not_asked_for(
    found: Ask, event: Make, launched: Make
) -> None:
    for kind, first in (
        ("Single", "Use DataLoader(num_workers"),
        ("Multi", "Prepare more batches in advance"),
    ):
        name = f"enumerate(DataLoader)#_{kind}ProcessingDataLoaderIter.__next__"
        loader = event(name, 16, 74, cat="user_annotation")
        (finding,) = found(
            "data-loading", [*launched(1, 0, 5), loader, *launched(2, 91, 95)]
        )
        assert finding.try_ is not None
        assert finding.try_.startswith(first)


@pytest.mark.parametrize(
    ("lasted", "first"),
    [
        ((70, 72, 75), "Build batches from fewer,"),
        ((70, 700, 900), ("Prepare more batches")),
    ],
)
def test_more_workers_are_no_advice_where_batches_were_ready(
    found: Ask, event: Make, launched: Make, lasted: tuple[int, ...], first: str
) -> None:
    """A call that takes about as long as the shortest one takes over a batch that is
    ready."""
    name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    events = launched(1, 0, 5)
    for number, duration in enumerate(lasted):
        begin = 20 + 1000 * number
        events.append(event(name, begin, duration, cat="user_annotation"))
        events += launched(2 + number, begin + duration + 1, begin + duration + 5)
    (finding,) = found("data-loading", events)
    assert finding.try_ is not None
    assert finding.try_.startswith(first)


@pytest.mark.parametrize(
    ("lasted", "wanted"), [((70, 72, 75), None), ((70, 700, 900), "loader")]
)
def test_where_workers_load_the_change_is_that_of_whatif(
    trace_of: Make,
    event: Make,
    launched: Make,
    lasted: tuple[int, ...],
    wanted: str | None,
) -> None:
    """Unless the batches were ready: then no faster loading helps."""
    name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    events = launched(1, 0, 5)
    for number, duration in enumerate(lasted):
        begin = 20 + 1000 * number
        events.append(event(name, begin, duration, cat="user_annotation"))
        events += launched(2 + number, begin + duration + 1, begin + duration + 5)
    answers = collect_findings(Facts(Accounts(trace_of(events))))
    changes = dict(
        zip((one.rule for one in answers.findings), answers.wanted, strict=True)
    )
    assert changes["data-loading"] == wanted


def test_the_loader_itself_is_not_named(
    found: Ask, event: Make, launched: Make
) -> None:
    frame = "torch/utils/data/dataloader.py(700): __next__"
    events = [
        *launched(1, 0, 5),
        event(NEXT, 16, 74, cat="cpu_op"),
        event(frame, 20, 60, cat="python_function"),
        *launched(2, 91, 95),
    ]
    (finding,) = found("data-loading", events)
    assert finding.text.endswith("for the data loader.")


def test_with_stacks_it_is_likely(found: Ask, event: Make, launched: Make) -> None:
    """Recording stacks takes time of the CPU, too."""
    batch = event(NEXT, 16, 74, cat="user_annotation")
    frame = event("/a.py(1): f", 20, 60, cat="python_function")
    plain = found("data-loading", [*launched(1, 0, 5), batch, *launched(2, 91, 95)])
    deep = found(
        "data-loading", [*launched(1, 0, 5), batch, frame, *launched(2, 91, 95)]
    )
    assert [one.certainty for one in (*plain, *deep)] == ["certain", "likely"]


def test_a_loader_beside_a_busy_gpu_is_silent(
    found: Ask, event: Make, launched: Make
) -> None:
    events = [
        *launched(1, 0, 5, dur=100),
        event(NEXT, 16, 74, cat="user_annotation"),
        *launched(2, 91, 106),
    ]
    assert found("data-loading", events) == []


def test_a_loader_on_a_thread_that_launches_nothing_is_silent(
    found: Ask, event: Make, launched: Make
) -> None:
    loader = event(NEXT, 16, 74, cat="user_annotation", tid=2)
    assert (
        found("data-loading", [*launched(1, 0, 5), loader, *launched(2, 91, 95)]) == []
    )
