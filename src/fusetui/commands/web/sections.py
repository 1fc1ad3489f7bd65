"""The sections of a report: the sentences and figures of `why`, `diff` and the tables, as HTML."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path

from fusetui.analysis.diff.model import Diff
from fusetui.analysis.why.model import Why
from fusetui.commands.web.html import (
    Cell,
    ColumnHead,
    Figure,
    asset,
    column_table,
    document,
    table,
    text,
)
from fusetui.commands.web.timeline import colors, timeline
from fusetui.report.diff import judgment
from fusetui.report.diff_lines import DiffLine, by_effect, closing, lines
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
from fusetui.tables.sources import made
from fusetui.text.figures import count, duration, percent, plural, signed_duration
from fusetui.trace.model.columns import Trace
from fusetui.tui.drawing.chrome import parts

THREADS = 50
CELLS = 20  # of the timeline, for each row of the tables
TABLES = ("kernels", "modules", "ops", "lines", "gaps", "steps")
FIGURES_OF_A_SIDE = {
    **{"steps": "steps", "items": "pieces of work in a step", "busy_ns": "busy"},
    **{"idle_ns": "idle", "cpu_ns": "CPU"},
}


TEXT = partial(ColumnHead, figures=False)


def html_of(
    sides: Sequence[tuple[Trace, Why]], diff: Diff | None, light: bool | None, most: int
) -> str:
    """A whole report about traces and what `why` says of each, with at most so many rows of each
    table."""
    names = [Path(trace.report.file).name for trace, _ in sides]  # without the folders of a user
    title = f"fusetui: {' → '.join(names)}"
    notes = notes_of(*(trace for trace, _ in sides))
    body = [f"<header><h1>{text(title)}</h1>"]
    body += [*(f'<p class="note">{text(note)}</p>' for note in notes), "</header>", "<main>"]
    if diff is not None:
        body += [f'<section aria-label="diff">{"".join(_diff(diff, notes, most))}</section>']
    for letter, name, (trace, found) in zip("AB", names, sides, strict=False):
        mark = f"{letter}: " if diff is not None else ""
        body += ["<section>", f"<h2>{mark}{text(name)}</h2>"]
        body.append(f"<p>{text(' · '.join(parts(trace)))}</p>")
        body += [*_account(found), *_findings(found)]
        body += ["<h3>Timeline</h3>", timeline(trace, CELLS * most)]
        tables = (made(name, trace) for name in TABLES)
        body += ["<h3>Tables</h3>", *(column_table(one, most) for one in tables if len(one))]
        body.append("</section>")
    body.append('</main>\n<footer class="faint"><p>Written by fusetui.</p></footer>')
    return document(title, "\n".join(body), asset("page.css") + colors(), asset("page.js"), light)


def _account(found: Why) -> Iterator[str]:
    yield f"<p><strong>{text(answer(found))}</strong></p>"
    if not found.devices:
        heads = [TEXT("thread"), *map(ColumnHead, ("ops", "Python", "waiting", "nothing"))]
        rows: list[list[Cell]] = [
            [one.label, *map(_time, (one.op_ns, one.python_ns, one.wait_ns, one.nothing_ns))]
            for one in found.cpu[:THREADS]
        ]
        few = f"{THREADS} of the {len(found.cpu)} " if len(rows) < len(found.cpu) else ""
        yield table(f"{few}CPU threads", heads, rows)
        return
    heads = [TEXT(device_text(found))]
    for title, _ in account_columns(found):
        heads += [ColumnHead(title), ColumnHead(f"of {title}")]
    account: list[list[Cell]] = []
    for what, both in account_rows(found):
        account.append([what])
        for ns, whole in both:
            account[-1] += [_time(ns), Figure(percent(ns, whole), ns / whole if whole else None)]
    yield table("Where the time went", heads, account)


def _findings(found: Why) -> Iterator[str]:
    yield "<h3>Findings</h3>"
    about_all = (ceiling_text(found), replayed_text(found), doubt_text(found))
    yield from (f"<p>{text(said)}</p>" for said in about_all if said)
    items = []
    for one in found.findings:
        said = " ".join(filter(None, (one.text, worth_text(found, one))))
        tried = f'<br><span class="faint">Try: {text(one.try_)}</span>' if one.try_ else ""
        items.append(f"<li>{text(said)}{tried}</li>")
    yield f"<ol>{''.join(items)}</ol>" if items else "<p>None.</p>"
    if said := not_recorded(found):
        yield f'<p class="faint">{text(said)}</p>'


def _diff(diff: Diff, said: Collection[str], most: int) -> Iterator[str]:
    yield f"<h2>What B does differently</h2><p><strong>{text(judgment(diff))}</strong></p>"
    yield f"<p>{text(diff.story[:1].upper() + diff.story[1:])}.</p>" if diff.story else ""
    yield from (f'<p class="note">{text(note)}</p>' for note in diff.notes if note not in said)
    a, b = diff.side_a, diff.side_b
    rows: list[list[Cell]] = [["a step", _time(diff.step.a_ns), _time(diff.step.b_ns)]]
    for name, what in FIGURES_OF_A_SIDE.items():
        figure = _time if name.endswith("_ns") else _count
        rows.append([what, *(figure(getattr(side, name)) for side in (a, b))])
    yield table("Both sides", [TEXT(""), ColumnHead("A"), ColumnHead("B")], rows)
    found = by_effect(lines(diff))
    last, rest = closing(diff), found[most:]
    if rest:
        change = sum(line.change_ns for line in rest if line.counts)
        last.insert(0, DiffLine("", "", None, None, change, plural(len(rest), "smaller line")))
    caption = "Changes of a step, which add up; in parentheses what runs beside the rest"
    heads = [*map(ColumnHead, ("A", "B", "change")), *map(TEXT, ("kind", "what", "why"))]
    yield table(caption, heads, map(_changed, found[:most]), map(_changed, last))


def _changed(one: DiffLine) -> list[Cell]:
    told = signed_duration(one.change_ns)
    change = Figure(told if one.counts else f"({told})", one.change_ns)
    texts = (one.kind, one.what, one.why.removeprefix(", "))
    return [_time(one.a_ns), _time(one.b_ns), change, *texts]


def _time(ns: int | None) -> Figure:
    return Figure("" if ns is None else duration(ns), ns)


def _count(number: int) -> Figure:
    return Figure(count(number), number)
