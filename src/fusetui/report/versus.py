"""The output of `why A B`: the change in each class of time, as text, Markdown and
JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import NamedTuple

import msgspec

from fusetui.analysis.why.model import IDLE, WhyDocument
from fusetui.analysis.why.versus import (
    MIN_STEPS_TO_COMPARE,
    Change,
    Compared,
    Moved,
    Versus,
)
from fusetui.report import printed
from fusetui.report.why import make_why_document
from fusetui.report.why_answer import NOTHING, find_missing_work, named, phrase_option
from fusetui.text.figures import change as changed
from fusetui.text.figures import duration, signed_duration
from fusetui.text.printable import markdown, markdown_table, printable
from fusetui.text.tables import MAX_SENTENCE_CELLS, Column, UncutWidth, cut_line, table
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.grouping import by_key

MAX_MOVED = 3
"""Modules, and libraries of kernels, in a line of text."""

MAX_MOVED_IN_MARKDOWN = 5
MAX_NAME_CELLS = 48
PATH_PARTS = 2
"""The innermost modules of a path, which are named."""

DOUBT = f"Run-to-run variation is unknown: neither trace has at least {MIN_STEPS_TO_COMPARE} steps."
UNKNOWN_NAMES = "unknown names"


class VersusDocument(msgspec.Struct, frozen=True):
    """`why` of two traces."""

    a: WhyDocument
    b: WhyDocument
    change_of: str
    change: tuple[Change, ...]
    modules: tuple[Moved, ...]
    families: tuple[Moved, ...]
    findings: tuple[Compared, ...]


def format_versus(answer: Versus, width: int) -> str:
    """Return what changed from trace A to B in each class of time, as lines of at most
    `width` cells."""
    lines = [f"A  {printable(answer.a.file)}", f"B  {printable(answer.b.file)}", ""]
    if answer.change:
        lines += _format_changes(answer, width)
    else:
        lines.append(NOTHING)
    return "\n".join(cut_line(line, width) for line in lines)


def _format_changes(answer: Versus, width: int) -> Iterator[str]:
    """Yield the lines below the names of the files: the verdict, what changed most, a
    table of classes, and a table of findings."""
    yield verdict(answer)
    for remark in _describe_missing_work(answer):
        yield from _wrap_words(remark, width)
    yield from _wrap_words(
        _describe_largest_moves("module", answer.modules, width), width
    )
    yield from _wrap_words(
        _describe_largest_moves("library", answer.families, width), width
    )
    figures = [Column("A"), Column("B"), Column("change")]
    classes = []
    for change in answer.change:
        indent = "  " if change.name in IDLE else ""
        classes.append((f"{indent}{named(change.name)}", *_format_times(change)))
    yield ""
    yield from _format_table(
        [Column(answer.change_of, left=True), *figures], classes, width
    )
    findings = make_finding_rows(answer.findings)
    if findings:
        columns = [Column("finding", left=True), Column("", left=True), *figures]
        yield ""
        yield from _format_table(columns, findings, width)
    for remark in describe_doubts(answer.findings, answer.is_sure):
        yield from _wrap_words(printable(remark), width)


def _describe_missing_work(answer: Versus) -> list[str]:
    """Return remarks about work that is missing in a trace, each with its side, A or B."""
    remarks = [f"A: {remark}" for remark in find_missing_work(answer.a)]
    remarks += [f"B: {remark}" for remark in find_missing_work(answer.b)]
    return remarks


def _format_table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int
) -> list[str]:
    return table(columns, rows, width).split("\n")


def _wrap_words(text: str, width: int) -> list[str]:
    return wrap(
        text,
        min(width, MAX_SENTENCE_CELLS),
        subsequent_indent="  ",
        break_on_hyphens=False,
    )


def _describe_largest_moves(title: str, moved: Sequence[Moved], width: int) -> str:
    """Return a sentence about the modules or libraries whose time changed most, or ""
    if none did.

        By module: Block_* > MLP_* 12 ms -> 9 ms, ...
    """
    if not moved:
        return ""
    name_cells = width if isinstance(width, UncutWidth) else MAX_NAME_CELLS
    changes = []
    for part in moved[:MAX_MOVED]:
        path = (part.name or UNKNOWN_NAMES).split(" > ")
        name = cut_line(printable(" > ".join(path[-PATH_PARTS:])), name_cells)
        changes.append(f"{name} {duration(part.a_ns)} -> {duration(part.b_ns)}")
    return f"By {title}: {', '.join(changes)}."


def _format_times(change: Change | Moved) -> tuple[str, str, str]:
    """Return the cells of a row of the table: the time in A, the time in B, and their
    difference."""
    difference_ns = change.b_ns - change.a_ns
    return (
        duration(change.a_ns),
        duration(change.b_ns),
        signed_duration(difference_ns),
    )


def make_versus_document(answer: Versus, traces: tuple[Trace, Trace]) -> VersusDocument:
    """Return the answer about two traces for --json: the document of each, and what
    changed."""
    trace_a, trace_b = traces
    return printed(
        answer,
        VersusDocument,
        a=make_why_document(answer.a, trace_a),
        b=make_why_document(answer.b, trace_b),
    )


LENGTHS = {"as much": "as long as A's", "more": "longer", "less": "shorter"}
"""What `change` says of an amount, and what is said of a length instead."""


def verdict(answer: Versus) -> str:
    """Return a sentence about how the time of B compares, and the largest change of any
    class. There must be a change of `span`."""
    changes = {change.name: change for change in answer.change}
    span = changes.pop("span")
    changes.pop("idle", None)  # its reasons are in its place
    longer = changed(span.a_ns, span.b_ns)
    for of_amount, of_length in LENGTHS.items():
        longer = longer.replace(of_amount, of_length)
    text = f"B's {answer.change_of} is {longer}"
    largest = max(
        changes.values(),
        key=lambda change: abs(change.b_ns - change.a_ns),
        default=None,
    )
    if largest is None or largest.a_ns == largest.b_ns:
        return f"{text}, and so is every class of time."
    difference = duration(abs(largest.b_ns - largest.a_ns))
    direction = "more" if largest.b_ns > largest.a_ns else "less"
    return (
        f"{text}. Largest change: {difference} {direction} in '{named(largest.name)}'."
    )


def format_markdown(answer: Versus) -> str:
    """Return what changed most as Markdown, with tables of the classes of time and of
    the findings."""
    head = f"**{markdown(answer.a.file)} -> {markdown(answer.b.file)}**"
    if not answer.change:
        return f"{head}: {markdown(NOTHING)}\n"
    lines = [f"{head}: {markdown(verdict(answer))}", ""]
    for remark in _describe_missing_work(answer):
        lines += [markdown(remark), ""]
    classes = [
        (markdown(named(change.name)), *_format_times(change))
        for change in answer.change
    ]
    lines += markdown_table([answer.change_of, "A", "B", "change"], classes, [0])
    lines += _format_moves("module", answer.modules)
    lines += _format_moves("library", answer.families)
    findings = make_finding_rows(answer.findings)
    if findings:
        titles = ["finding", "", "A", "B", "change"]
        lines += ["", *markdown_table(titles, findings, [0, 1])]
    for remark in describe_doubts(answer.findings, answer.is_sure):
        lines += ["", markdown(remark)]
    return "\n".join(lines) + "\n"


def _format_moves(title: str, moved: Sequence[Moved]) -> list[str]:
    """Return Markdown lines with an empty line and a table of what changed most. Empty
    if nothing changed."""
    if not moved:
        return []
    rows = [
        (markdown(part.name or UNKNOWN_NAMES), *_format_times(part))
        for part in moved[:MAX_MOVED_IN_MARKDOWN]
    ]
    return ["", *markdown_table([title, "A", "B", "change"], rows, [0])]


class FindingRow(NamedTuple):
    """The cells of a finding that differs."""

    rule: str
    status: str  # gone, new, less or more
    a: str
    b: str
    change: str


def make_finding_rows(findings: Sequence[Compared]) -> list[FindingRow]:
    """Return the rows of the findings that differ and have times on both sides. A
    finding that is not per step is marked where others are."""
    some_per_step = any(finding.per_step for finding in findings)
    rows = []
    for finding in findings:
        a_ns = finding.a_ns
        b_ns = finding.b_ns
        if not finding.differs or a_ns is None or b_ns is None:
            continue
        rule = finding.rule
        if some_per_step and not finding.per_step:
            rule += ", in all"
        status: str = finding.status
        if status == "stays":
            status = "less" if b_ns < a_ns else "more"
        rows.append(
            FindingRow(
                rule=rule,
                status=status,
                a=duration(a_ns),
                b=duration(b_ns),
                change=signed_duration(b_ns - a_ns),
            )
        )
    return rows


def describe_doubts(findings: Sequence[Compared], is_sure: bool) -> list[str]:
    """Return the remarks below the table of findings: how sure the rows are, and which
    findings are inconclusive on a side, with the reason.

        B lacks launch calls (add ProfilerActivity.CUDA), so these rules are inconclusive: ...
    """
    sentences = []
    if not is_sure and any(finding.differs for finding in findings):
        sentences.append(DOUBT)
    unknown = [finding for finding in findings if finding.missing]
    for lack, of_lack in by_key(unknown, key=_describe_lack).items():
        rules = ", ".join(finding.rule for finding in of_lack)
        are = "this rule is" if len(of_lack) == 1 else "these rules are"
        sentences.append(f"{lack}, so {are} inconclusive: {rules}.")
    return sentences


def _describe_lack(finding: Compared) -> str:
    """Return what a side lacks to tell a finding, such as `B lacks launch
    calls (add ProfilerActivity.CUDA)`."""
    side = "A" if finding.a_ns is None else "B"
    option = f" ({phrase_option(finding.record_with)})" if finding.record_with else ""
    return f"{side} lacks {finding.missing}{option}"
