"""The figures of a range of time: a few lines below the timeline, and an overlay with all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fusetui.analysis.questions.windows import WindowFigures, window_figures
from fusetui.analysis.why.idle_reasons import IDLE
from fusetui.text.cutting import clip, joined
from fusetui.text.figures import count, duration, percent, plural, tick
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.memo import memo
from fusetui.tui.drawing.glyphs import Glyphs
from fusetui.tui.drawing.said import Said
from fusetui.tui.layout.columns import Column, fit, titles
from fusetui.tui.layout.kinds import label_of, narrow
from fusetui.tui.layout.view import Side
from fusetui.tui.state.ranges import Range

FEW = (
    Column("inside", 9),
    Column("share", 7),
    Column("count", 6),
    Column("kernel", 0, left=True),
)
ALL = (Column("ns inside", 16), *FEW[1:])


def range_lines(side: Side, found: Range, width: int, height: int, glyphs: Glyphs) -> list[Said]:
    """At most `height` lines: length, GPU time, streams, and what took the most time."""
    figures = _figures(side.trace, found.begin, found.end)
    idle = _idle(side, found)
    names = figures.names[:height]
    rows = [[duration(n.ns), *_texts(figures, i)] for i, n in enumerate(names)]
    lines = [
        Said(joined([*_facts(side.trace, figures), _place(figures, side.origin)], width), "title"),
        *([Said(_few_streams(figures, width))] if figures.devices else []),
        *([Said(_why_idle(idle, width))] if idle else []),
        Said(titles(_titled(FEW, figures), width)),
        *(Said(" " + "".join(fit(FEW, row, width - 1)), "name") for row in rows),
    ]
    return [Said(clip(line.text, width, glyphs.ellipsis), line.look) for line in lines][:height]


def all_range_lines(side: Side, found: Range, width: int) -> list[Said]:
    """Every figure of the range, exact in ns."""
    figures = _figures(side.trace, found.begin, found.end)
    begin, end = found.begin - side.origin, found.end - side.origin
    whole = figures.span_ns * figures.devices
    facts = _facts(side.trace, figures)
    lines = [
        Said("  ".join(facts[:2]), "title"),
        Said(""),
        *(Said(f"  {text}", "name") for text in facts[2:]),
        Said(f"  from {count(begin)} ns to {count(end)} ns: {count(figures.span_ns)} ns", "name"),
    ]
    if figures.devices:
        busy, idle = count(figures.busy_ns), count(figures.idle_ns)
        lines.append(Said(f"  GPU busy {busy} ns, idle {idle} ns: {count(whole)} ns", "name"))
    for name, ns in _idle(side, found):
        lines.append(Said(f"    idle {count(ns)} ns, {IDLE[name].sentence}", "name"))
    for stream in figures.streams:
        label, share = narrow(stream.label), percent(stream.busy_ns, figures.span_ns)
        events = plural(stream.events, "event")
        lines.append(Said(f"  {label}: busy {count(stream.busy_ns)} ns, {share}, {events}", "name"))
    lines += [Said(""), Said(titles(_titled(ALL, figures), width), "title")]
    rows = [[count(n.ns), *_texts(figures, i)] for i, n in enumerate(figures.names)]
    return lines + [Said(" " + "".join(fit(ALL, row, width - 1)), "name") for row in rows]


def _idle(side: Side, found: Range) -> list[tuple[str, int]]:
    """Why the GPUs were idle in the range, the longest first; nothing until it is known, or for a
    range that extends beyond the trace."""
    trace = side.trace
    begin, end = max(found.begin, trace.begin_ns), min(found.end, trace.end_ns)
    sums: Counter[str] = Counter()
    for one in side.insight.idle or ():
        sums.update(one.over(begin, max(begin, end)))
    return sums.most_common()


def _why_idle(idle: Sequence[tuple[str, int]], width: int) -> str:
    whole = sum(ns for _, ns in idle)
    return joined(
        [f"idle {duration(whole)}:"]
        + [f"{IDLE[name].short} {duration(ns)}, {percent(ns, whole)}" for name, ns in idle],
        width,
    )


@memo()
def _figures(trace: Trace, begin: int, end: int) -> WindowFigures:
    """Computed when the range is set, not for every key."""
    return window_figures(trace, begin, end)


def _facts(trace: Trace, figures: WindowFigures) -> list[str]:
    """The most important first."""
    facts = [f"range {duration(figures.span_ns)}", _busy(trace, figures)]
    starting = f"{plural(figures.kernels, 'kernel')} start{'s' * (figures.kernels == 1)} in it"
    return [*facts, starting] if figures.devices else facts


def _place(figures: WindowFigures, origin: int) -> str:
    """Where the range lies, with as many digits as tell its two ends apart."""
    step = max(1, figures.span_ns // 100)
    begin, end = (tick(t - origin, step) for t in (figures.begin_ns, figures.end_ns))
    return f"{begin} to {end}"


def _busy(trace: Trace, figures: WindowFigures) -> str:
    if not figures.devices:
        where = "what was read of this trace" if trace.report.prefix else "this trace"
        return f"no GPU events in {where}"
    share = percent(figures.busy_ns, figures.span_ns * figures.devices)
    on = f" on {figures.devices} GPUs" if figures.devices > 1 else ""
    return f"GPU busy {duration(figures.busy_ns)}, {share} of the range{on}"


def _few_streams(figures: WindowFigures, width: int) -> str:
    """As many streams as fit on one line, and how many more there are."""
    texts = [
        f"{narrow(s.label)}: busy {duration(s.busy_ns)}, {percent(s.busy_ns, figures.span_ns)}"
        for s in figures.streams
    ]
    for shown in range(len(texts), 0, -1):
        hidden = len(texts) - shown
        text = "   ".join([*texts[:shown], f"{hidden} more"] if hidden else texts)
        if len(text) <= width:
            return text
    return texts[0] if texts else ""


def _texts(figures: WindowFigures, index: int) -> list[str]:
    named = figures.names[index]
    label = label_of(int(named.role), named.name)
    return [percent(named.ns, figures.span_ns), count(named.events), label]


def _titled(columns: Sequence[Column], figures: WindowFigures) -> tuple[Column, ...]:
    """The title of the last column says what its names are."""
    title = "kernel, copy or set" if figures.devices else "CPU op, by self time"
    return (*columns[:-1], Column(title, 0, left=True))
