"""The rules of the house that no tool checks; what may import what stands in
pyproject.toml."""

from __future__ import annotations

import ast
import builtins
import os
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from tests.places import ROOT
from tests.sources import nodes

FOLDERS = ("kernels", "capture", "tui", "sample_traces")
DOOR = "cli"


def files_of(folder: str) -> list[Path]:
    if folder != DOOR:
        return sorted((ROOT / folder).rglob("*.py"))
    return sorted((ROOT / "src" / "fusetui").rglob("*.py"))  # rglob follows no links


@pytest.mark.parametrize("folder", FOLDERS)
def test_linked(folder: str) -> None:
    link = ROOT / "src" / "fusetui" / folder
    assert os.readlink(link) == f"../../{folder}"
    assert (ROOT / folder / "__init__.py").is_file()
    assert (ROOT / folder / "py.typed").is_file()


def shares(path: Path) -> Iterator[str]:
    """What a file itself formats as a percentage."""
    for node in nodes(path):
        for part, behind in (
            pairwise(node.values) if isinstance(node, ast.JoinedStr) else ()
        ):
            text = behind.value if isinstance(behind, ast.Constant) else ""
            if isinstance(part, ast.FormattedValue) and re.match(r"\s?%", str(text)):
                yield ast.unparse(part.value)


@pytest.mark.parametrize("folder", [*FOLDERS, DOOR])
def test_shares_are_written_in_one_file(folder: str) -> None:
    """It says 100 % only of all; other modules print only thresholds that were
    given."""
    given = {"CONFIDENCE", "percent"}
    for path in files_of(folder):
        if path != ROOT / "src/fusetui/text/figures.py":
            assert set(shares(path)) <= given, path


DRAWN = {"Segment", "Segments", "Strip", "Text", "Content"}
"""What Textual and Rich draw: whatever makes one lets text through to the terminal."""


@cache
def calls(path: Path) -> frozenset[str]:
    """`name` of each `name(...)` and `name.method(...)` in a file, with its method."""
    return frozenset(
        ast.unparse(node.func) for node in nodes(path) if isinstance(node, ast.Call)
    )


def test_one_file_draws() -> None:
    drawing = {
        path.name
        for path in files_of("tui")
        for name in calls(path)
        if name.split(".")[0] in DRAWN
    }
    assert drawing == {"segments.py"}


def test_three_files_print() -> None:
    printing = {
        path.relative_to(ROOT).as_posix()
        for folder in (*FOLDERS, DOOR)
        for path in files_of(folder)
        for name in calls(path)
        if name in ("print", "sys.stdout.write", "sys.stderr.write")
    }
    assert printing == {
        "capture/errors.py",
        "src/fusetui/commands/errors.py",
        "src/fusetui/report/streams.py",
    }


def classes() -> dict[str, list[str]]:
    """The names of the bases of each class of the project, by its name."""
    bases: dict[str, list[str]] = {}
    for folder in (*FOLDERS, DOOR, "tests", "fuzz", "benchmarks", "docs"):
        for path in files_of(folder):
            for node in nodes(path):
                if isinstance(node, ast.ClassDef):
                    names = [ast.unparse(base).split(".")[-1] for base in node.bases]
                    bases.setdefault(node.name, []).extend(names)
    return bases


def test_names_of_exceptions_end_in_error() -> None:
    """ruff (N818) asks this only of classes whose base is named as an exception is. A
    signal is no error: what handles errors lets it through."""
    bases = classes()

    def is_exception(name: str) -> bool:
        python = getattr(builtins, name, None)
        if name not in bases:
            return isinstance(python, type) and issubclass(python, BaseException)
        return any(is_exception(base) for base in bases[name] if base != name)

    others = {
        name for name in bases if is_exception(name) and not name.endswith("Error")
    }
    assert others == {"SignalInterrupt"}


def test_no_file_switches_the_rule_off() -> None:
    for folder in (*FOLDERS, DOOR, "tests", "fuzz", "benchmarks", "docs"):
        for path in files_of(folder):
            assert f"noqa: {'N818'}" not in path.read_text(encoding="utf-8"), path
