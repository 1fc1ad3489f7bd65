"""Identifiers use the words of docs/glossary.md, each in its one meaning."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from symtable import SymbolTable, symtable

from tests.places import ROOT
from tests.sources import python_files

FOLDERS = ("tui", "capture", "kernels", "sample_traces", "src/fusetui", "benchmarks")
WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
WITHOUT_NAME = ("lambda", "listcomp", "setcomp", "dictcomp", "genexpr")
ROW = re.compile(r"^\|(.*)\|$", re.MULTILINE)


def cells_below(heading: str) -> list[list[str]]:
    """The cells of the table of the glossary below a heading."""
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in row.split("|")] for row in ROW.findall(section)]
    return rows[2:]


WORDS = cells_below("Words")
KEYS = cells_below("Words in JSON")
UNUSED = cells_below("Words that are not used")
AT_HOME = {row[0]: re.findall(r"`([^`]+)`", row[3]) for row in WORDS if row[3]}


def defined(table: SymbolTable) -> Iterator[tuple[str, bool]]:
    """What definitions introduce (classes, functions, parameters, fields); if it is a
    class."""
    for inner in table.get_children():
        if inner.get_name() not in WITHOUT_NAME:
            yield inner.get_name(), inner.get_type() == "class"
        yield from defined(inner)
    for one in table.get_symbols():
        if one.is_parameter() or one.is_annotated():
            yield one.get_name(), False


@cache
def identifiers(classes_only: bool = False) -> tuple[tuple[str, str], ...]:
    """(file, identifier) of everything that the code defines."""
    return tuple(
        (path.relative_to(ROOT).as_posix(), name)
        for folder in FOLDERS
        for path in python_files(folder)
        for name, is_class in defined(
            symtable(path.read_text(encoding="utf-8"), path.name, "exec")
        )
        if is_class or not classes_only
    )


@cache
def words_of(name: str) -> set[str]:
    found = {word.lower() for word in WORD.findall(name)}
    return found | {word.removesuffix("s") for word in found}


def places_of(word: str, classes_only: bool = False) -> set[str]:
    """`file: identifier` of each identifier that has this word."""
    return {
        f"{file}: {name}"
        for file, name in identifiers(classes_only)
        if word in words_of(name)
    }


def test_a_word_with_a_home_is_not_used_elsewhere() -> None:
    elsewhere = {}
    for word, homes in AT_HOME.items():
        rule = next(row[3] for row in WORDS if row[0] == word)
        places = places_of(word, classes_only=rule.startswith("class names"))
        away = {place for place in places if not place.startswith(tuple(homes))}
        if away:
            elsewhere[word] = away
    assert elsewhere == {}


def test_words_that_the_glossary_excludes_are_not_used() -> None:
    used = {row[0]: places_of(row[0]) for row in UNUSED}
    assert {word: places for word, places in used.items() if places} == {}


def test_a_word_stands_once() -> None:
    words = [word for row in WORDS for word in row[0].split(", ")]
    assert len(words) == len(set(words))
    assert 20 <= len(words) <= 60
