"""docs/serving.md shows what the command says about a real pair of traces."""

from __future__ import annotations

from tests.docs.test_reference import script
from tests.places import ROOT

PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
SERVING = script("serving")


def test_the_page_has_the_whole_pair() -> None:
    assert "544 events of 1 of 1 graph replays" in PAGE
    assert "145 matrix products read 15.14 GB of weights" in PAGE
    assert "9.931 ms, 38 % of the memory limit (3.75 ms)" in PAGE
