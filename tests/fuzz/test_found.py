"""What the fuzzer once found stays mended: each file that failed is tried again."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fuzz import app
from tests.fuzz.case import Case
from tests.fuzz.examine import examine

FOUND = sorted((Path(__file__).parent / "found").iterdir())


@pytest.mark.parametrize(
    "path", [p for p in FOUND if p.suffix == ".json"], ids=lambda p: p.stem
)
def test_a_file_that_failed(path: Path) -> None:
    if path.name.startswith("app-"):
        app.examine_app(app.from_text(path.read_text()))
        return
    for sizes in ("usual", "small", "tiny"):
        examine(Case(path.read_bytes(), sizes), asked=1)
