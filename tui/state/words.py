"""The words and signs on the screen that need an explanation, with their meanings of
words.txt; docs/glossary.md has the same."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

SEPARATOR = ": "
EVERYWHERE = "everywhere"  # the name of the group of words that any page may show
LIBRARIES = "libraries"  # the name of the group of libraries, on no page of their own


class ScreenWord(msgspec.Struct, frozen=True):
    """A word or sign with its meaning. `{folded}` stands for the character of this name
    in schemes.Glyphs."""

    word: str
    meaning: str
    # names of the pages that show it, EVERYWHERE or LIBRARIES
    pages: tuple[str, ...]


@cache
def read_screen_words() -> tuple[ScreenWord, ...]:
    """Return the words that stand on the screen with their meanings, in the order of
    words.txt. Each line there has one word; a line in brackets names the pages of the
    words below it."""
    path = Path(__file__).with_name("words.txt")
    pages: tuple[str, ...] = ()
    words = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            pages = tuple(line.strip("[]").split())
        elif line:
            word, _, meaning = line.partition(SEPARATOR)
            words.append(ScreenWord(word, meaning, pages))
    return tuple(words)


class WordsOfHelp(msgspec.Struct, frozen=True):
    """The words that the help explains: those of the page in front, and all others."""

    here: tuple[ScreenWord, ...] = ()
    elsewhere: tuple[ScreenWord, ...] = ()


@cache
def divide_words(page: str) -> WordsOfHelp:
    """Return all words that stand on the screen, those of the page with this name apart
    from the others. Among those of the page, words that fewer pages show come first,
    and words that any page may show come last."""
    of_page = []
    anywhere = []
    elsewhere = []
    for word in read_screen_words():
        if page in word.pages:
            of_page.append(word)
        elif EVERYWHERE in word.pages:
            anywhere.append(word)
        else:
            elsewhere.append(word)
    of_page.sort(key=lambda word: len(word.pages))
    return WordsOfHelp(here=(*of_page, *anywhere), elsewhere=tuple(elsewhere))


@cache
def find_meaning(word: str, page: str) -> str:
    """Return the meaning of a word in a group of words.txt, named by one of its pages;
    "" if the group lacks it.

    A line of words.txt may have several words, separated by commas. What a word that
    has several meanings is in this group stands in parentheses after it.
    """
    for listed in read_screen_words():
        words = [
            listed_word.partition(" (")[0] for listed_word in listed.word.split(", ")
        ]
        if page in listed.pages and word in words:
            return listed.meaning
    return ""
