"""The words and signs that the app explains are in the glossary."""

from __future__ import annotations

import pytest
from tests.docs.test_glossary import WORDS, cells_below
from tests.places import ROOT

from fusetui.tui.drawing.schemes import UNICODE, spell_sign
from fusetui.tui.state.words import ScreenWord, read_screen_words

GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("word", read_screen_words(), ids=lambda word: word.word)
def test_words_on_the_screen_are_in_the_glossary(word: ScreenWord) -> None:
    assert f"| {spell_sign(word.word, UNICODE)} | {word.meaning} |" in GLOSSARY


OF_LETTERS = ("idle reason", "launch latency")  # explained with the line of letters


def test_a_word_has_the_same_meaning_in_the_help_and_in_the_glossary() -> None:
    """Where the help says more, it says so after the meaning."""
    meanings: dict[str, list[str]] = {}
    for listed in read_screen_words():
        for word in listed.word.split(", "):
            meanings.setdefault(word, []).append(listed.meaning)
    compared = 0
    for row in (*WORDS, *cells_below("Words of the answers")):
        for word in row[0].split(", "):
            if word in meanings and word not in OF_LETTERS:
                compared += 1
                meaning = row[1].partition("; exit code")[0]
                assert any(meaning in shown for shown in meanings[word]), word
    assert compared > 10
