"""The output of `why` and `gaps` for one trace: text, Markdown and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from fusetui.analysis.why.model import (
    IDLE,
    Finding,
    Gap,
    Share,
    ThreadAccount,
    Why,
    WhyDocument,
    considerable,
    negligible,
)
from fusetui.report import printed
from fusetui.report.why_answer import (
    NEGLIGIBLE_HEADING,
    accelerator_parts,
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
    thread_lines,
)
from fusetui.report.worth import doubt_text, replayed_text, worth_text
from fusetui.text.figures import count, duration, percent, plural
from fusetui.text.printable import markdown, markdown_table, printable
from fusetui.text.tables import (
    JSON_ALL,
    Column,
    cut_line,
    omitted_line,
    record_table,
    table,
    wrapped_lines,
)
from fusetui.trace.model.columns import Trace

MAX_LINES = 25
MAX_LINES_OF_UNKNOWN = 3
MAX_THREADS = 10
MAX_GAPS = 4
MIN_GAPS = 2
"""Without room for so many, none are shown."""

MAX_GAPS_OF_EVERYTHING = 20
MAX_GAPS_IN_MARKDOWN = 5
LINES_AROUND_GAPS = 2
"""The heading of the gaps, and that of their table."""

FEW_REASONS = 2
"""Of idle time, where what is not understood has to be told too."""

MAX_SHARES_IN_MARKDOWN = 5
"""Kernels, and modules."""

UNBOUNDED = 1 << 30  # lines
TEXT_ALL = "--all prints all"


class GapsDocument(msgspec.Struct, frozen=True):
    """`gaps`."""

    base_ns: str
    gaps_count: int
    gaps: tuple[Gap, ...]


def why_text(why: Why, width: int, below: int = 0, everything: bool = False) -> str:
    """At most MAX_LINES lines of at most `width` columns, whatever the trace holds,
    with the lines that are printed `below`; or `everything`: all findings, each with
    what to try, and tables of kernels and modules."""
    most = UNBOUNDED if everything else MAX_LINES - below
    paragraphs = _paragraphs(why, most, width, everything)
    max_gaps = MAX_GAPS_OF_EVERYTHING if everything else MAX_GAPS
    room = _room(paragraphs, most) - 1 - LINES_AROUND_GAPS
    gaps = listed(why)[: min(room, max_gaps)] if room >= MIN_GAPS else ()
    if gaps:
        of_gaps = ["longest gaps", *gaps_table(gaps, width).split("\n")]
        *others, unknown = paragraphs
        paragraphs = [*others, of_gaps, unknown]
    texts = ["\n".join(paragraph) for paragraph in paragraphs if paragraph]
    lines = "\n\n".join(texts).split("\n")
    return "\n".join(cut_line(line, width) for line in lines[:most])


def _paragraphs(
    why: Why, most: int, width: int, everything: bool
) -> list[Sequence[str]]:
    """The answer, the account, the breakdown, the findings, and what was not recorded;
    each as lines. Where they are more than there is room for, first the breakdown makes
    room for the first finding, then reasons in the account."""

    def findings_beside(*paragraphs: Sequence[str]) -> list[str]:
        return _findings(why, _room(paragraphs, most), width, everything)

    head = [printable(why.file), *wrapped_lines(printable(answer(why)), width)]
    account = _account_lines(why, width)
    breakdown = _breakdown(why, width, everything)
    unknown = wrapped_lines(printable(not_recorded(why)), width)[:MAX_LINES_OF_UNKNOWN]
    findings = findings_beside(head, account, unknown, breakdown)
    if not _lacks_first(why, findings):
        return [head, account, breakdown, findings, unknown]
    findings = findings_beside(head, account, unknown)
    if _lacks_first(why, findings) and doubt_text(why):
        shorter_account = account_lines(why, width, FEW_REASONS)
        more_findings = findings_beside(head, shorter_account, unknown)
        if not _lacks_first(why, more_findings):
            return [head, shorter_account, [], more_findings, unknown]
    return [head, account, [], findings, unknown]


def _account_lines(why: Why, width: int) -> list[str]:
    """Of the devices, or of the busiest threads where there are none."""
    if why.devices:
        return account_lines(why, width)
    lines_of_accelerator = 2 if accelerator_parts(why) else 0
    return thread_lines(why, width, MAX_THREADS - lines_of_accelerator, JSON_ALL)


def _lacks_first(why: Why, lines: Sequence[str]) -> bool:
    """Whether the first finding is not among these lines."""
    if not considerable(why):
        return False
    return not any(line.startswith("1. ") for line in lines)


def _room(paragraphs: Sequence[Sequence[str]], most: int) -> int:
    """The number of lines left for one more paragraph."""
    return most - sum(len(paragraph) + 1 for paragraph in paragraphs if paragraph)


def _share_of_main_reason(gap: Gap) -> str:
    return percent(gap.idle.get(main_reason(gap), 0), gap.dur_ns)


IDLE_FOR = Column("idle for", cell=lambda gap: duration(gap.dur_ns))
FROM = Column("from", spare=2, cell=lambda gap: duration(gap.start_ns))
GPU = Column("GPU", spare=3, cell=lambda gap: printable(str(gap.device)))
MOSTLY = Column("mostly", left=True, cell=lambda gap: IDLE[main_reason(gap)].short)
OF_IT = Column("of it", spare=4, cell=_share_of_main_reason)
DRAINED_BY = Column(
    "drained by", left=True, spare=1, cell=lambda gap: printable(gap.drained_by or "")
)
WHILE = Column("while", left=True, cell=lambda gap: printable(covered_by(gap)))

GAP_COLUMNS = (IDLE_FOR, FROM, GPU, MOSTLY, OF_IT, DRAINED_BY, WHILE)
GAP_COLUMNS_IN_MARKDOWN = (IDLE_FOR, FROM, MOSTLY, WHILE)


def _breakdown(why: Why, width: int, everything: bool) -> list[str]:
    """What the GPU's time goes to: a sentence where the GPU is the limit, or tables."""
    if not everything or not (why._breakdown or why.cpu_work):
        return wrapped_lines(printable(breakdown_text(why, width)), width)
    lines: list[str] = []
    for part in breakdown_parts(why):
        if lines:
            lines.append("")
        columns = [
            Column(part.time),
            Column("share"),
            Column("count"),
            Column(part.by, left=True),
        ]
        rows = [
            (*_share_cells(share, part.whole_ns), share.name) for share in part.shares
        ]
        lines += table(columns, rows, width).split("\n")
    return lines


