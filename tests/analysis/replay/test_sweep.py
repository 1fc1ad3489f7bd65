"""From where on a change no longer helps."""

from __future__ import annotations

import pytest

from fusetui.analysis.replay.changes import WrongChangeError
from fusetui.analysis.replay.whatif import SweepPoint, find_knee, sweep
from fusetui.sample_traces import lessons
from fusetui.trace import open_trace


def points(*times: int) -> tuple[SweepPoint, ...]:
    return tuple(SweepPoint(number / 10, ns) for number, ns in enumerate(times))


def test_the_knee_is_the_last_factor_at_which_all_is_gained() -> None:
    assert find_knee(points(100, 100, 100, 150, 200)) == 0.2


def test_no_knee_where_every_factor_gains() -> None:
    assert find_knee(points(100, 120, 140)) is None


def test_less_may_take_longer() -> None:
    """As where what is shorter begins earlier and is in the way of something else."""
    assert find_knee(points(105, 100, 103)) == 0.1
    assert find_knee(points(100, 150, 100, 200)) == 0.2


def test_no_knee_where_nothing_does() -> None:
    assert find_knee(points(100, 100, 100)) is None


@pytest.mark.parametrize(
    "text", ["python", "python x1", "python x1..1", "python x2..1"]
)
def test_change_without_a_range_is_no_sweep(text: str) -> None:
    with pytest.raises(WrongChangeError, match="is not a sweep"):
        sweep(open_trace(str(lessons.path("mlp-eager"))), text)
