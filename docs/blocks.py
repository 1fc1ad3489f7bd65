"""The code blocks of the pages: runs them, and updates the output that the pages show.

python -P docs/blocks.py

The blocks of a page run one after another in one folder: `sh` in bash, `python` in this
Python. A `text` block after an `sh` block is its output. `console` blocks need a
terminal or another machine and are not run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

DOCS = Path(__file__).resolve().parent
PAGES = (
    *(
        "reading-a-gpu-trace.md",
        "recording.md",
        "ssh.md",
        "ci.md",
        "tour.md",
        "json.md",
    ),
    *(
        "tables.md",
        "sql.md",
        "python.md",
        "agents.md",
        "guide.md",
        "whatif.md",
        "pictures.md",
    ),
    "../README.md",
)
WIDTH = 90
PATIENCE = 300  # seconds that a block may take
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """Some lines in a fence; `start` and `end` are those of its text in the page."""

    kind: str
    text: str
    start: int
    end: int


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page's text."""
    return [Block(m[1], m[2], *m.span(2)) for m in _BLOCK.finditer(page)]


def outputs(page: str, folder: Path) -> Iterator[tuple[Block, str]]:
    """Runs the blocks of a page; yields each block that shows output, and what was
    printed.

    Raises RuntimeError when a block fails.
    """
    printed = ""
    for block in blocks(page):
        if block.kind == "text":
            yield block, printed
        elif block.kind in ("sh", "python"):
            printed = _run(block, folder)


def _run(block: Block, folder: Path) -> str:
    command = (
        ["bash", "-euo", "pipefail"]
        if block.kind == "sh"
        else [sys.executable, "-P", "-"]
    )
    found = subprocess.run(
        command,
        input=block.text,
        cwd=folder,
        env=_environment(folder),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    if found.returncode:
        raise RuntimeError(
            f"{block.text}\nexit code {found.returncode}\n{found.stderr}"
        )
    return found.stdout


def _environment(folder: Path) -> dict[str, str]:
    """`fusetui` is the one of this Python."""
    place = folder / ".bin"
    place.mkdir(exist_ok=True)
    program = place / "fusetui"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m fusetui "$@"\n')
    program.chmod(0o755)
    own = {
        "PATH": f"{place}:{os.environ['PATH']}",
        "COLUMNS": str(WIDTH),
        "HOME": str(folder),
    }
    return {**os.environ, **own, "FUSETUI_CACHE": "off"}


def main() -> None:
    for name in PAGES:
        path = DOCS / name
        page = path.read_text(encoding="utf-8")
        with TemporaryDirectory() as folder:
            for block, printed in reversed(list(outputs(page, Path(folder)))):
                page = page[: block.start] + printed + page[block.end :]
        path.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