def _share_cells(share: Share, whole_ns: int) -> tuple[str, str, str]:
    """Its time, its part of the whole, and how many it is."""
    return duration(share.ns), percent(share.ns, whole_ns), count(share.count)


class _FittingFindings(NamedTuple):
    """Lines, and how many findings are in them."""

    lines: list[str]
    shown: int


def _findings(why: Why, room: int, width: int, everything: bool) -> list[str]:
    """As many as there is room for, the first one with what to try. Of this remedy and
    the ceiling, what leaves no room for the first finding is left out. With
    `everything` all of them, each with what to try."""
    summaries = (ceiling_text(why), replayed_text(why))
    doubts = wrapped_lines(doubt_text(why), width)
    above = [*wrapped_lines(" ".join(filter(None, summaries)), width), *doubts]
    if everything:
        fitting = _fitting(why, above, len(why.findings), room, width)
        return [*fitting.lines, *_negligible(why, width)]
    for lines_above in (above, doubts):
        for remedies in (1, 0):
            fitting = _fitting(why, lines_above, remedies, room, width)
            if fitting.shown or not considerable(why):
                return _with_left_out(why, fitting.lines, room)
    # No worth is told without the doubt about it.
    return _fitting(why, [], 0, 1 if doubts else room, width).lines


def _fitting(
    why: Why, above: Sequence[str], remedies: int, room: int, width: int
) -> _FittingFindings:
    """The findings that fit below these lines, the first `remedies` with what to
    try."""
    lines = [*above]
    findings = considerable(why)
    for number, finding in enumerate(findings, 1):
        text = _claim(why, finding, with_remedy=number <= remedies)
        claim = wrapped_lines(printable(f"{number}. {text}"), width, "   ")
        left = len(findings) - number
        lines_of_left = 1 if left else 0
        if len(lines) + len(claim) + lines_of_left > room:
            lines += omitted_line(left + 1, "finding", TEXT_ALL)
            return _FittingFindings(lines=lines, shown=number - 1)
        lines += claim
    return _FittingFindings(lines=lines, shown=len(findings))


def _negligible(why: Why, width: int) -> list[str]:
    """The findings below the floor, under a heading of their own."""
    findings = negligible(why)
    if not findings:
        return []
    lines = ["", NEGLIGIBLE_HEADING]
    for number, finding in enumerate(findings, len(considerable(why)) + 1):
        text = f"{number}. {_claim(why, finding)}"
        lines += wrapped_lines(printable(text), width, "   ")
    return lines


def _with_left_out(why: Why, lines: list[str], room: int) -> list[str]:
    """With how many negligible findings are not shown, if there is room for one more
    line."""
    findings = negligible(why)
    if not findings or len(lines) >= room:
        return lines
    number = plural(len(findings), "negligible finding")
    return [*lines, f"({number} omitted; {TEXT_ALL})"]


def _claim(why: Why, finding: Finding, with_remedy: bool = True) -> str:
    """With its worth, and what to try."""
    sentences = [finding.text, worth_text(why, finding)]
    if with_remedy and finding.try_:
        sentences.append(f"Try: {finding.try_}")
    return " ".join(filter(None, sentences))


