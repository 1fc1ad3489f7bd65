"""Lists that the scanner reads at once, and Python only element by element."""

from __future__ import annotations

import pytest
from fuzz.scanner import compared

from fusetui.trace.read import scanned

EXACT_TIME = b'{"ph":"X","name":"a","ts":12195495519689.1,"dur":2,"pid":1,"tid":1}'
HUGE_ID = b'{"ph":"v","id":1e400}'


@pytest.mark.skipif(scanned.scan is None, reason="the scanner was not compiled")
def test_an_exact_time_beside_a_huge_id_is_read_alike_by_scanner_and_python() -> None:
    assert compared(EXACT_TIME + b"," + HUGE_ID) == "read element by element"


@pytest.mark.skipif(scanned.scan is None, reason="the scanner was not compiled")
def test_a_huge_id_alone_is_decoded_at_once_by_both() -> None:
    assert compared(HUGE_ID) == "read by both"
