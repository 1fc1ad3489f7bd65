"""What `why` and `gaps` print of one trace: text, Markdown and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import msgspec
from msgspec.structs import replace

from fusetui.analysis.why.model import (
    IDLE,
    Finding,
    Gap,
    Share,
    Why,
    WhyDocument,
    considerable,
    negligible,
)
from fusetui.report import printed
from fusetui.report.why_answer import (
    NEGLIGIBLE_HEADING,
    account_columns,
    account_lines,
    account_rows,
    answer,
    breakdown_parts,
    breakdown_text,
    ceiling_text,
    covered_by,
    device_text,
    is_limit,
    listed,
    main_reason,
    not_recorded,
)
from fusetui.report.worth import doubt_text, replayed_text, worth_text
from fusetui.text.figures import count, duration, percent, plural
from fusetui.text.printable import markdown, markdown_table, printable
from fusetui.text.tables import (
    JSON_ALL,
    Column,
    cut,
    first_of,
    folded,
    left_out,
    table,
    table_of,
)
from fusetui.trace.model.columns import Trace

MOST_LINES = 25
MOST_UNKNOWN = 3  # lines
THREADS = 10
GAPS = 4  # in the text
FEW_REASONS = 2  # of idle time, where what is not understood has to be told too
FEWEST_GAPS = 2
MOST_GAPS = 5
SHARES = 5  # kernels, and modules
ALL_GAPS = 20
UNBOUNDED = 1 << 30  # lines
TEXT_ALL = "--all prints all"


class GapsDocument(msgspec.Struct, frozen=True):
    """`gaps`."""

    base_ns: str
    gaps_count: int
    gaps: tuple[Gap, ...]


def why_text(found: Why, width: int, below: int = 0, everything: bool = False) -> str:
    """At most MOST_LINES lines of at most `width` columns, whatever the trace holds,
    with the lines that are printed `below`; or `everything`: all findings, each with
    what to try, and tables of kernels and modules."""
    most = UNBOUNDED if everything else MOST_LINES - below
    if found.devices:
        account = account_lines(found, width)
    else:
        busiest = sorted(found.cpu, key=lambda one: -(one.op_ns + one.python_ns))
        threads = first_of(THREAD_COLUMNS, busiest, THREADS, width, "thread", JSON_ALL)
        account = threads.split("\n") if busiest else []
    head = [printable(found.file), *folded(printable(answer(found)), width)]
    unknown = folded(printable(not_recorded(found)), width)[:MOST_UNKNOWN]
    paragraphs = [head, account, unknown]
    breakdown = _breakdown(found, width, everything)
    findings = _findings(
        found, _room([*paragraphs, breakdown], most), width, everything
    )
    if _lacks_first(found, findings):
        breakdown, findings = (
            [],
            _findings(found, _room(paragraphs, most), width, everything),
        )
    # which needs the room of reasons
    if _lacks_first(found, findings) and doubt_text(found):
        fewer = [head, account_lines(found, width, FEW_REASONS), unknown]
        shown = _findings(found, _room(fewer, most), width, everything)
        if not _lacks_first(found, shown):
            paragraphs, findings = fewer, shown
    paragraphs[2:2] = [breakdown, findings]
    room = min(_room(paragraphs, most) - 1, (ALL_GAPS if everything else GAPS) + 2)
    gaps = listed(found)[: room - 2]
    if room >= FEWEST_GAPS + 2 and gaps:
        paragraphs.insert(4, ["longest gaps", *gaps_table(gaps, width).split("\n")])
    lines = "\n\n".join(
        "\n".join(paragraph) for paragraph in paragraphs if paragraph
    ).split("\n")
    return "\n".join(cut(line, width) for line in lines[:most])


def _lacks_first(found: Why, lines: Sequence[str]) -> bool:
    """Whether the first finding is not among these lines."""
    return bool(considerable(found)) and not any(
        line.startswith("1. ") for line in lines
    )


def _room(paragraphs: Sequence[Sequence[str]], most: int) -> int:
    """The number of lines left for one more paragraph."""
    return most - sum(len(paragraph) + 1 for paragraph in paragraphs if paragraph)


THREAD_COLUMNS = (
    Column("ops", cell=lambda one: duration(one.op_ns) if one.op_ns else ""),
    Column("Python", cell=lambda one: duration(one.python_ns) if one.python_ns else ""),
    Column("waiting", cell=lambda one: duration(one.wait_ns) if one.wait_ns else ""),
    Column(
        "nothing", cell=lambda one: duration(one.nothing_ns) if one.nothing_ns else ""
    ),
    Column("of", cell=lambda one: duration(one.span_ns)),
    Column("thread", left=True, cell=lambda one: printable(one.label)),
)
GAP_COLUMNS = (
    Column("idle for", cell=lambda gap: duration(gap.dur_ns)),
    Column("from", spare=2, cell=lambda gap: duration(gap.start_ns)),
    Column("GPU", spare=3, cell=lambda gap: printable(str(gap.device))),
    Column("mostly", left=True, cell=lambda gap: IDLE[main_reason(gap)].short),
    Column(
        "of it",
        spare=4,
        cell=lambda g: percent(g.idle.get(main_reason(g), 0), g.dur_ns),
    ),
    Column("drained by", True, 1, lambda gap: printable(gap.drained_by or "")),
    Column("while", left=True, cell=lambda gap: printable(covered_by(gap))),
)


def _breakdown(found: Why, width: int, everything: bool) -> list[str]:
    """What the GPU's time goes to: a sentence where the GPU is the limit, or tables."""
    if not everything or not (found.breakdown or found.cpu_work):
        return folded(printable(breakdown_text(found, width)), width)
    lines: list[str] = []
    of = "CPU time" if found.cpu_work else "GPU time"
    for what, parts, whole in breakdown_parts(found):
        columns = [*map(Column, (of, "share", "count")), Column(what, left=True)]
        lines += ["", *table(columns, _shares(parts, whole), width).split("\n")]
    return lines[1:]


