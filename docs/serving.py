"""Updates docs/serving.md: what fusetui says about a real pair of traces.

    FUSETUI_TRACES=folder python -P docs/serving.py

A `text` block after a `console` block is the output of its command in that folder. The
traces are those of another project and are not part of this one; see docs/serving.md.
config.json is llama-3.1-8b.json beside this file.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

TARGET = Path(__file__).with_name("serving.md")
CONFIG = Path(__file__).with_name("llama-3.1-8b.json")
CONFIG_NAME = "config.json"
COLUMNS = 100
BLOCK = re.compile(
    r"(```console\n\$ fusetui ([^\n]*)\n```\n```text\n)(.*?)(?=\n```\n)", re.DOTALL
)


def output(command: str, folder: Path) -> str:
    """What the command prints in the folder of the traces."""
    package = str(Path(__file__).parents[1] / "src")
    surroundings = {**os.environ, "COLUMNS": str(COLUMNS), "PYTHONPATH": package}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "fusetui", *_words(command)],
        cwd=folder,
        env=surroundings,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip("\n")


def _words(command: str) -> list[str]:
    return [str(CONFIG) if word == CONFIG_NAME else word for word in command.split()]


def main() -> None:
    folder = Path(os.environ["FUSETUI_TRACES"])
    page = TARGET.read_text(encoding="utf-8")
    TARGET.write_text(
        BLOCK.sub(lambda found: found[1] + output(found[2], folder), page),
        encoding="utf-8",
    )
    print(TARGET)


if __name__ == "__main__":
    main()
