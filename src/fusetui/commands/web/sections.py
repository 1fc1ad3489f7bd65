"""The sections of a report: the sentences and figures of `why`, `diff` and the tables
as HTML, and the timelines of the traces."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fusetui.analysis.diff.model import Diff
from fusetui.analysis.why.model import Why, list_considerable
from fusetui.commands.web.html import (
    SECTION_LEVEL,
    Cell,
    ColumnHead,
    Figure,
    Heading,
    contents,
    format_column_table,
    heading,
    read_asset,
    table,
)
from fusetui.commands.web.timeline import colors, timeline
from fusetui.report.diff import judgment
from fusetui.report.diff_lines import DiffLine, closing, largest, lines
from fusetui.report.html_document import document, text
from fusetui.report.output import notes_of
from fusetui.report.why_answer import (
    answer,
    describe_ceiling,
    describe_not_recorded,
    make_account_columns,
    make_account_rows,
    name_devices,
)
from fusetui.report.worth import (
    describe_all_doubts,
    describe_joint_gain,
    describe_worth,
)
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
        """Return the HTML of a heading, and keep it for the contents of the document."""
        new_heading = Heading(level=level, title=title, anchor=anchor)
        self.headings.append(new_heading)
        return heading(new_heading)


def make_html(
    reported: Sequence[ReportedTrace],
    diff: Diff | None,
    light: bool | None,
    max_rows: int,
) -> str:
    """Return the HTML of a report about one trace, or about two and their diff. Tables
    have at most `max_rows` rows. `light` is the theme as `html.document` takes it."""
    title = f"fusetui: {' → '.join(one.name for one in reported)}"
    notes = notes_of(*(one.trace for one in reported))
    outline = _Outline()
    main: list[str] = []
    if diff is not None:
        main.append('<section aria-label="diff">')
        main.append(outline.section("What B does differently", "diff"))
        main += _make_diff(diff, notes, max_rows)
        main.append("</section>")
    for letter, one in zip("AB", reported, strict=False):
        heading_text = one.name if diff is None else f"{letter}: {one.name}"
        anchor = letter.lower()
        main.append("<section>")
        main.append(outline.section(heading_text, anchor))
        main += _make_trace_section(one, outline, anchor, max_rows)
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
    style = read_asset("page.css") + colors()
    return document(title, "\n".join(body), style, read_asset("page.js"), light)


def _make_trace_section(
    reported: ReportedTrace, outline: _Outline, anchor: str, max_rows: int
) -> Iterator[str]:
    """Yield HTML of what follows the heading of a trace: where its time went, findings,
    timeline and tables. Empty tables are left out."""
    trace, why = reported
    yield f"<p>{text(' · '.join(parts(trace)))}</p>"
    yield from _make_account(why)
    yield outline.subsection("Findings", f"{anchor}-findings")
    yield from _make_findings(why)
    yield outline.subsection("Timeline", f"{anchor}-timeline")
    yield timeline(trace, width=CELLS_PER_ROW * max_rows)
    for name in TABLES:
        rows = trace_table(name, trace)
        if len(rows):
            yield outline.subsection(name.capitalize(), f"{anchor}-{name}")
            yield format_column_table(rows, max_rows)


def _make_account(why: Why) -> Iterator[str]:
    """Yield HTML of the answer in a sentence, and a table of where the time went. Rows
    are devices, or CPU threads if there are none."""
    yield f"<p><strong>{text(answer(why))}</strong></p>"
    if not why.devices:
        yield _make_thread_table(why)
        return
    heads = [_text_column(name_devices(why))]
    for column in make_account_columns(why):
        heads.append(ColumnHead(column.title))
        heads.append(ColumnHead(f"of {column.title}"))
    rows: list[list[Cell]] = []
    for row in make_account_rows(why):
        cells: list[Cell] = [row.text]
        for part in row.shares:
            share = part.ns / part.whole_ns if part.whole_ns else None
            cells.append(_time_figure(part.ns))
            cells.append(Figure(percent(part.ns, part.whole_ns), share))
        rows.append(cells)
    yield table("Where the time went", heads, rows)


def _make_thread_table(why: Why) -> str:
    """Return HTML of a table with the times of CPU threads, at most MAX_THREADS of
    them."""
    rows: list[list[Cell]] = []
    for thread in why.cpu[:MAX_THREADS]:
        times_ns = (thread.op_ns, thread.python_ns, thread.wait_ns, thread.nothing_ns)
        rows.append([thread.label, *map(_time_figure, times_ns)])
    caption = "CPU threads"
    if len(rows) < len(why.cpu):
        caption = f"{MAX_THREADS} of the {len(why.cpu)} {caption}"
    return table(caption, [_text_column("thread"), *TIMES_OF_A_THREAD], rows)


def _make_findings(why: Why) -> Iterator[str]:
    """Yield HTML of sentences about all findings, then the list of those that are not
    negligible. What was not recorded comes last."""
    for sentence in (
        describe_ceiling(why),
        describe_joint_gain(why),
        describe_all_doubts(why),
    ):
        if sentence:
            yield f"<p>{text(sentence)}</p>"
    items = []
    for finding in list_considerable(why):
        worth = describe_worth(why, finding)
        item = text(f"{finding.text} {worth}" if worth else finding.text)
        if finding.try_:
            item += f'<br><span class="faint">Try: {text(finding.try_)}</span>'
        items.append(f"<li>{item}</li>")
    yield f"<ol>{''.join(items)}</ol>" if items else "<p>None.</p>"
    lacking = describe_not_recorded(why)
    if lacking:
        yield f'<p class="faint">{text(lacking)}</p>'


def _make_diff(
    diff: Diff, known_notes: Collection[str], max_rows: int
) -> Iterator[str]:
    """Yield HTML of the judgment of a diff, its summary, its notes without
    `known_notes`, and two tables."""
    yield f"<p><strong>{text(judgment(diff))}</strong></p>"
    summary = diff.story[:1].upper() + diff.story[1:]
    yield f"<p>{text(summary)}.</p>" if summary else ""
    for note in diff.notes:
        if note not in known_notes:
            yield f'<p class="note">{text(note)}</p>'
    yield _make_side_table(diff)
    yield _make_change_table(diff, max_rows)


def _make_side_table(diff: Diff) -> str:
    """Return HTML of a table that compares the figures of both traces, A and B."""
    length = diff.step.length_a.a_step
    rows: list[list[Cell]] = [
        [length, _time_figure(diff.step.a_ns), _time_figure(diff.step.b_ns)]
    ]
    for field, title in FIGURES_OF_A_SIDE.items():
        figure = _time_figure if field.endswith("_ns") else _count_figure
        of_a = figure(getattr(diff.side_a, field))
        of_b = figure(getattr(diff.side_b, field))
        rows.append([title, of_a, of_b])
    heads = [_text_column("figure"), ColumnHead("A"), ColumnHead("B")]
    return table("Both sides", heads, rows)


def _make_change_table(diff: Diff, max_rows: int) -> str:
    """Return HTML of a table of the largest changes. Below them is the sum of all
    smaller ones, and then the rows that close the sum."""
    changes = largest(lines(diff), max_rows)
    closing_rows = closing(diff)
    if changes.rest:
        summed_line = DiffLine(
            mark="",
            kind="",
            a_ns=None,
            b_ns=None,
            change_ns=sum(line.change_ns for line in changes.rest if line.counts),
            what=plural(len(changes.rest), "smaller line"),
        )
        closing_rows.insert(0, summed_line)
    return table(
        "Changes of a step, which add up; values in parentheses overlap other work",
        [
            ColumnHead("A"),
            ColumnHead("B"),
            ColumnHead("change"),
            _text_column("kind"),
            _text_column("what"),
            _text_column("why"),
        ],
        [_make_change_row(line) for line in changes.shown],
        [_make_change_row(line) for line in closing_rows],
    )


def _make_change_row(line: DiffLine) -> list[Cell]:
    """Return the cells of one change. A time that does not count in the sum is in
    parentheses."""
    change = signed_duration(line.change_ns)
    if not line.counts:
        change = f"({change})"
    return [
        _time_figure(line.a_ns),
        _time_figure(line.b_ns),
        Figure(change, line.change_ns),
        line.kind,
        line.what,
        line.why.removeprefix(", "),
    ]


def _text_column(title: str) -> ColumnHead:
    """Return the head of a column of texts."""
    return ColumnHead(title, figures=False)


def _time_figure(ns: int | None) -> Figure:
    """Return a time in ns as a figure; None is an unknown one."""
    return Figure("" if ns is None else duration(ns), ns)


def _count_figure(number: int) -> Figure:
    return Figure(count(number), number)
