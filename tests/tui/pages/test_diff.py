"""The first line of the diff page: colored only where there is a verdict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from fusetui.trace import Trace
from fusetui.trace.diff import Answer, Verdict, diff
from fusetui.tui.pages.diff import verdict


@pytest.mark.parametrize(
    ("answer", "look"),
    [
        (Answer.FASTER, "good"),
        (Answer.SLOWER, "bad"),
        (Answer.NO_DIFFERENCE, "title"),
        (Answer.CANNOT_TELL, "title"),
    ],
)
def test_the_color_is_that_of_the_verdict(
    trace_of: Callable[..., Trace],
    launched: Callable[..., list[dict[str, Any]]],
    answer: Answer,
    look: str,
) -> None:
    trace = trace_of(launched(1, 0, 10))
    found = msgspec.structs.replace(diff(trace, trace), verdict=Verdict(answer))
    assert verdict(found, 100)[0].look == look


def test_what_cannot_be_told_is_said(
    trace_of: Callable[..., Trace], launched: Callable[..., list[dict[str, Any]]]
) -> None:
    trace = trace_of(launched(1, 0, 10))
    text = " ".join(line.text for line in verdict(diff(trace, trace), 100))
    assert "cannot tell: it takes at least 5 steps on each side (A has 1, B 1)" in text
