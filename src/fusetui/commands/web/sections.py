"""The sections of a report: the sentences and figures of `why`, `diff` and the tables
as HTML, and the timelines of the traces."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fusetui.analysis.diff.model import Diff
from fusetui.analysis.why.model import Why, considerable
from fusetui.commands.web.html import (
    SECTION_LEVEL,
    Cell,
    ColumnHead,
    Figure,
    Heading,
    asset,
    column_table,
    contents,
    heading,
    table,
)
from fusetui.commands.web.timeline import colors, timeline
from fusetui.report.diff import judgment
from fusetui.report.diff_lines import DiffLine, closing, largest, lines
from fusetui.report.html_document import document, text
from fusetui.report.output import notes_of
from fusetui.report.why_answer import (
    account_columns,
    account_rows,
    answer,
    ceiling_text,
    device_text,
    not_recorded,
)
from fusetui.report.worth import doubt_text, replayed_text, worth_text
from fusetui.tables.sources import trace_table
from fusetui.text.figures import count, duration, percent, plural, signed_duration
from fusetui.trace.model.columns import Trace
from fusetui.tui.drawing.chrome import parts

MAX_THREADS = 50
CELLS_PER_ROW = 20
"""The timeline has so many cells for each row that a table may have."""

TABLES = ("kernels", "modules", "ops", "lines", "gaps", "steps")
TIMES_OF_A_THREAD = (
    ColumnHead("ops"),
    ColumnHead("Python"),
    ColumnHead("waiting"),
    ColumnHead("nothing"),
)
FIGURES_OF_A_SIDE = {
    "steps": "steps",
    "items": "pieces of work in a step",
    "busy_ns": "busy",
    "idle_ns": "idle",
    "cpu_ns": "CPU",
}
"""Fields of a DiffSide, and what the report calls them."""


class ReportedTrace(NamedTuple):
    """A trace, and what `why` says of it."""

    trace: Trace
    why: Why

    @property
    def name(self) -> str:
        """Its name, without the folders of a user."""
        return Path(self.trace.report.file).name


class _Outline:
    """Makes the headings of a document, and keeps them for its contents."""

    def __init__(self) -> None:
        self.headings: list[Heading] = []

    def section(self, title: str, anchor: str) -> str:
        return self._heading(SECTION_LEVEL, title, anchor)

    def subsection(self, title: str, anchor: str) -> str:
        return self._heading(SECTION_LEVEL + 1, title, anchor)

    def _heading(self, level: int, title: str, anchor: str) -> str:
        place = Heading(level=level, title=title, anchor=anchor)
        self.headings.append(place)
        return heading(place)


def html_of(
    reported: Sequence[ReportedTrace],
    diff: Diff | None,
    light: bool | None,
    max_rows: int,
) -> str:
    """A whole report about one trace, or about two and their diff, with at most so many
    rows of each table. `light` is as `html.document` takes it."""
    title = f"fusetui: {' → '.join(one.name for one in reported)}"
    notes = notes_of(*(one.trace for one in reported))
    outline = _Outline()
    main: list[str] = []
    if diff is not None:
        main.append('<section aria-label="diff">')
        main.append(outline.section("What B does differently", "diff"))
        main += _diff(diff, notes, max_rows)
        main.append("</section>")
    for letter, one in zip("AB", reported, strict=False):
        heading_text = one.name if diff is None else f"{letter}: {one.name}"
        anchor = letter.lower()
        main.append("<section>")
        main.append(outline.section(heading_text, anchor))
        main += _about_trace(one, outline, anchor, max_rows)
        main.append("</section>")
    body = [
        f"<header><h1>{text(title)}</h1>",
        *(f'<p class="note">{text(note)}</p>' for note in notes),
        contents(outline.headings),
        "</header>",
        "<main>",
        *main,
        "</main>",
        '<footer class="faint"><p>Written by fusetui.</p></footer>',
    ]
    style = asset("page.css") + colors()
    return document(title, "\n".join(body), style, asset("page.js"), light)


def _about_trace(
    reported: ReportedTrace, outline: _Outline, anchor: str, max_rows: int
) -> Iterator[str]:
    """What follows the heading of a trace: its account, findings, timeline and
    tables."""
    trace, why = reported
    yield f"<p>{text(' · '.join(parts(trace)))}</p>"
    yield from _account(why)
    yield outline.subsection("Findings", f"{anchor}-findings")
    yield from _findings(why)
    yield outline.subsection("Timeline", f"{anchor}-timeline")
    yield timeline(trace, width=CELLS_PER_ROW * max_rows)
    for name in TABLES:
        rows = trace_table(name, trace)
        if len(rows):
            yield outline.subsection(name.capitalize(), f"{anchor}-{name}")
            yield column_table(rows, max_rows)


def _account(why: Why) -> Iterator[str]:
    """The answer in a sentence, and the times that it is about: of the devices, or of
    CPU threads where there is none."""
    yield f"<p><strong>{text(answer(why))}</strong></p>"
    if not why.devices:
        yield _account_of_threads(why)
        return
    heads = [_texts(device_text(why))]
    for column in account_columns(why):
        heads.append(ColumnHead(column.title))
        heads.append(ColumnHead(f"of {column.title}"))
    rows: list[list[Cell]] = []
    for row in account_rows(why):
        cells: list[Cell] = [row.text]
        for part in row.shares:
            share = part.ns / part.whole_ns if part.whole_ns else None
            cells.append(_time(part.ns))
            cells.append(Figure(percent(part.ns, part.whole_ns), share))
        rows.append(cells)
    yield table("Where the time went", heads, rows)


def _account_of_threads(why: Why) -> str:
    rows: list[list[Cell]] = []
    for thread in why.cpu[:MAX_THREADS]:
        times_ns = (thread.op_ns, thread.python_ns, thread.wait_ns, thread.nothing_ns)
        rows.append([thread.label, *map(_time, times_ns)])
    caption = "CPU threads"
    if len(rows) < len(why.cpu):
        caption = f"{MAX_THREADS} of the {len(why.cpu)} {caption}"
    return table(caption, [_texts("thread"), *TIMES_OF_A_THREAD], rows)


def _findings(why: Why) -> Iterator[str]:
    """What holds of all findings, then the list of those that are not negligible."""
    for said in (ceiling_text(why), replayed_text(why), doubt_text(why)):
        if said:
            yield f"<p>{text(said)}</p>"
    items = []
    for finding in considerable(why):
        worth = worth_text(why, finding)
        item = text(f"{finding.text} {worth}" if worth else finding.text)
        if finding.try_:
            item += f'<br><span class="faint">Try: {text(finding.try_)}</span>'
        items.append(f"<li>{item}</li>")
    yield f"<ol>{''.join(items)}</ol>" if items else "<p>None.</p>"
    lacking = not_recorded(why)
    if lacking:
        yield f'<p class="faint">{text(lacking)}</p>'


def _diff(diff: Diff, known_notes: Collection[str], max_rows: int) -> Iterator[str]:
    """The judgment, the summary, notes that are not among `known_notes`, and two
    tables."""
    yield f"<p><strong>{text(judgment(diff))}</strong></p>"
    summary = diff.story[:1].upper() + diff.story[1:]
    yield f"<p>{text(summary)}.</p>" if summary else ""
    for note in diff.notes:
        if note not in known_notes:
            yield f'<p class="note">{text(note)}</p>'
    yield _both_sides(diff)
    yield _changes(diff, max_rows)


def _both_sides(diff: Diff) -> str:
    length = diff.step.length_a.a_step
    rows: list[list[Cell]] = [[length, _time(diff.step.a_ns), _time(diff.step.b_ns)]]
    for field, title in FIGURES_OF_A_SIDE.items():
        figure = _time if field.endswith("_ns") else _count
        of_a = figure(getattr(diff.side_a, field))
        of_b = figure(getattr(diff.side_b, field))
        rows.append([title, of_a, of_b])
    heads = [_texts("figure"), ColumnHead("A"), ColumnHead("B")]
    return table("Both sides", heads, rows)


def _changes(diff: Diff, max_rows: int) -> str:
    """The largest changes; below them the sum of the others, and what closes the
    sum."""
    changes = largest(lines(diff), max_rows)
    last = closing(diff)
    if changes.rest:
        rest = DiffLine(
            mark="",
            kind="",
            a_ns=None,
            b_ns=None,
            change_ns=sum(line.change_ns for line in changes.rest if line.counts),
            what=plural(len(changes.rest), "smaller line"),
        )
        last.insert(0, rest)
    return table(
        "Changes of a step, which add up; values in parentheses overlap other work",
        [
            ColumnHead("A"),
            ColumnHead("B"),
            ColumnHead("change"),
            _texts("kind"),
            _texts("what"),
            _texts("why"),
        ],
        [_row_of_change(line) for line in changes.shown],
        [_row_of_change(line) for line in last],
    )


def _row_of_change(line: DiffLine) -> list[Cell]:
    change = signed_duration(line.change_ns)
    if not line.counts:
        change = f"({change})"
    return [
        _time(line.a_ns),
        _time(line.b_ns),
        Figure(change, line.change_ns),
        line.kind,
        line.what,
        line.why.removeprefix(", "),
    ]


def _texts(title: str) -> ColumnHead:
    """The head of a column of texts."""
    return ColumnHead(title, figures=False)


def _time(ns: int | None) -> Figure:
    return Figure("" if ns is None else duration(ns), ns)


def _count(number: int) -> Figure:
    return Figure(count(number), number)
