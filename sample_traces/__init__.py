"""The traces that ship with fusetui: small, real, without private data. Needs no torch.

The table in README.md is the list of them. The lessons, which are reconstructed and not
recorded, are a package of their own: `fusetui.sample_traces.lessons`.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path


@dataclass(frozen=True)
class TraceCatalog:
    """Traces NAME.json.gz beside a package. The rows of the table in its README.md that
    begin with a name in backticks list them: name, what it shows, shapes, device, and
    perhaps more."""

    package: str
    note: str = ""
    """Stands before each description."""

    def names(self) -> list[str]:
        """In the order of the table."""
        return list(self._rows())

    def describe(self, name: str) -> str:
        """What a trace shows and where it is from, in one line. Raises KeyError for an
        unknown name."""
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
        """By name, the other cells of its row."""
        text = (self._folder / "README.md").read_text(encoding="utf-8")
        rows = {}
        for line in text.splitlines():
            if line.startswith("| `"):
                name, *cells = line.strip("| ").split(" | ")
                rows[name.strip("`")] = cells
        return rows


_CATALOG = TraceCatalog(__name__)
names = _CATALOG.names
describe = _CATALOG.describe
path = _CATALOG.path
