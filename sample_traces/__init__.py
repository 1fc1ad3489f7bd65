"""The traces that ship with fusetui: small, real, without private data. Needs no torch.

The table in README.md is the list of them. The lessons, which are reconstructed and not
recorded, are a package of their own: `fusetui.sample_traces.lessons`.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path


@dataclass(frozen=True)
class Shelf:
    """Traces NAME.json.gz beside a package; the rows of README.md that begin with a
    name in backticks list them."""

    package: str
    note: str = ""  # before each description

    def names(self) -> list[str]:
        """In the order of the table."""
        return list(self._rows())

    def describe(self, name: str) -> str:
        """What a trace shows and where it is from, in one line. Raises KeyError."""
        shows, shapes, device, *_ = self._rows()[name]
        return f"{self.note}{shows}; {shapes}; {device}"

    def path(self, name: str) -> Path:
        """The file of one trace. Raises KeyError for an unknown name."""
        if name not in self._rows():
            raise KeyError(name)
        return self._folder / f"{name}.json.gz"

    @property
    def _folder(self) -> Path:
        return Path(str(files(self.package)))

    def _rows(self) -> dict[str, list[str]]:
        """Name to the other cells of its row."""
        lines = (self._folder / "README.md").read_text(encoding="utf-8").splitlines()
        rows = [
            line.strip("| ").split(" | ") for line in lines if line.startswith("| `")
        ]
        return {name.strip("`"): cells for name, *cells in rows}


_SHELF = Shelf(__name__)
names, describe, path = _SHELF.names, _SHELF.describe, _SHELF.path
