"""What docs/stability.md promises is in docs/stable.txt, and the code has all of it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tests.docs.test_reference import DOCS, script

from fusetui import schemas
from fusetui.capture.record import FORMAT

PAGE = (DOCS / "stability.md").read_text(encoding="utf-8")
LISTED = (DOCS / "stable.txt").read_text(encoding="utf-8").splitlines()
KINDS = {
    "exit codes": {"exit-code"},
    "commands, options and their values": {"command", "option", "option-value"},
    "keys of `--json`": {"json"},
    "columns of tables": {"column"},
    "names of `import fusetui`, and of `fusetui.capture`": {"python"},
    "fields of answers in Python": {"answer"},
    "environment variables": {"variable"},
    "settings in `config.toml` and actions in `keys.toml`": {
        "config.toml",
        "keys.toml",
    },
    "tools of `fusetui mcp`": {"mcp-tool"},
    "inputs and outputs of the GitHub action": {"github-action"},
}
"""The first words of the lines about each row of the page's first table."""
OF_FILES = {"file-format"}


@pytest.fixture(scope="module")
def present() -> list[str]:
    names: list[str] = script("make_stability").names()
    return names


def test_no_stable_name_is_gone(present: list[str]) -> None:
    gone = sorted(set(LISTED) - set(present))
    assert not gone, "docs/stability.md says what the removal of a name takes"


def test_every_stable_name_is_listed(present: list[str]) -> None:
    assert sorted(set(present) - set(LISTED)) == [], "run make reference"
    assert sorted(set(LISTED)) == LISTED


def test_every_kind_of_name_is_in_the_table_of_the_page() -> None:
    rows = re.findall(r"^\| ([^|]+) \|[^|]+\|[^|]+\|$", PAGE, re.MULTILINE)
    assert [row for row in rows if row != "what"] == list(KINDS)
    kinds = {line.split(" ")[0] for line in LISTED}
    assert kinds == set().union(*KINDS.values(), OF_FILES)


def test_format_of_run_json_is_that_of_the_page() -> None:
    assert f"`format`, now {FORMAT}:" in PAGE


@pytest.mark.parametrize("command", schemas.names())
def test_schemas_let_readers_meet_keys_of_later_versions(command: str) -> None:
    assert '"additionalProperties":false' not in json.dumps(
        json.loads(schemas.text(command)), separators=(",", ":")
    )


def test_keys_are_listed_with_their_place_and_type() -> None:
    schema: dict[str, Any] = {
        "properties": {
            "rows": {"type": "array", "items": {"$ref": "#/$defs/Row"}},
            "total": {"type": ["integer", "null"]},
            "by_name": {"type": "object", "additionalProperties": {"type": "number"}},
        },
        "$defs": {
            "Row": {
                "properties": {
                    "below": {"type": "array", "items": {"$ref": "#/$defs/Row"}},
                    "side": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/Side"}]},
                }
            },
            "Side": {"properties": {"at": {"type": "string"}}},
        },
    }
    assert script("make_stability").keys_of(schema) == {
        "rows array",
        "rows[].below array",
        "rows[].side null|object",
        "rows[].side.at string",
        "total integer|null",
        "by_name object",
        "by_name.* number",
    }
