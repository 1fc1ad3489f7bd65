"""The tables of a capture and of a sweep: plain text, CSV, and a chart."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fusetui.text.cutting import pad, width
from fusetui.text.figures import duration, size
from fusetui.text.printable import printable
from fusetui.text.tables import Column, known, table, table_of
from fusetui.trace.model.grouping import by_key

from .options import describe_shapes
from .record import Failed, Measured, RunRecord, SavedRun, guess_lines

DISTURBED = "something else was running"
_LARGEST_SPREAD = 2
"""The ratio of the 90th to the 10th percentile of step times above which a note is
shown."""


def closing_table(record: RunRecord) -> str:
    """A row per variant, with its speed-up against the first, and a line for each that
    failed."""
    ran = [v for v in record.measured if v.step_ns]
    baseline = ran[0].step_ns.median if ran and ran[0].step_ns else None

    times = _of_run(lambda v: known(v.step_ns, lambda step: duration(step.median)))
    faster = _of_run(
        lambda v: known(v.step_ns, lambda step: speed_up(baseline, step.median))
    )

    columns = [
        Column("variant", left=True, cell=lambda v: printable(v.name)),
        Column("time per step", cell=times),
        Column("speed-up", cell=faster),
        Column("kernels per step", cell=_of_run(lambda v: f"{v.kernels_per_step:g}")),
        Column("weights", cell=_of_run(lambda v: known(v.weight_bytes, size))),
        Column(
            "largest error", cell=_of_run(lambda v: known(v.max_error, "{:.2g}".format))
        ),
    ]
    if record.backward:  # as a share of the largest value of that gradient
        share = _of_run(lambda v: known(v.max_gradient_error, "{:.2%}".format))
        columns.append(Column("largest gradient error", cell=share))
    failed = (v for v in record.variants if isinstance(v, Failed))
    failures = [printable(f"{v.name}: {v.failed}") for v in failed]
    rows = table_of(columns, record.variants)
    return "\n".join(
        [title(record, record.shapes), "", rows, *_notes(record), *failures]
    )


def guesses(record: RunRecord) -> list[str]:
    """A blank line, then a line for every guess and variant; nothing without
    guesses."""
    lines = [line for v in record.measured for line in guess_lines(v.name, v.guesses)]
    return ["", *lines] if lines else []


def title(record: RunRecord | SavedRun, shapes: Mapping[str, int]) -> str:
    """`mlp on cpu (AMD EPYC, 2 threads), bfloat16, batch=4 seq=128, forward and
    backward`."""
    parts = (
        f"{record.workload} on {record.device_kind} ({record.device})",
        record.dtype,
        describe_shapes(shapes),
        "forward and backward" if record.backward else "",
        f"mode {record.mode}" if record.mode else "",
    )
    return ", ".join(printable(part) for part in parts if part)


def speed_up(baseline_ns: int | None, median_ns: int) -> str:
    """`1.31x`; a dash without a baseline."""
    return f"{baseline_ns / max(median_ns, 1):.2f}x" if baseline_ns is not None else "-"


def _of_run(text: Callable[[Measured], str]) -> Callable[[Measured | Failed], str]:
    """The cell of a variant that ran, a dash for one that failed."""
    return lambda variant: "-" if isinstance(variant, Failed) else text(variant)


def _notes(record: RunRecord) -> list[str]:
    notes = [f"{v.name}: {note}" for v in record.measured for note in _remarks(v)]
    if record.device_kind == "cpu":
        notes.append(
            "On a CPU a kernel is a compute op: views and allocations are not counted."
        )
    if record.shapes_shrunk:
        notes.append(
            "The shapes are smaller than on a GPU, so that a capture takes seconds."
        )
    return ["", *notes] if notes else []


def _remarks(variant: Measured) -> list[str]:
    """What the columns do not show: compilation, and what makes a time less
    reliable."""
    remarks = []
    if variant.compile_ns is not None:
        cached = (
            ", with kernels from the cache on disk" if variant.compile_cached else ""
        )
        remarks.append(
            f"its first call, which compiles, took {duration(variant.compile_ns)}{cached}."
        )
    if not variant.settled and variant.step_ns:
        remarks.append("its step time had not settled when timing began.")
    if variant.step_ns and variant.step_ns.p90 > _LARGEST_SPREAD * variant.step_ns.p10:
        low, high = duration(variant.step_ns.p10), duration(variant.step_ns.p90)
        remarks.append(f"its steps took from {low} to {high}: {DISTURBED}.")
    if variant.recompilations:
        remarks.append(
            f"compiled {variant.recompilations} more graphs after the first step."
        )
    return remarks


Row = Mapping[str, Any]
WIDTH = 40  # cells of the longest bar


def sweep_table(rows: Sequence[Row], axes: Sequence[str]) -> str:
    """A line per point: the time per step of each variant, and its speed-up against the
    first; then why variants failed, and at which points something else was running."""
    names = list(dict.fromkeys(row["variant"] for row in rows))
    columns = [Column(" ".join(axes), left=True)]
    columns += [Column(printable(name)) for name in names]
    lines = []
    for sizes, point in by_point(rows, axes):
        row_of = {row["variant"]: row for row in point}
        first_ns = _first(point)
        cells = [_entry(row_of.get(name), first_ns) for name in names]
        lines.append([sizes, *cells])
    failed = (f"{row['variant']}: {row['failed']}" for row in rows if row["failed"])
    remarks = [*dict.fromkeys(failed), *_disturbed_points(rows, axes, names)]
    return "\n".join([table(columns, lines), *map(printable, remarks)])


def _disturbed_points(
    rows: Sequence[Row], axes: Sequence[str], names: Sequence[str]
) -> list[str]:
    """`loop: at batch = 64, 128: something else was running.` for each variant whose
    steps took very different times at some points."""
    remarks = []
    for name in names:
        sizes = [
            sizes
            for sizes, point in by_point(rows, axes)
            for row in point
            if row["variant"] == name and _is_disturbed(row)
        ]
        if sizes:
            where = f"{' '.join(axes)} = {', '.join(sizes)}"
            remarks.append(f"{name}: at {where}: {DISTURBED}.")
    return remarks


def _is_disturbed(row: Row) -> bool:
    slow_ns, fast_ns = row["p90_ns"], row["p10_ns"]
    if slow_ns is None or fast_ns is None:
        return False
    return bool(slow_ns > _LARGEST_SPREAD * fast_ns)


def sweep_chart(
    rows: Sequence[Row], axes: Sequence[str], *, ascii_only: bool = False
) -> str:
    """Bars of the time per step, a group per point, each group on its own scale."""
    block = "#" if ascii_only else "█"
    wide = max(width(printable(row["variant"])) for row in rows)
    lines = ["Time per step; the longest bar of each group has the same length."]
    for sizes, point in by_point(rows, axes):
        lines += ["", f"{' '.join(axes)} = {sizes}"]
        longest = max((row["median_ns"] or 0 for row in point), default=0)
        for row in point:
            if row["median_ns"] is None:
                continue
            bar = block * max(round(WIDTH * row["median_ns"] / max(longest, 1)), 1)
            name = pad(printable(row["variant"]), wide)
            lines.append(f"  {name} {bar:{WIDTH}} {_entry(row, _first(point))}")
    return "\n".join(lines)


def sweep_csv(rows: Sequence[Row]) -> str:
    """The rows as CSV with a header; "" if there are no rows."""
    if not rows:
        return ""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def by_point(
    rows: Sequence[Row], axes: Sequence[str]
) -> Iterable[tuple[str, list[Row]]]:
    """(the sizes as text, the point's rows), in the order of the rows."""
    return by_key(rows, lambda row: " ".join(str(row[axis]) for axis in axes)).items()


def _first(point: Sequence[Row]) -> int | None:
    return next(
        (row["median_ns"] for row in point if row["median_ns"] is not None), None
    )


def _entry(row: Row | None, first_ns: int | None) -> str:
    """`1.31 ms 2.10x`, or a dash if it was not measured."""
    if row is None or row["median_ns"] is None:
        return "-"
    return f"{duration(row['median_ns'])} {speed_up(first_ns, row['median_ns']):>6}"
