"""The keys of every --json output use the words of docs/glossary.md, each in its one
meaning."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import GEMM, Result
from tests.docs.test_glossary import AT_HOME, KEYS, UNUSED, words_of
from tests.flight_dumps import hanging
from tests.snapshots import failed, trained

from fusetui import schemas
from fusetui.command_line.arguments import JSON
from fusetui.command_line.registry import COMMANDS

Documents = Callable[[str], Iterator[Any]]

COMMANDS_WITH_JSON = [
    command.name
    for command in COMMANDS
    if not callable(command.arguments) and JSON in command.arguments
]
SHIPPED = (
    "sample:mlp-eager",
    "sample:mlp-compiled",
    "lesson:mlp-eager",
    "lesson:mlp-liger",
)
OTHER_WORDS: dict[str, list[tuple[str, ...]]] = {
    "decode": [(GEMM, "no_kernel_that_is_known")],
    "diff": [SHIPPED[:2], SHIPPED[2:], ("MADE", "SLOWER")],
    "why": [*((name,) for name in SHIPPED), SHIPPED[:2], ("MADE", "SLOWER")],
    "check": [(SHIPPED[0], "--expect", "kernels=5", "--expect", "gemm=1")],
    "samples": [()],
    "whatif": [
        (SHIPPED[0], "python x0.5"),
        (SHIPPED[2], "--sweep", "family:gemm x0.1..1"),
    ],
    "memory": [("SNAPSHOT",), ("OUT OF MEMORY", "--at", "oom")],
    "hang": [("DUMPS",)],
}
"""The arguments of commands that take more, or less, than one trace."""

DOCUMENTED = {
    key.strip("`"): set(commands.replace("`", "").split(", "))
    for keys_of_row, commands, _ in KEYS
    for key in keys_of_row.split(", ")
    if words_of(key) & AT_HOME.keys()
}
"""The keys with a word that has a place of its own, and the commands that write
them."""


@pytest.fixture
def documents(
    fusetui: Callable[..., Result], trace_file: Callable[..., Path], tmp_path: Path
) -> Documents:
    """What a command writes about the traces that ship with fusetui, and about small
    ones."""
    made = {"MADE": trace_file(), "SLOWER": trace_file("b.json", scale=2, steps=7)}
    made |= {"SNAPSHOT": trained(tmp_path), "OUT OF MEMORY": failed(tmp_path)}
    made["DUMPS"] = hanging(tmp_path / "dumps")

    def written(command: str) -> Iterator[Any]:
        for words in OTHER_WORDS.get(command, [(name,) for name in (*SHIPPED, "MADE")]):
            yield fusetui(command, *(made.get(w, w) for w in words), "--json").json

    return written


def keys(document: object) -> Iterator[str]:
    """Every key of a document, at any depth."""
    match document:
        case dict():
            for key, value in document.items():
                yield key
                yield from keys(value)
        case list():
            for value in document:
                yield from keys(value)


def schema_keys(schema: object) -> Iterator[str]:
    """Every key of a document that has this schema."""
    match schema:
        case dict():
            yield from schema.get("properties", {})
            for inner in schema.values():
                yield from schema_keys(inner)
        case list():
            for inner in schema:
                yield from schema_keys(inner)


def with_words(found: set[str], words: set[str]) -> set[str]:
    return {key for key in found if words_of(key) & words}


@pytest.mark.parametrize("command", COMMANDS_WITH_JSON)
def test_keys_use_the_words_of_the_glossary(command: str, documents: Documents) -> None:
    found = {key for document in documents(command) for key in keys(document)}
    assert found
    assert with_words(found, {row[0] for row in UNUSED}) == set()
    expected = {key for key, commands in DOCUMENTED.items() if command in commands}
    assert with_words(found, set(AT_HOME)) == expected


@pytest.mark.parametrize("command", COMMANDS_WITH_JSON)
def test_keys_of_the_schemas_use_the_words_of_the_glossary(command: str) -> None:
    found = set(schema_keys(json.loads(schemas.text(command))))
    assert with_words(found, {row[0] for row in UNUSED}) == set()
    assert with_words(found, set(AT_HOME)) <= set(DOCUMENTED)
