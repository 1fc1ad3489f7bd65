"""The text of `why`: the answer first, then the evidence, on one screen."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from fusetui.render.gaps import gap_rows, gaps_table
from fusetui.trace.insights.model import Why
from fusetui.trace.insights.telling import account_lines, answer, ceiling_text, not_recorded
from fusetui.trace.text.figures import duration
from fusetui.trace.text.printable import printable
from fusetui.trace.text.tables import JSON_ALL, Column, cut, left_out, table

MOST_LINES = 25
MOST_UNKNOWN = 3  # lines
WIDEST = 96
THREADS = 10
GAPS = 4
FEWEST_GAPS = 2


def why_text(found: Why, width: int, below: int = 0) -> str:
    """At most MOST_LINES lines of at most `width` columns, whatever the trace holds, with the lines
    that are printed `below`."""
    most = MOST_LINES - below
    account = account_lines(found, width) if found.devices else _threads(found, width)
    paragraphs = [_head(found, width), account, _unknown(found, width)]
    paragraphs.insert(2, _findings(found, _room(paragraphs, most), width))
    room = min(_room(paragraphs, most) - 1, GAPS + 2)
    if room >= FEWEST_GAPS + 2 and found.gaps:
        rows = gap_rows(found.gaps[: room - 2], found.base_ns)
        paragraphs.insert(3, ["longest gaps", *gaps_table(rows, width).split("\n")])
    lines = "\n\n".join("\n".join(paragraph) for paragraph in paragraphs if paragraph).split("\n")
    return "\n".join(cut(line, width) for line in lines[:most])


def _room(paragraphs: Sequence[Sequence[str]], most: int) -> int:
    """The number of lines left for one more paragraph."""
    return most - sum(len(paragraph) + 1 for paragraph in paragraphs if paragraph)


def _head(found: Why, width: int) -> list[str]:
    return [printable(found.file), *wrap(printable(answer(found)), min(width, WIDEST))]


def _threads(found: Why, width: int) -> list[str]:
    columns = [Column(title) for title in ("ops", "Python", "waiting", "nothing", "of")]
    columns.append(Column("thread", left=True))
    busiest = sorted(found.cpu, key=lambda one: -(one.op_ns + one.python_ns))[:THREADS]
    rows = [
        (
            *(duration(ns) if ns else "" for ns in (t.op_ns, t.python_ns, t.wait_ns, t.nothing_ns)),
            duration(t.span_ns),
            printable(t.label),
        )
        for t in busiest
    ]
    more = left_out(len(found.cpu) - len(busiest), "thread", JSON_ALL)
    return [*table(columns, rows, width).split("\n"), *more] if rows else []


def _findings(found: Why, room: int, width: int) -> list[str]:
    """As many as there is room for, the first one with what to try. Of this remedy and the ceiling,
    what leaves no room for the first finding is left out."""
    ceiling = wrap(ceiling_text(found), min(width, WIDEST))
    for above, remedy in ((ceiling, True), (ceiling, False), ([], True)):
        lines, told = _fitting(found, above, remedy, room, width)
        if told or not found.findings:
            return lines
    return _fitting(found, [], False, room, width)[0]


def _fitting(
    found: Why, above: Sequence[str], remedy: bool, room: int, width: int
) -> tuple[list[str], int]:
    """The findings that fit below these lines, and how many they are."""
    lines = [*above]
    for number, one in enumerate(found.findings, 1):
        tried = f" Try: {one.try_}" if remedy and number == 1 and one.try_ else ""
        text = f"{number}. {one.text}{tried}"
        more = wrap(printable(text), min(width, WIDEST), subsequent_indent="   ")
        rest = len(found.findings) - number
        if len(lines) + len(more) > room - bool(rest):
            return [*lines, *left_out(rest + 1, "finding", JSON_ALL)], number - 1
        lines += more
    return lines, len(found.findings)


def _unknown(found: Why, width: int) -> list[str]:
    return wrap(printable(not_recorded(found)), min(width, WIDEST))[:MOST_UNKNOWN]
