"""Another process works out what takes longer, and says the same as a thread would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.tui.driving import settled
from tests.tui.explainable import training
from tests.tui.prepared import after, drawn, opened

from fusetui.analysis.diff.compare import diff
from fusetui.analysis.questions.groups import Grouping
from fusetui.trace import Trace, open_trace
from fusetui.trace.model.report import Stop, never
from fusetui.tui.app import AppOptions, FusetuiApp
from fusetui.tui.background_results import compute_pieces
from fusetui.tui.helper_client import (
    ALONE,
    Beside,
    HelperUnavailableError,
    Named,
    packed,
    unpacked,
)
from fusetui.tui.layout.answer import Insight
from fusetui.tui.layout.op_tree import build_call_tree
from fusetui.tui.layout.view import make_sides
from fusetui.tui.loading import compare, load
from fusetui.tui.state.reading import compare_again
from fusetui.tui.state.state import Compare


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = tmp_path / "training.json"
    path.write_text(json.dumps({"traceEvents": training()}))
    return str(path)


def last(found: list[Any]) -> Insight:
    """The insight with the answer."""
    return [piece for piece in found if isinstance(piece, Insight)][-1]


def test_helper_and_thread_find_the_same_hits(path: str) -> None:
    trace = open_trace(path)
    own = list(compute_pieces(trace, never))
    with Beside() as beside:
        others = list(beside.told((path, trace), never))
    assert [type(piece) for piece in others] == [type(piece) for piece in own]
    here, there = last(own).answer, last(others).answer
    assert here is not None
    assert there is not None
    assert there.why == here.why
    assert there.lists == here.lists
    assert there.origins.trace is trace
    trees = [
        one[build_call_tree]
        for one in others
        if isinstance(one, dict) and build_call_tree in one
    ]
    assert (
        trees[0].figures["GPU"].tolist()
        == build_call_tree(trace).figures["GPU"].tolist()
    )
    number = int(here.kernel_keys["module"].number[0])
    known = there.kernel_keys["module"]
    assert known.identify(number) == here.kernel_keys["module"].identify(number)


def test_a_file_that_has_changed_is_left_to_the_thread(path: str) -> None:
    """Rows of the new file would be others."""
    trace = open_trace(path)
    Path(path).write_text(json.dumps({"traceEvents": training(4)}))
    with Beside() as beside, pytest.raises(HelperUnavailableError):
        list(beside.told((path, trace), never))


def test_a_cancelled_helper_gives_no_answers(path: str) -> None:
    with Beside() as beside:
        assert list(beside.answers((path, open_trace(path)), lambda: True)) == []


def test_without_another_process_the_thread_does_it(path: str) -> None:
    posted: list[Any] = []
    load([path], posted.append, never, helper=ALONE)
    known = [getattr(one, "keywords", {}).get("piece") for one in posted]
    assert last(known).answer


def test_columns_and_groups_arrive_as_they_were_sent(mlp: Trace) -> None:
    groups: dict[int, dict[str, Any]] = {1: {"op": "mm"}, 3: {"op": None}}
    sent = Grouping(np.array([3, 1, 3]), groups.__getitem__)
    found, trace = unpacked(packed((sent, mlp), mlp), mlp)
    assert trace is mlp
    assert found.number.tolist() == [3, 1, 3]
    assert found.identify(1) == {"op": "mm"}


@pytest.fixture
def other(tmp_path: Path) -> str:
    """The same program, in which a kernel takes longer."""
    path = tmp_path / "slower.json"
    events = [
        {**event, "dur": event["dur"] + 7 * (event["cat"] == "kernel")}
        for event in training()
    ]
    path.write_text(json.dumps({"traceEvents": events}))
    return str(path)


def test_helper_and_thread_compute_the_same_diff(path: str, other: str) -> None:
    a, b = open_trace(path), open_trace(other)
    with Beside() as beside:
        assert [*beside.told((path, a), never, (other, b))] == [diff(a, b)]
        assert [*beside.told((other, b), never, (path, a))] == [diff(b, a)]


def test_a_diff_of_a_file_that_has_changed_is_left_to_the_thread(
    path: str, other: str
) -> None:
    a, b = open_trace(path), open_trace(other)
    Path(other).write_text(json.dumps({"traceEvents": training(4)}))
    with Beside() as beside, pytest.raises(HelperUnavailableError):
        list(beside.told((path, a), never, (other, b)))


def test_nobody_waits_for_a_diff_that_is_not_wanted_any_more(
    path: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides = make_sides([open_trace(path), open_trace(other)], ["a", "b"])
    posted: list[Any] = []
    monkeypatch.setattr("fusetui.tui.loading.MIN_SLICES_FOR_HELPER", 0)
    compare(
        Compare(sides[0], sides[1], (path, other)), posted.append, lambda: True, Beside
    )
    assert posted == []


def test_diff_is_computed_in_a_thread_without_a_helper(path: str, other: str) -> None:
    sides = make_sides([open_trace(path), open_trace(other)], ["a", "b"])
    posted: list[Any] = []
    compare(Compare(sides[0], sides[1], (path, other)), posted.append, never)
    (compared,) = posted
    assert compared.keywords["diff"] == diff(sides[0].trace, sides[1].trace)


@pytest.mark.usefixtures("frozen_again")
async def test_large_traces_are_compared_beside(
    path: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page says that the diff is worked out, then it is there."""
    monkeypatch.setattr("fusetui.tui.loading.MIN_SLICES_FOR_HELPER", 1)
    asked: list[object] = []
    own = Beside.told

    def noted(
        beside: Beside, a: Named, cancelled: Stop, b: Named | None, *rest: str
    ) -> Any:
        if b:
            asked.append(a[0])
        return own(beside, a, cancelled, b, *rest)

    monkeypatch.setattr(Beside, "told", noted)
    app = FusetuiApp(AppOptions((path, other), alone=False))
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(app, pilot)
        await settled(app, pilot)
        assert asked == [path]
        assert app.state.comparison is not None
        assert app.state.comparison.found is not None


def test_the_page_says_that_the_diff_is_worked_out(path: str, other: str) -> None:
    state = opened(open_trace(path), open_trace(other))
    begun = after(state, compare_again)
    assert "Comparing A and B..." in drawn(begun)
    assert "Comparing" not in drawn(state)
