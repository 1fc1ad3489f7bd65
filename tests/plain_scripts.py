"""What scripts of `fusetui reproduce` may consist of: a fixed template, comments, and
between them calls of a few functions with numbers, names of element types and
literals."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import fusetui.report.reproduce as package

COMMON, COMMON_MARK = "measuring", "#@measuring\n"
"""What several templates have in common, and where it stands in them."""
TEMPLATES = tuple(
    path for path in Path(package.__path__[0]).glob("*.txt") if path.stem != COMMON
)
HEAD, CALLS = "#@head\n", "#@calls\n"
FUNCTIONS = {
    "floats",
    "integers",
    "flags",
    "offsets",
    "quantized",
    "PythonNumber",
    "Device",
}
MODULES = {"torch", "math"}
ATTRIBUTE = re.compile(r"float\d+\w*|bfloat16|complex\d+|u?int\d+|bool|inf|nan")
CONSTANT = re.compile(r"[A-Z][A-Z_]*")
FUNCTION = re.compile(r"[A-Za-z_][A-Za-z0-9_]*_\d+(?:_gradients)?")
KINDS = (
    *(ast.Module, ast.Assign, ast.FunctionDef, ast.arguments, ast.Return, ast.List),
    *(ast.Dict, ast.Call, ast.keyword, ast.Attribute, ast.Name, ast.Constant),
    *(ast.UnaryOp, ast.USub, ast.Load, ast.Store),
)


class NotPlainError(AssertionError):
    """A script holds something else."""


def recorded_part(script: str) -> str:
    """The part of a script that is written from the trace. Raises NotPlainError unless
    the rest is a template with comments before it."""
    for path in TEMPLATES:
        common = path.with_name(f"{COMMON}.txt").read_text(encoding="utf-8")
        text = path.read_text(encoding="utf-8").replace(COMMON_MARK, common)
        before, after_head = text.split(HEAD)
        between, rest = after_head.split(CALLS)
        if script.startswith(before) and script.endswith(rest) and between in script:
            head, _, recorded = script.removeprefix(before).partition(between)
            if all(line.startswith("#") for line in head.splitlines()):
                return recorded.removesuffix(rest)
    raise NotPlainError("the script is not made of a template")


def check_plain(script: str) -> None:
    """Raises NotPlainError for a script that holds more than numbers, literals, and
    names that are known; SyntaxError for one that is no Python."""
    if not script.isascii():
        raise NotPlainError("not ASCII")
    ast.parse(script)
    for node in ast.walk(ast.parse(recorded_part(script))):
        _check_node(node)


def _check_node(node: ast.AST) -> None:
    if not isinstance(node, KINDS):
        raise NotPlainError(ast.dump(node))
    if isinstance(node, ast.Call):
        is_known = isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS
        _check(is_known, node)
    elif isinstance(node, ast.Attribute):
        is_known = isinstance(node.value, ast.Name) and node.value.id in MODULES
        _check(is_known and ATTRIBUTE.fullmatch(node.attr) is not None, node)
    elif isinstance(node, ast.Name):
        is_known = node.id in FUNCTIONS | MODULES
        is_ours = CONSTANT.fullmatch(node.id) or FUNCTION.fullmatch(node.id)
        _check(is_known or is_ours is not None, node)
    elif isinstance(node, ast.FunctionDef):
        has_no_more = not (node.decorator_list or node.args.args or node.returns)
        _check(has_no_more and FUNCTION.fullmatch(node.name) is not None, node)
    elif isinstance(node, ast.Constant):
        _check(isinstance(node.value, int | float | complex | str | None), node)


def _check(holds: bool, node: ast.AST) -> None:
    if not holds:
        raise NotPlainError(ast.dump(node))
