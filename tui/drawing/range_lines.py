"""The figures of a range of time: a few lines below the timeline, and an overlay with
all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain

import numpy as np

from fusetui.analysis.questions.busy import WindowFigures, window_figures
from fusetui.analysis.why.model import IDLE, Gap
from fusetui.text.cutting import joined
from fusetui.text.figures import count, duration, percent, plural, tick
from fusetui.trace.model.categories import CPU_LAYERS, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.memo import memo
from fusetui.tui.drawing.details import flow
from fusetui.tui.drawing.picture import Said, clipped
from fusetui.tui.drawing.schemes import Glyphs
from fusetui.tui.layout.kinds import label_of, narrow
from fusetui.tui.layout.text_layout import ListColumn, fit, titles
from fusetui.tui.layout.view import GapAt, Side, idle_of
from fusetui.tui.state.session import Range


def gap_lines(
    side: Side, at: GapAt, width: int, height: int, glyphs: Glyphs
) -> list[Said]:
    if (found := idle_of(side, at)) is None:
        return []
    begin, end = int(found.begin[at.gap]), int(found.end[at.gap])
    # none, if it is not among these
    ranks = np.flatnonzero(found.longest == at.gap).tolist()
    lanes = (lane for lane in side.lanes if lane.layer not in CPU_LAYERS)
    head = [
        f"idle for {duration(end - begin)}",
        next((lane.group for lane in lanes if lane.key[1] == found.device), ""),
        f"from {tick(begin - side.origin, max(1, (end - begin) // 100))}",
        *(f"gap {count(n + 1)} of {count(len(found.begin))} by length" for n in ranks),
    ]
    reasons = sorted(found.over(begin, end).items(), key=lambda item: -item[1])
    parts = [
        (IDLE[name], f"{duration(ns)}, {percent(ns, end - begin)}")
        for name, ns in reasons
    ]
    lines = [Said("   ".join(filter(None, head)), "title")]
    lines += [Said(f"{reason.sentence}: {part}", "plain") for reason, part in parts[:1]]
    others = [f"{reason.short} {part}" for reason, part in parts[1:]]
    around = (_around(found.told[n]) for n in ranks)
    flowed = (flow(texts, width) for texts in (others, *chain.from_iterable(around)))
    lines += [Said(text) for text in chain.from_iterable(flowed)]
    return clipped(lines, width, height, glyphs.ellipsis)


def _around(told: Gap) -> tuple[list[str], list[str]]:
    """What covered most of the time before the launch, and the kernels before and after
    the gap."""
    frame, kernel = (
        partial(label_of, int(Role.PYTHON)),
        partial(label_of, int(Role.KERNEL)),
    )
    names = {"the CPU was in": told.frame, "module": told.module, "op": told.op}
    names["annotation"] = told.annotation
    inside = [f"{what} {narrow(frame(name))}" for what, name in names.items() if name]
    drained = [f"drained by {narrow(told.drained_by)}"] if told.drained_by else []
    after = [f"after {kernel(told.previous)}"] if told.previous else []
    return inside, [*drained, *after, f"before {kernel(told.next)}"]


SHARES = ListColumn("share", 7), ListColumn("count", 6)
FEW, ALL = (ListColumn("inside", 9), *SHARES), (ListColumn("ns inside", 16), *SHARES)


def range_lines(
    side: Side, found: Range, width: int, height: int, glyphs: Glyphs
) -> list[Said]:
    """At most `height` lines: length, GPU time, streams, and what took the most
    time."""
    figures, idle = _figures(side.trace, found.begin, found.end), _idle(side, found)
    whole, facts = sum(ns for _, ns in idle), _facts(side.trace, figures)
    reasons = (
        f"{IDLE[name].short} {duration(ns)}, {percent(ns, whole)}" for name, ns in idle
    )
    lines = [
        Said(joined([*facts, _place(figures, side.origin)], width), "title"),
        *([Said(_few_streams(figures, width))] if figures.devices else []),
        *(
            [Said(joined([f"idle {duration(whole)}:", *reasons], width))]
            if idle
            else []
        ),
        *_most(figures, FEW, duration, width, height),
    ]
    return clipped(lines, width, height, glyphs.ellipsis)


def _most(
    figures: WindowFigures,
    fixed: Sequence[ListColumn],
    said: Callable[[int], str],
    width: int,
    most: int | None = None,
) -> Iterator[Said]:
    """The titles and rows of what took the most time."""
    what = "kernel, copy or set" if figures.devices else "CPU op, by self time"
    columns = [*fixed, ListColumn(what, 0, left=True)]
    yield Said(titles(columns, width), "faint" if most else "title")
    for one in figures.names[:most]:
        shares = percent(one.ns, figures.span_ns), count(one.events)
        texts = [said(one.ns), *shares, label_of(int(one.role), one.name)]
        yield Said(" " + "".join(fit(columns, texts, width - 1)), "plain")


def all_range_lines(side: Side, found: Range, width: int) -> list[Said]:
    """Every figure of the range, exact in ns."""
    figures = _figures(side.trace, found.begin, found.end)
    begin, end = found.begin - side.origin, found.end - side.origin
    whole = figures.span_ns * figures.devices
    facts = _facts(side.trace, figures)
    lines = [
        Said("  ".join(facts[:2]), "title"),
        Said(""),
        *(Said(f"  {text}", "plain") for text in facts[2:]),
        Said(
            f"  from {count(begin)} ns to {count(end)} ns: {count(figures.span_ns)} ns",
            "plain",
        ),
    ]
    if figures.devices:
        busy, idle = count(figures.busy_ns), count(figures.idle_ns)
        lines.append(
            Said(f"  GPU busy {busy} ns, idle {idle} ns: {count(whole)} ns", "plain")
        )
    for name, ns in _idle(side, found):
        lines.append(Said(f"    idle {count(ns)} ns, {IDLE[name].sentence}", "plain"))
    for stream in figures.streams:
        label, share = narrow(stream.label), percent(stream.busy_ns, figures.span_ns)
        events = plural(stream.events, "event")
        text = f"  {label}: busy {count(stream.busy_ns)} ns, {share}, {events}"
        lines.append(Said(text, "plain"))
    return [*lines, Said(""), *_most(figures, ALL, count, width)]


def _idle(side: Side, found: Range) -> list[tuple[str, int]]:
    """Why the GPUs were idle, the longest first; nothing until it is known, or beyond
    the trace."""
    trace = side.trace
    begin, end = max(found.begin, trace.begin_ns), min(found.end, trace.end_ns)
    sums: Counter[str] = Counter()
    for one in side.insight.idle or ():
        sums.update(one.over(begin, max(begin, end)))
    return sums.most_common()


_figures = memo()(window_figures)  # when the range is set, not for every key


def _facts(trace: Trace, figures: WindowFigures) -> list[str]:
    facts = [f"range {duration(figures.span_ns)}", _busy(trace, figures)]
    starting = (
        f"{plural(figures.kernels, 'kernel')} start{'s' * (figures.kernels == 1)} in it"
    )
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
    more = ([f"{hidden} more"] * (hidden > 0) for hidden in range(len(texts)))
    fitting = (
        "   ".join([*texts[: len(texts) - n], *end]) for n, end in enumerate(more)
    )
    return next(
        (text for text in fitting if len(text) <= width), texts[0] if texts else ""
    )
