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
PLACES = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
PATIENCE = 120  # seconds that a cell may take
SAME_EVERYWHERE = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def executed(text: str) -> str:
    """A notebook after all of its cells have run in an empty folder, with nothing in it
    that depends on the machine. Raises CellExecutionError."""
    notebook = nbformat.reads(text, as_version=4)
    with TemporaryDirectory() as folder:
        os.environ.update(dict.fromkeys(PLACES, folder))
        client = NotebookClient(
            notebook,
            timeout=PATIENCE,
            kernel_name="python3",
            record_timing=False,
            resources={"metadata": {"path": folder}},
        )
        client.execute()
    notebook.metadata = SAME_EVERYWHERE
    return str(nbformat.writes(notebook)) + "\n"


def main() -> int:
    before = NOTEBOOK.read_text(encoding="utf-8")
    after = executed(before)
    if "--check" in sys.argv[1:]:
        return int(before != after)
    NOTEBOOK.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
