"""The tables of a capture and of a sweep: plain text, CSV, and a chart."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fusetui.text.cutting import pad, width
from fusetui.text.figures import duration, size
from fusetui.text.printable import printable
from fusetui.text.tables import Column, record_table, table, text_or_dash
from fusetui.trace.model.grouping import by_key

from .options import describe_shapes
from .record import Failed, Measured, RunRecord, SavedRun, format_guesses

DISTURBED = "something else was running"
_MAX_STEADY_SPREAD = 2
"""The ratio of the 90th to the 10th percentile of step times up to which nothing is
noted about them."""


def format_run(record: RunRecord) -> str:
    """Return what a capture prints of a run: its title, a table with a row per variant,
    notes, and a line for each variant that failed. Speed-ups are against the first
    variant that was timed."""
    baseline_ns = None
    for variant in record.measured:
        # the first variant that was timed is the baseline
        if variant.step_ns:
            baseline_ns = variant.step_ns.median
            break

    def time_per_step(variant: Measured) -> str:
        return text_or_dash(variant.step_ns, lambda step_ns: duration(step_ns.median))

    def faster(variant: Measured) -> str:
        return text_or_dash(
            variant.step_ns,
            lambda step_ns: format_speed_up(baseline_ns, step_ns.median),
        )

    columns = [
        Column("variant", left=True, cell=lambda variant: printable(variant.name)),
        Column("time per step", cell=_dash_if_failed(time_per_step)),
        Column("speed-up", cell=_dash_if_failed(faster)),
        Column(
            "kernels per step",
            cell=_dash_if_failed(lambda variant: f"{variant.kernels_per_step:g}"),
        ),
        Column(
            "weights",
            cell=_dash_if_failed(
                lambda variant: text_or_dash(variant.weight_bytes, size)
            ),
        ),
        Column(
            "largest error",
            cell=_dash_if_failed(
                lambda variant: text_or_dash(variant.max_error, "{:.2g}".format)
            ),
        ),
    ]
    if record.backward:
        columns.append(
            Column(
                "largest gradient error",
                cell=_dash_if_failed(
                    lambda variant: text_or_dash(
                        variant.max_gradient_error, "{:.2%}".format
                    )
                ),
            )
        )

    lines = [title(record, record.shapes), "", record_table(columns, record.variants)]
    lines += _list_notes(record)
    for outcome in record.variants:
        if isinstance(outcome, Failed):
            lines.append(printable(f"{outcome.name}: {outcome.failed}"))

    return "\n".join(lines)


def format_guess_report(record: RunRecord) -> list[str]:
    """Return a line for every guess of every variant, after a blank line. Empty without
    guesses."""
    lines = []
    for variant in record.measured:
        lines += format_guesses(variant.name, variant.guesses)
    return ["", *lines] if lines else []


def title(record: RunRecord | SavedRun, shapes: Mapping[str, int]) -> str:
    """Return the title of a run, such as `mlp on cpu (AMD EPYC, 2 threads), bfloat16,
    batch=4 seq=128, forward and backward`."""
    parts = (
        f"{record.workload} on {record.device_kind} ({record.device})",
        record.dtype,
        describe_shapes(shapes),
        "forward and backward" if record.backward else "",
        f"mode {record.mode}" if record.mode else "",
    )
    return ", ".join(printable(part) for part in parts if part)


def format_speed_up(baseline_ns: int | None, median_ns: int) -> str:
    """Return how much faster a variant is than the baseline, such as `1.31x`; `-`
    without a baseline."""
    if baseline_ns is None:
        return "-"
    return f"{baseline_ns / max(median_ns, 1):.2f}x"


def _dash_if_failed(
    text: Callable[[Measured], str],
) -> Callable[[Measured | Failed], str]:
    """Return a function for the cells of a column: it calls `text` for a variant that
    ran, and returns `-` for one that failed."""
    return lambda variant: "-" if isinstance(variant, Failed) else text(variant)


def _list_notes(record: RunRecord) -> list[str]:
    """Return lines about the variants and the device, after a blank line. Empty if
    there is nothing to note."""
    notes = []
    for variant in record.measured:
        notes += [f"{variant.name}: {note}" for note in _describe_variant(variant)]

    if record.device_kind == "cpu":
        notes.append(
            "On a CPU, a kernel is a compute op; views and allocations are not counted."
        )

    if record.shapes_shrunk:
        notes.append(
            "Shapes are smaller than on a GPU, so that a capture takes only seconds."
        )

    return ["", *notes] if notes else []


def _describe_variant(variant: Measured) -> list[str]:
    """Return sentences about what the columns do not show: compilation, and what makes
    a time less reliable."""
    notes = []
    if variant.compile_ns is not None:
        cached = ""
        if variant.compile_cached:
            cached = ", with kernels from the disk cache"
        notes.append(
            f"its first call, which compiles, took {duration(variant.compile_ns)}{cached}."
        )

    step_ns = variant.step_ns
    if step_ns and not variant.settled:
        notes.append("its step time had not settled when timing began.")

    if step_ns and step_ns.p90 > _MAX_STEADY_SPREAD * step_ns.p10:
        fast = duration(step_ns.p10)
        slow = duration(step_ns.p90)
        notes.append(f"its steps took from {fast} to {slow}: {DISTURBED}.")

    if variant.recompilations:
        notes.append(
            f"compiled {variant.recompilations} more graphs after the first step."
        )

    return notes


Row = Mapping[str, Any]
"""A variant at a point of a sweep, as sweep.json has it: the size of each axis by its
name, `variant`, `median_ns`, `p10_ns`, `p90_ns` and `n_samples`, and what
`command.ROW_FIELDS` names. What was not measured is None."""
MAX_BAR_CELLS = 40


def format_sweep_table(rows: Sequence[Row], axes: Sequence[str]) -> str:
    """Return a line per point of a sweep with the time per step of each variant and its
    speed-up. Below are the reasons why variants failed, and the points at which
    something else was running."""
    variants = list(dict.fromkeys(row["variant"] for row in rows))
    columns = [Column(" ".join(axes), left=True)]

    columns += [Column(printable(variant)) for variant in variants]
    lines = []
    for sizes, point_rows in group_by_point(rows, axes):
        row_of = {row["variant"]: row for row in point_rows}
        baseline_ns = _find_baseline_ns(point_rows)
        times = [
            _format_time_and_speed_up(row_of.get(variant), baseline_ns)
            for variant in variants
        ]
        lines.append([sizes, *times])

    failures: dict[str, None] = {}  # each once, in order
    for row in rows:
        if row["failed"]:
            failures[f"{row['variant']}: {row['failed']}"] = None

    notes = [*failures, *_describe_disturbances(rows, axes, variants)]
    return "\n".join([table(columns, lines), *map(printable, notes)])


def _describe_disturbances(
    rows: Sequence[Row], axes: Sequence[str], variants: Sequence[str]
) -> list[str]:
    """Return a sentence for each variant whose steps took very different times at some
    points. Empty if no step was disturbed.

        loop: at batch = 64, 128: something else was running.
    """
    notes = []
    for variant in variants:
        disturbed = []
        for sizes, point_rows in group_by_point(rows, axes):
            for row in point_rows:
                if row["variant"] == variant and _is_disturbed(row):
                    disturbed.append(sizes)
        if disturbed:
            where = f"{' '.join(axes)} = {', '.join(disturbed)}"
            notes.append(f"{variant}: at {where}: {DISTURBED}.")

    return notes


def _is_disturbed(row: Row) -> bool:
    """Return whether the step times of a row spread more than those of an undisturbed
    run. False if they were not measured."""
    p10_ns = row["p10_ns"]
    p90_ns = row["p90_ns"]
    if p10_ns is None or p90_ns is None:
        return False
    return bool(p90_ns > _MAX_STEADY_SPREAD * p10_ns)


def draw_sweep_chart(
    rows: Sequence[Row], axes: Sequence[str], *, ascii_only: bool = False
) -> str:
    """Return bars of the time per step as text, a group per point, each group on its
    own scale. `rows` must not be empty."""
    block = "#" if ascii_only else "█"
    name_cells = max(width(printable(row["variant"])) for row in rows)
    lines = ["Time per step; the longest bar of each group has the same length."]
    for sizes, point_rows in group_by_point(rows, axes):
        lines += ["", f"{' '.join(axes)} = {sizes}"]
        lines += _draw_bars(point_rows, block, name_cells)
    return "\n".join(lines)


def _draw_bars(rows: Sequence[Row], block: str, name_width: int) -> list[str]:
    """Return a bar for each variant that was timed at one point. The longest bar has
    MAX_BAR_CELLS cells."""
    baseline_ns = _find_baseline_ns(rows)
    timed = [row for row in rows if row["median_ns"] is not None]

    longest_ns = max((row["median_ns"] for row in timed), default=0)
    bars = []
    for row in timed:
        cells = round(MAX_BAR_CELLS * row["median_ns"] / max(longest_ns, 1))
        bar = block * max(cells, 1)
        name = pad(printable(row["variant"]), name_width)
        figures = _format_time_and_speed_up(row, baseline_ns)
        bars.append(f"  {name} {bar:{MAX_BAR_CELLS}} {figures}")

    return bars


def format_sweep_csv(rows: Sequence[Row]) -> str:
    """Return the rows as CSV with a header, or "" if there are no rows."""
    if not rows:
        return ""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def group_by_point(
    rows: Sequence[Row], axes: Sequence[str]
) -> Iterable[tuple[str, list[Row]]]:
    """Return the rows of each point, with its sizes as text such as `64 4`, in the
    order of the rows."""
    return by_key(rows, lambda row: " ".join(str(row[axis]) for axis in axes)).items()


def _find_baseline_ns(point_rows: Sequence[Row]) -> int | None:
    """Return the median time of the first variant that was timed at a point; None if
    none was."""
    for row in point_rows:
        if row["median_ns"] is not None:
            return int(row["median_ns"])
    return None


def _format_time_and_speed_up(row: Row | None, baseline_ns: int | None) -> str:
    """Return a time and its speed-up, such as `1.31 ms  2.10x`. It is `-` if there is
    no row or it was not timed."""
    if row is None or row["median_ns"] is None:
        return "-"
    median_ns = row["median_ns"]
    return f"{duration(median_ns)} {format_speed_up(baseline_ns, median_ns):>6}"
