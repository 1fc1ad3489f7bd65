"""Runs the code blocks of the pages, and updates the output that the pages show.

python -P docs/blocks.py

The blocks of a page run one after another in one folder: `sh` in bash, `python` in this
Python. A `text` block shows what the block before it printed. `console` blocks need a
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
    "reading-a-gpu-trace.md",
    "recording.md",
    "ssh.md",
    "ci.md",
    "tour.md",
    "json.md",
    "tables.md",
    "sql.md",
    "python.md",
    "agents.md",
    "guide.md",
    "whatif.md",
    "pictures.md",
    "../README.md",
)
TERMINAL_COLUMNS = 90
MAX_BLOCK_SECONDS = 300
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block: `kind` is the word behind the fence, `text` the lines inside, and
    `start` and `end` are where that text is in the page, in characters."""

    kind: str
    text: str
    start: int
    end: int


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page's text."""
    return [
        Block(kind=match[1], text=match[2], start=match.start(2), end=match.end(2))
        for match in _BLOCK.finditer(page)
    ]


def outputs(page: str, folder: Path) -> Iterator[tuple[Block, str]]:
    """Runs the blocks of a page in a folder; yields each `text` block with what the
    block before it printed. Raises RuntimeError when a block fails."""
    printed = ""
    for block in blocks(page):
        if block.kind == "text":
            yield block, printed
        elif block.kind in ("sh", "python"):
            printed = _run(block, folder)


def _run(block: Block, folder: Path) -> str:
    """What a block prints on stdout. Raises RuntimeError when it fails."""
    if block.kind == "sh":
        command = ["bash", "-euo", "pipefail"]
    else:
        command = [sys.executable, "-P", "-"]

    run = subprocess.run(
        command,
        input=block.text,
        cwd=folder,
        env=_environment(folder),
        capture_output=True,
        text=True,
        timeout=MAX_BLOCK_SECONDS,
        check=False,
    )
    if run.returncode:
        raise RuntimeError(f"{block.text}\nexit code {run.returncode}\n{run.stderr}")

    return run.stdout


def _environment(folder: Path) -> dict[str, str]:
    """The environment of a block. `fusetui` is a script that runs the package with this
    Python, and `folder` is the home folder, without settings of the user."""
    programs = folder / ".bin"
    programs.mkdir(exist_ok=True)
    fusetui = programs / "fusetui"
    fusetui.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m fusetui "$@"\n')
    fusetui.chmod(0o755)

    return {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "COLUMNS": str(TERMINAL_COLUMNS),
        "HOME": str(folder),
        "FUSETUI_CACHE": "off",
    }


def main() -> None:
    for name in PAGES:
        path = DOCS / name
        page = path.read_text(encoding="utf-8")
        with TemporaryDirectory() as folder:
            # From the end, so that the positions of the other blocks stay.
            for block, printed in reversed(list(outputs(page, Path(folder)))):
                page = page[: block.start] + printed + page[block.end :]
        path.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
