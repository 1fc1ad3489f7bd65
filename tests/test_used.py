"""Nothing exists only for tests."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest
from tests.places import ROOT
from tests.sources import python_files, tree

FOLDERS = (
    "trace",
    "capture",
    "kernels",
    "sample_traces",
    "tui",
    "src/fusetui",
    "benchmarks",
    "docs",
)
LOOKED_AT = ("trace", "capture", "kernels", "sample_traces", "src/fusetui")
SPECIAL = "__.*__|run_.*"
"""Methods that Python calls, and commands, which the registry calls by their names."""
FOR_OTHERS = {
    "category_of",  # of a Trace, like name_of: trace is a library
    "frame_of",  # of a kernel's origin, like module_of
    "program_of",  # what surrounds one slice, to show a single kernel
    "path_of",  # likewise
    "source_of",  # likewise
    "to_pandas",  # of a table, in Python
    "to_polars",  # likewise
    "_repr_html_",  # notebooks call it
    "_fill_text",  # argparse calls it
    "_print_message",  # likewise
    "_check_value",  # likewise
}


def used_in(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Every name that code reads, alone or after a dot, and its line."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
            yield part.id, part.lineno
        elif isinstance(part, ast.Attribute):
            yield part.attr, part.end_lineno or part.lineno


def own_lines(node: ast.stmt) -> range:
    """Those of a definition."""
    first = min(one.lineno for one in (node, *getattr(node, "decorator_list", ())))
    return range(first, (node.end_lineno or first) + 1)


def definitions(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """Functions, classes and constants of a module, and the methods of its classes;
    without the rules of why, which are found by what they are."""
    for node in tree.body:
        if any(
            "Rule" in dict(used_in(part))
            for part in getattr(node, "decorator_list", ())
        ):
            continue
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (
                (target.id, node) for target in targets if isinstance(target, ast.Name)
            )
        if isinstance(node, ast.ClassDef):
            yield from (
                (m.name, m) for m in node.body if isinstance(m, ast.FunctionDef)
            )


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    paths = [path for folder in FOLDERS for path in python_files(folder)]
    return {str(path.relative_to(ROOT)): tree(path) for path in paths}


def unused(trees: dict[str, ast.Module]) -> list[str]:
    """What no module uses except its own definition."""
    lines = {path: defaultdict[str, list[int]](list) for path in trees}
    everywhere = Counter[str]()
    for path, module in trees.items():
        for name, line in used_in(module):
            lines[path][name].append(line)
            everywhere[name] += 1
    return [
        f"{path}: {name}"
        for path, tree in trees.items()
        if path.startswith(LOOKED_AT)
        for name, node in definitions(tree)
        if not re.fullmatch(SPECIAL, name) and name not in FOR_OTHERS
        if everywhere[name] == len(lines[path][name])  # else another file uses it
        if {*lines[path][name]} <= {*own_lines(node)}
    ]


def test_everything_is_used_outside_the_tests(trees: dict[str, ast.Module]) -> None:
    assert unused(trees) == []


def test_a_function_used_by_itself_alone_is_found_unused() -> None:
    source = "A = 1\nclass B:\n    def c(self): return A\n    def d(self): return self.d()\nB().c()"
    assert unused({"trace/x.py": ast.parse(source)}) == ["trace/x.py: d"]
