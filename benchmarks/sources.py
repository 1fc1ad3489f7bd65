"""What the sources measured beside what a run here measured, and why: tables of
experiments.md.

The figures of the sources are in docs/sources.toml. Ours come from run folders, and the
reason is the breakdown that `fusetui why` makes of the traces of the same runs.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from fusetui import kernels
from fusetui.analysis.questions.totals import sum_kernels_by_name
from fusetui.analysis.why.answer import why
from fusetui.analysis.why.model import Why
from fusetui.capture.record import SavedRun, SavedVariant, read_run
from fusetui.report.why_answer import make_account_parts
from fusetui.text.figures import duration, percent
from fusetui.text.tables import Column, table
from fusetui.trace import Trace, open_trace

FACTS = Path(__file__).resolve().parents[1] / "docs" / "sources.toml"
NAMES_IN_SOURCE = {"big": "A", "loop": "B", "masked": "C"}
"""What the source of partitioned-linear calls the variants."""
NOTHING = "-"


class Figure(msgspec.Struct, frozen=True):
    """One figure of a source; docs/sources.toml describes the fields."""

    experiment: str
    source: str
    said: str = ""
    kernels: str = ""
    kernel: str = ""
    of: str = ""
    faster: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()
    flop: tuple[str, ...] = ()
    falls: bool = False
    points: tuple[str, ...] = ("",)
    times: float | None = None
    seconds: tuple[float, float] | None = None
    least: float | None = None
    most: float | None = None

    @property
    def variants(self) -> tuple[str, ...]:
        """The names of the variants that it is about: two that are compared, or one."""
        return self.faster or self.weights or self.flop or (self.kernels or self.of,)


class Facts(msgspec.Struct, frozen=True):
    """docs/sources.toml: the sources by their short names, and their figures."""

    sources: dict[str, str]
    figure: tuple[Figure, ...]


def facts() -> Facts:
    """Return the content of docs/sources.toml. Raises msgspec.ValidationError if it has
    another form."""
    return msgspec.convert(tomllib.loads(FACTS.read_text(encoding="utf-8")), Facts)


def compared(experiment: str, folder: Path) -> str:
    """Return a table with a line for each figure about an experiment, and the sources
    below it. "" without figures. `folder` is that of the run, or of the sweep."""
    known = facts()
    figures = [figure for figure in known.figure if figure.experiment == experiment]
    if not figures:
        return ""

    columns = [Column(name, left=True) for name in ("figure", "source", "here", "why")]

    rows: list[tuple[str, ...]] = []
    for figure in figures:
        rows += _rows(figure, folder)

    sources = dict.fromkeys(known.sources[figure.source] for figure in figures)
    lines = [table(columns, rows), ""]
    lines += [f"Source: {source}." for source in sources]
    return "\n".join(lines)


def _rows(figure: Figure, folder: Path) -> list[tuple[str, ...]]:
    """Return a row for each point that a figure is about: what it is, the source's
    figure, ours, and why. A figure about a trend has one row."""
    if figure.falls:
        return [_make_trend_row(figure, folder)]
    rows: list[tuple[str, ...]] = []
    for point in figure.points:
        here, reasons = _measure_here(figure, folder / point)
        rows.append((_name_figure(figure, point), said(figure), here, reasons))
    return rows


def _make_trend_row(figure: Figure, folder: Path) -> tuple[str, ...]:
    """Return the row of a claim that the speed-up becomes smaller from each point to
    the next."""
    what = f"{_name_figure(figure, figure.points[0])} to {figure.points[-1]}"
    speedups: list[float] = []
    for point in figure.points:
        speedup = _compute_speedup(figure, folder / point)
        if speedup is None:
            return what, said(figure), NOTHING, NOTHING
        speedups.append(speedup)

    listed = ", ".join(f"{speedup:.2f}x" for speedup in speedups)
    verdict = "yes" if falls(speedups) else "no"
    return what, said(figure), f"{listed}: {verdict}", NOTHING


def falls(speedups: Sequence[float]) -> bool:
    """Whether each is smaller than the one before."""
    return all(after < before for before, after in pairwise(speedups))


def _compute_speedup(figure: Figure, folder: Path) -> float | None:
    """Return how many times as fast the first variant of a figure is as the second;
    None unless both were timed."""
    if not folder.is_dir():
        return None
    variants = _variants_that_ran(read_run(folder))
    fast, slow = figure.faster
    if fast not in variants or slow not in variants:
        return None
    return _compute_time_ratio(slow=variants[slow], fast=variants[fast])


def _compute_time_ratio(slow: SavedVariant, fast: SavedVariant) -> float | None:
    """Return the time of the slow variant divided by that of the fast one, or None if
    one was not timed."""
    if slow.step_ns is None or fast.step_ns is None:
        return None
    return slow.step_ns.median / fast.step_ns.median


def _variants_that_ran(run: SavedRun) -> dict[str, SavedVariant]:
    return {variant.name: variant for variant in run.variants if variant.failed is None}


def _name_figure(figure: Figure, point: str) -> str:
    """Return what a figure is about, such as `big (A) against loop (B), batch=2`."""
    names = []
    for name in figure.variants:
        in_source = NAMES_IN_SOURCE.get(name)
        names.append(f"{name} ({in_source})" if in_source else name)

    if figure.kernels:
        text = f"kernels of {names[0]}"
    elif figure.kernel:
        text = f"{figure.kernel} in {names[0]}"
    else:
        text = f"{names[0]} against {names[1]}"

    if figure.weights:
        text = f"bytes of weights of {text}"

    if figure.flop:
        text = f"FLOP of {text}"

    return f"{text}, {point}" if point else text


def said(figure: Figure) -> str:
    """Return what the source says, in the form of our own figure: `8.4x`, or `at least
    1.5x and at most 3x`."""
    if figure.said:
        return figure.said

    if figure.seconds:
        fast, slow = figure.seconds
        return f"{slow / fast:.1f}x"

    if figure.times is not None:
        return f"{figure.times:g}x"

    bounds = []
    if figure.least:
        bounds.append(f"at least {figure.least:g}x")

    if figure.most:
        bounds.append(f"at most {figure.most:g}x")

    return " and ".join(bounds)


def _measure_here(figure: Figure, folder: Path) -> tuple[str, str]:
    """Return our figure and the reason for it. Both are dashes if the run or one of its
    variants is missing."""
    if not folder.is_dir():
        return NOTHING, NOTHING

    run = read_run(folder)

    variants = _variants_that_ran(run)
    if any(name not in variants for name in figure.variants):
        return NOTHING, NOTHING

    traces = {}
    reasons = []
    for name in figure.variants:
        traces[name] = open_trace(str(folder / f"{name}.json.gz"), cached=False)
        reasons.append(f"{name}: {reason(why(traces[name]))}")

    return _compute_figure(figure, run, variants, traces), "; ".join(reasons)


def _compute_figure(
    figure: Figure,
    run: SavedRun,
    variants: Mapping[str, SavedVariant],
    traces: Mapping[str, Trace],
) -> str:
    """Return our figure as text, and whether a claim of the source holds here."""
    if figure.kernels:
        return f"{variants[figure.kernels].kernels_per_step:g}"

    if figure.weights:
        many, few = (variants[name].weight_bytes for name in figure.weights)
        return f"{many / few:.1f}x" if many and few else NOTHING

    if figure.flop:
        many_flop, few_flop = (count_flop(run, name) for name in figure.flop)
        return f"{many_flop / few_flop:.1f}x"

    if figure.kernel:
        if run.device_kind != "cuda":
            return NOTHING
        return _mean_kernel_time(traces[figure.of], figure.kernel)

    fast, slow = figure.faster
    times = _compute_time_ratio(slow=variants[slow], fast=variants[fast])
    return NOTHING if times is None else f"{times:.2f}x{answer(figure, times)}"


def count_flop(run: SavedRun, name: str) -> int:
    """Return the FLOP of a forward pass of a variant at the sizes of a run, as torch
    counts them. Tensors have no data, so nothing is computed."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    workload = kernels.get(run.workload)
    with torch.device("meta"):
        model = workload.variants[name].build(workload.model(run.shapes))
        inputs = workload.inputs(run.shapes)
        with FlopCounterMode(display=False) as counter:
            model(*inputs)

    return int(counter.get_total_flops())