def gaps_text(why: Why, most: int | None, width: int) -> str:
    """The first `most` gaps (None: all that are listed), and how many more there
    are."""
    if not why.gaps:
        return "No GPU was idle." if why.devices else "no GPU events in this trace"
    shown = why.gaps[:most]
    text = gaps_table(shown, width)
    left = why.gaps_count - len(shown)
    if not left:
        return text
    shown_ns = sum(gap.dur_ns for gap in shown)
    idle_ns = sum(device.idle_ns for device in why.devices)
    return (
        f"{text}\n... and {plural(left, 'more gap')}; those shown are "
        f"{percent(shown_ns, idle_ns)} of idle time (--all shows all)"
    )


def gaps_table(gaps: Sequence[Gap], width: int) -> str:
    """A table without the column of the GPU if there is only one."""
    devices = {printable(str(gap.device)) for gap in gaps}
    columns = [
        column for column in GAP_COLUMNS if column is not GPU or len(devices) != 1
    ]
    return record_table(columns, gaps, width)


def why_markdown(why: Why, everything: bool = False) -> str:
    """The answer, the account, the ceiling, the findings and the longest gaps; with
    `everything` also the negligible findings."""
    lines = [f"**{markdown(why.file)}**: {markdown(answer(why))}", ""]
    lines += [*_account_in_markdown(why), ""]
    if why.cpu_work or is_limit(why):
        lines += _breakdown_in_markdown(why)
    for sentence in (ceiling_text(why), replayed_text(why), doubt_text(why)):
        if sentence:
            lines += [markdown(sentence), ""]
    findings = considerable(why)
    if findings:
        lines += [*_numbered_in_markdown(why, findings, 1), ""]
    negligible_findings = negligible(why)
    if everything and negligible_findings:
        lines += [f"{NEGLIGIBLE_HEADING.capitalize()}:", ""]
        first_number = len(findings) + 1
        lines += _numbered_in_markdown(why, negligible_findings, first_number)
        lines.append("")
    gaps = listed(why)[:MAX_GAPS_IN_MARKDOWN]
    if gaps:
        lines += [*_gaps_in_markdown(gaps), ""]
    lines.append(markdown(not_recorded(why)))
    return "\n".join(lines).rstrip() + "\n"


def _numbered_in_markdown(
    why: Why, findings: Sequence[Finding], first_number: int
) -> Iterator[str]:
    for number, finding in enumerate(findings, first_number):
        yield f"{number}. {markdown(_claim(why, finding))}"


def _breakdown_in_markdown(why: Why) -> Iterator[str]:
    """The lines of its tables, each with an empty one."""
    for part in breakdown_parts(why):
        titles = [part.by, part.time, "share", "count"]
        rows = [
            [markdown(share.name), *_share_cells(share, part.whole_ns)]
            for share in part.shares[:MAX_SHARES_IN_MARKDOWN]
        ]
        yield from markdown_table(titles, rows, [0])
        yield ""


def _gaps_in_markdown(gaps: Sequence[Gap]) -> list[str]:
    titles = [column.title for column in GAP_COLUMNS_IN_MARKDOWN]
    rows = [
        [markdown(column.cell(gap)) for column in GAP_COLUMNS_IN_MARKDOWN]
        for gap in gaps
    ]
    return markdown_table(titles, rows, [2, 3])


def _account_in_markdown(why: Why) -> list[str]:
    """Of the devices, or of the threads where there are none."""
    if not why.devices:
        return _threads_in_markdown(why.cpu)
    titles = [markdown(device_text(why))]
    for column in account_columns(why):
        titles += [column.title, "share"]
    rows = []
    for row in account_rows(why):
        cells = [markdown(row.text)]
        for part in row.shares:
            if part.ns:
                cells += [duration(part.ns), percent(part.ns, part.whole_ns)]
            else:
                cells += ["", ""]
        rows.append(cells)
    return markdown_table(titles, rows, [0])


def _threads_in_markdown(threads: Sequence[ThreadAccount]) -> list[str]:
    titles = ["thread", "ops", "Python", "waiting", "nothing"]
    rows = []
    for thread in threads:
        times_ns = (
            thread.op_ns,
            thread.python_ns,
            thread.wait_ns,
            thread.nothing_ns,
        )
        rows.append([markdown(thread.label), *map(duration, times_ns)])
    return markdown_table(titles, rows, [0])


def why_document(why: Why, trace: Trace) -> WhyDocument:
    """Evidence is given as indices in traceEvents."""
    findings = []
    for finding in why.findings:
        evidence = trace.order[list(finding.evidence)].tolist()
        findings.append(replace(finding, evidence=tuple(evidence)))
    return printed(replace(why, findings=tuple(findings)), WhyDocument)
