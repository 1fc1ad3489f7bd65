"""What --json prints meets the schemas that ship, which describe each key."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from tests.cli.conftest import fusetui, trace_file  # noqa: F401  (fixtures)
from tests.corpus.files import corpus_path
from tests.corpus.fixtures import any_of
from tests.docs.test_reference import script
from tests.flight_dumps import hanging
from tests.snapshots import failed, traced

from fusetui import schemas
from fusetui.command_line.arguments import JSON
from fusetui.command_line.registry import COMMANDS

Run = Callable[..., Any]
WITH_JSON = [
    c.name for c in COMMANDS if not callable(c.arguments) and JSON in c.arguments
]
MORE: dict[str, tuple[str, ...]] = {
    "check": ("--expect", "kernels=5"),
    "diff": ("sample:mlp-compiled",),
    "whatif": ("kernel:gemm x0.5",),
}
any_trace = any_of("training", "serving", "job/rank2", "annotated-graph")
PAIRS = (("training", "training-slower"), ("lesson-mlp-eager", "lesson-mlp-liger"))


def validator(command: str) -> Draft202012Validator:
    """Refuses keys that the schema does not have; the schema itself lets users meet new
    ones."""
    return Draft202012Validator(closed(json.loads(schemas.text(command))))


def closed(schema: Any) -> Any:
    """The schema that takes no other keys than those it has."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: closed(value) for key, value in schema.items()}
    is_open = isinstance(schema.get("properties"), dict)
    return {"additionalProperties": False, **inner} if is_open else inner


def test_every_document_has_a_schema() -> None:
    assert schemas.names() == sorted(WITH_JSON)


@pytest.mark.parametrize("command", schemas.names())
def test_schema_that_ships_is_made_of_the_types(command: str) -> None:
    made = script("make_schemas").schema_of(command)
    assert json.loads(schemas.text(command)) == made, "run make reference"


@pytest.mark.parametrize("command", schemas.names())
def test_schema_that_ships_is_valid_draft_2020_12(command: str) -> None:
    Draft202012Validator.check_schema(json.loads(schemas.text(command)))


@pytest.mark.parametrize(
    "command", [c for c in WITH_JSON if c not in ("decode", "samples")]
)
def test_documents_of_a_generated_trace_meet_their_schema(
    fusetui: Run,  # noqa: F811
    trace_file: Callable[..., Path],  # noqa: F811
    tmp_path: Path,
    command: str,
) -> None:
    made = trace_file()
    if command == "memory":
        made = failed(tmp_path)
    elif command == "hang":
        made = hanging(tmp_path / "dumps")
    found = fusetui(command, made, *MORE.get(command, ()), "--json")
    validator(command).validate(json.loads(found.out))


def test_documents_of_traces_meet_their_schema(fusetui: Run, any_trace: Path) -> None:  # noqa: F811
    for command in ("summary", "kernels", "why", "gaps"):
        validator(command).validate(
            json.loads(fusetui(command, any_trace, "--json").out)
        )


def pair_meets_its_schema(fusetui: Run, command: str, a: Path, b: Path) -> None:  # noqa: F811
    validator(command).validate(json.loads(fusetui(command, a, b, "--json").out))


@pytest.mark.parametrize("command", ["diff", "why"])
@pytest.mark.parametrize("pair", PAIRS, ids=" ".join)
def test_documents_of_pairs_meet_their_schema(
    fusetui: Run,  # noqa: F811
    pair: tuple[str, str],
    command: str,
) -> None:
    pair_meets_its_schema(fusetui, command, *map(corpus_path, pair))


def test_memory_document_of_a_trace_meets_its_schema(
    fusetui: Run,  # noqa: F811
    tmp_path: Path,
) -> None:
    for path in (traced(tmp_path), "lesson:mlp-eager"):
        found = fusetui("memory", path, "--json")
        validator("memory").validate(json.loads(found.out))


def test_a_missing_key_is_found() -> None:
    """A document with a key that the schema does not have, at the top and further
    inside."""
    sample = {"name": "mlp", "shows": ""}
    assert validator("samples").is_valid({"samples": [sample], "lessons": []})
    assert not validator("samples").is_valid(
        {"samples": [sample], "lessons": [], "new": 1}
    )
    assert not validator("samples").is_valid(
        {"samples": [sample | {"new": 1}], "lessons": []}
    )


def test_a_schema_refuses_what_is_no_document() -> None:
    assert not validator("summary").is_valid({"bytes": "many"})


def test_the_command_prints_it(fusetui: Run) -> None:  # noqa: F811
    assert json.loads(fusetui("schema", "why").out)["title"] == "fusetui why --json"


def test_command_without_a_document_has_no_schema(fusetui: Run) -> None:  # noqa: F811
    found = fusetui("schema", "open")
    assert (found.code, found.out) == (2, "")
    assert found.err.startswith("No schema of open: choose one of check, ")
