"""The words and signs that the app explains are in the glossary."""

from __future__ import annotations

import pytest
from tests.places import ROOT

from fusetui.tui.drawing.schemes import UNICODE, spell_sign
from fusetui.tui.state.words import ScreenWord, read_screen_words

GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("word", read_screen_words(), ids=lambda word: word.word)
def test_words_on_the_screen_are_in_the_glossary(word: ScreenWord) -> None:
    assert f"| {spell_sign(word.word, UNICODE)} | {word.meaning} |" in GLOSSARY
