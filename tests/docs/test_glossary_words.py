"""The words that the app explains are in the glossary."""

from __future__ import annotations

import pytest
from tests.places import ROOT

from fusetui.tui.state.words import read_screen_words

GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("word", "meaning"), read_screen_words())
def test_words_on_the_screen_are_in_the_glossary(word: str, meaning: str) -> None:
    assert f"| {word} | {meaning} |" in GLOSSARY
