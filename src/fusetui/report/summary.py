"""The text of `summary`: key figures of a trace on one screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fusetui.analysis.questions.summary import Summary
from fusetui.analysis.questions.totals import KernelTotals, OpTotal
from fusetui.gpu.kernel_names import short_name
from fusetui.gpu.kernel_names.record import MAX_SHORT
from fusetui.text.cutting import clip
from fusetui.text.figures import count, duration, percent, plural, size
from fusetui.text.printable import printable
from fusetui.text.tables import (
    Column,
    UncutWidth,
    cut_line,
    record_table,
    times,
    top_table,
)
from fusetui.trace.layout.steps import UP_TO, labels_of

MOST = 12  # steps or lanes; --json has all
LONGEST_LABEL = 50  # cells; those of servers are longer
HEAVIEST = 5
STEP_COLUMNS = (
    Column(
        "step",
        left=True,
        cell=lambda step: clip(printable(step[1]), LONGEST_LABEL, "..."),
    ),
    Column("time", cell=lambda step: duration(step[0].dur_ns)),
    Column("kernels", cell=lambda step: count(step[0].kernels)),
    Column("GPU busy with its work", cell=lambda step: duration(step[0].gpu_busy_ns)),
)
"""Of a step and its label."""
LANE_COLUMNS = (
    Column("slices", cell=lambda track: count(track.slices)),
    Column("busy", cell=lambda track: duration(track.busy_ns)),
    Column("kind", left=True, cell=lambda track: track.kind.replace("_", " ")),
    Column(
        "lane",  # and which row of it if overlapping slices take several
        left=True,
        cell=lambda t: (
            printable(t.label) + (f" (row {t.subrow + 1})" if t.subrow else "")
        ),
    ),
)


def summary_text(
    figures: Summary,
    kernels: KernelTotals,
    ops: Sequence[OpTotal],
    width: int,
    cut_off: bool = False,
) -> str:
    """The text; without kernels, ops are listed. `cut_off`: work from before the
    recording is missing."""
    blocks = ["\n".join(cut_line(line, width) for line in _head(figures, cut_off))]
    if steps := figures.steps:
        columns = STEP_COLUMNS if figures.gpu_events else STEP_COLUMNS[:2]
        labeled = zip(
            steps[:MOST], labels_of([step.name for step in steps]), strict=False
        )
        by = printable(figures.steps_by or "")
        what = (
            f"\nNo step is annotated: each goes {by}." if by.startswith(UP_TO) else ""
        )
        blocks.append(
            record_table(columns, labeled, width) + _more(steps) + cut_line(what, width)
        )
    if tracks := figures.tracks:
        blocks.append(record_table(LANE_COLUMNS, tracks[:MOST], width) + _more(tracks))
    if kernels:
        blocks.append(
            kernels_text(kernels, HEAVIEST, width, "fusetui kernels shows more")
        )
    elif ops:
        blocks.append(ops_text(ops, HEAVIEST, width, "fusetui ops shows more"))
    return "\n\n".join(filter(None, blocks))


def _head(figures: Summary, cut_off: bool) -> Iterator[str]:
    cut = "" if figures.complete else "   (cut short)"
    yield f"{printable(figures.file)}   {size(figures.bytes)}{cut}"
    if figures.devices:
        yield printable(", ".join(figures.devices))
    yield ""
    yield f"span        {duration(figures.span_ns)}"
    yield f"events      {count(figures.events)}, of which {plural(figures.slices, 'slice')}"
    yield from (
        _gpu(figures, cut_off) if figures.gpu_events else ["GPU         no GPU events"]
    )
    if figures.events_skipped:
        yield f"skipped     {plural(figures.events_skipped, 'unreadable event')}"


def _gpu(figures: Summary, cut_off: bool) -> Iterator[str]:
    busy, whole = figures.gpu_busy_ns, figures.gpu_busy_ns + figures.gpu_idle_ns
    of = (
        "its span"
        if whole == figures.gpu_span_ns
        else "the spans of all GPUs, added up"
    )
    share = f" ({percent(busy, whole)} of {of})" if whole else ""
    yield f"GPU span    {duration(figures.gpu_span_ns)}"
    if cut_off:
        yield f"GPU busy    {duration(busy)}, and longer with work from before the recording"
    else:
        yield f"GPU busy    {duration(busy)}{share}, idle {duration(figures.gpu_idle_ns)}"
    yield (
        f"            compute {duration(figures.gpu_compute_ns)}, "
        f"communication {duration(figures.gpu_comm_ns)}, "
        f"copies {duration(figures.gpu_copy_ns)}"
    )
    yield f"GPU events  {count(figures.gpu_events)}, of which {plural(figures.kernels, 'kernel')}"
    yield (
        f"            {count(figures.gpu_events_linked)} linked to a launch call, "
        f"{count(figures.gpu_events_with_op)} to a CPU op"
    )


def _more(rows: Sequence[object]) -> str:
    return (
        f"\n... and {len(rows) - MOST} more (--json has all)"
        if len(rows) > MOST
        else ""
    )


OP_COLUMNS = (
    *times(total=0, self=3),
    Column(
        "GPU",
        spare=1,
        cell=lambda total: duration(total.gpu_ns) if total.gpu_ns else "",
    ),
    Column(
        "kernels",
        spare=2,
        cell=lambda total: count(total.kernels) if total.kernels else "",
    ),
    Column("count", spare=4, cell=lambda total: count(total.count)),
)
GPU_COLUMNS = ("GPU", "kernels")  # of the ops; left out if no op launched anything


def kernels_text(totals: KernelTotals, top: int, width: int, hint: str) -> str:
    """The first `top` kernels, how many are left out, and a hint how to see them."""
    if not totals:
        return "no kernels in this trace"
    whole = totals.total_ns
    columns = (
        *times(total=0),
        Column("share", spare=1, cell=lambda total: percent(total.total_ns, whole)),
        Column("count", spare=2, cell=lambda total: count(total.count)),
        *times(min=4, median=3, max=5),
        Column("kernel", left=True, cell=lambda total: kernel_label(total.name, width)),
        Column("name", left=True, spare=6, cell=lambda total: printable(total.name)),
    )
    shown_ns = sum(total.total_ns for total in totals[:top])
    share = percent(whole - shown_ns, whole)
    return top_table(columns, totals, top, width, "name", hint, share=share)


def ops_text(totals: Sequence[OpTotal], top: int, width: int, hint: str) -> str:
    """The first `top` ops, how many are left out, and a hint how to see them."""
    if not totals:
        return "no CPU ops in this trace"
    any_gpu = any(total.kernels or total.gpu_ns for total in totals)
    columns = [one for one in OP_COLUMNS if any_gpu or one.title not in GPU_COLUMNS]
    name = Column("op", left=True, cell=lambda total: printable(total.name))
    return top_table([*columns, name], totals, top, width, "name", hint)


def kernel_label(name: str, width: int) -> str:
    """The short name, printable. Into a pipe a name goes whole where the short one may
    be cut."""
    short = short_name(name)
    is_cut = short.endswith("…") or len(short) >= MAX_SHORT
    return printable(name if is_cut and isinstance(width, UncutWidth) else short)
