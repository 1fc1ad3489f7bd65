"""Numbers of which an int would have a million digits."""

from __future__ import annotations

from fusetui.trace.read.events import integer
from fusetui.trace.read.repair import loads


def test_a_sequence_number_beyond_all_bounds_is_none() -> None:
    assert integer(loads(b"1e1000000")) == -1
    assert integer(loads(b"1.0")) == 1
