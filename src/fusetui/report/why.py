"""The text of `why`: the answer first, then the evidence, on one screen."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from fusetui.analysis.why.breakdown_text import LONGEST_TOLD, breakdown_parts, breakdown_text
from fusetui.analysis.why.model import Why
from fusetui.analysis.why.telling import account_lines, answer, ceiling_text, listed, not_recorded
from fusetui.report.gaps import gap_rows, gaps_table
from fusetui.text.figures import count, duration, percent
from fusetui.text.printable import printable
from fusetui.text.tables import JSON_ALL, Column, Unseen, cut, left_out, table

MOST_LINES = 25
MOST_UNKNOWN = 3  # lines
WIDEST = 96
THREADS = 10
GAPS = 4
FEWEST_GAPS = 2
ALL_GAPS = 20
UNBOUNDED = 1 << 30  # lines
TEXT_ALL = "--all prints all"


def why_text(found: Why, width: int, below: int = 0, everything: bool = False) -> str:
    """At most MOST_LINES lines of at most `width` columns, whatever the trace holds, with the lines
    that are printed `below`; or `everything`: all findings, each with what to try, and tables of
    kernels and modules."""
    most = UNBOUNDED if everything else MOST_LINES - below
    account = account_lines(found, width) if found.devices else _threads(found, width)
    paragraphs = [_head(found, width), account, _unknown(found, width)]
    breakdown = _breakdown(found, width, everything)
    findings = _findings(found, _room([*paragraphs, breakdown], most), width, everything)
    if found.findings and not any(line.startswith("1. ") for line in findings):
        breakdown, findings = [], _findings(found, _room(paragraphs, most), width, everything)
    paragraphs[2:2] = [breakdown, findings]
    room = min(_room(paragraphs, most) - 1, (ALL_GAPS if everything else GAPS) + 2)
    gaps = listed(found)[: room - 2]
    if room >= FEWEST_GAPS + 2 and gaps:
        rows = gap_rows(gaps, found.base_ns)
        paragraphs.insert(4, ["longest gaps", *gaps_table(rows, width).split("\n")])
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


def _breakdown(found: Why, width: int, everything: bool) -> list[str]:
    """What the GPU's time goes to: a sentence where the GPU is the limit, or tables."""
    if not everything or found.breakdown is None:
        longest = width if isinstance(width, Unseen) else LONGEST_TOLD
        return wrap(breakdown_text(found, longest), min(width, WIDEST))
    lines: list[str] = []
    for what, some, whole in breakdown_parts(found):
        columns = [Column(title) for title in ("GPU time", "share", "count")]
        columns.append(Column(what, left=True))
        rows = [
            (duration(one.ns), percent(one.ns, whole), count(one.count), one.name) for one in some
        ]
        lines += ["", *table(columns, rows, width).split("\n")]
    return lines[1:]


def _findings(found: Why, room: int, width: int, everything: bool = False) -> list[str]:
    """As many as there is room for, the first one with what to try. Of this remedy and the ceiling,
    what leaves no room for the first finding is left out. With `everything` all of them, each with
    what to try."""
    ceiling = wrap(ceiling_text(found), min(width, WIDEST))
    if everything:
        return _fitting(found, ceiling, len(found.findings), room, width)[0]
    for above, remedy in ((ceiling, 1), (ceiling, 0), ([], 1)):
        lines, told = _fitting(found, above, remedy, room, width)
        if told or not found.findings:
            return lines
    return _fitting(found, [], 0, room, width)[0]


def _fitting(
    found: Why, above: Sequence[str], remedies: int, room: int, width: int
) -> tuple[list[str], int]:
    """The findings that fit below these lines, the first `remedies` with what to try, and how many
    they are."""
    lines = [*above]
    for number, one in enumerate(found.findings, 1):
        tried = f" Try: {one.try_}" if number <= remedies and one.try_ else ""
        text = f"{number}. {one.text}{tried}"
        more = wrap(printable(text), min(width, WIDEST), subsequent_indent="   ")
        rest = len(found.findings) - number
        if len(lines) + len(more) > room - bool(rest):
            return [*lines, *left_out(rest + 1, "finding", TEXT_ALL)], number - 1
        lines += more
    return lines, len(found.findings)


def _unknown(found: Why, width: int) -> list[str]:
    return wrap(printable(not_recorded(found)), min(width, WIDEST))[:MOST_UNKNOWN]
