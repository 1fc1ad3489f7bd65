"""The calls of fusetui that docs/python.md shows beside those of other programs run."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from tests.docs.test_reference import DOCS
from tests.scripts import benchmark

PEERS = benchmark("python_peers")
LESSONS = ("lesson:mlp-eager", "lesson:mlp-compiled")


def test_each_call_in_the_table_of_peers_prints_a_figure() -> None:
    calls = [one.fusetui for one in PEERS.QUESTIONS]
    for said in PEERS.asked(sys.executable, PEERS.FUSETUI, calls, LESSONS):
        assert any(digit in said for digit in "123456789")


@pytest.mark.parametrize("one", PEERS.QUESTIONS, ids=lambda one: one.text)
def test_the_page_shows_what_was_called(one: Any) -> None:
    page = (DOCS / "python.md").read_text(encoding="utf-8")
    for cell in (f"`{one.fusetui.code}`", f"`{one.hta.code}`", one.tracelens):
        assert cell in page
