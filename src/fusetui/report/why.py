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
    list_considerable,
    list_negligible,
)
from fusetui.report import printed
from fusetui.report.why_answer import (
    NEGLIGIBLE_HEADING,
    account_lines,
    answer,
    breakdown_text,
    describe_ceiling,
    describe_cover,
    describe_not_recorded,
    divide_accelerator_time,
    divide_time,
    find_main_reason,
    format_threads,
    is_gpu_limit,
    listed,
    make_account_columns,
    make_account_rows,
    name_devices,
)
from fusetui.report.worth import (
    describe_all_doubts,
    describe_joint_gain,
    describe_worth,
)
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


def format_why(why: Why, width: int, below: int = 0, everything: bool = False) -> str:
    """Return the answer of `why` in at most MAX_LINES lines, with `below` lines kept
    free for notes.

    With `everything` there is no limit: all findings have what to try, and kernels and
    modules have tables. Gaps are listed if there is room for MIN_GAPS.
    """
    most = UNBOUNDED if everything else MAX_LINES - below
    paragraphs = _make_paragraphs(why, most, width, everything)
    max_gaps = MAX_GAPS_OF_EVERYTHING if everything else MAX_GAPS
    lines_left = _count_lines_left(paragraphs, most) - 1 - LINES_AROUND_GAPS
    gaps = listed(why)[: min(lines_left, max_gaps)] if lines_left >= MIN_GAPS else ()
    if gaps:
        of_gaps = ["longest gaps", *format_gap_table(gaps, width).split("\n")]
        *others, unknown = paragraphs
        paragraphs = [*others, of_gaps, unknown]
    paragraph_texts = ["\n".join(paragraph) for paragraph in paragraphs if paragraph]
    lines = "\n\n".join(paragraph_texts).split("\n")
    return "\n".join(cut_line(line, width) for line in lines[:most])


def _make_paragraphs(
    why: Why, most: int, width: int, everything: bool
) -> list[Sequence[str]]:
    """Return the paragraphs of the answer as lines: the answer, the account of time,
    the breakdown, the findings, what was not recorded.

    If they do not fit in `most` lines, the breakdown is dropped for the first finding,
    and then reasons of idle time.
    """

    def findings_beside(*paragraphs: Sequence[str]) -> list[str]:
        return _format_findings(
            why, _count_lines_left(paragraphs, most), width, everything
        )

    head = [printable(why.file), *wrapped_lines(printable(answer(why)), width)]
    account = _format_account(why, width)
    breakdown = _breakdown(why, width, everything)
    unknown = wrapped_lines(printable(describe_not_recorded(why)), width)[
        :MAX_LINES_OF_UNKNOWN
    ]
    findings = findings_beside(head, account, unknown, breakdown)
    if not _lacks_first_finding(why, findings):
        return [head, account, breakdown, findings, unknown]
    findings = findings_beside(head, account, unknown)
    if _lacks_first_finding(why, findings) and describe_all_doubts(why):
        shorter_account = account_lines(why, width, FEW_REASONS)
        more_findings = findings_beside(head, shorter_account, unknown)
        if not _lacks_first_finding(why, more_findings):
            return [head, shorter_account, [], more_findings, unknown]
    return [head, account, [], findings, unknown]


def _format_account(why: Why, width: int) -> list[str]:
    """Return lines about where the time of the devices went, or of the busiest threads
    if there is no device."""
    if why.devices:
        return account_lines(why, width)
    lines_of_accelerator = 2 if divide_accelerator_time(why) else 0
    return format_threads(why, width, MAX_THREADS - lines_of_accelerator, JSON_ALL)


def _lacks_first_finding(why: Why, lines: Sequence[str]) -> bool:
    """Return whether the first finding is missing from these lines. False if there is
    no considerable finding."""
    if not list_considerable(why):
        return False
    return not any(line.startswith("1. ") for line in lines)


def _count_lines_left(paragraphs: Sequence[Sequence[str]], most: int) -> int:
    """Return how many of `most` lines are left for one more paragraph. Each paragraph
    takes an empty line too."""
    return most - sum(len(paragraph) + 1 for paragraph in paragraphs if paragraph)


def _format_main_share(gap: Gap) -> str:
    return percent(gap.idle.get(find_main_reason(gap), 0), gap.dur_ns)


IDLE_FOR = Column("idle for", cell=lambda gap: duration(gap.dur_ns))
FROM = Column("from", spare=2, cell=lambda gap: duration(gap.start_ns))
GPU = Column("GPU", spare=3, cell=lambda gap: printable(str(gap.device)))
MOSTLY = Column("mostly", left=True, cell=lambda gap: IDLE[find_main_reason(gap)].short)
OF_IT = Column("of it", spare=4, cell=_format_main_share)
DRAINED_BY = Column(
    "drained by", left=True, spare=1, cell=lambda gap: printable(gap.drained_by or "")
)
WHILE = Column("while", left=True, cell=lambda gap: printable(describe_cover(gap)))

