"""Tables as files. A file is there once it is complete, or not at all."""

from __future__ import annotations

from pathlib import Path

from fusetui import Error
from fusetui.tables.frames import needed
from fusetui.tables.table import ColumnTable
from fusetui.tables.writers import TEXTS
from fusetui.trace.new_file import new_file

ENDINGS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".md": "markdown",
    ".json": "json",
    ".parquet": "parquet",
}
"""Formats by how names of files end."""
FORMATS = tuple(ENDINGS.values())


class UnknownFormat(Error, ValueError):  # noqa: N818
    """One plain sentence: a file whose name does not say what to write."""


def format_of(path: str) -> str:
    """The format of a file by its name. Raises UnknownFormat."""
    form = ENDINGS.get(Path(path).suffix.lower())
    if form is None:
        raise UnknownFormat(f"{path} tells no format: its name must end in {', '.join(ENDINGS)}.")
    return form


def save(table: ColumnTable, path: str, form: str | None = None, *, replace: bool = False) -> None:
    """Writes a new file in a format, or in that of its name. Raises CannotWrite, MissingPackage
    or UnknownFormat, leaving nothing behind."""
    chosen = form or format_of(path)
    if chosen == "parquet":
        _save_parquet(table, path, replace)
        return
    with new_file(path, replace=replace) as part, part.open("w", encoding="utf-8", newline="") as f:
        f.writelines(TEXTS[chosen](table))


def _save_parquet(table: ColumnTable, path: str, replace: bool) -> None:
    arrow, parquet = (needed(name, "Parquet", "parquet") for name in ("pyarrow", "pyarrow.parquet"))
    with new_file(path, replace=replace) as part, part.open("wb") as file:
        parquet.write_table(arrow.table(table), file)
