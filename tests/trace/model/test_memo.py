"""What is computed once of a trace is freed with it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import msgspec
import pytest
from tests.tui.prepared import explained, opened

from fusetui.analysis.diff.compare import diff
from fusetui.analysis.graphs.captures import captures
from fusetui.analysis.questions.launches import wants_capture
from fusetui.analysis.questions.summary import summary
from fusetui.analysis.why.answer import why
from fusetui.gpu.roofline.row import describe_work
from fusetui.sample_traces import lessons
from fusetui.trace import Trace, open_trace
from fusetui.trace.model.memo import keep_result, kept_result, memo
from fusetui.tui.drawing.details import details
from fusetui.tui.drawing.schemes import UNICODE
from fusetui.tui.layout.op_tree import build_op_tree


class Owner(msgspec.Struct, frozen=True, eq=False, dict=True):
    """What has results."""


def test_a_result_is_computed_once_for_each_of_the_last_arguments() -> None:
    asked: list[int] = []

    @memo(2)
    def twice(owner: Owner, number: int) -> int:
        asked.append(number)
        return 2 * number

    owner = Owner()
    assert [twice(owner, number) for number in (1, 2, 1, 3, 2, 3, 1)] == [
        2,
        4,
        2,
        6,
        4,
        6,
        2,
    ]
    assert asked == [1, 2, 3, 1]
    assert twice(Owner(), 3) == 6
    assert asked == [1, 2, 3, 1, 3]


def test_as_many_results_are_kept_as_may_be() -> None:
    asked: list[int] = []
    owner, numbers = Owner(), list(range(7))

    @memo(len(numbers))
    def same(owner: Owner, number: int) -> int:
        asked.append(number)
        return number

    assert [same(owner, number) for number in numbers * 2] == numbers * 2
    assert asked == numbers


def test_a_result_that_was_computed_elsewhere_is_returned() -> None:
    @memo()
    def answer(owner: Owner) -> str:
        return "computed here"

    owner = Owner()
    assert kept_result(owner, answer) is None
    assert answer(owner) == "computed here"
    assert kept_result(owner, answer) == "computed here"
    keep_result(owner, answer, "by another process")
    assert answer(owner) == "by another process"
    assert kept_result(Owner(), answer) is None


def test_a_result_is_kept_under_any_key() -> None:
    owner = Owner()
    assert kept_result(owner, "frames") is None
    keep_result(owner, "frames", 1)
    keep_result(owner, "frames", 2)
    assert kept_result(owner, "frames") == 2


def test_memo_does_not_keep_what_is_raised() -> None:
    attempts: list[int] = []

    @memo()
    def fail_first(owner: Owner) -> int:
        attempts.append(1)
        if len(attempts) == 1:
            raise ValueError
        return len(attempts)

    owner = Owner()
    with pytest.raises(ValueError, match=r"\A\Z"):
        fail_first(owner)
    assert fail_first(owner) == fail_first(owner) == 2


def shown(trace: Trace) -> object:
    return details(
        explained(opened(trace)).side, int(trace.gpu_rows[0]), 80, 12, UNICODE
    )


@pytest.mark.parametrize(
    "ask",
    [
        summary,
        why,
        lambda trace: diff(trace, trace),
        lambda trace: [describe_work(trace, row) for row in trace.gpu_rows.tolist()],
        captures,
        wants_capture,
        shown,
        build_op_tree,
        lambda trace: build_op_tree(trace),
    ],
)
def test_a_closed_trace_is_freed(ask: Callable[[Trace], object]) -> None:
    trace = open_trace(str(lessons.path("mlp-eager")))
    ask(trace)
    gone = weakref.ref(trace.start)
    del trace
    if gone() is not None:  # a circle holds it
        gc.collect()
    assert gone() is None
