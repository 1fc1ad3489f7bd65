"""Tables of a real trace with everything that a table needs."""

from __future__ import annotations

import pytest
from tests.cli.conftest import fusetui
from tests.cli.test_tables import NAMES, Run, rows
from tests.real.traces import real


@pytest.mark.parametrize("name", NAMES)
def test_tables_of_a_real_trace_have_rows(fusetui: Run, name: str) -> None:
    path = real("h100_bert-small")
    assert len(rows(fusetui(name, path, "--format", "csv"))) > 0
