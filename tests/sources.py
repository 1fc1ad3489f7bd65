"""The project's own source files, each parsed once for all tests of a process."""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path

from tests.places import ROOT

from fusetui.own_memory import without_collector


@cache
def tree(path: Path) -> ast.Module:
    """The parsed file. It is kept, so the collector passes over its nodes: two million
    of all files, at which it would look again and again."""
    with without_collector():
        module = ast.parse(path.read_text(encoding="utf-8"))
        gc.freeze()
    return module


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Every node of the file."""
    return tuple(ast.walk(tree(path)))


@cache
def python_files(folder: str) -> tuple[Path, ...]:
    """The Python files in a folder of the project, also below it, but not behind
    links."""
    return tuple(sorted((ROOT / folder).rglob("*.py")))