def _shares(parts: Sequence[Share], whole: int) -> list[tuple[str, str, str, str]]:
    return [
        (duration(s.ns), percent(s.ns, whole), count(s.count), s.name) for s in parts
    ]


def _findings(found: Why, room: int, width: int, everything: bool = False) -> list[str]:
    """As many as there is room for, the first one with what to try. Of this remedy and
    the ceiling, what leaves no room for the first finding is left out. With
    `everything` all of them, each with what to try."""
    told = " ".join(filter(None, (ceiling_text(found), replayed_text(found))))
    unsure = folded(doubt_text(found), width)
    ceiling = [*folded(told, width), *unsure]
    if everything:
        lines = _fitting(found, ceiling, len(found.findings), room, width)[0]
        return [*lines, *_negligible(found, width)]
    for above, remedy in ((ceiling, 1), (ceiling, 0), (unsure, 1), (unsure, 0)):
        lines, shown = _fitting(found, above, remedy, room, width)
        if shown or not considerable(found):
            return _with_left_out(found, lines, room)
    # No worth is told without the doubt about it.
    return _fitting(found, [], 0, 1 if unsure else room, width)[0]


def _fitting(
    found: Why, above: Sequence[str], remedies: int, room: int, width: int
) -> tuple[list[str], int]:
    """The findings that fit below these lines, the first `remedies` with what to try,
    and how many they are."""
    lines, findings = [*above], considerable(found)
    for number, one in enumerate(findings, 1):
        text = _claim(found, one, number <= remedies)
        more = folded(printable(f"{number}. {text}"), width, "   ")
        rest = len(findings) - number
        if len(lines) + len(more) > room - bool(rest):
            return [*lines, *left_out(rest + 1, "finding", TEXT_ALL)], number - 1
        lines += more
    return lines, len(findings)


def _negligible(found: Why, width: int) -> list[str]:
    """The findings below the floor, under a heading of their own."""
    some = negligible(found)
    lines = ["", NEGLIGIBLE_HEADING] if some else []
    for number, one in enumerate(some, len(considerable(found)) + 1):
        lines += folded(printable(f"{number}. {_claim(found, one)}"), width, "   ")
    return lines


def _with_left_out(found: Why, lines: list[str], room: int) -> list[str]:
    """With how many negligible findings are not shown, if there is room for one more
    line."""
    some = negligible(found)
    if not some or len(lines) >= room:
        return lines
    return [*lines, f"({plural(len(some), 'negligible finding')} left out; {TEXT_ALL})"]


