"""The answer about a job as text, as a JSON document and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Any

import msgspec

from fusetui.analysis.ranks.model import JobAnswer, RankRow
from fusetui.report.ranks_words import clocks_text, headline, straggler_text, verdict_lines
from fusetui.text.figures import count, duration, several, size
from fusetui.text.printable import printable
from fusetui.text.tables import TOP_ALL, Column, left_out, table

STANDS_OUT = "*"
LEGEND = (
    "Figures of steps are medians. *: more than 3 scaled median absolute deviations from the "
    "median of the ranks."
)
COLUMNS = (
    Column("rank"),
    Column("last"),
    Column("others wait"),
    Column("waits", spare=1),
    Column("step"),
    Column("compute", spare=2),
    Column("exposed comm", spare=3),
    Column("copy", spare=5),
    Column("idle", spare=4),
    Column("memory", spare=7),
    Column("clock", spare=6),
    Column("device", left=True),
)
KINDS = (
    Column("collective", left=True),
    Column("group", left=True, spare=1),
    Column("ranks"),
    Column("size"),
    Column("count"),
    Column("waits"),
    Column("transfer"),
    Column("bus bandwidth"),
)
WAITS = ("caused_ns", "waited_ns")
MOST_KINDS, MOST_HEAD = 5, 8
DEVICE = 12
NARROW = 8

CSV = (
    *("rank", "path", "host", "device", "steps", "step_ns", "compute_ns", "exposed_comm_ns"),
    *("exposed_copy_ns", "idle_ns", "collectives", "unmatched", "last_count", "caused_ns"),
    *("waited_ns", "memory_peak_bytes", "offset_ns", "uncertainty_ns", "drift_ns_per_s"),
)


def ranks_text(answer: JobAnswer, most: int, top: int) -> str:
    """Some forty lines: what was given, the ranks, who waits for whom and why, the collectives."""
    sections = (
        _wrapped(_head(answer), most),
        _ranks(answer, most, top),
        _wrapped(_verdict(answer), most),
        _kinds(answer, most),
        _wrapped(_remarks(answer), most),
    )
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def ranks_json(answer: JobAnswer) -> dict[str, Any]:
    """The keys of docs/json.md: sentences in place of what they are made of."""
    document: dict[str, Any] = msgspec.to_builtins(answer)
    for fields, one in zip(document["stragglers"], answer.stragglers, strict=True):
        del fields["slower"], fields["slow"]
        last = {key: fields.pop(key) for key in ("reason", "what_if")}
        fields |= {"text": straggler_text(answer, one), **last}
    document["verdict"] = list(verdict_lines(answer))
    return document


def ranks_csv(answer: JobAnswer) -> str:
    """A line per rank, and one per file that is left out, with its reason."""
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow([*CSV, "outliers", "reason"])
    for row in answer.ranks:
        values = [getattr(row, name) for name in CSV]
        lines.writerow([*values, " ".join(row.outliers), "; ".join(row.damage)])
    for left in answer.left_out:
        rank = "" if left.rank is None else left.rank
        lines.writerow([rank, left.path, *[""] * (len(CSV) - 1), left.reason])
    return out.getvalue().rstrip("\n")


def _wrapped(sentences: Iterator[str] | Sequence[str], most: int) -> list[str]:
    return [
        line for one in sentences for line in wrap(printable(one), most, subsequent_indent="  ")
    ]


def _head(answer: JobAnswer) -> Iterator[str]:
    lines = list(headline(answer))
    yield from lines[:MOST_HEAD]
    if len(lines) > MOST_HEAD:
        yield f"... and {count(len(lines) - MOST_HEAD)} more remarks like these (--json has all)"
    yield clocks_text(answer)


def _verdict(answer: JobAnswer) -> Iterator[str]:
    yield from (straggler_text(answer, one) for one in answer.stragglers)
    yield from verdict_lines(answer)


def _ranks(answer: JobAnswer, most: int, top: int) -> list[str]:
    if not answer.ranks:
        return []
    shown = answer.ranks[:top] if top else answer.ranks
    cells = [_row(answer, row) for row in shown]
    used = [n for n in range(len(COLUMNS)) if any(cell[n] != "-" for cell in cells)]
    rows = [[cell[n] for n in used] for cell in cells]
    lines = table([COLUMNS[n] for n in used], rows, most, DEVICE).split("\n")
    return [*lines, *left_out(len(answer.ranks) - len(shown), "rank", TOP_ALL)]


def _row(answer: JobAnswer, row: RankRow) -> list[str]:
    def figure(name: str, steps: int = 1) -> str:
        value = getattr(row, name)
        mark = STANDS_OUT if name in row.outliers else ""
        return "-" if value is None else f"{duration(value // max(steps, 1))}{mark}"

    memory = row.memory_peak_bytes
    clock = "-"
    if row.uncertainty_ns is not None and not answer.clocks.shared:
        clock = f"{duration(row.offset_ns or 0)} ± {duration(row.uncertainty_ns)}"
    return [
        str(row.rank),
        f"{count(row.last_count)} of {count(row.collectives)}",
        *("-" if answer.clocks.refused else figure(name, row.steps) for name in WAITS),
        figure("step_ns"),
        figure("compute_ns"),
        figure("exposed_comm_ns"),
        figure("exposed_copy_ns"),
        figure("idle_ns"),
        "-" if memory is None else size(memory),
        clock,
        printable(row.device) or printable(row.host) or "-",
    ]


def _kinds(answer: JobAnswer, most: int) -> list[str]:
    if not answer.kinds:
        return []
    rows = [
        [
            printable(kind.name),
            printable(kind.group) or "-",
            f"{kind.given} of {kind.ranks}" if kind.ranks else str(kind.given),
            "-" if kind.bytes is None else size(kind.bytes),
            count(kind.count),
            "-" if answer.clocks.refused else duration(kind.wait_ns // kind.count),
            "-" if kind.transfer_ns is None else duration(kind.transfer_ns),
            "-" if kind.bus_bytes_per_s is None else f"{size(round(kind.bus_bytes_per_s))}/s",
        ]
        for kind in answer.kinds[:MOST_KINDS]
    ]
    lines = table(KINDS, rows, most, NARROW).split("\n")
    return [*lines, *left_out(len(answer.kinds) - len(rows), "kind", "--json has all")]


def _remarks(answer: JobAnswer) -> Iterator[str]:
    if answer.ranks:
        yield f"{LEGEND} Others wait, and waits, are per step."
    if answer.stragglers and answer.no_what_if:
        yield f"What a step would take without the delays is not told: {answer.no_what_if}."
    if answer.inferred:
        yield f"Not recorded and inferred: {several(answer.inferred, 4)}."
