"""What the fuzzer once found stays mended: each file that failed is tried again."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz import app
from fuzz.case import Case
from fuzz.examine import examine
from tests.places import ROOT

FOUND = sorted((ROOT / "fuzz" / "found").glob("*.json"))


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_input_that_once_failed_passes_all_checks(path: Path) -> None:
    if path.name.startswith("app-"):
        app.examine_app(app.from_text(path.read_text()))
        return
    for sizes in ("usual", "small", "tiny"):
        examine(Case(path.read_bytes(), sizes), asked=1)
