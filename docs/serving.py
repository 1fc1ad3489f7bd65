"""Updates docs/serving.md: what fusetui prints about a real pair of traces.

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
TERMINAL_COLUMNS = 100
BLOCK = re.compile(
    r"(```console\n\$ fusetui ([^\n]*)\n```\n```text\n)(.*?)(?=\n```\n)", re.DOTALL
)
"""A command and its output: all that stands before the output, the arguments of the
command, the output."""


def output(command: str, folder: Path) -> str:
    """What `fusetui COMMAND` prints in the folder of the traces, without empty lines
    around it. `config.json` in the command stands for the file beside this one."""
    arguments = [
        str(CONFIG) if word == CONFIG_NAME else word for word in command.split()
    ]
    run = subprocess.run(
        [sys.executable, "-P", "-m", "fusetui", *arguments],
        cwd=folder,
        env={
            **os.environ,
            "COLUMNS": str(TERMINAL_COLUMNS),
            "PYTHONPATH": str(Path(__file__).parents[1] / "src"),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.strip("\n")


def main() -> None:
    folder = Path(os.environ["FUSETUI_TRACES"])
    page = TARGET.read_text(encoding="utf-8")
    updated = BLOCK.sub(lambda block: block[1] + output(block[2], folder), page)
    TARGET.write_text(updated, encoding="utf-8")
    print(TARGET)


if __name__ == "__main__":
    main()
