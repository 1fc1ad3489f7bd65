"""The figures of a time range: a few lines below the timeline, and an overlay with all
figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from fusetui.analysis.questions.busy import WindowFigures, window_figures
from fusetui.analysis.why.idle_time import IdleTime
from fusetui.analysis.why.model import IDLE, Gap
from fusetui.text.cutting import joined
from fusetui.text.figures import count, duration, percent, plural, tick
from fusetui.trace.model.categories import CPU_LAYERS, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import Id
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
    """At most `height` lines about one gap in the work of a device: where it lies, its
    main reason, its other reasons, and what surrounds it. No lines where the gap is not
    known."""
    idle = idle_of(side, at)
    if idle is None:
        return []
    reasons = _gap_reasons(idle, at.gap)
    lines = [Said(_gap_heading(side, idle, at.gap), "title")]
    for name, share in reasons[:1]:
        lines.append(Said(f"{IDLE[name].sentence}: {share}", "plain"))
    others = [f"{IDLE[name].short} {share}" for name, share in reasons[1:]]
    lines += map(Said, flow(others, width))
    for rank in _ranks_of_gap(idle, at.gap):
        for texts in _around(idle.longest_gaps[rank]):
            lines += map(Said, flow(texts, width))
    return clipped(lines, width, height, glyphs.ellipsis)


def _gap_heading(side: Side, idle: IdleTime, gap: int) -> str:
    """The length of a gap, its device, its begin and its rank among the longest."""
    begin = int(idle.begin[gap])
    length = int(idle.end[gap]) - begin
    parts = [f"idle for {duration(length)}"]
    device = _device_name(side, idle.device)
    if device:
        parts.append(device)
    precision = max(1, length // 100)
    parts.append(f"from {tick(begin - side.origin, precision)}")
    gaps = count(len(idle.begin))
    for rank in _ranks_of_gap(idle, gap):
        parts.append(f"gap {count(rank + 1)} of {gaps} by length")
    return "   ".join(parts)


def _device_name(side: Side, device: Id) -> str:
    """The name of the group of lanes of a device; "" for a device without lanes."""
    for lane in side.lanes:
        if lane.layer not in CPU_LAYERS and lane.pid == device:
            return lane.group
    return ""


def _ranks_of_gap(idle: IdleTime, gap: int) -> list[int]:
    """The place of a gap among the longest of its device, from 0, as a list of one; an
    empty list for a gap that is not among them."""
    ranks: list[int] = np.flatnonzero(idle.longest == gap).tolist()
    return ranks


def _gap_reasons(idle: IdleTime, gap: int) -> list[tuple[str, str]]:
    """The reasons of a gap, which are keys of IDLE, the longest first; each with its
    time and its share of the gap as text."""
    begin = int(idle.begin[gap])
    end = int(idle.end[gap])
    ns_by_reason = Counter(idle.over(begin, end))
    reasons = []
    for name, ns in ns_by_reason.most_common():
        share = percent(ns, end - begin)
        reasons.append((name, f"{duration(ns)}, {share}"))
    return reasons


def _around(gap: Gap) -> tuple[list[str], list[str]]:
    """What covered most of the time before the launch that ended a gap; and which call
    drained the queue, and the kernels before and after the gap."""
    names_inside = {
        "the CPU was in": gap.frame,
        "module": gap.module,
        "op": gap.op,
        "annotation": gap.annotation,
    }
    inside = []
    for what, name in names_inside.items():
        if name:
            label = narrow(label_of(int(Role.PYTHON), name))
            inside.append(f"{what} {label}")
    neighbors = []
    if gap.drained_by:
        neighbors.append(f"{narrow(gap.drained_by)} drained the launch queue")
    if gap.previous:
        neighbors.append(f"after {label_of(int(Role.KERNEL), gap.previous)}")
    neighbors.append(f"before {label_of(int(Role.KERNEL), gap.next)}")
    return inside, neighbors


SHARE_COLUMN = ListColumn("share", 7)
COUNT_COLUMN = ListColumn("count", 6)
ROUNDED_COLUMNS = (ListColumn("inside", 9), SHARE_COLUMN, COUNT_COLUMN)
"""The figures of a name in the lines below the timeline."""
EXACT_COLUMNS = (ListColumn("ns inside", 16), SHARE_COLUMN, COUNT_COLUMN)
"""The figures of a name in the overlay."""


def range_lines(
    side: Side, time_range: Range, width: int, height: int, glyphs: Glyphs
) -> list[Said]:
    """At most `height` lines about a range of time: its length and GPU time, the
    streams, why the GPUs were idle, and what took the most time."""
    figures = _figures(side.trace, time_range.begin, time_range.end)
    heading = [*_facts(side.trace, figures), _interval_text(figures, side.origin)]
    lines = [Said(joined(heading, width), "title")]
    if figures.devices:
        lines.append(Said(_streams_line(figures, width)))
    idle = _idle(side, time_range)
    if idle:
        lines.append(Said(_idle_line(idle, width)))
    lines += _names_by_time(figures, ROUNDED_COLUMNS, duration, width, height)
    return clipped(lines, width, height, glyphs.ellipsis)


def _idle_line(idle: Sequence[tuple[str, int]], width: int) -> str:
    """The idle time of a range (ns by reason) in one line of `width` cells."""
    total = sum(ns for _, ns in idle)
    parts = [f"idle {duration(total)}:"]
    for name, ns in idle:
        reason = IDLE[name].short
        share = percent(ns, total)
        parts.append(f"{reason} {duration(ns)}, {share}")
    return joined(parts, width)


def _names_by_time(
    figures: WindowFigures,
    figure_columns: Sequence[ListColumn],
    time_text: Callable[[int], str],
    width: int,
    most: int | None = None,
) -> Iterator[Said]:
    """A line of titles, and a line for each name that took time in the range, the
    longest first: the first `most` of them, or all. `time_text` writes the time in
    ns."""
    what = "kernel, copy or set" if figures.devices else "CPU op, by self time"
    columns = [*figure_columns, ListColumn(what, 0, left=True)]
    yield Said(titles(columns, width), "faint" if most else "title")
    for item in figures.names[:most]:
        texts = [
            time_text(item.ns),
            percent(item.ns, figures.span_ns),
            count(item.events),
            label_of(int(item.role), item.name),
        ]
        row = "".join(fit(columns, texts, width - 1))
        yield Said(f" {row}", "plain")


def all_range_lines(side: Side, time_range: Range, width: int) -> list[Said]:
    """Every figure of a range of time, exact in ns; as many lines as they need."""
    figures = _figures(side.trace, time_range.begin, time_range.end)
    facts = _facts(side.trace, figures)
    lines = [Said("  ".join(facts[:2]), "title"), Said("")]
    texts = [f"  {fact}" for fact in facts[2:]]
    texts.append(_exact_interval(figures, side.origin))
    if figures.devices:
        texts.append(_exact_busy(figures))
    for name, ns in _idle(side, time_range):
        texts.append(f"    idle {count(ns)} ns, {IDLE[name].sentence}")
    texts += _exact_streams(figures)
    lines += [Said(text, "plain") for text in texts]
    lines.append(Said(""))
    lines += _names_by_time(figures, EXACT_COLUMNS, count, width)
    return lines


def _exact_interval(figures: WindowFigures, origin: int) -> str:
    """The begin and the end of the range, counted from `origin`, and its length."""
    begin = count(figures.begin_ns - origin)
    end = count(figures.end_ns - origin)
    return f"  from {begin} ns to {end} ns: {count(figures.span_ns)} ns"


def _exact_busy(figures: WindowFigures) -> str:
    """The busy and idle time of all GPUs in ns, which add up to the last figure."""
    busy = count(figures.busy_ns)
    idle = count(figures.idle_ns)
    total = count(figures.span_ns * figures.devices)
    return f"  GPU busy {busy} ns, idle {idle} ns: {total} ns"


def _exact_streams(figures: WindowFigures) -> Iterator[str]:
    """A text about each stream: its busy time in ns and in percent, and its events."""
    for stream in figures.streams:
        label = narrow(stream.label)
        share = percent(stream.busy_ns, figures.span_ns)
        events = plural(stream.events, "event")
        yield f"  {label}: busy {count(stream.busy_ns)} ns, {share}, {events}"


def _idle(side: Side, time_range: Range) -> list[tuple[str, int]]:
    """How long (ns) the GPUs were idle in the range for each reason, the longest first.
    Empty until the reasons are known, and for a range outside the trace."""
    trace = side.trace
    begin = max(time_range.begin, trace.begin_ns)
    end = min(time_range.end, trace.end_ns)
    ns_by_reason: Counter[str] = Counter()
    for device_idle in side.insight.idle or ():
        ns_by_reason.update(device_idle.over(begin, max(begin, end)))
    return ns_by_reason.most_common()


_figures = memo()(window_figures)  # when the range is set, not for every key


def _facts(trace: Trace, figures: WindowFigures) -> list[str]:
    """The length of the range, how busy the GPUs were, and how many kernels start."""
    facts = [f"range {duration(figures.span_ns)}", _busy(trace, figures)]
    if figures.devices:
        verb = "starts" if figures.kernels == 1 else "start"
        facts.append(f"{plural(figures.kernels, 'kernel')} {verb} in it")
    return facts


def _interval_text(figures: WindowFigures, origin: int) -> str:
    """The begin and the end of the range, counted from `origin`, with as many digits as
    tell both apart."""
    precision = max(1, figures.span_ns // 100)
    begin = tick(figures.begin_ns - origin, precision)
    end = tick(figures.end_ns - origin, precision)
    return f"{begin} to {end}"


def _busy(trace: Trace, figures: WindowFigures) -> str:
    """The busy time of the GPUs and its share of the range, or that there are none."""
    if not figures.devices:
        where = "what was read of this trace" if trace.report.prefix else "this trace"
        return f"no GPU events in {where}"
    share = percent(figures.busy_ns, figures.span_ns * figures.devices)
    on = f" on {figures.devices} GPUs" if figures.devices > 1 else ""
    return f"GPU busy {duration(figures.busy_ns)}, {share} of the range{on}"


def _streams_line(figures: WindowFigures, width: int) -> str:
    """The busy time of as many streams as fit in `width` cells, and how many more there
    are. The first stream is shown even where it does not fit; "" without streams."""
    texts = []
    for stream in figures.streams:
        share = percent(stream.busy_ns, figures.span_ns)
        busy = f"busy {duration(stream.busy_ns)}, {share}"
        texts.append(f"{narrow(stream.label)}: {busy}")
    for hidden in range(len(texts)):
        shown = texts[: len(texts) - hidden]
        if hidden:
            shown.append(f"{hidden} more")
        line = "   ".join(shown)
        if len(line) <= width:
            return line
    return texts[0] if texts else ""
