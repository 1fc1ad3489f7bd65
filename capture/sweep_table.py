"""The results of a sweep as a table, as bars and as CSV: pure functions from rows to text."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fusetui.text.cutting import pad, width
from fusetui.text.figures import duration
from fusetui.text.printable import printable
from fusetui.text.tables import Column, table

from .table import speed_up

Row = Mapping[str, Any]
WIDTH = 40
"""Cells of the longest bar."""


def sweep_table(rows: Sequence[Row], axes: Sequence[str]) -> str:
    """A line per point: the time per step of each variant, and its speed-up against the first."""
    names = list(dict.fromkeys(row["variant"] for row in rows))
    columns = [Column(" ".join(axes), left=True), *(Column(printable(name)) for name in names)]
    lines = []
    for sizes, point in by_point(rows, axes):
        found = {row["variant"]: row for row in point}
        lines.append([sizes, *(_entry(found.get(name), _first(point)) for name in names)])
    failed = (f"{row['variant']}: {row['failed']}" for row in rows if row["failed"])
    failures = dict.fromkeys(map(printable, failed))
    return "\n".join([table(columns, lines), *failures])


def sweep_chart(rows: Sequence[Row], axes: Sequence[str], *, ascii_only: bool = False) -> str:
    """Bars of the time per step, a group per point, each group on its own scale."""
    block = "#" if ascii_only else "█"
    wide = max(width(printable(row["variant"])) for row in rows)
    lines = ["Time per step; the longest bar of each group has the same length."]
    for sizes, point in by_point(rows, axes):
        lines += ["", f"{' '.join(axes)} = {sizes}"]
        longest = max((row["median_ns"] or 0 for row in point), default=0)
        for row in point:
            if row["median_ns"] is None:
                continue
            bar = block * max(round(WIDTH * row["median_ns"] / max(longest, 1)), 1)
            name = pad(printable(row["variant"]), wide)
            lines.append(f"  {name} {bar:{WIDTH}} {_entry(row, _first(point))}")
    return "\n".join(lines)


def sweep_csv(rows: Sequence[Row]) -> str:
    """The rows as CSV with a header; "" if there are no rows."""
    if not rows:
        return ""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def by_point(rows: Sequence[Row], axes: Sequence[str]) -> Iterator[tuple[str, list[Row]]]:
    """(the sizes as text, the point's rows), in the order of the rows."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(" ".join(str(row[axis]) for axis in axes), []).append(row)
    yield from groups.items()


def _first(point: Sequence[Row]) -> int | None:
    """The median of the point's first variant that was timed, in ns."""
    return next((row["median_ns"] for row in point if row["median_ns"] is not None), None)


def _entry(row: Row | None, first_ns: int | None) -> str:
    """`1.31 ms 2.10x`, or a dash if it was not measured."""
    if row is None or row["median_ns"] is None:
        return "-"
    return f"{duration(row['median_ns'])} {speed_up(first_ns, row['median_ns']):>6}"
