"""Writes the JSON Schema of each document that fusetui prints.

    FUSETUI_TRACES=FOLDER python -P docs/make_schemas.py [COMMAND ...]

Schemas of DOCUMENTS are made from the types of the documents. The others are made from documents of
many traces: there a key is required if every document has it, and may be null if it ever is. The
description of a key is that of docs/json.md. tests/docs/test_schemas.py validates documents of
other traces against the result.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from inspect import cleandoc
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import msgspec
from benchmarks.job_cases import case_of, make

from fusetui.analysis.questions.summary import Summary
from fusetui.analysis.why.model import WhyDocument
from fusetui.arguments import JSON
from fusetui.cli import main as fusetui
from fusetui.registry import COMMANDS
from fusetui.report import documents
from fusetui.report.versus import VersusDocument
from fusetui.report.why import GapsDocument
from fusetui.trace.program.functions import Functions

ROOT = Path(__file__).parents[1]
TRACES = Path(os.environ.get("FUSETUI_TRACES", ROOT.parent / "shared" / "traces"))
TARGET = ROOT / "src" / "fusetui" / "schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
SHIPPED = tuple(f"sample:{n}" for n in ("mlp-eager", "mlp-compiled", "linear-eager"))
SHIPPED += tuple(f"lesson:{n}" for n in ("mlp-eager", "mlp-compiled", "mlp-liger"))
LARGEST = 1 << 22  # bytes of a packed trace that is used
MANY = "Keys of many documents"
NAMED = {"peaks", "given", "thresholds", "idle"}
"""Objects whose keys are names of something, not fixed."""
PARTS = {"decoded", "names"}
"""Objects that have the parts of a kernel's name: each has others."""

DOCUMENTS: dict[str, tuple[type, ...]] = {
    "summary": (Summary,),
    "kernels": (documents.KernelsDocument,),
    "ops": (documents.OpsDocument,),
    "modules": (documents.ModulesDocument,),
    "lines": (Functions,),
    "launches": (documents.LaunchesDocument,),
    "check": (documents.CheckDocument,),
    "decode": (documents.NamesDocument,),
    "samples": (documents.SamplesDocument,),
    "why": (WhyDocument, VersusDocument),
    "gaps": (GapsDocument,),
}
WITHOUT_NOTE = {"decode", "samples"}

Words = tuple[str, ...]
Schema = dict[str, Any]


def main() -> None:
    page = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    with ProcessPoolExecutor() as pool:
        calls = _calls(sys.argv[1:])
        answers = {command: pool.map(document, each) for command, each in calls.items()}
        for command, each in answers.items():
            found = [one for one in each if one is not None]
            _write(command, schema_of(found, descriptions(page, command)))
    for command in DOCUMENTS:
        if not sys.argv[1:] or command in sys.argv[1:]:
            _write(command, typed_schema(command, descriptions(page, command)))


def _write(command: str, schema: Schema) -> None:
    head = {"$schema": DIALECT, "title": f"fusetui {command} --json"}
    text = json.dumps(head | schema, indent=1, ensure_ascii=False)
    (TARGET / f"{command}.json").write_text(text + "\n", encoding="utf-8")
    print(f"{command}: {len(text):,} bytes")


def typed_schema(command: str, described: Mapping[str, str]) -> Schema:
    """The schema of a document's type, or of those of several kinds of answers, and of the types in
    them as `$defs`."""
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
        return {"anyOf": [{"$ref": f"#/$defs/{one.__name__}"} for one in documents], "$defs": parts}
    top = parts.pop(first.__name__)
    del top["description"]
    return {**top, "$defs": parts} if parts else top


def _calls(wanted: Sequence[str]) -> dict[str, list[Words]]:
    """The command lines of each command that has --json, or of those wanted."""
    small = (p for p in TRACES.rglob("*.json.gz") if p.stat().st_size < LARGEST)
    traces = [*SHIPPED, *sorted(map(str, small))]
    pairs = list(pairwise(traces))
    calls: dict[str, list[Words]] = {}
    for command in COMMANDS:
        asked = command.name not in DOCUMENTS and (not wanted or command.name in wanted)
        if asked and not callable(command.arguments) and JSON in command.arguments:
            calls[command.name] = list(_of(command.name, traces, pairs))
    return calls


def _of(command: str, traces: Sequence[str], pairs: Sequence[Words]) -> Iterator[Words]:
    each = [(command, trace) for trace in traces]
    match command:
        case "samples":
            yield (command,)
        case "diff":
            yield from ((command, *pair) for pair in pairs)
        case "ranks":
            folders = [(command, str(folder)) for folder in (TRACES / "dlrm_ranks", TRACES)]
            planted = [(command, str(_planted(case))) for case in ("pp4-slow", "dp-gemm")]
            yield from (*folders, *planted, *each, *((command, *pair) for pair in pairs[::2]))
        case "check":
            yield from ((*one, "--expect", "kernels=5") for one in each)
        case "kernels":
            groups = ("name", "op", "shape", "module", "family", "stream", "step")
            yield from ((*one, "--by", by) for one in each for by in groups)
        case "ops":
            yield from (*each, *((*one, "--by", "shape") for one in each))
        case _:
            yield from each


def _planted(case: str) -> Path:
    """A job with a pipeline, or with all of its ranks: no real one is among the traces."""
    folder = Path(tempfile.mkdtemp())
    make(case_of(case), 0, folder)
    return folder


def document(words: Words) -> Any:
    """What the command line prints as JSON, or None if it ends without; run in this process, which
    has imported everything."""
    sys.argv = ["fusetui", *words, "--json"]
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()):
        fusetui()
    return json.loads(out.getvalue()) if out.getvalue() else None


def schema_of(documents: Sequence[Any], described: Mapping[str, str], key: str = "") -> Schema:
    """The schema that all documents meet, all of them the values of one key."""
    found: Schema = {"type": sorted({_type(document) for document in documents})}
    if "number" in found["type"] and "integer" in found["type"]:
        found["type"].remove("integer")
    if len(found["type"]) == 1:
        found["type"] = found["type"][0]
    if key in described:
        found["description"] = described[key]
    objects = [document for document in documents if isinstance(document, dict)]
    if objects and key in NAMED:
        values = [value for each in objects for value in each.values()]
        found["additionalProperties"] = schema_of(values, described) if values else True
    elif objects:
        found |= _properties(objects, described, key)
    inner = [value for each in documents if isinstance(each, list) for value in each]
    if inner:
        found["items"] = schema_of(inner, described, key if key in PARTS else "")
    return found


def _properties(
    objects: Sequence[Mapping[str, Any]], described: Mapping[str, str], key: str
) -> Schema:
    keys = dict.fromkeys(key for each in objects for key in each)
    found: Schema = {"properties": {}}
    for name in keys:
        values = [each[name] for each in objects if name in each]
        found["properties"][name] = schema_of(values, described, name)
    if key not in PARTS:
        found["required"] = [name for name in keys if all(name in each for each in objects)]
    return found


def _type(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def descriptions(page: str, command: str) -> dict[str, str]:
    """What the tables of the page say of keys that stand alone in a row: its section about the
    command, then that about many documents. For a key with several rows in a section, nothing."""
    found: dict[str, str] = {}
    for title, text in re.findall(r"^## (.*)$((?:\n(?!## ).*)*)", page, re.MULTILINE):
        rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.MULTILINE)
        once = {key: words for key, words in rows if [k for k, _ in rows].count(key) == 1}
        if command in title.split(", "):
            found |= once
        elif title == MANY:
            found = once | found
    return {key: text.replace("`", "") for key, text in found.items()}


if __name__ == "__main__":
    main()
