"""Tests that compare with real traces: `pytest -m real` runs them alone.

Some are about certain traces. Others are tests of the corpus again: a module here
imports them, and its fixture `any_trace` is each real trace in turn.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.real.traces import TRACES

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE:
            item.add_marker("real")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if not TRACES.is_dir():
        pytest.skip("needs real traces, in the folder that FUSETUI_TRACES names")
