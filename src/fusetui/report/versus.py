"""What `why A B` prints: what changed in each class of time, as text, Markdown and
JSON."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

import msgspec

from fusetui.analysis.why.model import IDLE, WhyDocument
from fusetui.analysis.why.versus import FEWEST, Change, Compared, Moved, Versus
from fusetui.report import printed
from fusetui.report.why import why_document
from fusetui.report.why_answer import NOTHING, named, qualified
from fusetui.text.figures import change as changed
from fusetui.text.figures import duration, signed_duration
from fusetui.text.printable import markdown, markdown_table, printable
from fusetui.text.tables import READ, Column, Unseen, cut, table
from fusetui.trace.model.columns import Trace

MOST, MOST_IN_MARKDOWN = 3, 5  # modules, and families
LONGEST = 48
DOUBT = f"How much runs differ by themselves is not known: no side has {FEWEST} steps."


class VersusDocument(msgspec.Struct, frozen=True):
    """`why` of two traces."""

    a: WhyDocument
    b: WhyDocument
    change_of: str
    change: tuple[Change, ...]
    modules: tuple[Moved, ...]
    families: tuple[Moved, ...]
    findings: tuple[Compared, ...]


def versus_text(found: Versus, width: int) -> str:
    """What changed from A to B in each class."""
    lines = [f"A  {printable(found.a.file)}", f"B  {printable(found.b.file)}", ""]
    if not found.change:
        return "\n".join(cut(line, width) for line in [*lines, NOTHING])
    lines += [verdict(found)]
    for side, why in (("A", found.a), ("B", found.b)):
        lines += [
            line for text in qualified(why) for line in _lines(f"{side}: {text}", width)
        ]
    for title, moved in (("module", found.modules), ("kernel family", found.families)):
        lines += _lines(_moved(title, moved, width), width)
    figures = [Column("A"), Column("B"), Column("change")]
    rows: list[tuple[str, ...]] = [
        (f"{'  ' if one.name in IDLE else ''}{named(one.name)}", *_times(one))
        for one in found.change
    ]
    lines += [
        "",
        *table([Column(found.change_of, left=True), *figures], rows, width).split("\n"),
    ]
    if rows := finding_rows(found.findings):
        columns = [Column("finding", left=True), Column("", left=True), *figures]
        lines += ["", *table(columns, rows, width).split("\n")]
    for text in below_rows(found.findings, found.is_sure):
        lines += _lines(printable(text), width)
    return "\n".join(cut(line, width) for line in lines)


def _lines(text: str, width: int) -> list[str]:
    return wrap(text, min(width, READ), subsequent_indent="  ", break_on_hyphens=False)


def _moved(title: str, moved: Sequence[Moved], width: int) -> str:
    """What changed most: `By module: Block_* > MLP_* 12 ms -> 9 ms, ...`; "" where
    nothing did."""
    told = []
    for one in moved[:MOST]:
        inner = " > ".join((one.name or "unknown names").split(" > ")[-2:])
        name = cut(printable(inner), width if isinstance(width, Unseen) else LONGEST)
        told.append(f"{name} {duration(one.a_ns)} -> {duration(one.b_ns)}")
    return f"By {title}: {', '.join(told)}." if moved else ""


def _times(one: Change | Moved) -> tuple[str, str, str]:
    return duration(one.a_ns), duration(one.b_ns), signed_duration(one.b_ns - one.a_ns)


def versus_document(found: Versus, traces: tuple[Trace, Trace]) -> VersusDocument:
    """The documents of two traces, and what changed."""
    a, b = map(why_document, (found.a, found.b), traces)
    return printed(found, VersusDocument, a=a, b=b)


def verdict(found: Versus) -> str:
    """The largest change of any class or reason, of which there is at least one."""
    parts = [one for one in found.change if one.name not in ("span", "idle")]
    span = next(one for one in found.change if one.name == "span")
    longer = changed(span.a_ns, span.b_ns).replace("as much", "as long")
    text = f"B's {found.change_of} takes {longer}"
    largest = max(parts, key=lambda one: abs(one.b_ns - one.a_ns), default=None)
    if largest is None or largest.a_ns == largest.b_ns:
        return f"{text}: every class takes as long as before."
    more = duration(abs(largest.b_ns - largest.a_ns))
    way = "more" if largest.b_ns > largest.a_ns else "less"
    return f"{text}. The largest change: {more} {way}, {named(largest.name)}."


def versus_markdown(found: Versus) -> str:
    """What changed most, and a table of the classes of both sides."""
    head = f"**{markdown(found.a.file)} -> {markdown(found.b.file)}**"
    if not found.change:
        return f"{head}: {markdown(NOTHING)}\n"
    rows = [(markdown(named(one.name)), *_times(one)) for one in found.change]
    lines = [f"{head}: {markdown(verdict(found))}", ""]
    for side, why in (("A", found.a), ("B", found.b)):
        lines += [
            line
            for text in qualified(why)
            for line in (markdown(f"{side}: {text}"), "")
        ]
    lines += markdown_table([found.change_of, "A", "B", "change"], rows, [0])
    for title, moved in (("module", found.modules), ("kernel family", found.families)):
        most = moved[:MOST_IN_MARKDOWN]
        rows = [(markdown(one.name or "unknown names"), *_times(one)) for one in most]
        lines += (
            ["", *markdown_table([title, "A", "B", "change"], rows, [0])]
            if moved
            else []
        )
    if told := finding_rows(found.findings):
        lines += [
            "",
            *markdown_table(["finding", "", "A", "B", "change"], told, [0, 1]),
        ]
    for text in below_rows(found.findings, found.is_sure):
        lines += ["", markdown(text)]
    return "\n".join(lines) + "\n"


def finding_rows(found: Sequence[Compared]) -> list[tuple[str, ...]]:
    """What differs: the rule, `gone`, `new`, `less` or `more`, the times and their
    difference."""
    some = any(one.per_step for one in found)
    return [
        (
            one.rule if one.per_step or not some else f"{one.rule}, in all",
            one.status
            if one.status != "stays"
            else "less"
            if one.b_ns < one.a_ns
            else "more",
            duration(one.a_ns),
            duration(one.b_ns),
            signed_duration(one.b_ns - one.a_ns),
        )
        for one in found
        if one.differs and one.a_ns is not None and one.b_ns is not None
    ]


def below_rows(found: Sequence[Compared], is_sure: bool) -> list[str]:
    """What is said below these rows: what cannot be told, `Cannot tell in B, which
    lacks launch calls (ProfilerActivity.CUDA): host-bound.`, and how sure the rows are
    (see Versus)."""
    lacks: dict[str, list[str]] = {}
    for one in found:
        if one.missing:
            side = "A" if one.a_ns is None else "B"
            how = f" ({one.record_with})" if one.record_with else ""
            lacks.setdefault(f"in {side}, which lacks {one.missing}{how}", []).append(
                one.rule
            )
    doubts = [] if is_sure or not any(one.differs for one in found) else [DOUBT]
    return [
        *doubts,
        *(f"Cannot tell {lack}: {', '.join(rules)}." for lack, rules in lacks.items()),
    ]
