"""Puts the printed table of a benchmark into a page, between two markers:
`<!-- table: NAME, SCRIPT DIGEST at COMMIT -->` and `<!-- end -->`.

The digest is of what the script does. A test compares it with the script, so that a
table is made again when its script is changed. The commit is what was measured.
"""

from __future__ import annotations

import ast
import hashlib
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
END = "<!-- end -->"


def put(page: Path, name: str, text: str, script: str) -> None:
    """Replace the table of this name in a page. `script` is the `__file__` of the
    script that printed it. Raises ValueError if the page has no place for it."""
    path = Path(script).resolve()
    digest_of_script = digest(path.read_text(encoding="utf-8"))
    relative = path.relative_to(ROOT).as_posix()
    source = f"{relative} {digest_of_script} at {_read_commit()}"
    try:
        changed = insert(page.read_text(encoding="utf-8"), name, text, source)
    except ValueError as error:
        raise ValueError(f"{page}: {error}") from error
    page.write_text(changed, encoding="utf-8")


def _read_commit() -> str:
    """Return the checked-out commit in eight characters, or `unknown` without git."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--short=8", "HEAD"]
    process = subprocess.run(command, capture_output=True, text=True)
    return process.stdout.strip() or "unknown"


def insert(page: str, name: str, text: str, source: str) -> str:
    """Return the text of a page with the table of this name replaced. `source` is a
    script, its digest, and a commit. Raises ValueError unless the page has exactly one
    place for it."""
    place = re.compile(
        rf"<!-- table: {re.escape(name)}(?:, .*?)? -->\n.*?{END}", re.DOTALL
    )
    table = f"<!-- table: {name}, {source} -->\n{text.strip()}\n{END}"
    changed, count = place.subn(lambda _: table, page)
    if count != 1:
        raise ValueError(f"no place for '{name}'")
    return changed


def digest(source: str) -> str:
    """Return eight characters that change with what a script does. They do not change
    with comments, docstrings, the form of the code, or the names of what it imports."""
    tree = ast.parse(source)
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        if isinstance(node.value, ast.Name) and node.value.id in imported:
            node.attr = "_"  # something of a module, which may have another name now

    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in imported:
            node.id = "_"
        body = getattr(node, "body", None)
        if isinstance(body, list):
            statements = [item for item in body if not _is_ignored(item)]
            node.body = statements or [ast.Pass()]  # type: ignore[attr-defined]

    return hashlib.sha256(ast.unparse(tree).encode()).hexdigest()[:8]


def _is_ignored(statement: ast.stmt) -> bool:
    """Return whether a statement is an import, a docstring, or another constant that
    stands alone."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return True
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
