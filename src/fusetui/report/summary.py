"""The text of `summary`: key figures of a trace on one screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fusetui.analysis.questions.summary import StepFigures, Summary, TrackFigures
from fusetui.analysis.questions.totals import KernelTotals, OpTotal
from fusetui.gpu.kernel_names import short_name
from fusetui.gpu.kernel_names.record import MAX_SHORT
from fusetui.text.cutting import clip
from fusetui.text.figures import count, duration, percent, plural, size
from fusetui.text.printable import printable
from fusetui.text.tables import (
    Column,
    UncutWidth,
    count_or_blank,
    cut_line,
    record_table,
    time_or_blank,
    times,
    top_table,
)
from fusetui.trace.layout.steps import UP_TO, StepLength, labels_of

MAX_STEPS = 12
MAX_LANES = 12
MAX_LABEL_CELLS = 50
"""Of a step; those of servers are longer."""

MAX_NAMES = 5
"""Kernels, or ops."""


class LabeledStep(NamedTuple):
    """A step with its name, or its number where names do not have it."""

    label: str
    step: StepFigures


def _format_lane(track: TrackFigures) -> str:
    """Return the lane of a track, such as `stream 7 (row 2)`. The row is named where
    overlapping slices of a lane need several."""
    lane = printable(track.label)
    return f"{lane} (row {track.subrow + 1})" if track.subrow else lane


STEP_COLUMNS = (
    Column(
        "step",
        left=True,
        cell=lambda labeled: clip(printable(labeled.label), MAX_LABEL_CELLS, "..."),
    ),
    Column(str(StepLength.WALL), cell=lambda labeled: duration(labeled.step.dur_ns)),
)
STEP_COLUMNS_OF_GPU = (
    *STEP_COLUMNS,
    Column("kernels", cell=lambda labeled: count(labeled.step.kernels)),
    Column(
        "GPU busy with its work",
        cell=lambda labeled: duration(labeled.step.gpu_busy_ns),
    ),
)
LANE_COLUMNS = (
    Column("slices", cell=lambda track: count(track.slices)),
    Column("busy", cell=lambda track: duration(track.busy_ns)),
    Column("kind", left=True, cell=lambda track: track.kind.replace("_", " ")),
    Column("lane", left=True, cell=_format_lane),
)
OP_COLUMNS_OF_GPU = (
    Column("GPU", spare=1, cell=lambda total: time_or_blank(total.gpu_ns)),
    Column("kernels", spare=2, cell=lambda total: count_or_blank(total.kernels)),
)
OP_COLUMNS = (
    *times(total=0, self=3),
    *OP_COLUMNS_OF_GPU,
    Column("count", spare=4, cell=lambda total: count(total.count)),
)


def format_summary(
    figures: Summary,
    kernels: KernelTotals,
    ops: Sequence[OpTotal],
    width: int,
    cut_off: bool = False,
) -> str:
    """Return the key figures of a trace as text: its file, devices, times, steps, lanes
    and kernels. Without kernels, ops are listed.

    `cut_off` is whether work from before the recording is missing.
    """
    blocks = [
        "\n".join(cut_line(line, width) for line in _format_head(figures, cut_off))
    ]
    if figures.steps:
        blocks.append(_steps(figures, width))
    if figures.tracks:
        lanes = record_table(LANE_COLUMNS, figures.tracks[:MAX_LANES], width)
        blocks.append(lanes + _format_left_out(len(figures.tracks) - MAX_LANES))
    if kernels:
        hint = "fusetui kernels shows more"
        blocks.append(format_kernel_totals(kernels, MAX_NAMES, width, hint))
    elif ops:
        blocks.append(format_op_totals(ops, MAX_NAMES, width, "fusetui ops shows more"))
    return "\n\n".join(blocks)


def _format_head(figures: Summary, cut_off: bool) -> Iterator[str]:
    """Yield the first lines of a summary: the file, its devices, times and numbers of
    events."""
    cut_short = "" if figures.complete else "   (cut short)"
    yield f"{printable(figures.file)}   {size(figures.bytes)}{cut_short}"
    if figures.devices:
        yield printable(", ".join(figures.devices))
    yield ""
    yield f"span        {duration(figures.span_ns)}"
    yield f"events      {count(figures.events)}, of which {plural(figures.slices, 'slice')}"
    if figures.gpu_events:
        yield from _format_gpu(figures, cut_off)
    else:
        yield "GPU         no GPU events"
    if figures.events_skipped:
        yield f"skipped     {plural(figures.events_skipped, 'unreadable event')}"


def _format_gpu(figures: Summary, cut_off: bool) -> Iterator[str]:
    """Yield the lines of a summary about GPU events, of which there are some. With
    `cut_off`, busy time is a lower bound."""
    yield f"GPU span    {duration(figures.gpu_span_ns)}"
    if cut_off:
        busy = duration(figures.gpu_busy_ns)
        yield (
            f"GPU busy    at least {busy} (work launched before the recording also ran)"
        )
    else:
        yield f"GPU busy    {_format_busy_and_idle(figures)}"
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


def _format_busy_and_idle(figures: Summary) -> str:
    """Return the busy and idle time of all GPUs, such as `9 ms (75 % of its span), idle
    3 ms`."""
    busy_ns = figures.gpu_busy_ns
    idle = duration(figures.gpu_idle_ns)
    whole_ns = busy_ns + figures.gpu_idle_ns
    if not whole_ns:
        return f"{duration(busy_ns)}, idle {idle}"
    if whole_ns == figures.gpu_span_ns:
        spans = "its span"
    else:
        spans = "the spans of all GPUs, added up"
    return f"{duration(busy_ns)} ({percent(busy_ns, whole_ns)} of {spans}), idle {idle}"


def _steps(figures: Summary, width: int) -> str:
    """Return the table of the first steps. If they are not annotated, it says how they
    are divided."""
    labels = labels_of([step.name for step in figures.steps])
    labeled = [
        LabeledStep(label=label, step=step)
        for label, step in zip(labels, figures.steps, strict=True)
    ]
    columns = STEP_COLUMNS_OF_GPU if figures.gpu_events else STEP_COLUMNS
    text = record_table(columns, labeled[:MAX_STEPS], width)
    text += _format_left_out(len(labeled) - MAX_STEPS)
    by = printable(figures.steps_by or "")
    if by.startswith(UP_TO):
        text += cut_line(f"\nSteps are not annotated: each lasts {by}.", width)
    return text


def _format_left_out(number: int) -> str:
    """Return a line, to follow a table, about how many rows are left out. "" if there
    are none."""
    return f"\n... and {number} more (--json has all)" if number > 0 else ""


def format_kernel_totals(totals: KernelTotals, top: int, width: int, hint: str) -> str:
    """Return a table of the first `top` kernels, how many are left out, and a hint how
    to see them."""
    if not totals:
        return "no kernels in this trace"
    whole_ns = totals.total_ns
    columns = (
        *times(total=0),
        Column("share", spare=1, cell=lambda total: percent(total.total_ns, whole_ns)),
        Column("count", spare=2, cell=lambda total: count(total.count)),
        *times(min=4, median=3, max=5),
        Column("kernel", left=True, cell=lambda total: label_kernel(total.name, width)),
        Column("name", left=True, spare=6, cell=lambda total: printable(total.name)),
    )
    shown_ns = sum(total.total_ns for total in totals[:top])
    share = percent(whole_ns - shown_ns, whole_ns)
    return top_table(columns, totals, top, width, "name", hint, share=share)


def format_op_totals(totals: Sequence[OpTotal], top: int, width: int, hint: str) -> str:
    """Return a table of the first `top` ops, how many are left out, and a hint how to
    see them. Columns of GPU work are left out if no op launched any."""
    if not totals:
        return "no CPU ops in this trace"
    name = Column("op", left=True, cell=lambda total: printable(total.name))
    columns = [*OP_COLUMNS, name]
    if not any(total.kernels or total.gpu_ns for total in totals):
        columns = [column for column in columns if column not in OP_COLUMNS_OF_GPU]
    return top_table(columns, totals, top, width, "name", hint)


def label_kernel(name: str, width: int) -> str:
    """Return the short name of a kernel, printable. If the output is not a terminal,
    the full name is returned where the short one may be cut."""
    short = short_name(name)
    is_cut = short.endswith("…") or len(short) >= MAX_SHORT
    return printable(name if is_cut and isinstance(width, UncutWidth) else short)