GAP_COLUMNS = (IDLE_FOR, FROM, GPU, MOSTLY, OF_IT, DRAINED_BY, WHILE)
GAP_COLUMNS_IN_MARKDOWN = (IDLE_FOR, FROM, MOSTLY, WHILE)


def _breakdown(why: Why, width: int, everything: bool) -> list[str]:
    """Return lines about what takes the time of the GPU: a sentence, or tables with
    `everything`."""
    if not everything or not (why._breakdown or why.cpu_work):
        return wrapped_lines(printable(breakdown_text(why, width)), width)
    lines: list[str] = []
    for part in divide_time(why):
        if lines:
            lines.append("")
        columns = [
            Column(part.time),
            Column("share"),
            Column("count"),
            Column(part.by, left=True),
        ]
        rows = [
            (*_format_share(share, part.whole_ns), share.name) for share in part.shares
        ]
        lines += table(columns, rows, width).split("\n")
    return lines


def _format_share(share: Share, whole_ns: int) -> tuple[str, str, str]:
    """Return the cells of a share: its time, its part of the whole, and how many events
    it is."""
    return duration(share.ns), percent(share.ns, whole_ns), count(share.count)


class _FittingFindings(NamedTuple):
    """Lines, and how many findings are in them."""

    lines: list[str]
    shown: int


def _format_findings(why: Why, room: int, width: int, everything: bool) -> list[str]:
    """Return lines with as many findings as fit in `room` lines, the first one with
    what to try. With `everything` all have it.

    If the first finding does not fit, its remedy is dropped, and then the sentence
    about the ceiling. Doubts about the gains are never dropped alone.
    """
    summaries = (describe_ceiling(why), describe_joint_gain(why))
    doubts = wrapped_lines(describe_all_doubts(why), width)
    above = [*wrapped_lines(" ".join(filter(None, summaries)), width), *doubts]
    if everything:
        fitting = _fit_findings(why, above, len(why.findings), room, width)
        return [*fitting.lines, *_format_negligible(why, width)]
    for lines_above in (above, doubts):
        for remedies in (1, 0):
            fitting = _fit_findings(why, lines_above, remedies, room, width)
            if fitting.shown or not list_considerable(why):
                return _append_left_out(why, fitting.lines, room)
    # No worth is told without the doubt about it.
    return _fit_findings(why, [], 0, 1 if doubts else room, width).lines


def _fit_findings(
    why: Why, above: Sequence[str], remedies: int, room: int, width: int
) -> _FittingFindings:
    """Return the lines `above` with the findings that fit below them. The first
    `remedies` findings have what to try."""
    lines = [*above]
    findings = list_considerable(why)
    for number, finding in enumerate(findings, 1):
        text = _format_claim(why, finding, with_remedy=number <= remedies)
        claim = wrapped_lines(printable(f"{number}. {text}"), width, "   ")
        findings_left = len(findings) - number
        lines_of_left = 1 if findings_left else 0
        if len(lines) + len(claim) + lines_of_left > room:
            lines += omitted_line(findings_left + 1, "finding", TEXT_ALL)
            return _FittingFindings(lines=lines, shown=number - 1)
        lines += claim
    return _FittingFindings(lines=lines, shown=len(findings))


def _format_negligible(why: Why, width: int) -> list[str]:
    """Return lines with the findings that are too small to matter, under a heading of
    their own. Empty if there are none."""
    findings = list_negligible(why)
    if not findings:
        return []
    lines = ["", NEGLIGIBLE_HEADING]
    for number, finding in enumerate(findings, len(list_considerable(why)) + 1):
        text = f"{number}. {_format_claim(why, finding)}"
        lines += wrapped_lines(printable(text), width, "   ")
    return lines


def _append_left_out(why: Why, lines: list[str], room: int) -> list[str]:
    """Return the lines with how many negligible findings are not shown, if there is
    room for one more line."""
    findings = list_negligible(why)
    if not findings or len(lines) >= room:
        return lines
    number = plural(len(findings), "negligible finding")
    return [*lines, f"({number} omitted; {TEXT_ALL})"]


def _format_claim(why: Why, finding: Finding, with_remedy: bool = True) -> str:
    """Return a finding in sentences, with its gain and, if wanted, what to try."""
    sentences = [finding.text, describe_worth(why, finding)]
    if with_remedy and finding.try_:
        sentences.append(f"Try: {finding.try_}")
    return " ".join(filter(None, sentences))


