"""Where the printed table of a benchmark stands in a page: between two markers that name it."""

from __future__ import annotations

from pathlib import Path

END = "<!-- end -->"


def put(page: Path, name: str, text: str) -> None:
    """Replaces what stands in a page under this name. Raises ValueError if there is no place."""
    found = page.read_text(encoding="utf-8")
    try:
        page.write_text(insert(found, name, text), encoding="utf-8")
    except ValueError as error:
        raise ValueError(f"{page}: {error}") from error


def insert(page: str, name: str, text: str) -> str:
    """The text of a page with what stands under this name replaced.

    Raises ValueError if it has no place for it.
    """
    begin = f"<!-- table: {name} -->"
    before, marker, rest = page.partition(begin)
    _, marker_end, after = rest.partition(END)
    if not (marker and marker_end):
        raise ValueError(f"no place for '{name}'")
    return f"{before}{begin}\n{text.strip()}\n{END}{after}"
