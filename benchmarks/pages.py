"""Where the printed table of a benchmark stands in a page: between two markers that
name it and the script that printed it, `<!-- table: NAME, SCRIPT DIGEST at COMMIT -->`
and `<!-- end -->`.

The digest is of what the script does; a test compares it, so no table stays when its
script is changed. The commit is what was measured.
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
    """Replaces what stands in a page under this name; `script` is the `__file__` that
    printed it.

    Raises ValueError if there is no place.
    """
    path = Path(script).resolve()
    command = ["git", "-C", str(ROOT), "rev-parse", "--short=8", "HEAD"]
    commit = (
        subprocess.run(command, capture_output=True, text=True).stdout.strip()
        or "unknown"
    )
    mark = digest(path.read_text(encoding="utf-8"))
    source = f"{path.relative_to(ROOT).as_posix()} {mark} at {commit}"
    found = page.read_text(encoding="utf-8")
    try:
        page.write_text(insert(found, name, text, source), encoding="utf-8")
    except ValueError as error:
        raise ValueError(f"{page}: {error}") from error


def insert(page: str, name: str, text: str, source: str) -> str:
    """The text of a page with what stands under this name replaced; `source` is a
    script, its digest, and a commit. Raises ValueError if the page has no place for
    it."""
    place = re.compile(
        rf"<!-- table: {re.escape(name)}(?:, .*?)? -->\n.*?{END}", re.DOTALL
    )
    table = f"<!-- table: {name}, {source} -->\n{text.strip()}\n{END}"
    changed, count = place.subn(lambda _: table, page)
    if count != 1:
        raise ValueError(f"no place for '{name}'")
    return changed


def digest(source: str) -> str:
    """Eight characters that change with what a script does, and not with comments,
    docstrings, the form of the code, or what its imports are called."""
    tree = ast.parse(source)
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    for node in ast.walk(tree):
        base = node.value if isinstance(node, ast.Attribute) else None
        if isinstance(base, ast.Name) and base.id in imported:
            base.id = "_"  # a module, which may be called otherwise
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [  # type: ignore[attr-defined]
                one
                for one in body
                if not isinstance(one, ast.Import | ast.ImportFrom)
                and not (
                    isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)
                )
            ] or [ast.Pass()]
    return hashlib.sha256(ast.unparse(tree).encode()).hexdigest()[:8]
