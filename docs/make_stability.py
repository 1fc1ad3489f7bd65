"""Writes docs/stable.txt: every name that programs, scripts and settings of users may
depend on, one in a line. docs/stability.md says what is promised of each kind.

    python -P docs/make_stability.py            add the names that are new
    python -P docs/make_stability.py --remove   also remove those that are gone
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields as fields_of_dataclass
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import yaml

import fusetui
import fusetui.capture
from fusetui import schemas
from fusetui.capture.record import FORMAT, RECORD_NAME
from fusetui.command_line.arguments import KERNELS_BY, OPS_BY
from fusetui.command_line.parser import command_parsers
from fusetui.commands.agents.tools import TOOLS
from fusetui.commands.errors import EXIT_CODES
from fusetui.commands.terminal import Settings
from fusetui.tables.sources import TABLES, columns_of
from fusetui.tui.registry import by_section

HERE = Path(__file__).parent
LIST = HERE / "stable.txt"
GUIDE = HERE / "guide.md"
API = HERE / "api.md"
ACTION = HERE.parent / "action.yml"


def names() -> list[str]:
    """All of them, sorted: a kind and what has this name, such as `exit-code 0`."""
    return sorted(
        {
            *_exit_codes(),
            *_options(),
            *_variables(),
            *_settings(),
            *_keys_of_documents(),
            *_columns(),
            *_python_names(),
            *_answer_fields(),
            *_tools(),
            *_of_action(),
            f"file-format {RECORD_NAME} {FORMAT}",
        }
    )


def _exit_codes() -> Iterator[str]:
    for code in EXIT_CODES:
        yield f"exit-code {code}"


def _options() -> Iterator[str]:
    """Commands, their options, and the values of those that take one of a few."""
    for command, parser in command_parsers().items():
        program = f"fusetui {command}".strip()
        yield f"command {program}"
        for option in parser._actions:
            if option.help == argparse.SUPPRESS:
                continue
            for name in option.option_strings:
                yield f"option {program} {name}"
            if command:  # the values of `fusetui` itself are the commands
                for value in option.choices or ():
                    yield f"option-value {program} {_long_name(option)} {value}"


def _long_name(option: argparse.Action) -> str:
    """The last of its names; that of an argument is what the parser calls it."""
    return option.option_strings[-1] if option.option_strings else option.dest


def _variables() -> Iterator[str]:
    """The environment variables of the guide's table."""
    guide = GUIDE.read_text(encoding="utf-8")
    for name in re.findall(r"^\| `(FUSETUI_\w+)` \|", guide, re.MULTILINE):
        yield f"variable {name}"


def _settings() -> Iterator[str]:
    for name in Settings.__struct_fields__:
        yield f"config.toml {name}"
    for _, actions in by_section():
        for action in actions:
            yield f"keys.toml {action.name}"


def _keys_of_documents() -> Iterator[str]:
    """The keys of each command's --json with their types: `why devices[].span_ns
    integer`."""
    for command in schemas.names():
        schema = json.loads(schemas.text(command))
        for key in keys_of(schema):
            yield f"json {command} {key}"


def keys_of(document: Mapping[str, Any]) -> set[str]:
    """The keys of all objects that a JSON Schema describes, each behind those that lead
    to it, and with its types. What an object that contains itself holds is listed
    once."""
    definitions = document.get("$defs", {})
    keys: set[str] = set()

    def visit(schema: Mapping[str, Any], path: str, inside: frozenset[str]) -> None:
        reference = schema.get("$ref", "").rpartition("/")[2]
        if reference:
            if reference not in inside:
                visit(definitions[reference], path, inside | {reference})
            return

        for alternative in schema.get("anyOf", ()):
            visit(alternative, path, inside)

        for key, value in schema.get("properties", {}).items():
            below = f"{path}.{key}" if path else key
            keys.add(f"{below} {_types(value)}".rstrip())
            visit(value, below, inside)

        if isinstance(schema.get("items"), dict):
            visit(schema["items"], f"{path}[]", inside)

        by_name = schema.get("additionalProperties")
        if isinstance(by_name, dict):
            keys.add(f"{path}.* {_types(by_name)}".rstrip())
            visit(by_name, f"{path}.*", inside)

    visit(document, "", frozenset())
    return keys


