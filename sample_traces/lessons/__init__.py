"""The lessons: traces with a GPU in them, to learn reading on. Reconstructed, not recorded.

Their kernel names and most kernel times were published; README.md says which, and where the
other times come from. Its table is the list of them. Needs no torch.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from fusetui.sample_traces.table import Shelf

_SHELF = Shelf(Path(str(files(__name__))))


def names() -> list[str]:
    """The names of the lessons, in the order of the table."""
    return _SHELF.names()


def describe(name: str) -> str:
    """What a lesson shows, and that nobody recorded it, in one line. Raises KeyError."""
    shows, shapes, device, *_ = _SHELF.rows()[name]
    return f"reconstructed, not recorded: {shows}; {shapes}; {device}"


def path(name: str) -> Path:
    """The trace file of a lesson. Raises KeyError for an unknown name."""
    return _SHELF.path(name)
