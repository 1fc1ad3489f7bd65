"""The budget of the tests: CONTRIBUTING.md has the figures of tests/budget.py."""

from __future__ import annotations

import re
import sys

import pytest
from tests.places import ROOT

if sys.platform == "win32":
    pytest.skip("what a process took is asked as on Unix", allow_module_level=True)

from tests import budget  # isort: skip

ROW = re.compile(r"^\| `?([a-z/]+)`? \| (\d+) \|", re.MULTILINE)


def test_the_budget_of_every_part_is_on_the_page() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = page.partition("## Tests")[2].partition("\n## ")[0]
    assert {part: int(budget_s) for part, budget_s in ROW.findall(table)} == (
        budget.BUDGETS_S
    )


def test_every_test_is_in_one_part() -> None:
    tops = {
        "/".join(path.relative_to(ROOT).parts[:2])
        for path in (ROOT / "tests").rglob("test_*.py")
    }
    parts = [path for part in budget.BUDGETS_S for path in budget.paths_of(part)]
    assert sorted(parts) == sorted(tops)