def _types(schema: Mapping[str, Any]) -> str:
    """`integer`, or `integer|null`; an object is called by this word, whatever it
    holds."""
    if "anyOf" in schema:
        return "|".join(sorted({_types(one) for one in schema["anyOf"]}))
    if "$ref" in schema:
        return "object"
    types = schema.get("type", "")
    return "|".join(sorted(types)) if isinstance(types, list) else types


def _columns() -> Iterator[str]:
    groupings = {"kernels": KERNELS_BY, "ops": OPS_BY}
    for table in (*TABLES, "ranks", "memory"):
        for by in groupings.get(table, ("name",)):
            for column in columns_of(table, by):
                yield f"column {table} {column.name} {column.kind}"


def _python_names() -> Iterator[str]:
    """What modules offer, with the methods of classes and the parameters of both."""
    for name in fusetui.__all__:
        yield from _members(f"fusetui.{name}", getattr(fusetui, name))
    for name in vars(fusetui)["_FORMER_NAMES"]:
        if hasattr(fusetui, name):
            yield f"python fusetui.{name}"
    for name in fusetui.capture.__all__:
        yield from _members(f"fusetui.capture.{name}", getattr(fusetui.capture, name))


def _members(name: str, value: Any) -> Iterator[str]:
    yield f"python {name}"

    if inspect.isfunction(value):
        for parameter in inspect.signature(value).parameters:
            yield f"python {name}({parameter})"

    if not inspect.isclass(value):
        return

    for member in _own_members(value):
        yield f"python {name}.{member}"
        method = getattr(value, member)
        if inspect.isfunction(method):
            for parameter in [*inspect.signature(method).parameters][1:]:
                yield f"python {name}.{member}({parameter})"


def _own_members(record: type[Any]) -> set[str]:
    """The public members of a class and of those of ours that it inherits from."""
    ours = [each for each in record.__mro__ if each.__module__.startswith("fusetui")]
    members = {member for each in ours for member in vars(each)}
    return {member for member in members if not member.startswith("_")}


def _answer_fields() -> Iterator[str]:
    """The fields of the records that docs/api.md describes."""
    page = API.read_text(encoding="utf-8")
    for path in re.findall(r"autoclass:: (fusetui\.[\w.]+)\(\)", page):
        module, _, name = path.rpartition(".")
        record = getattr(import_module(module), name)
        for field in _fields(record):
            yield f"answer {name}.{field}"


def _fields(record: type[Any]) -> list[str]:
    if is_dataclass(record):
        return [field.name for field in fields_of_dataclass(record)]
    return [field.name for field in msgspec.structs.fields(record)]


def _tools() -> Iterator[str]:
    for name, tool in TOOLS.items():
        yield f"mcp-tool {name}"
        for parameter in tool.takes:
            yield f"mcp-tool {name} {parameter}"


def _of_action() -> Iterator[str]:
    """The inputs and outputs of the GitHub action."""
    action = yaml.safe_load(ACTION.read_text(encoding="utf-8"))
    for part in ("inputs", "outputs"):
        for name in action[part]:
            yield f"github-action {part} {name}"


def main() -> None:
    present = names()
    listed = LIST.read_text(encoding="utf-8").splitlines() if LIST.exists() else []
    gone = sorted(set(listed) - set(present))
    if "--remove" in sys.argv[1:]:
        gone = []
    lines = sorted({*present, *gone})
    LIST.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    print(f"docs/{LIST.name}: {len(lines):,} names, {len(gone)} of them are gone")


if __name__ == "__main__":
    main()
