"""A folder of traces and the table in its README.md, which is the list of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Shelf:
    """Traces NAME.json.gz; the rows of README.md that begin with a name in backticks list them."""

    folder: Path

    def names(self) -> list[str]:
        """In the order of the table."""
        return list(self.rows())

    def path(self, name: str) -> Path:
        """The file of one trace. Raises KeyError for an unknown name."""
        if name not in self.rows():
            raise KeyError(name)
        return self.folder / f"{name}.json.gz"

    def rows(self) -> dict[str, list[str]]:
        """Name to the other cells of its row."""
        lines = (self.folder / "README.md").read_text(encoding="utf-8").splitlines()
        rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| `")]
        return {name.strip("`"): cells for name, *cells in rows}
