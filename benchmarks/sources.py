"""What the sources measured beside what a run here measured, and why: the tables of
experiments.md.

The figures of the sources are in docs/sources.toml, ours come from the run folders, and
the reason is the account that `fusetui why` gives of the same runs' traces.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from fusetui import kernels
from fusetui.analysis.questions.totals import kernel_totals
from fusetui.analysis.why.answer import why
from fusetui.analysis.why.model import Why
from fusetui.capture.record import SavedRun, SavedVariant, read_run
from fusetui.report.why_answer import account_parts
from fusetui.text.figures import duration, percent
from fusetui.text.tables import Column, table
from fusetui.trace import Trace, open_trace

FACTS = Path(__file__).resolve().parents[1] / "docs" / "sources.toml"
CASES = {"big": "A", "loop": "B", "masked": "C"}
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
        """The variants that it is about."""
        return self.faster or self.weights or self.flop or (self.kernels or self.of,)


class Facts(msgspec.Struct, frozen=True):
    """The file: names of the sources, and their figures."""

    sources: dict[str, str]
    figure: tuple[Figure, ...]


def facts() -> Facts:
    """Raises msgspec.ValidationError if the file is not as described."""
    return msgspec.convert(tomllib.loads(FACTS.read_text(encoding="utf-8")), Facts)


def compared(experiment: str, folder: Path) -> str:
    """A table with a line for each figure about an experiment, and whose they are; or
    nothing."""
    known = facts()
    figures = [figure for figure in known.figure if figure.experiment == experiment]
    if not figures:
        return ""
    columns = [Column(name, left=True) for name in ("figure", "source", "here", "why")]
    rows = [row for figure in figures for row in _rows(figure, folder)]
    named = dict.fromkeys(known.sources[figure.source] for figure in figures)
    return "\n".join(
        [table(columns, rows), "", *(f"Source: {name}." for name in named)]
    )


def _rows(figure: Figure, folder: Path) -> list[tuple[str, ...]]:
    if figure.falls:
        return [_trend(figure, folder)]
    return [
        (_what(figure, point), said(figure), *_here(figure, folder / point))
        for point in figure.points
    ]


def _trend(figure: Figure, folder: Path) -> tuple[str, ...]:
    """The row of a claim that the speed-up becomes smaller from each point to the
    next."""
    first, last = figure.points[0], figure.points[-1]
    what = f"{_what(figure, first)} to {last}"
    speedups = [_speedup(figure, folder / point) for point in figure.points]
    known = [speedup for speedup in speedups if speedup is not None]
    if len(known) < len(figure.points):
        return what, said(figure), NOTHING, NOTHING
    listed = ", ".join(f"{speedup:.2f}x" for speedup in known)
    return what, said(figure), f"{listed}: {'yes' if falls(known) else 'no'}", NOTHING


def falls(speedups: Sequence[float]) -> bool:
    """Whether each is smaller than the one before."""
    return all(after < before for before, after in pairwise(speedups))


def _speedup(figure: Figure, folder: Path) -> float | None:
    """How many times as fast the first variant is as the second, where both were
    timed."""
    if not folder.is_dir():
        return None
    times = {
        one.name: one.step_ns for one in read_run(folder).variants if one.failed is None
    }
    quick, slow = (times.get(name) for name in figure.faster)
    return slow.median / quick.median if quick and slow else None


def _what(figure: Figure, point: str) -> str:
    names = [
        f"{name} ({CASES[name]})" if name in CASES else name for name in figure.variants
    ]
    if len(figure.variants) == 2:
        text = f"{names[0]} against {names[1]}"
        text = f"bytes of weights of {text}" if figure.weights else text
        text = f"FLOP of {text}" if figure.flop else text
    else:
        text = (
            f"kernels of {names[0]}"
            if figure.kernels
            else f"{figure.kernel} in {names[0]}"
        )
    return f"{text}, {point}" if point else text


def said(figure: Figure) -> str:
    """What the source says, in the form of our own figure."""
    if figure.said:
        return figure.said
    if figure.seconds:
        return f"{figure.seconds[1] / figure.seconds[0]:.1f}x"
    if figure.times is not None:
        return f"{figure.times:g}x"
    bounds = (("at least", figure.least), ("at most", figure.most))
    return " and ".join(f"{word} {bound:g}x" for word, bound in bounds if bound)


def _here(figure: Figure, folder: Path) -> tuple[str, str]:
    """Our figure, and why it is so."""
    if not folder.is_dir():
        return NOTHING, NOTHING
    run = read_run(folder)
    variants = {one.name: one for one in run.variants if one.failed is None}
    if any(name not in variants for name in figure.variants):
        return NOTHING, NOTHING
    traces = {
        name: open_trace(str(folder / f"{name}.json.gz"), cached=False)
        for name in figure.variants
    }
    reasons = dict.fromkeys(
        f"{name}: {reason(why(trace))}" for name, trace in traces.items()
    )
    return _measured(figure, run, variants, traces), "; ".join(reasons)


def _measured(
    figure: Figure,
    run: SavedRun,
    variants: Mapping[str, SavedVariant],
    traces: Mapping[str, Trace],
) -> str:
    if figure.kernels:
        return f"{variants[figure.kernels].kernels_per_step:g}"
    if figure.weights:
        many, few = (variants[name].weight_bytes for name in figure.weights)
        return f"{many / few:.1f}x" if many and few else NOTHING
    if figure.flop:
        many_flop, few_flop = (flop_of(run, name) for name in figure.flop)
        return f"{many_flop / few_flop:.1f}x"
    if figure.kernel:
        return (
            _kernel_time(traces[figure.of], figure.kernel)
            if run.device_kind == "cuda"
            else NOTHING
        )
    quick, slow = (variants[name].step_ns for name in figure.faster)
    if quick is None or slow is None:
        return NOTHING
    times = slow.median / quick.median
    return f"{times:.2f}x{answer(figure, times)}"


def flop_of(run: SavedRun, name: str) -> int:
    """The FLOP of a forward pass of a variant at the sizes of a run, as torch counts
    them; on tensors without data, so nothing is computed."""
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
    """Whether a claim holds, if there is one."""
    if figure.least is None and figure.most is None:
        return ""
    least, most = figure.least or 0, figure.most or float("inf")
    return ": yes" if least <= times <= most else ": no"


def _kernel_time(trace: Trace, pattern: str) -> str:
    found = [one for one in kernel_totals(trace) if re.search(pattern, one.name)]
    count = sum(one.count for one in found)
    return duration(sum(one.total_ns for one in found) // count) if count else NOTHING


def reason(found: Why) -> str:
    """The two largest parts of the time: of the GPU, or without one, of the busiest CPU
    thread."""
    if found.devices:
        return ", ".join(account_parts(found)[:2])
    if not found.cpu:
        return NOTHING
    thread = max(found.cpu, key=lambda one: one.op_ns)
    total = max(thread.span_ns, 1)
    parts = (
        ("ops", thread.op_ns),
        ("Python", thread.python_ns),
        ("nothing", thread.nothing_ns),
    )
    largest = sorted(parts, key=lambda part: -part[1])[:2]
    return ", ".join(f"{name} {percent(ns, total)}" for name, ns in largest if ns)
