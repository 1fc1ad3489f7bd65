"""Writes the JSON Schema of each document that fusetui prints.

    python -P docs/make_schemas.py [COMMAND ...]

They are made from the types of the documents; the description of a key is that of
docs/json.md.
"""

from __future__ import annotations

import json
import re
import sys
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
from fusetui.report.diff import DiffDocument, DiffsDocument
from fusetui.report.groups import KernelsDocument, OpsDocument
from fusetui.report.hang import HangDocument
from fusetui.report.memory import (
    MemoryDocument,
    MemoryRanksDocument,
    TracedMemoryDocument,
)
from fusetui.report.ranks import RanksDocument
from fusetui.report.versus import VersusDocument
from fusetui.report.why import GapsDocument
from fusetui.tables.sources import columns_of
from fusetui.trace.program.functions import Functions

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "json.md"
TARGET = ROOT / "src" / "fusetui" / "schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
MANY = "Keys of many documents"

DOCUMENTS: dict[str, tuple[type, ...]] = {
    "summary": (Summary,),
    "kernels": (KernelsDocument,),
    "ops": (OpsDocument,),
    "modules": (documents.ModulesDocument,),
    "lines": (Functions,),
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
    "diff": (DiffDocument, DiffsDocument),
    "whatif": (WhatIf, Sweep),
    "path": (CriticalPath,),
}
ROWS = ("steps", "slices")
"""Commands whose document holds the rows of the table of that name
(tables/columns.txt)."""
WITHOUT_NOTE = {"decode", "samples", "ranks", "diff", "hang"}


def main() -> None:
    for command in sys.argv[1:] or (*DOCUMENTS, *ROWS):
        text = json.dumps(schema_of(command), indent=1, ensure_ascii=False)
        (TARGET / f"{command}.json").write_text(text + "\n", encoding="utf-8")
        print(f"{command}: {len(text):,} bytes")


def schema_of(command: str) -> dict[str, Any]:
    """The schema of a document's type, or of those of several kinds of answers, and of
    the types in them as `$defs`."""
    described = descriptions(PAGE.read_text(encoding="utf-8"), command)
    head = {"$schema": DIALECT, "title": f"fusetui {command} --json"}
    if command in ROWS:
        return {**head, **rows_schema(command, described)}
    documents = DOCUMENTS[command]
    _, parts = msgspec.json.schema_components(documents)
    for part in parts.values():
        part.pop("title", None)
        if "description" in part:
            part["description"] = cleandoc(part["description"])
        for key, schema in part.get("properties", {}).items():
            schema.pop("default", None)
            any_of = schema.get("anyOf", ())
            if any_of and all(list(one) == ["type"] for one in any_of):
                schema["type"] = [one["type"] for one in schema.pop("anyOf")]
            if key in described:
                schema["description"] = described[key]
    for document in documents if command not in WITHOUT_NOTE else ():
        note = {"type": "string", "description": described["note"]}
        parts[document.__name__]["properties"]["note"] = note
    first, *more = documents
    if more:
        any_of = [{"$ref": f"#/$defs/{one.__name__}"} for one in documents]
        return {**head, "anyOf": any_of, "$defs": parts}
    top = parts.pop(first.__name__)
    del top["description"]
    return {**head, **top, **({"$defs": parts} if parts else {})}


JSON_TYPES = {"int": "integer", "float": "number", "bool": "boolean", "text": "string"}


def rows_schema(command: str, described: dict[str, str]) -> dict[str, Any]:
    """The schema of the rows of a table, from the columns that are declared for it."""
    properties: dict[str, Any] = {}
    for column in columns_of(command):
        kind = JSON_TYPES[column.kind]
        is_optional = column.optional
        properties[column.name] = {
            "type": [kind, "null"] if is_optional else kind,
            "description": column.meaning,
        }
    row = {"type": "object", "properties": properties, "required": [*properties]}
    rows = {"type": "array", "items": row, "description": described[command]}
    texts = {
        key: {"type": "string", "description": described[key]}
        for key in ("base_ns", "note")
    }
    return {
        "type": "object",
        "properties": {**texts, command: rows},
        "required": ["base_ns", command],
    }


def descriptions(page: str, command: str) -> dict[str, str]:
    """What the tables of the page say of keys that stand alone in a row: its section
    about the command, then that about many documents. For a key with several rows in a
    section, nothing."""
    found: dict[str, str] = {}
    for title, text in re.findall(r"^## (.*)$((?:\n(?!## ).*)*)", page, re.MULTILINE):
        rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.MULTILINE)
        once = {
            key: words for key, words in rows if [k for k, _ in rows].count(key) == 1
        }
        if command in title.split(", "):
            found |= once
        elif title == MANY:
            found = once | found
    return {key: text.replace("`", "") for key, text in found.items()}


if __name__ == "__main__":
    main()