def _claim(found: Why, one: Finding, tried: bool = True) -> str:
    """With its worth, and what to try."""
    parts = (
        one.text,
        worth_text(found, one),
        f"Try: {one.try_}" if tried and one.try_ else "",
    )
    return " ".join(filter(None, parts))


def gaps_text(found: Why, most: int | None, width: int) -> str:
    """The first `most` gaps (None: all that are listed), and how many more there
    are."""
    if not found.gaps:
        return "No GPU was idle." if found.devices else "no GPU events in this trace"
    shown = found.gaps[:most]
    text, rest = gaps_table(shown, width), found.gaps_count - len(shown)
    if not rest:
        return text
    idle = sum(one.idle_ns for one in found.devices)
    share = percent(sum(gap.dur_ns for gap in shown), idle)
    return f"{text}\n... and {plural(rest, 'more gap')}; these are {share} (--all shows all)"


def gaps_table(gaps: Sequence[Gap], width: int) -> str:
    """A table without the column of the GPU if there is only one."""
    is_one = len({printable(str(gap.device)) for gap in gaps}) == 1
    columns = [column for column in GAP_COLUMNS if column.title != "GPU" or not is_one]
    return table_of(columns, gaps, width)


def why_markdown(found: Why, everything: bool = False) -> str:
    """The answer, the account, the ceiling, the findings and the longest gaps; with
    `everything` also the negligible findings."""
    lines = [f"**{markdown(found.file)}**: {markdown(answer(found))}", ""]
    lines += [*_account(found), ""]
    of = "CPU time" if found.cpu_work else "GPU time"
    for what, parts, whole in (
        breakdown_parts(found) if found.cpu_work or is_limit(found) else ()
    ):
        rows = [
            [markdown(name), *figures]
            for *figures, name in _shares(parts[:SHARES], whole)
        ]
        lines += [*markdown_table([what, of, "share", "count"], rows, [0]), ""]
    for text in filter(
        None, (ceiling_text(found), replayed_text(found), doubt_text(found))
    ):
        lines += [markdown(text), ""]
    findings = considerable(found)
    lines += [
        f"{n}. {markdown(_claim(found, one))}" for n, one in enumerate(findings, 1)
    ]
    lines += [""] if findings else []
    if everything and (some := negligible(found)):
        lines += [f"{NEGLIGIBLE_HEADING.capitalize()}:", ""]
        numbered = enumerate(some, len(findings) + 1)
        lines += [f"{n}. {markdown(_claim(found, one))}" for n, one in numbered]
        lines += [""]
    if gaps := listed(found)[:MOST_GAPS]:
        columns = [GAP_COLUMNS[n] for n in (0, 1, 3, 6)]
        rows = [[markdown(column.cell(gap)) for column in columns] for gap in gaps]
        lines += [
            *markdown_table([column.title for column in columns], rows, [2, 3]),
            "",
        ]
    return "\n".join([*lines, markdown(not_recorded(found))]).rstrip() + "\n"


def _account(found: Why) -> list[str]:
    """Of the devices, or of the threads where there are none."""
    if not found.devices:
        figures = (
            (t.label, t.op_ns, t.python_ns, t.wait_ns, t.nothing_ns) for t in found.cpu
        )
        rows = [[markdown(label), *map(duration, times)] for label, *times in figures]
        return markdown_table(
            ["thread", "ops", "Python", "waiting", "nothing"], rows, [0]
        )
    rows, titles = [], [markdown(device_text(found))]
    for title, _ in account_columns(found):
        titles += [title, "share"]
    for text, both in account_rows(found):
        shares = (
            (duration(ns), percent(ns, span)) if ns else ("", "") for ns, span in both
        )
        rows.append([markdown(text), *chain.from_iterable(shares)])
    return markdown_table(titles, rows, [0])


def why_document(found: Why, trace: Trace) -> WhyDocument:
    """Evidence is given as indices in traceEvents."""
    findings = tuple(
        replace(one, evidence=tuple(trace.order[list(one.evidence)].tolist()))
        for one in found.findings
    )
    return printed(replace(found, findings=findings), WhyDocument)
