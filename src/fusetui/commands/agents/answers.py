"""What the tools answer with, as types, and the answers themselves without a limit of size.

Times are integers in ns, and rows of slices are those of the table `slices`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import asdict, fields, replace

from fusetui.analysis.diff.model import Accounting, Row, StepChange, Subtotal, Verdict
from fusetui.analysis.questions.summary import StepFigures, Summary
from fusetui.analysis.why.model import Ceiling, DeviceAccount, ThreadAccount, Unknown
from fusetui.analysis.why.selection import Selection
from fusetui.commands.agents.folders import Listed
from fusetui.commands.agents.opened import OpenTrace
from fusetui.commands.agents.pages import Parts
from fusetui.commands.errors import CommandError
from fusetui.commands.loading import secret_notices

Head = dict[str, object]
FEW = 5  # names and rows of slices of each side of a row of a diff
Cell = int | float | bool | str | None


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """What every answer ends with."""

    total: Annotated[int, Meta(description="how many items there are on all pages")]
    cursor: Annotated[str | None, Meta(description="for the next page; null on the last one")]
    tokens: Annotated[int, Meta(description="an estimate: characters of this JSON / 4")]


class TracesPage(Page, frozen=True, kw_only=True):
    """What can be opened."""

    notes: list[str]
    traces: list[Listed]


class TracePage(Page, frozen=True, kw_only=True):
    """An answer about one trace."""

    trace: str
    notes: Annotated[list[str], Meta(description="what users of the figures must know")]


LISTS = ("file", "skipped", "tracks", "steps")
Figures = msgspec.defstruct(
    "Figures", [(one.name, one.type) for one in fields(Summary) if one.name not in LISTS]
)


class OpenPage(TracePage, frozen=True, kw_only=True):
    """Key figures, and the steps."""

    figures: Figures  # type: ignore[valid-type]
    steps: list[StepFigures]


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A finding of `why`."""

    rule: str
    text: str
    at_stake_ns: Annotated[int | None, Meta(description="an upper bound; null for a note")]
    share: Annotated[float | None, Meta(description="of the span or the median step")]
    certainty: str
    why_likely: str | None
    remedy: Annotated[str | None, Meta(description="what to try")]
    part_of: Annotated[str | None, Meta(description="the finding whose time holds this one's")]
    evidence_rows: Annotated[tuple[int, ...], Meta(description="rows of the table slices")]


class WhyPage(TracePage, frozen=True, kw_only=True):
    """Where the time went; `threads` of a trace without GPU events."""

    answer: str
    about: Annotated[str | None, Meta(description="the part asked about; null for all of it")]
    devices: tuple[DeviceAccount, ...]
    threads: tuple[ThreadAccount, ...]
    ceiling: Ceiling | None
    cannot_tell: tuple[Unknown, ...]
    findings: list[Claim]


class DiffPage(Page, frozen=True, kw_only=True):
    """What B does differently; the largest change of time first."""

    a: str
    b: str
    answer: str
    verdict: Verdict
    step: StepChange
    story: str
    accounting: Accounting
    by_work: tuple[Subtotal, ...]
    notes: list[str]
    rows: list[Row]


class TablePage(TracePage, frozen=True, kw_only=True):
    """Rows of a table; each has a value for each column."""

    table: str
    columns: list[str]
    rows: list[list[Cell]]


class DecodePage(Page, frozen=True, kw_only=True):
    """What names say: the keys that the name determines."""

    names: list[dict[str, Any]]


def listed(key: str, items: Sequence[object]) -> Parts:
    """Parts that are all there."""
    return Parts(key, len(items), lambda begin: items[begin:])


def of_trace(opened: OpenTrace) -> Head:
    """What an answer about a trace begins with."""
    return {"trace": opened.name, "notes": opened.notes}


def open_answer(opened: OpenTrace) -> tuple[Head, Parts]:
    """As `summary --json`, without its long lists."""
    from fusetui.analysis.questions.summary import summary

    found = summary(opened.trace)
    figures = {name: value for name, value in asdict(found).items() if name not in LISTS}
    notes = [*opened.notes, *secret_notices(opened.trace)]
    return {**of_trace(opened), "notes": notes, "figures": figures}, listed("steps", found.steps)


def why_answer(opened: OpenTrace, step: int | None) -> tuple[Head, Parts]:
    """Raises NotThere if there is no such step."""
    from fusetui.analysis.why.answer import why
    from fusetui.report.why_answer import answer

    found = why(opened.trace, Selection(step=step))
    claims = [
        Claim(
            **{name: getattr(one, name) for name in Claim.__struct_fields__[:6]},
            remedy=one.try_,
            part_of=one.part_of,
            evidence_rows=one.evidence,
        )
        for one in found.findings
    ]
    head: Head = {
        **of_trace(opened),
        "answer": answer(found),
        "about": found.about or None,
        "devices": found.devices,
        "threads": () if found.devices else found.cpu,
        "ceiling": found.ceiling,
        "cannot_tell": found.cannot_tell,
    }
    return head, listed("findings", claims)


def diff_answer(a: OpenTrace, b: OpenTrace) -> tuple[Head, Parts]:
    """Rows of dispatch, which are no part of the sum, come last. Raises CommandError if there is
    nothing to compare."""
    from fusetui.analysis.diff.compare import diff
    from fusetui.analysis.diff.work import NoStepsError
    from fusetui.report.diff import judgment

    try:
        found = diff(a.trace, b.trace)
    except NoStepsError as missing:
        raise CommandError(str(missing)) from None
    ordered = sorted(found.rows, key=lambda row: (not row.counts, -abs(row.change_ns)))
    many = ("a", "b", "a_rows", "b_rows")
    rows = [replace(row, **{key: getattr(row, key)[:FEW] for key in many}) for row in ordered]
    same = ("verdict", "step", "story", "accounting", "by_work")
    head: Head = {
        "a": a.name,
        "b": b.name,
        "answer": judgment(found),
        **{name: getattr(found, name) for name in same},
        "notes": [*dict.fromkeys((*found.notes, *a.notes, *b.notes))],
    }
    return head, listed("rows", rows)


def decode_answer(names: Iterable[str]) -> tuple[Head, Parts]:
    """As `decode --json`."""
    from fusetui.commands.about import decoded

    return {}, listed("names", [*map(decoded, names)])
