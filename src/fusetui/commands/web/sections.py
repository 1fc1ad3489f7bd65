"""The sections of a report: the sentences and figures of `why`, `diff` and the tables
as HTML, and the timeline of a trace as an SVG, of which a script shows a part."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.diff.model import Diff
from fusetui.analysis.why.account import Accounts
from fusetui.analysis.why.idle_time import IdleTime, idle_times
from fusetui.analysis.why.model import IDLE, Why, considerable
from fusetui.commands.web.html import (
    Cell,
    ColumnHead,
    Figure,
    Heading,
    asset,
    column_table,
    contents,
    document,
    heading,
    scrolling,
    table,
    text,
)
from fusetui.report.diff import judgment
from fusetui.report.diff_lines import DiffLine, closing, largest, lines
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
from fusetui.text.cutting import clip
from fusetui.text.figures import count, duration, percent, plural, signed_duration, tick
from fusetui.timeline.cells import DepthRow, cells, edges
from fusetui.trace.model.arrays import Int64s
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import Id
from fusetui.tui.drawing.chrome import parts
from fusetui.tui.drawing.schemes import DARK, LIGHT
from fusetui.tui.layout.kinds import KINDS, label_of
from fusetui.tui.layout.places import places
from fusetui.tui.layout.view import Place, Side, first_view, make_sides

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
    """A whole report about traces and what `why` says of each, with at most so many
    rows of each table."""
    # without the folders of a user
    names = [Path(trace.report.file).name for trace, _ in sides]
    title = f"fusetui: {' → '.join(names)}"
    notes = notes_of(*(trace for trace, _ in sides))
    places: list[Heading] = []

    def headed(level: int, title: str, anchor: str) -> str:
        places.append(Heading(level, title, anchor))
        return heading(places[-1])

    main: list[str] = []
    if diff is not None:
        main.append('<section aria-label="diff">')
        main.append(headed(2, "What B does differently", "diff"))
        main += [*_diff(diff, notes, most), "</section>"]
    for letter, name, (trace, found) in zip("AB", names, sides, strict=False):
        mark = f"{letter}: " if diff is not None else ""
        anchor = letter.lower()
        main += ["<section>", headed(2, mark + name, anchor)]
        main.append(f"<p>{text(' · '.join(parts(trace)))}</p>")
        main += [*_account(found)]
        main += [headed(3, "Findings", f"{anchor}-findings"), *_findings(found)]
        main += [
            headed(3, "Timeline", f"{anchor}-timeline"),
            timeline(trace, CELLS * most),
        ]
        for table_name in TABLES:
            one = trace_table(table_name, trace)
            if len(one):
                title_of_table = table_name.capitalize()
                main.append(headed(3, title_of_table, f"{anchor}-{table_name}"))
                main.append(column_table(one, most))
        main.append("</section>")
    body = [f"<header><h1>{text(title)}</h1>"]
    body += [*(f'<p class="note">{text(note)}</p>' for note in notes), contents(places)]
    body += ["</header>", "<main>", *main, "</main>"]
    body.append('<footer class="faint"><p>Written by fusetui.</p></footer>')
    return document(
        title, "\n".join(body), asset("page.css") + colors(), asset("page.js"), light
    )


def _account(found: Why) -> Iterator[str]:
    yield f"<p><strong>{text(answer(found))}</strong></p>"
    if not found.devices:
        heads = [
            TEXT("thread"),
            *map(ColumnHead, ("ops", "Python", "waiting", "nothing")),
        ]
        rows: list[list[Cell]] = [
            [
                one.label,
                *map(_time, (one.op_ns, one.python_ns, one.wait_ns, one.nothing_ns)),
            ]
            for one in found.cpu[:THREADS]
        ]
        few = (
            f"{THREADS} of the {len(found.cpu)} " if len(rows) < len(found.cpu) else ""
        )
        yield table(f"{few}CPU threads", heads, rows)
        return
    heads = [TEXT(device_text(found))]
    for column in account_columns(found):
        heads += [ColumnHead(column.title), ColumnHead(f"of {column.title}")]
    account: list[list[Cell]] = []
    for row in account_rows(found):
        cells: list[Cell] = [row.text]
        for part in row.shares:
            share = part.ns / part.whole_ns if part.whole_ns else None
            cells += [_time(part.ns), Figure(percent(part.ns, part.whole_ns), share)]
        account.append(cells)
    yield table("Where the time went", heads, account)


def _findings(found: Why) -> Iterator[str]:
    about_all = (ceiling_text(found), replayed_text(found), doubt_text(found))
    yield from (f"<p>{text(said)}</p>" for said in about_all if said)
    items = []
    for one in considerable(found):
        said = " ".join(filter(None, (one.text, worth_text(found, one))))
        tried = (
            f'<br><span class="faint">Try: {text(one.try_)}</span>' if one.try_ else ""
        )
        items.append(f"<li>{text(said)}{tried}</li>")
    yield f"<ol>{''.join(items)}</ol>" if items else "<p>None.</p>"
    if said := not_recorded(found):
        yield f'<p class="faint">{text(said)}</p>'


def _diff(diff: Diff, said: Collection[str], most: int) -> Iterator[str]:
    yield f"<p><strong>{text(judgment(diff))}</strong></p>"
    yield (
        f"<p>{text(diff.story[:1].upper() + diff.story[1:])}.</p>" if diff.story else ""
    )
    yield from (
        f'<p class="note">{text(note)}</p>' for note in diff.notes if note not in said
    )
    a, b = diff.side_a, diff.side_b
    rows: list[list[Cell]] = [["a step", _time(diff.step.a_ns), _time(diff.step.b_ns)]]
    for name, what in FIGURES_OF_A_SIDE.items():
        figure = _time if name.endswith("_ns") else _count
        rows.append([what, *(figure(getattr(side, name)) for side in (a, b))])
    yield table("Both sides", [TEXT("figure"), ColumnHead("A"), ColumnHead("B")], rows)
    changes = largest(lines(diff), most)
    last = closing(diff)
    if changes.rest:
        change = sum(line.change_ns for line in changes.rest if line.counts)
        what = plural(len(changes.rest), "smaller line")
        last.insert(0, DiffLine("", "", None, None, change, what))
    caption = (
        "Changes of a step, which add up; in parentheses what runs beside the rest"
    )
    heads = [
        *map(ColumnHead, ("A", "B", "change")),
        *map(TEXT, ("kind", "what", "why")),
    ]
    yield table(caption, heads, map(_changed, changes.shown), map(_changed, last))


def _changed(one: DiffLine) -> list[Cell]:
    told = signed_duration(one.change_ns)
    change = Figure(told if one.counts else f"({told})", one.change_ns)
    texts = (one.kind, one.what, one.why.removeprefix(", "))
    return [_time(one.a_ns), _time(one.b_ns), change, *texts]


def _time(ns: int | None) -> Figure:
    return Figure("" if ns is None else duration(ns), ns)


def _count(number: int) -> Figure:
    return Figure(count(number), number)


LINE, BAR = 18, 16
NAMED, FEWEST = 0.3, 12
"""The longest slices, so many for each cell on all lines together, and of each line at
least."""
MOST, LONGEST = 60, 80  # lines, characters of a name
LEVELS = 4  # heights of a bar
TICKS = 5
TOKENS = {
    **{kind.replace("-", "_"): kind.token for kind in KINDS},
    **{f"idle_{name}": f"idle.{name}" for name in IDLE},
}
"""By the class of a shape: the token of its color."""
BUTTONS = {
    **{
        "in": ("+", "Zoom in (w)"),
        "out": ("−", "Zoom out (s)"),
        "left": ("‹", "Back (a)"),
    },
    **{"right": ("›", "Forward (d)"), "all": ("0", "All of the time (0)")},
}


def colors() -> str:
    """The style of what is drawn, on white and on black."""
    found = []
    for name, token in TOKENS.items():
        (block, on), (dark, on_dark) = LIGHT.colors[token], DARK.colors[token]
        both = f"light-dark({block},{dark})"
        found.append(
            f".{name}{{fill:{both};background:{both};color:light-dark({on},{on_dark})}}"
        )
    return "".join(found)


def timeline(trace: Trace, width: int) -> str:
    """A figure of the first screen's lanes, so many cells wide, and what the script
    needs."""
    (side,) = make_sides([trace], [""])
    idle = {
        one.device: one for line in Accounts(trace).lines for one in idle_times(line)
    }
    shown = [
        place for place in places(side, first_view(side)) if _is_drawn(place, idle)
    ][:MOST]
    filled = sum(place.line is not None for place in shown)
    named = max(FEWEST, int(NAMED * width) // max(1, filled))
    drawn: list[str] = []
    for y, place in enumerate(shown):
        if place.line is not None:
            drawn += _slices(side, place.line, y * LINE, named, width)
        elif place.idle_of is not None:
            drawn += _idle(side, idle[place.idle_of.key[1]], y * LINE, width)
    labels = ""
    for place in shown:
        more = f" (+{place.more})" if place.more else ""
        labels += f"<li>{text(clip(place.label.strip(), LONGEST) + more)}</li>"
    span = side.end - side.begin
    times = (span * n // (TICKS - 1) for n in range(TICKS))
    ruler = "".join(f"<span>{tick(ns, max(1, span // 100))}</span>" for ns in times)
    buttons = "".join(
        f'<button type="button" value="{name}" aria-label="{what}" title="{what}">{sign}</button> '
        for name, (sign, what) in BUTTONS.items()
    )
    high = LINE * len(shown)
    return (
        f'<figure data-ns="{span}"><figcaption>Of each line the {count(named)} longest slices as '
        f"they are, of the others what takes most of each of {count(width)} parts of the time. "
        "Lines that are left out are counted as in (+3). Drag over a part to zoom in, "
        "double-click for all of it.</figcaption>\n"
        f"<p hidden>{buttons}</p>{_legend(drawn)}\n"
        + scrolling(
            f'<div class="lanes"><ul>{labels}<li></li></ul><div class="view">'
            f'<svg role="img" aria-label="Timeline of {duration(span)}; the tables below have its '
            f'figures" viewBox="0 0 {width} {high}" height="{high}" preserveAspectRatio="none">\n'
            + "\n".join(drawn)
            + f'</svg>\n<div class="ruler">{ruler}</div></div></div>',
            label=f"Timeline of {Path(trace.report.file).name}",
        )
        + "\n<output></output></figure>"
    )


def _is_drawn(place: Place, idle: dict[Id, IdleTime]) -> bool:
    """Not the counters, nor what is hidden; the names of groups stay."""
    if place.idle_of is not None:
        return place.idle_of.key[1] in idle
    return place.curve is None and not place.where and place.lane >= 0


def _slices(
    side: Side, line: DepthRow, y: int, named: int, width: int
) -> Iterator[str]:
    """What most cells show as one path for each kind, and the longest slices by
    themselves."""
    trace, scale = side.trace, width / max(1, side.end - side.begin)
    if len(line) > named:
        borders = edges(trace.begin_ns, trace.begin_ns + side.end - side.begin, width)
        found = cells(line, borders)
        share = -(-LEVELS * found.covered // np.maximum(np.diff(borders), 1))
        yield from _paths(
            found.kind, share, y, [kind.replace("-", "_") for kind in KINDS]
        )
    for at in sorted(line.by_rank[-named:].tolist()):
        row, start, end = int(line.rows[at]), int(line.start[at]), int(line.end[at])
        name = text(clip(label_of(int(trace.role[row]), trace.name_of(row)), LONGEST))
        begin = start - trace.begin_ns
        told = f"{name}\n{duration(int(trace.dur[row]))} from {duration(begin)}"
        kind = KINDS[int(line.kind[at])].replace("-", "_")
        yield (
            f'<rect class="{kind}" x="{begin * scale:.7g}" y="{y}" '
            f'width="{(end - start) * scale:.6g}" height="{BAR}"><title>{told}</title></rect>'
        )


def _idle(side: Side, found: IdleTime, y: int, width: int) -> Iterator[str]:
    """The reason with the most time in each cell."""
    begin = side.trace.begin_ns
    borders = edges(begin, begin + side.end - side.begin, width)
    amounts = found.within(borders)
    if not len(amounts):
        return
    whole = amounts.sum(axis=0)
    reason = np.where(whole > 0, amounts.argmax(axis=0), -1)
    share = -(-LEVELS * whole // np.maximum(np.diff(borders), 1))
    yield from _paths(reason, share, y, [f"idle_{one.name}" for one in found.reasons])


def _paths(
    kinds: NDArray[np.integer], share: Int64s, y: int, names: list[str]
) -> Iterator[str]:
    """A path for each kind: its runs of cells of one height, shape [cells]; below 0 is
    nothing."""
    high = np.clip(share, 1, LEVELS)
    changes = np.flatnonzero((np.diff(kinds) != 0) | (np.diff(high) != 0)) + 1
    runs: dict[int, list[str]] = {}
    for begin, end in pairwise([0, *changes.tolist(), len(kinds)]):
        if (kind := int(kinds[begin])) >= 0:
            tall = BAR * int(high[begin]) // LEVELS
            path = f"M{begin} {y + BAR - tall}h{end - begin}v{tall}h{begin - end}z"
            runs.setdefault(kind, []).append(path)
    for kind, paths in runs.items():
        yield f'<path class="{names[kind]}" d="{"".join(paths)}"/>'


def _legend(drawn: list[str]) -> str:
    there = {shape.split('"', 2)[1] for shape in drawn}
    said = {name: name.removeprefix("gpu_") for name in TOKENS}
    said |= {f"idle_{name}": f"idle: {reason.short}" for name, reason in IDLE.items()}
    swatches = (
        f'<span><span class="swatch {name}"></span>{text(said[name])}</span>'
        for name in TOKENS
        if name in there
    )
    return f'<p class="legend">{" ".join(swatches)}</p>'
