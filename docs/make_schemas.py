"""Writes the JSON Schema of each document that fusetui prints, from the types of the
documents; the description of a key is that of docs/json.md.

    python -P docs/make_schemas.py [COMMAND ...]
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Mapping
from inspect import cleandoc
from pathlib import Path
from typing import Any

import msgspec

from fusetui.analysis.memory.answer import MemoryChange
from fusetui.analysis.questions.summary import Summary
from fusetui.analysis.ranks.whatif import JobWhatIf
from fusetui.analysis.replay.path import Path as CriticalPath
from fusetui.analysis.replay.whatif import Sweep, WhatIf
from fusetui.analysis.serving.answer import Serving
from fusetui.analysis.why.model import WhyDocument
from fusetui.report import documents
from fusetui.report.compiled import (
    CompileDocument,
    FusedDiffDocument,
    LinedKernelsDocument,
    LinedOpsDocument,
    LinesDocument,
)
from fusetui.report.diff import DiffDocument, DiffsDocument
from fusetui.report.groups import KernelsDocument, OpsDocument
from fusetui.report.hang import HangDocument
from fusetui.report.memory import (
    MemoryDocument,
    MemoryRanksDocument,
    TracedMemoryDocument,
)
from fusetui.report.ranks import RanksDocument
from fusetui.report.reproduce.documents import ReproduceDocument
from fusetui.report.versus import VersusDocument
from fusetui.report.why import GapsDocument
from fusetui.tables.sources import columns_of
from fusetui.trace.program.functions import Functions

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "json.md"
TARGET = ROOT / "src" / "fusetui" / "schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
COMMON_SECTION = "Keys of many documents"

DOCUMENTS: dict[str, tuple[type, ...]] = {
    "summary": (Summary,),
    "kernels": (KernelsDocument, LinedKernelsDocument),
    "ops": (OpsDocument, LinedOpsDocument),
    "modules": (documents.ModulesDocument,),
    "lines": (Functions, LinesDocument),
    "launches": (documents.LaunchesDocument,),
    "check": (documents.CheckDocument,),
    "decode": (documents.NamesDocument,),
    "samples": (documents.SamplesDocument,),
    "why": (WhyDocument, VersusDocument),
    "gaps": (GapsDocument,),
    "serving": (Serving,),
    "memory": (MemoryDocument, TracedMemoryDocument, MemoryChange, MemoryRanksDocument),
    "ranks": (RanksDocument, JobWhatIf),
    "hang": (HangDocument,),
    "compile": (CompileDocument,),
    "diff": (DiffDocument, FusedDiffDocument, DiffsDocument),
    "whatif": (WhatIf, Sweep),
    "path": (CriticalPath,),
    "reproduce": (ReproduceDocument,),
}
ROWS = ("steps", "slices")
"""Commands whose document holds the rows of the table of that name
(tables/columns.txt)."""
WITHOUT_NOTE = {"decode", "samples", "ranks", "diff", "hang"}
"""Commands whose documents never have the key `note`, which is in no type."""


def main() -> None:
    for command in sys.argv[1:] or (*DOCUMENTS, *ROWS):
        schema = msgspec.json.encode(schema_of(command))
        text = msgspec.json.format(schema, indent=1).decode()
        (TARGET / f"{command}.json").write_text(text + "\n", encoding="utf-8")
        print(f"{command}: {len(text):,} bytes")


def schema_of(command: str) -> dict[str, Any]:
    """The schema of a command's document, with those of the types inside it as `$defs`;
    if a command prints several documents, of any of them."""
    described = descriptions(PAGE.read_text(encoding="utf-8"), command)
    head = {"$schema": DIALECT, "title": f"fusetui {command} --json"}
    if command in ROWS:
        return {**head, **rows_schema(command, described)}

    documents = DOCUMENTS[command]

    _, schema_of_type = msgspec.json.schema_components(documents)
    for schema in schema_of_type.values():
        _describe(schema, described)

    if command not in WITHOUT_NOTE:
        for document in documents:
            note = {"type": "string", "description": described["note"]}
            schema_of_type[document.__name__]["properties"]["note"] = note

    if len(documents) > 1:
        any_of = [{"$ref": f"#/$defs/{document.__name__}"} for document in documents]
        return {**head, "anyOf": any_of, "$defs": schema_of_type}

    top = schema_of_type.pop(documents[0].__name__)
    del top["description"]

    schema = {**head, **top}
    if schema_of_type:
        schema["$defs"] = schema_of_type

    return schema


def _describe(schema: dict[str, Any], described: Mapping[str, str]) -> None:
    """Rewrites what msgspec makes of a type: without its title and its default values,
    a choice of types as one list, and keys with the descriptions of the page."""
    schema.pop("title", None)

    if "description" in schema:
        schema["description"] = cleandoc(schema["description"])

    for key, value_schema in schema.get("properties", {}).items():
        value_schema.pop("default", None)
        choices = value_schema.get("anyOf", [])
        choices.sort(key=_is_null)  # versions of msgspec differ in its place
        if choices and all(list(choice) == ["type"] for choice in choices):
            del value_schema["anyOf"]
            value_schema["type"] = [choice["type"] for choice in choices]
        if key in described:
            value_schema["description"] = described[key]


def _is_null(choice: Mapping[str, Any]) -> bool:
    """Whether a choice of an `anyOf` allows nothing but null."""
    return choice == {"type": "null"}


JSON_TYPES = {"int": "integer", "float": "number", "bool": "boolean", "text": "string"}


def rows_schema(command: str, described: Mapping[str, str]) -> dict[str, Any]:
    """The schema of a document that holds the rows of a table, from the columns that
    are declared for it."""
    properties: dict[str, Any] = {}
    for column in columns_of(command):
        kind = JSON_TYPES[column.kind]
        properties[column.name] = {
            "type": [kind, "null"] if column.optional else kind,
            "description": column.meaning,
        }

    row = {"type": "object", "properties": properties, "required": [*properties]}

    return {
        "type": "object",
        "properties": {
            "base_ns": {"type": "string", "description": described["base_ns"]},
            "note": {"type": "string", "description": described["note"]},
            command: {
                "type": "array",
                "items": row,
                "description": described[command],
            },
        },
        "required": ["base_ns", command],
    }


def descriptions(page: str, command: str) -> dict[str, str]:
    """The description of each key of a command's documents, from the tables of the
    page: those of its section about the command, then those about many documents. A key
    that has several rows in a section has no description there."""
    of_command: dict[str, str] = {}
    of_many: dict[str, str] = {}
    for title, text in re.findall(r"^## (.*)$((?:\n(?!## ).*)*)", page, re.MULTILINE):
        rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.MULTILINE)
        count = Counter(key for key, _ in rows)
        unambiguous = {key: words for key, words in rows if count[key] == 1}
        if command in title.split(", "):
            of_command |= unambiguous
        elif title == COMMON_SECTION:
            of_many |= unambiguous

    merged = {**of_many, **of_command}
    return {key: words.replace("`", "") for key, words in merged.items()}


if __name__ == "__main__":
    main()
