"""The text and the document of `why A B`: what changed in each class of time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from fusetui.analysis.why.compared import below_rows, finding_rows
from fusetui.analysis.why.telling import NOTHING, named, qualified
from fusetui.analysis.why.versus import Moved, Versus
from fusetui.analysis.why.versus_text import verdict
from fusetui.analysis.why.words import REASONS
from fusetui.report.why_json import Document, why_document
from fusetui.text.figures import duration, signed_duration
from fusetui.text.printable import printable
from fusetui.text.tables import Column, Unseen, cut, table
from fusetui.trace.model.columns import Trace

MOST = 3  # modules, and families
LONGEST = 48
WIDEST = 96


def versus_text(found: Versus, width: int) -> str:
    """What changed from A to B in each class."""
    lines = [f"A  {printable(found.a.file)}", f"B  {printable(found.b.file)}", ""]
    if not found.change:
        return "\n".join(cut(line, width) for line in [*lines, NOTHING])
    lines += [verdict(found)]
    for side, why in (("A", found.a), ("B", found.b)):
        lines += [line for text in qualified(why) for line in _told(f"{side}: {text}", width)]
    for title, moved in (("module", found.modules), ("kernel family", found.families)):
        lines += _told(_moved(title, moved, width), width)
    columns = [Column(found.of, left=True), Column("A"), Column("B"), Column("change")]
    rows = list(_change_rows(found))
    lines += ["", *table(columns, rows, width).split("\n")]
    if rows := finding_rows(found.findings):
        columns = [Column(name, left=True) for name in ("finding", "")] + columns[1:]
        lines += ["", *table(columns, rows, width).split("\n")]
    for text in below_rows(found.findings, found.is_sure):
        lines += _told(printable(text), width)
    return "\n".join(cut(line, width) for line in lines)


def _told(text: str, width: int) -> list[str]:
    return wrap(text, min(width, WIDEST), subsequent_indent="  ", break_on_hyphens=False)


def _moved(title: str, moved: Sequence[Moved], width: int) -> str:
    """What changed most: `By module: Block_* > MLP_* 12 ms -> 9 ms, ...`; "" where nothing did."""
    told = (
        f"{_short(one.name, width)} {duration(one.a_ns)} -> {duration(one.b_ns)}"
        for one in moved[:MOST]
    )
    return f"By {title}: {', '.join(told)}." if moved else ""


def _short(name: str, width: int) -> str:
    """The innermost two levels of a path."""
    inner = " > ".join((name or "unknown names").split(" > ")[-2:])
    return cut(printable(inner), width if isinstance(width, Unseen) else LONGEST)


def _change_rows(found: Versus) -> Iterator[tuple[str, ...]]:
    for one in found.change:
        indent = "  " if one.name in REASONS else ""
        yield (
            f"{indent}{named(one.name)}",
            duration(one.a_ns),
            duration(one.b_ns),
            signed_duration(one.b_ns - one.a_ns),
        )


def versus_document(found: Versus, traces: tuple[Trace, Trace]) -> Document:
    """The documents of two traces, and what changed."""
    return {
        "a": why_document(found.a, traces[0]),
        "b": why_document(found.b, traces[1]),
        "change_of": found.of,
        "change": found.change,
        "modules": found.modules,
        "families": found.families,
        "findings": found.findings,
    }
