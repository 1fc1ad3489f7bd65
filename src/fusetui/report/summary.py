"""The text of `summary`: key figures of a trace on one screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fusetui.analysis.questions.summary import StepFigures, Summary, TrackFigures
from fusetui.analysis.questions.totals import KernelTotal, OpTotal
from fusetui.report.labels import kernel_label
from fusetui.text.cutting import clip
from fusetui.text.figures import count, duration, percent, plural, size
from fusetui.text.printable import printable
from fusetui.text.tables import Column, cut, left_out, table
from fusetui.trace.layout.steps import UP_TO, labels_of

MOST = 12  # steps or lanes; --json has all
LONGEST_LABEL = 50  # cells; those of servers are longer
HEAVIEST = 5
STEP_COLUMNS = (
    Column("step", left=True),
    Column("time"),
    Column("kernels"),
    Column("GPU busy with its work"),
)
LANE_COLUMNS = (
    Column("slices"),
    Column("busy"),
    Column("kind", left=True),
    Column("lane", left=True),
)


def summary_text(
    figures: Summary,
    kernels: Sequence[KernelTotal],
    ops: Sequence[OpTotal],
    width: int,
    cut_off: bool = False,
) -> str:
    """The text; without kernels, ops are listed. `cut_off`: work from before the recording is
    missing."""
    blocks = [
        "\n".join(cut(line, width) for line in _head(figures, cut_off)),
        *_steps(figures, width),
        _lanes(figures.tracks, width),
    ]
    if kernels:
        blocks.append(kernels_text(kernels, HEAVIEST, width, "fusetui kernels shows more"))
    elif ops:
        blocks.append(ops_text(ops, HEAVIEST, width, "fusetui ops shows more"))
    return "\n\n".join(block for block in blocks if block)


def _head(figures: Summary, cut_off: bool) -> Iterator[str]:
    cut = "" if figures.complete else "   (cut short)"
    yield f"{printable(figures.file)}   {size(figures.bytes)}{cut}"
    if figures.devices:
        yield printable(", ".join(figures.devices))
    yield ""
    yield f"span        {duration(figures.span_ns)}"
    yield f"events      {count(figures.events)}, of which {plural(figures.slices, 'slice')}"
    yield from _gpu(figures, cut_off) if figures.gpu_events else ["GPU         no GPU events"]
    if figures.events_skipped:
        yield f"skipped     {plural(figures.events_skipped, 'unreadable event')}"


def _gpu(figures: Summary, cut_off: bool) -> Iterator[str]:
    busy, whole = figures.gpu_busy_ns, figures.gpu_busy_ns + figures.gpu_idle_ns
    of = "its span" if whole == figures.gpu_span_ns else "the spans of all GPUs, added up"
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
    kernels = plural(figures.kernels, "kernel")
    yield f"GPU events  {count(figures.gpu_events)}, of which {kernels}"
    yield (
        f"            {count(figures.gpu_events_linked)} linked to a launch call, "
        f"{count(figures.gpu_events_with_op)} to a CPU op"
    )


def _steps(figures: Summary, width: int) -> Iterator[str]:
    steps = figures.steps
    columns = STEP_COLUMNS if figures.gpu_events else STEP_COLUMNS[:2]
    if steps:
        labels = labels_of([step.name for step in steps])
        rows = [_step(step, label) for step, label in zip(steps[:MOST], labels, strict=False)]
        by = printable(figures.steps_by or "")
        what = f"\nNo step is annotated: each goes {by}." if by.startswith(UP_TO) else ""
        yield table(columns, rows, width) + _more(steps) + cut(what, width)


def _step(step: StepFigures, label: str) -> tuple[str, ...]:
    return (
        clip(printable(label), LONGEST_LABEL, "..."),
        duration(step.dur_ns),
        count(step.kernels),
        duration(step.gpu_busy_ns),
    )


def _lanes(tracks: Sequence[TrackFigures], width: int) -> str:
    if not tracks:
        return ""
    return table(LANE_COLUMNS, [_lane(track) for track in tracks[:MOST]], width) + _more(tracks)


def _lane(track: TrackFigures) -> tuple[str, ...]:
    spilled = f" (row {track.subrow + 1})" if track.subrow else ""
    kind = track.kind.replace("_", " ")
    return (
        count(track.slices),
        duration(track.busy_ns),
        kind,
        printable(track.label) + spilled,
    )


def _more(rows: Sequence[object]) -> str:
    return f"\n... and {len(rows) - MOST} more (--json has all)" if len(rows) > MOST else ""


KERNEL_COLUMNS = (
    Column("total"),
    Column("share", spare=1),
    Column("count", spare=2),
    Column("min", spare=4),
    Column("median", spare=3),
    Column("max", spare=5),
    Column("kernel", left=True),
    Column("name", left=True, spare=6),
)
OP_COLUMNS = (
    Column("total"),
    Column("self", spare=3),
    Column("GPU", spare=1),
    Column("kernels", spare=2),
    Column("count", spare=4),
    Column("op", left=True),
)

GPU_COLUMNS = (2, 3)  # of the ops; left out if no op launched anything


def any_gpu(totals: Sequence[OpTotal]) -> bool:
    return any(total.kernels or total.gpu_ns for total in totals)


def kernels_text(totals: Sequence[KernelTotal], top: int, width: int, hint: str) -> str:
    """The first `top` kernels, how many are left out, and a hint how to see them."""
    if not totals:
        return "no kernels in this trace"
    whole = sum(total.total_ns for total in totals)
    shown = totals[:top]
    lines = [table(KERNEL_COLUMNS, [_kernel(total, whole, width) for total in shown], width)]
    rest = totals[len(shown) :]
    share = percent(sum(total.total_ns for total in rest), whole)
    return "\n".join([*lines, *left_out(len(rest), "name", hint, share)])


def ops_text(totals: Sequence[OpTotal], top: int, width: int, hint: str) -> str:
    """The first `top` ops, how many are left out, and a hint how to see them."""
    if not totals:
        return "no CPU ops in this trace"
    shown = totals[:top]
    kept = [n for n in range(len(OP_COLUMNS)) if n not in GPU_COLUMNS or any_gpu(totals)]
    rows = [[_op(total)[n] for n in kept] for total in shown]
    lines = [table([OP_COLUMNS[n] for n in kept], rows, width)]
    return "\n".join([*lines, *left_out(len(totals) - len(shown), "name", hint)])


def _kernel(total: KernelTotal, whole: int, width: int) -> tuple[str, ...]:
    return (
        duration(total.total_ns),
        percent(total.total_ns, whole),
        count(total.count),
        duration(total.min_ns),
        duration(total.median_ns),
        duration(total.max_ns),
        kernel_label(total.name, width),
        printable(total.name),
    )


def _op(total: OpTotal) -> tuple[str, ...]:
    return (
        duration(total.total_ns),
        duration(total.self_ns),
        duration(total.gpu_ns) if total.gpu_ns else "",
        count(total.kernels) if total.kernels else "",
        count(total.count),
        printable(total.name),
    )
