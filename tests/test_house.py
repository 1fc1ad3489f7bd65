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
def test_packages_beside_src_are_linked_into_it(folder: str) -> None:
    link = ROOT / "src" / "fusetui" / folder
    assert os.readlink(link) == f"../../{folder}"
    assert (ROOT / folder / "__init__.py").is_file()
    assert (ROOT / folder / "py.typed").is_file()


MAY_FORMAT_A_SHARE = re.compile(r"""[}]["'\sf]*%""")
"""Also across the parts of a text that stand beside each other."""


def percentages_in(path: Path) -> Iterator[str]:
    """The source of each value that an f-string of the file shows before a %."""
    if not MAY_FORMAT_A_SHARE.search(path.read_text(encoding="utf-8")):
        return  # parsing every file takes seconds
    for node in nodes(path):
        if not isinstance(node, ast.JoinedStr):
            continue
        for part, behind in pairwise(node.values):
            text = behind.value if isinstance(behind, ast.Constant) else ""
            is_share = re.match(r"\s?%", str(text))
            if isinstance(part, ast.FormattedValue) and is_share:
                yield ast.unparse(part.value)


@pytest.mark.parametrize("folder", [*FOLDERS, DOOR])
def test_only_text_figures_formats_shares_as_percent(folder: str) -> None:
    """figures.py says 100 % only of all; other modules print only thresholds that were
    given."""
    thresholds = {"CONFIDENCE", "percent"}
    for path in files_of(folder):
        if path != ROOT / "src/fusetui/text/figures.py":
            assert set(percentages_in(path)) <= thresholds, path


DRAWN = {"Segment", "Segments", "Strip", "Text", "Content"}
"""What Textual and Rich draw: whatever makes one lets text through to the terminal."""


@cache
def calls(path: Path) -> frozenset[str]:
    """`name` of each `name(...)` and `name.method(...)` in a file, with its method."""
    return frozenset(
        ast.unparse(node.func) for node in nodes(path) if isinstance(node, ast.Call)
    )


def files_with(text: re.Pattern[str], paths: list[Path]) -> list[Path]:
    """The files whose source matches; parsing every file takes seconds."""
    return [path for path in paths if text.search(path.read_text(encoding="utf-8"))]


def test_only_segments_py_makes_what_textual_draws() -> None:
    drawing = set()
    for path in files_with(re.compile("|".join(DRAWN)), files_of("tui")):
        if any(name.split(".")[0] in DRAWN for name in calls(path)):
            drawing.add(path.name)
    assert drawing == {"segments.py"}


def test_only_three_files_print() -> None:
    writers = {"print", "sys.stdout.write", "sys.stderr.write"}
    may_print = re.compile(r"\bprint\b|\bstdout\b|\bstderr\b")
    printing = set()
    for folder in (*FOLDERS, DOOR):
        for path in files_with(may_print, files_of(folder)):
            if calls(path) & writers:
                printing.add(path.relative_to(ROOT).as_posix())
    assert printing == {
        "capture/errors.py",
        "src/fusetui/commands/errors.py",
        "src/fusetui/report/streams.py",
    }


CLASS = re.compile(r"^[ ]*class (\w+)(?:\(([^)]*)\))?:", re.MULTILINE)
"""The name of a class, and the names of its bases."""


def classes() -> dict[str, list[str]]:
    """The names of the bases of each class of the project, by its name; read without
    parsing, which takes seconds."""
    bases: dict[str, list[str]] = {}
    for folder in (*FOLDERS, DOOR, "tests", "fuzz", "benchmarks", "docs"):
        for path in files_of(folder):
            for name, listed in CLASS.findall(path.read_text(encoding="utf-8")):
                names = re.findall(r"[\w.]+", listed)
                of_class = bases.setdefault(name, [])
                of_class.extend(base.rpartition(".")[2] for base in names)
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


def test_no_file_switches_rule_n818_off() -> None:
    for folder in (*FOLDERS, DOOR, "tests", "fuzz", "benchmarks", "docs"):
        for path in files_of(folder):
            assert f"noqa: {'N818'}" not in path.read_text(encoding="utf-8"), path


NAMES_REAL_TRACES = re.compile(r"FUSETUI_TRACE[S]|tests\.real\.trace[s]")


def test_only_tests_real_looks_for_real_traces() -> None:
    """All other tests run for everybody, with what the project makes itself."""
    naming = files_with(NAMES_REAL_TRACES, files_of("tests"))
    assert {path.parent.relative_to(ROOT).as_posix() for path in naming} == {
        "tests/real"
    }
