"""Executes docs/notebook.ipynb, and writes its outputs into it. With --check it only
compares.

python -P docs/make_notebook.py
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).resolve().parent / "notebook.ipynb"
FOLDER_VARIABLES = (
    "IPYTHONDIR",
    "JUPYTER_CONFIG_DIR",
    "JUPYTER_DATA_DIR",
    "JUPYTER_RUNTIME_DIR",
)
"""Where Jupyter looks for settings of the user."""
MAX_CELL_SECONDS = 120
METADATA = {
    "kernelspec": {
        "display_name": "Python 3",
        "language": "python",
        "name": "python3",
    },
    "language_info": {"name": "python"},
}
"""That of the notebook, without the version of this machine's Python."""


def executed(text: str) -> str:
    """The text of a notebook after its cells have run in an empty folder, with no
    metadata that depend on the machine. Raises CellExecutionError if a cell fails."""
    notebook = nbformat.reads(text, as_version=4)
    with TemporaryDirectory() as folder:
        for variable in FOLDER_VARIABLES:
            os.environ[variable] = folder
        client = NotebookClient(
            notebook,
            timeout=MAX_CELL_SECONDS,
            kernel_name="python3",
            record_timing=False,
            resources={"metadata": {"path": folder}},
        )
        client.execute()

    notebook.metadata = METADATA
    return str(nbformat.writes(notebook)) + "\n"


def main() -> int:
    """The exit code: with --check, 1 if the outputs have changed."""
    before = NOTEBOOK.read_text(encoding="utf-8")
    after = executed(before)
    if "--check" in sys.argv[1:]:
        return int(before != after)
    NOTEBOOK.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
