"""docs/serving.md shows what the command says about a real pair of traces."""

from __future__ import annotations

from tests.docs.test_reference import script
from tests.places import ROOT

PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
SERVING = script("serving")


def test_the_page_has_the_whole_pair() -> None:
    assert "In 1 of 1 graph replays, 544 events" in PAGE
    assert "145 matrix products read 15.14 GB of weights" in PAGE
    assert "9.931 ms; its memory limit is 3.75 ms, 38 % of that" in PAGE
