"""The architecture: which folder may import which, and what a command must not load."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest
from tests.places import ROOT
from tests.sources import nodes, tree

FOLDERS = ("kernels", "capture", "trace", "tui", "sample_traces")
DOOR = "cli"
ARROWS = {
    DOOR: {"kernels", "capture", "trace", "tui", "sample_traces"},
    "capture": {"kernels", "trace"},
    "tui": {"trace"},
    "kernels": set[str](),
    "trace": set[str](),
    "sample_traces": {"capture"},  # make.py alone, which makes the samples
}
OUTSIDE = {
    "trace": {"torch", "triton", "textual", "rich", "argparse"},
    "tui": {"torch", "triton"},
    "capture": {"textual", "rich", "argparse"},
    "kernels": {"textual", "rich", "argparse", "numpy"},
    "sample_traces": {"torch", "textual", "rich", "argparse"},
}
ROOMS = (
    *("text", "model", "kernel_names", "read", "cache", "layout", "scrub", "program"),
    *("roofline", "questions", "cells", "insights", "ranks", "serving", "diff"),
)
"""Of trace/: each imports only those before it, and of these what their doors name."""

LONGEST = 400


def files_of(folder: str) -> list[Path]:
    if folder != DOOR:
        return sorted((ROOT / folder).rglob("*.py"))
    door = ROOT / "src" / "fusetui"
    return [
        *door.glob("*.py"),
        *(door / "commands").rglob("*.py"),
        *(door / "render").rglob("*.py"),
    ]


def module_of(path: Path) -> str:
    """capture/run.py -> fusetui.capture.run; the door's files lie in src already."""
    inside = path.relative_to(ROOT).with_suffix("").parts
    inside = inside[2:] if inside[0] == "src" else inside
    return ".".join(("fusetui", *inside)).removesuffix(".__init__")


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports anywhere in it, also inside functions, and those around."""
    for name in named(path):
        yield from (name, name.rpartition(".")[0])


@cache
def named(path: Path) -> tuple[str, ...]:
    """The full name of each module, or of what is in one, that a file imports anywhere in it."""
    return tuple(_named(path))


def _named(path: Path) -> Iterator[str]:
    package = module_of(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            yield from (f"{module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("folder", ARROWS)
def test_arrows(folder: str) -> None:
    for path in files_of(folder):
        parts = [name.split(".") for name in imports(path) if name.startswith("fusetui.")]
        reached = {part[1] for part in parts} & set(FOLDERS)
        assert reached - {folder} <= ARROWS[folder], path


TUI_ROOMS = ("layout", "state", "drawing", "pages")
"""Each imports itself and those before it, and nothing of the app around them."""


@pytest.mark.parametrize("room", TUI_ROOMS)
def test_rooms_of_the_app(room: str) -> None:
    allowed = {*TUI_ROOMS[: TUI_ROOMS.index(room) + 1]}
    for path in sorted((ROOT / "tui" / room).rglob("*.py")):
        inside = [n.split(".")[2] for n in imports(path) if n.startswith("fusetui.tui.")]
        assert set(inside) <= allowed, path


@pytest.mark.parametrize("folder", OUTSIDE)
def test_outside(folder: str) -> None:
    for path in files_of(folder):
        if path.parts[-2:] == ("sample_traces", "make.py"):
            continue
        reached = {name.split(".")[0] for name in imports(path)}
        assert not reached & OUTSIDE[folder], path
        assert not reached & set(FOLDERS), f"{path}: import as fusetui.*"


def graph() -> dict[str, set[str]]:
    """The modules of ours that each module imports, at its top or inside a function.

    `from package import module` needs the module, not what the package's door imports.
    """
    paths = {module_of(path): path for folder in ARROWS for path in files_of(folder)}
    found = {name: {known(full, paths) for full in named(path)} for name, path in paths.items()}
    return {name: reached - {name, ""} for name, reached in found.items()}


def known(full: str, modules: Collection[str]) -> str:
    """The module that a full name is or lies in; "" for none of ours."""
    while full and full not in modules:
        full = full.rpartition(".")[0]
    return full


def circle(edges: Mapping[str, set[str]]) -> list[str]:
    """The modules of one circle, the first one twice; [] when there is none."""
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_circle_of_imports() -> None:
    assert circle(graph()) == []


def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) in (["b", "c", "b"], ["c", "b", "c"])


def rooms_reached(path: Path) -> Iterator[tuple[str, str]]:
    """(room, module or name) of everything that a file imports from a room of trace/."""
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fusetui.trace."):
            _, _, room, *inside = (node.module or "").split(".")
            if room in ROOMS:
                yield from ((room, name) for name in inside[:1] or [a.name for a in node.names])


def room_of(path: Path) -> str | None:
    inside = path.relative_to(ROOT).parts
    return inside[1] if inside[0] == "trace" and len(inside) > 2 else None


def door(room: str) -> set[str]:
    """What others may use of a room: the names and modules in its `__all__`."""
    body = tree(ROOT / "trace" / room / "__init__.py").body
    named = (node for node in body if isinstance(node, ast.Assign))
    return {str(name) for node in named if is_door(node) for name in ast.literal_eval(node.value)}


def is_door(node: ast.Assign) -> bool:
    return isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__"


def test_every_room_is_known() -> None:
    folders = {path.parent.name for path in (ROOT / "trace").glob("*/__init__.py")}
    assert folders == set(ROOMS)


@pytest.mark.parametrize("folder", FOLDERS)
def test_rooms_are_entered_by_their_doors(folder: str) -> None:
    doors = {room: door(room) for room in ROOMS}
    for path in files_of(folder):
        for room, name in rooms_reached(path):
            assert room == room_of(path) or name in doors[room], f"{path}: {room}.{name}"


def test_rooms_import_one_way() -> None:
    for path in files_of("trace"):
        own = room_of(path)
        if own is not None:
            earlier = ROOMS[: ROOMS.index(own) + 1]
            assert {room for room, _ in rooms_reached(path)} <= set(earlier), path


@pytest.mark.parametrize("folder", FOLDERS)
def test_linked(folder: str) -> None:
    link = ROOT / "src" / "fusetui" / folder
    assert os.readlink(link) == f"../../{folder}"
    assert (ROOT / folder / "__init__.py").is_file()
    assert (ROOT / folder / "py.typed").is_file()


@pytest.mark.parametrize("folder", [*FOLDERS, DOOR])
def test_length(folder: str) -> None:
    lengths = {path: len(path.read_text("utf-8").splitlines()) for path in files_of(folder)}
    assert not {path: length for path, length in lengths.items() if length > LONGEST}


def shares(path: Path) -> Iterator[str]:
    """What a file itself formats as a percentage."""
    for node in nodes(path):
        for part, behind in pairwise(node.values) if isinstance(node, ast.JoinedStr) else ():
            text = behind.value if isinstance(behind, ast.Constant) else ""
            if isinstance(part, ast.FormattedValue) and re.match(r"\s?%", str(text)):
                yield ast.unparse(part.value)


@pytest.mark.parametrize("folder", [*FOLDERS, DOOR])
def test_shares_are_written_in_one_file(folder: str) -> None:
    """It says 100 % only of all; other modules print only thresholds that were given."""
    given = {"CONFIDENCE", "percent"}
    for path in files_of(folder):
        if path != ROOT / "trace" / "text" / "figures.py":
            assert set(shares(path)) <= given, path


DRAWN = {"Segment", "Segments", "Strip", "Text", "Content"}
"""What Textual and Rich draw: whatever makes one lets text through to the terminal."""


@cache
def calls(path: Path) -> frozenset[str]:
    """`name` of each `name(...)` and `name.method(...)` in a file, with its method."""
    return frozenset(ast.unparse(node.func) for node in nodes(path) if isinstance(node, ast.Call))


def test_one_file_draws() -> None:
    drawing = {
        path.name for path in files_of("tui") for name in calls(path) if name.split(".")[0] in DRAWN
    }
    assert drawing == {"segments.py"}


def test_three_files_print() -> None:
    printing = {
        path.relative_to(ROOT).as_posix()
        for folder in ("trace", "tui", "capture", DOOR)
        for path in files_of(folder)
        for name in calls(path)
        if name in ("print", "sys.stdout.write", "sys.stderr.write")
    }
    assert printing == {
        "capture/telling.py",
        "src/fusetui/commands/errors.py",
        "src/fusetui/commands/streams.py",
    }
