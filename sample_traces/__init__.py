"""The traces that ship with fusetui: small, real, without private data. Needs no torch.

The table in README.md, which make.py writes, is the list of them.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

_FOLDER = Path(str(files(__name__)))


def names() -> list[str]:
    """The names of the samples, in the order of the table."""
    return list(_table())


def describe(name: str) -> str:
    """What a sample shows and where it was captured, in one line. Raises KeyError."""
    shows, shapes, device, *_ = _table()[name]
    return f"{shows}; {shapes}; {device}"


def path(name: str) -> Path:
    """The trace file of a sample. Raises KeyError for an unknown name."""
    if name not in _table():
        raise KeyError(name)
    return _FOLDER / f"{name}.json.gz"


def _table() -> dict[str, list[str]]:
    """The rows of README.md: sample name to the other cells."""
    lines = (_FOLDER / "README.md").read_text(encoding="utf-8").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| `")]
    return {name.strip("`"): cells for name, *cells in rows}
