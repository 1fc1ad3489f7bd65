"""The figures of a time range: a few lines below the timeline, and an overlay with all
figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from fusetui.analysis.questions.busy import WindowFigures, summarize_window
from fusetui.analysis.why.idle_time import IdleTime
from fusetui.analysis.why.model import IDLE, Gap
from fusetui.text.cutting import joined
from fusetui.text.figures import count, duration, percent, plural, tick
from fusetui.trace.model.categories import CPU_LAYERS, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import Id
from fusetui.trace.model.memo import memo
from fusetui.tui.drawing.details import flow_texts
from fusetui.tui.drawing.picture import Said, clip_lines, cut_lines_to_width
from fusetui.tui.drawing.schemes import Glyphs
from fusetui.tui.drawing.timeline import find_visible_idle_reasons
from fusetui.tui.layout.frame import divide_timeline
from fusetui.tui.layout.kinds import label_of, narrow
from fusetui.tui.layout.text_layout import ListColumn, fit, titles
from fusetui.tui.layout.view import GapAt, Side, View, idle_of
from fusetui.tui.state.session import Range

APART = "   "  # between the letters of the idle reasons
MIN_LINES_WITH_LEGEND = 5  # of a pane about a gap; a lower one does not explain letters


def describe_gap(
    side: Side, at: GapAt, width: int, height: int, glyphs: Glyphs
) -> list[Said]:
    """Return at most `height` lines of `list_gap_lines`, each cut to `width` cells."""
    lines = list_gap_lines(side, at, width)
    fitting = cut_lines_to_width(lines, width, height, glyphs.ellipsis)
    return clip_lines(fitting, width, height, glyphs.ellipsis)


def list_gap_lines(side: Side, at: GapAt, width: int) -> list[Said]:
    """Return the lines about one gap, an interval without work on a device.

    They tell where it lies, its main reason, the other reasons, and the work around it.
    A line that lists several things is broken at `width` cells; the others may be
    wider. The list is empty if the gap is not known, because its trace is still being
    analyzed.
    """
    idle = idle_of(side, at)
    if idle is None:
        return []
    reasons = _sum_gap_reasons(idle, at.gap)
    lines = [Said(_format_gap_heading(side, idle, at.gap), "title")]
    if reasons:
        main_reason, main_share = reasons[0]
        lines.append(Said(f"{IDLE[main_reason].sentence}: {main_share}", "plain"))
    other_texts = [f"{IDLE[reason].short} {share}" for reason, share in reasons[1:]]
    lines += [Said(line) for line in flow_texts(other_texts, width)]
    for rank in _find_rank(idle, at.gap):  # the work around it is kept of long gaps
        for texts in _describe_surroundings(idle.longest_gaps[rank]):
            lines += [Said(line) for line in flow_texts(texts, width)]
    return lines


def _format_gap_heading(side: Side, idle: IdleTime, gap: int) -> str:
    """Return the title of a gap: its length, device and begin, and its rank among the
    longest gaps. The begin is rounded to 1 % of the length."""
    begin_ns = int(idle.begin[gap])
    length_ns = int(idle.end[gap]) - begin_ns
    parts = [f"idle for {duration(length_ns)}"]
    device = _find_device_name(side, idle.device)
    if device:
        parts.append(device)
    # digits below 1 % of the length would tell nothing
    precision = max(1, length_ns // 100)
    parts.append(f"from {tick(begin_ns - side.origin, precision)}")
    gaps = count(len(idle.begin))
    for rank in _find_rank(idle, gap):
        parts.append(f"gap {count(rank + 1)} of {gaps} by length")
    return "   ".join(parts)


def _find_device_name(side: Side, device: Id) -> str:
    """Return the name of a device as on the timeline, given its id. "" if the device
    has no lane there."""
    for lane in side.lanes:
        if lane.layer not in CPU_LAYERS and lane.pid == device:
            return lane.group
    return ""


def _find_rank(idle: IdleTime, gap: int) -> list[int]:
    """Return the rank of a gap among the longest gaps of its device, from 0, as a list
    of one. The list is empty if the gap is not among them."""
    ranks: list[int] = np.flatnonzero(idle.longest == gap).tolist()
    return ranks


def _sum_gap_reasons(idle: IdleTime, gap: int) -> list[tuple[str, str]]:
    """Return the reasons of a gap with their time and share as texts, the longest
    first. A reason is a key of IDLE."""
    begin = int(idle.begin[gap])
    end = int(idle.end[gap])
    ns_by_reason = Counter(idle.measure_window(begin, end))
    reasons = []
    for reason, ns in ns_by_reason.most_common():
        share_text = percent(ns, end - begin)
        reasons.append((reason, f"{duration(ns)}, {share_text}"))
    return reasons


def _describe_surroundings(gap: Gap) -> tuple[list[str], list[str]]:
    """Return two lists of texts about a gap in the work of a device.

    The first has what the CPU did for most of the time before the launch that ended the
    gap. The second has the call that emptied the queue of the device, and the kernels
    before and after the gap. Unknown parts are left out.
    """
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


def describe_range(
    side: Side, time_range: Range, width: int, height: int, glyphs: Glyphs
) -> list[Said]:
    """Return at most `height` lines about a selected range of time.

    They tell its length and GPU time, the streams, why the GPUs were idle, and the
    names with the most time.
    """
    figures = _figures(side.trace, time_range.begin, time_range.end)
    heading = [
        *_list_range_facts(side.trace, figures),
        _format_interval(figures, side.origin),
    ]
    lines = [Said(joined(heading, width), "title")]
    if figures.devices:
        lines.append(Said(_format_streams(figures, width)))
    idle_by_reason = _sum_idle_reasons(side, time_range)
    if idle_by_reason:
        lines.append(Said(_format_idle_reasons(idle_by_reason, width)))
    lines += _list_names_by_time(figures, ROUNDED_COLUMNS, duration, width, height)
    return clip_lines(lines, width, height, glyphs.ellipsis)


def list_idle_letters(side: Side, view: View, width: int, glyphs: Glyphs) -> list[str]:
    """Return the letter and short name of each reason why a device was idle that the
    timeline shows on a screen of `width` cells.

    Those whose letters or names are on the screen precede those that only color bars;
    among each, the longest by total time comes first. If the window shows no idle
    time, all reasons are listed. The list is empty if the reasons are not known yet.
    """
    ns_by_reason: Counter[str] = Counter()
    for idle_of_device in side.insight.idle or ():
        for reason in idle_of_device.reasons:
            ns_by_reason[reason.name] += int(reason.ns_before_each[-1])
    cells_of_axis = divide_timeline(width, 0).width
    visible = find_visible_idle_reasons(side, view, cells_of_axis, glyphs)
    names = [name for name, _ in ns_by_reason.most_common()]
    in_cells = [name for name in names if name in visible.in_cells]
    in_bars = [name for name in names if name in visible.in_bars - visible.in_cells]
    listed = [*in_cells, *in_bars] or names
    return [f"{IDLE[name].letter} {IDLE[name].short}" for name in listed]


def format_idle_legend(letters: Sequence[str], width: int, ellipsis: str) -> str:
    """Return the line that explains the letters of idle reasons, as many as fit in
    `width` cells. It ends with the ellipsis if some are left out. `letters` is that of
    `list_idle_letters`."""
    parts = ["idle reasons:", *letters]
    whole = f" {APART.join(parts)}"
    if len(whole) <= width:
        return whole
    cells_before_ellipsis = width - len(f" {APART}{ellipsis}")
    return f" {joined(parts, cells_before_ellipsis, APART)}{APART}{ellipsis}"


def describe_gap_with_legend(
    side: Side, view: View, gap: GapAt, width: int, height: int, glyphs: Glyphs
) -> list[Said]:
    """Return at most `height` lines about a gap, the last of which explains the letters
    of the idle reasons in the window. A pane of few lines has no such line."""
    letters = list_idle_letters(side, view, width, glyphs)
    if height < MIN_LINES_WITH_LEGEND or not letters:
        return describe_gap(side, gap, width, height, glyphs)
    lines = describe_gap(side, gap, width, height - 1, glyphs)
    blanks = [Said("")] * (height - 1 - len(lines))
    legend = format_idle_legend(letters, width, glyphs.ellipsis)
    return [*lines, *blanks, Said(legend)]


def _format_idle_reasons(idle: Sequence[tuple[str, int]], width: int) -> str:
    """Return the idle time in a range and its reasons, in one line of `width` cells.
    `idle` has pairs of a reason and its time in ns."""
    total_ns = sum(ns for _, ns in idle)
    parts = [f"idle {duration(total_ns)}:"]
    for name, ns in idle:
        reason = IDLE[name].short
        share = percent(ns, total_ns)
        parts.append(f"{reason} {duration(ns)}, {share}")
    return joined(parts, width)


def _list_names_by_time(
    figures: WindowFigures,
    figure_columns: Sequence[ListColumn],
    time_text: Callable[[int], str],
    width: int,
    most: int | None = None,
) -> Iterator[Said]:
    """Generate a line of titles, then a line for each name that took time in a range,
    the longest first.

    In a range without GPU work the names are those of CPU ops, by self time.

    Args:
        figures: The figures of the range.
        figure_columns: The columns for time, share and count.
        time_text: Formats a time in ns.
        width: The cells of a line.
        most: The maximum number of names; None for all.
    """
    name_title = "kernel, copy or set" if figures.devices else "CPU op, by self time"
    columns = [*figure_columns, ListColumn(name_title, 0, left=True)]
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


def list_range_figures(side: Side, time_range: Range, width: int) -> list[Said]:
    """Return all figures of a selected range, exact to the ns, as the lines of an
    overlay."""
    figures = _figures(side.trace, time_range.begin, time_range.end)
    facts = _list_range_facts(side.trace, figures)
    lines = [Said("  ".join(facts[:2]), "title"), Said("")]
    texts = [f"  {fact}" for fact in facts[2:]]
    texts.append(_format_exact_interval(figures, side.origin))
    if figures.devices:
        texts.append(_format_exact_busy(figures))
    for name, ns in _sum_idle_reasons(side, time_range):
        texts.append(f"    idle {count(ns)} ns, {IDLE[name].sentence}")
    texts += _format_exact_streams(figures)
    lines += [Said(text, "plain") for text in texts]
    lines.append(Said(""))
    lines += _list_names_by_time(figures, EXACT_COLUMNS, count, width)
    return lines


def _format_exact_interval(figures: WindowFigures, origin: int) -> str:
    """Return the begin, end and length of a range in ns. Begin and end are counted from
    `origin`."""
    begin = count(figures.begin_ns - origin)
    end = count(figures.end_ns - origin)
    return f"  from {begin} ns to {end} ns: {count(figures.span_ns)} ns"


def _format_exact_busy(figures: WindowFigures) -> str:
    """Return the busy and the idle time of all GPUs in ns, and their sum: the length of
    the range times the number of GPUs."""
    busy = count(figures.busy_ns)
    idle = count(figures.idle_ns)
    total = count(figures.span_ns * figures.devices)
    return f"  GPU busy {busy} ns, idle {idle} ns: {total} ns"


def _format_exact_streams(figures: WindowFigures) -> Iterator[str]:
    """Generate a text for each stream: its busy time in ns and percent, and its number
    of events."""
    for stream in figures.streams:
        label = narrow(stream.label)
        share = percent(stream.busy_ns, figures.span_ns)
        events = plural(stream.events, "event")
        yield f"  {label}: busy {count(stream.busy_ns)} ns, {share}, {events}"


def _sum_idle_reasons(side: Side, time_range: Range) -> list[tuple[str, int]]:
    """Return how long all GPUs together were idle for each reason in a range, in ns,
    the longest first.

    The list is empty until the reasons have been computed, and for a range outside of
    the trace.
    """
    trace = side.trace
    begin = max(time_range.begin, trace.begin_ns)
    end = min(time_range.end, trace.end_ns)
    ns_by_reason: Counter[str] = Counter()
    for device_idle in side.insight.idle or ():
        ns_by_reason.update(device_idle.measure_window(begin, max(begin, end)))
    return ns_by_reason.most_common()


_figures = memo()(summarize_window)  # when the range is set, not for every key


def _list_range_facts(trace: Trace, figures: WindowFigures) -> list[str]:
    """Return the length of a range, how busy the GPUs were, and how many kernels start
    in it. The last is left out if there is no GPU."""
    facts = [f"range {duration(figures.span_ns)}", _describe_busy_time(trace, figures)]
    if figures.devices:
        verb = "starts" if figures.kernels == 1 else "start"
        facts.append(f"{plural(figures.kernels, 'kernel')} {verb} in it")
    return facts


def _format_interval(figures: WindowFigures, origin: int) -> str:
    """Return the begin and end of a range, counted from `origin`, rounded to 1 % of its
    length."""
    # digits below 1 % of the length would tell nothing
    precision = max(1, figures.span_ns // 100)
    begin = tick(figures.begin_ns - origin, precision)
    end = tick(figures.end_ns - origin, precision)
    return f"{begin} to {end}"


def _describe_busy_time(trace: Trace, figures: WindowFigures) -> str:
    """Return how long the GPUs were busy in a range and their share of it. With several
    GPUs the share is an average. If there are none, the text says that the trace has no
    GPU events."""
    if not figures.devices:
        searched_part = (
            "the part that was read" if trace.report.prefix else "this trace"
        )
        return f"no GPU events in {searched_part}"
    share = percent(figures.busy_ns, figures.span_ns * figures.devices)
    devices_text = f" on {figures.devices} GPUs" if figures.devices > 1 else ""
    return f"GPU busy {duration(figures.busy_ns)}, {share} of the range{devices_text}"


def _format_streams(figures: WindowFigures, width: int) -> str:
    """Return the busy time of as many streams as fit in `width` cells, and the number
    of the others. The first stream is always included, even if it does not fit. "" if
    there are no streams."""
    stream_texts = []
    for stream in figures.streams:
        share = percent(stream.busy_ns, figures.span_ns)
        busy = f"busy {duration(stream.busy_ns)}, {share}"
        stream_texts.append(f"{narrow(stream.label)}: {busy}")
    # one stream fewer each time, until the line fits
    for hidden_count in range(len(stream_texts)):
        shown_texts = stream_texts[: len(stream_texts) - hidden_count]
        if hidden_count:
            shown_texts.append(f"{hidden_count} more")
        line = "   ".join(shown_texts)
        if len(line) <= width:
            return line
    return stream_texts[0] if stream_texts else ""
