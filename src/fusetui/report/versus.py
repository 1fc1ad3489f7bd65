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
from fusetui.report.why import why_document
from fusetui.report.why_answer import NOTHING, named, qualified
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

DOUBT = (
    f"Run-to-run variation is unknown: neither trace has {MIN_STEPS_TO_COMPARE} steps."
)
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


def versus_text(answer: Versus, width: int) -> str:
    """What changed from A to B in each class."""
    lines = [f"A  {printable(answer.a.file)}", f"B  {printable(answer.b.file)}", ""]
    if answer.change:
        lines += _changes(answer, width)
    else:
        lines.append(NOTHING)
    return "\n".join(cut_line(line, width) for line in lines)


def _changes(answer: Versus, width: int) -> Iterator[str]:
    """The lines below the names of the files."""
    yield verdict(answer)
    for remark in _qualified_sides(answer):
        yield from _wrapped(remark, width)
    yield from _wrapped(_moved_most("module", answer.modules, width), width)
    yield from _wrapped(_moved_most("library", answer.families, width), width)
    figures = [Column("A"), Column("B"), Column("change")]
    classes = []
    for change in answer.change:
        indent = "  " if change.name in IDLE else ""
        classes.append((f"{indent}{named(change.name)}", *_times(change)))
    yield ""
    yield from _table([Column(answer.change_of, left=True), *figures], classes, width)
    findings = finding_rows(answer.findings)
    if findings:
        columns = [Column("finding", left=True), Column("", left=True), *figures]
        yield ""
        yield from _table(columns, findings, width)
    for remark in below_rows(answer.findings, answer.is_sure):
        yield from _wrapped(printable(remark), width)


def _qualified_sides(answer: Versus) -> list[str]:
    """What is said of work that is not in a trace, with its side."""
    remarks = [f"A: {remark}" for remark in qualified(answer.a)]
    remarks += [f"B: {remark}" for remark in qualified(answer.b)]
    return remarks


def _table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int
) -> list[str]:
    return table(columns, rows, width).split("\n")


def _wrapped(text: str, width: int) -> list[str]:
    return wrap(
        text,
        min(width, MAX_SENTENCE_CELLS),
        subsequent_indent="  ",
        break_on_hyphens=False,
    )


def _moved_most(title: str, moved: Sequence[Moved], width: int) -> str:
    """What changed most: `By module: Block_* > MLP_* 12 ms -> 9 ms, ...`; "" where
    nothing did."""
    if not moved:
        return ""
    name_cells = width if isinstance(width, UncutWidth) else MAX_NAME_CELLS
    changes = []
    for part in moved[:MAX_MOVED]:
        path = (part.name or UNKNOWN_NAMES).split(" > ")
        name = cut_line(printable(" > ".join(path[-PATH_PARTS:])), name_cells)
        changes.append(f"{name} {duration(part.a_ns)} -> {duration(part.b_ns)}")
    return f"By {title}: {', '.join(changes)}."


def _times(change: Change | Moved) -> tuple[str, str, str]:
    """The cells of both times and of their difference."""
    difference_ns = change.b_ns - change.a_ns
    return (
        duration(change.a_ns),
        duration(change.b_ns),
        signed_duration(difference_ns),
    )


def versus_document(answer: Versus, traces: tuple[Trace, Trace]) -> VersusDocument:
    """The documents of two traces, and what changed."""
    trace_a, trace_b = traces
    return printed(
        answer,
        VersusDocument,
        a=why_document(answer.a, trace_a),
        b=why_document(answer.b, trace_b),
    )


def verdict(answer: Versus) -> str:
    """The largest change of any class or reason, of which there is at least one."""
    changes = {change.name: change for change in answer.change}
    span = changes.pop("span")
    changes.pop("idle", None)  # its reasons are in its place
    longer = changed(span.a_ns, span.b_ns).replace("as much", "as long as A's")
    text = f"B's {answer.change_of} takes {longer}"
    largest = max(
        changes.values(),
        key=lambda change: abs(change.b_ns - change.a_ns),
        default=None,
    )
    if largest is None or largest.a_ns == largest.b_ns:
        return f"{text}: every class takes as long as before."
    difference = duration(abs(largest.b_ns - largest.a_ns))
    direction = "more" if largest.b_ns > largest.a_ns else "less"
    return (
        f"{text}. Largest change: {difference} {direction} in '{named(largest.name)}'."
    )


def versus_markdown(answer: Versus) -> str:
    """What changed most, and a table of the classes of both sides."""
    head = f"**{markdown(answer.a.file)} -> {markdown(answer.b.file)}**"
    if not answer.change:
        return f"{head}: {markdown(NOTHING)}\n"
    lines = [f"{head}: {markdown(verdict(answer))}", ""]
    for remark in _qualified_sides(answer):
        lines += [markdown(remark), ""]
    classes = [
        (markdown(named(change.name)), *_times(change)) for change in answer.change
    ]
    lines += markdown_table([answer.change_of, "A", "B", "change"], classes, [0])
    lines += _moved_in_markdown("module", answer.modules)
    lines += _moved_in_markdown("library", answer.families)
    findings = finding_rows(answer.findings)
    if findings:
        titles = ["finding", "", "A", "B", "change"]
        lines += ["", *markdown_table(titles, findings, [0, 1])]
    for remark in below_rows(answer.findings, answer.is_sure):
        lines += ["", markdown(remark)]
    return "\n".join(lines) + "\n"


def _moved_in_markdown(title: str, moved: Sequence[Moved]) -> list[str]:
    """A table below an empty line; nothing where nothing changed."""
    if not moved:
        return []
    rows = [
        (markdown(part.name or UNKNOWN_NAMES), *_times(part))
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


def finding_rows(findings: Sequence[Compared]) -> list[FindingRow]:
    """Those that differ and have times on both sides."""
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


def below_rows(findings: Sequence[Compared], is_sure: bool) -> list[str]:
    """The remarks below these rows: what is inconclusive, `Inconclusive in B, which
    lacks launch calls (ProfilerActivity.CUDA): host-bound.`, and how sure the rows are
    (see Versus)."""
    sentences = []
    if not is_sure and any(finding.differs for finding in findings):
        sentences.append(DOUBT)
    unknown = [finding for finding in findings if finding.missing]
    for lack, of_lack in by_key(unknown, key=_lack).items():
        rules = ", ".join(finding.rule for finding in of_lack)
        sentences.append(f"Inconclusive {lack}: {rules}.")
    return sentences


def _lack(finding: Compared) -> str:
    """`in B, which lacks launch calls (ProfilerActivity.CUDA)`."""
    side = "A" if finding.a_ns is None else "B"
    option = f" ({finding.record_with})" if finding.record_with else ""
    return f"in {side}, which lacks {finding.missing}{option}"