def answer(figure: Figure, times: float) -> str:
    """Return `: yes` or `: no`, whether a claim of the source holds for our figure, or
    "" without a claim."""
    if figure.least is None and figure.most is None:
        return ""
    least = figure.least or 0
    most = figure.most or float("inf")
    return ": yes" if least <= times <= most else ": no"


def _mean_kernel_time(trace: Trace, pattern: str) -> str:
    """Return the mean time of the kernels whose names match a pattern, or a dash if
    there are none."""
    count = 0
    total_ns = 0
    for kernel in sum_kernels_by_name(trace):
        if re.search(pattern, kernel.name):
            count += kernel.count
            total_ns += kernel.total_ns
    return duration(total_ns // count) if count else NOTHING


def reason(breakdown: Why) -> str:
    """Return the two largest parts of the time: of the GPU, or without one of the
    busiest CPU thread."""
    if breakdown.devices:
        return ", ".join(make_account_parts(breakdown)[:2])
    if not breakdown.cpu:
        return NOTHING

    thread = max(breakdown.cpu, key=lambda thread: thread.op_ns)
    span_ns = max(thread.span_ns, 1)
    parts = [
        ("ops", thread.op_ns),
        ("Python", thread.python_ns),
        ("nothing", thread.nothing_ns),
    ]
    parts.sort(key=lambda part: part[1], reverse=True)
    return ", ".join(f"{name} {percent(ns, span_ns)}" for name, ns in parts[:2] if ns)
