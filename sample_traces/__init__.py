"""The traces that ship with fusetui: small, real, without private data. Needs no torch.

The table in README.md is the list of them. The lessons, which are
reconstructed and not recorded, are a package of their own: `fusetui.sample_traces.lessons`.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from fusetui.sample_traces.table import Shelf

_SHELF = Shelf(Path(str(files(__name__))))


def names() -> list[str]:
    """The names of the samples, in the order of the table."""
    return _SHELF.names()


def describe(name: str) -> str:
    """What a sample shows and where it was captured, in one line. Raises KeyError."""
    shows, shapes, device, *_ = _SHELF.rows()[name]
    return f"{shows}; {shapes}; {device}"


def path(name: str) -> Path:
    """The trace file of a sample. Raises KeyError for an unknown name."""
    return _SHELF.path(name)