def format_gaps(why: Why, most: int | None, width: int) -> str:
    """Return a table of the first `most` gaps, the idle times of a GPU, and how many
    more there are. None means all that are listed."""
    if not why.gaps:
        return "No GPU was idle." if why.devices else "no GPU events in this trace"
    shown = why.gaps[:most]
    text = format_gap_table(shown, width)
    unlisted_count = why.gaps_count - len(shown)
    if not unlisted_count:
        return text
    shown_ns = sum(gap.dur_ns for gap in shown)
    idle_ns = sum(device.idle_ns for device in why.devices)
    return (
        f"{text}\n... and {plural(unlisted_count, 'more gap')}; those shown are "
        f"{percent(shown_ns, idle_ns)} of idle time (--all shows all)"
    )


def format_gap_table(gaps: Sequence[Gap], width: int) -> str:
    """Return a table of gaps. The column of the GPU is dropped if there is only one."""
    devices = {printable(str(gap.device)) for gap in gaps}
    columns = [
        column for column in GAP_COLUMNS if column is not GPU or len(devices) != 1
    ]
    return record_table(columns, gaps, width)


def why_markdown(why: Why, everything: bool = False) -> str:
    """Return the answer of `why` as Markdown: where the time went, findings and the
    longest gaps. With `everything`, negligible findings are listed too."""
    lines = [f"**{markdown(why.file)}**: {markdown(answer(why))}", ""]
    lines += [*_format_account_table(why), ""]
    if why.cpu_work or is_gpu_limit(why):
        lines += _format_breakdown_tables(why)
    for sentence in (
        describe_ceiling(why),
        describe_joint_gain(why),
        describe_all_doubts(why),
    ):
        if sentence:
            lines += [markdown(sentence), ""]
    findings = list_considerable(why)
    if findings:
        lines += [*_number_findings(why, findings, 1), ""]
    negligible_findings = list_negligible(why)
    if everything and negligible_findings:
        lines += [f"{NEGLIGIBLE_HEADING.capitalize()}:", ""]
        first_number = len(findings) + 1
        lines += _number_findings(why, negligible_findings, first_number)
        lines.append("")
    gaps = listed(why)[:MAX_GAPS_IN_MARKDOWN]
    if gaps:
        lines += [*_format_gap_rows(gaps), ""]
    lines.append(markdown(describe_not_recorded(why)))
    return "\n".join(lines).rstrip() + "\n"


def _number_findings(
    why: Why, findings: Sequence[Finding], first_number: int
) -> Iterator[str]:
    for number, finding in enumerate(findings, first_number):
        yield f"{number}. {markdown(_format_claim(why, finding))}"


def _format_breakdown_tables(why: Why) -> Iterator[str]:
    """Yield Markdown lines of tables of what takes the time, each with an empty line
    below."""
    for part in divide_time(why):
        titles = [part.by, part.time, "share", "count"]
        rows = [
            [markdown(share.name), *_format_share(share, part.whole_ns)]
            for share in part.shares[:MAX_SHARES_IN_MARKDOWN]
        ]
        yield from markdown_table(titles, rows, [0])
        yield ""


def _format_gap_rows(gaps: Sequence[Gap]) -> list[str]:
    titles = [column.title for column in GAP_COLUMNS_IN_MARKDOWN]
    rows = [
        [markdown(column.cell(gap)) for column in GAP_COLUMNS_IN_MARKDOWN]
        for gap in gaps
    ]
    return markdown_table(titles, rows, [2, 3])


def _format_account_table(why: Why) -> list[str]:
    """Return Markdown lines of a table of where the time of the devices went, or of the
    threads if there is no device."""
    if not why.devices:
        return _format_thread_table(why.cpu)
    titles = [markdown(name_devices(why))]
    for column in make_account_columns(why):
        titles += [column.title, "share"]
    rows = []
    for row in make_account_rows(why):
        cells = [markdown(row.text)]
        for part in row.shares:
            if part.ns:
                cells += [duration(part.ns), percent(part.ns, part.whole_ns)]
            else:
                cells += ["", ""]
        rows.append(cells)
    return markdown_table(titles, rows, [0])


def _format_thread_table(threads: Sequence[ThreadAccount]) -> list[str]:
    """Return Markdown lines of a table of where the time of CPU threads went."""
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


def make_why_document(why: Why, trace: Trace) -> WhyDocument:
    """Return the answer of `why` for --json. The evidence of findings is given as
    indices into traceEvents of the file."""
    findings = []
    for finding in why.findings:
        evidence = trace.order[list(finding.evidence)].tolist()
        findings.append(replace(finding, evidence=tuple(evidence)))
    return printed(replace(why, findings=tuple(findings)), WhyDocument)
