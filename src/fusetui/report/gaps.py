"""The table of gaps, in text and in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from fusetui.analysis.why.model import Gap, Why
from fusetui.analysis.why.telling import covered_by
from fusetui.analysis.why.words import SHORT
from fusetui.text.figures import duration, percent, plural
from fusetui.text.printable import printable
from fusetui.text.tables import Column, table

COLUMNS = (
    Column("idle for"),
    Column("from", spare=2),
    Column("GPU", spare=3),
    Column("mostly", left=True),
    Column("of it", spare=4),
    Column("drained by", left=True, spare=1),
    Column("while", left=True),
)
GPU = 2

Row = tuple[str, ...]


def gaps_text(found: Why, most: int | None, width: int) -> str:
    """The first `most` gaps (None: all that are listed), and how many more there are."""
    if not found.gaps:
        return "No GPU was idle." if found.devices else "no GPU events in this trace"
    shown = found.gaps[:most]
    lines = [gaps_table(gap_rows(shown, found.base_ns), width)]
    rest = found.gaps_count - len(shown)
    if rest:
        gaps = sum(gap.dur_ns for gap in shown)
        share = percent(gaps, sum(one.idle_ns for one in found.devices))
        lines.append(f"... and {plural(rest, 'more gap')}; these are {share} (--all shows all)")
    return "\n".join(lines)


def gaps_table(rows: Sequence[Row], width: int) -> str:
    """A table without the column of the GPU if there is only one."""
    several = len({row[GPU] for row in rows}) > 1
    kept = [n for n in range(len(COLUMNS)) if n != GPU or several]
    return table([COLUMNS[n] for n in kept], [[row[n] for n in kept] for row in rows], width)


def gap_rows(gaps: Sequence[Gap], base_ns: int) -> list[Row]:
    """The table cells of each gap, one for each of COLUMNS."""
    return [_row(gap, base_ns) for gap in gaps]


def _row(gap: Gap, base_ns: int) -> Row:
    reason = max(gap.idle, key=lambda name: gap.idle[name], default="queued")
    return (
        duration(gap.dur_ns),
        duration(gap.start_ns - base_ns),
        printable(str(gap.device)),
        SHORT[reason],
        percent(gap.idle.get(reason, 0), gap.dur_ns),
        printable(gap.drained_by or ""),
        printable(covered_by(gap)),
    )
