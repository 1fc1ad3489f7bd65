"""How long our Triton kernels should take, from bytes, FLOP, waves of blocks and
attainable rates.

    python -P benchmarks/predictions.py [--write]          for the devices of the sources
    python -P benchmarks/predictions.py --runs FOLDER      beside what runs on this GPU measured

With `--write` they go into docs/experiments.md, each below the GPU table of its
experiment.

A kernel takes as long as its arithmetic or its memory traffic, whichever is longer;
each tensor moves once, in the dtype of its workload. Two rates are known: those that
devices attain in practice (src/fusetui/gpu/roofline/peaks.py), and those that the
kernels of the source reached on its device, as a share of the former; that share is
assumed of every device. The best case assumes the higher of the two, which the table
names, the slow end the lower. The blocks that run at once follow from the registers and
the shared memory of the compiled code, and a last wave that is not full takes as long
as a full one. Launching is not included.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil, prod
from pathlib import Path

import msgspec
import torch

sys.path.append(str(Path(__file__).parents[1]))

from benchmarks.capture_experiments import EXPERIMENTS, PAGE, Experiment
from benchmarks.pages import put
from tests.kernels.launches import KERNELS, Launch, launches
from tests.kernels.machine_code import SHARED, Code, compiled

from fusetui import kernels
from fusetui.analysis.questions.totals import sum_kernels_by_name
from fusetui.capture.options import parse_sweep
from fusetui.gpu.roofline.peaks import Peak, attainable, peak_of
from fusetui.text.figures import duration, quantity, size
from fusetui.text.tables import Column, table
from fusetui.trace import open_trace

DEVICES = {
    "NVIDIA A100-SXM4-80GB": ("sm_80", 108),
    "NVIDIA H100 80GB HBM3": ("sm_90", 132),
}
"""Devices by name: their architecture, and the number of multiprocessors."""
OURS = ("fused", "fused-gemm")
"""Variants whose kernels are ours."""
ITEM_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
"""By the kind of arithmetic of a launch, as Triton calls the dtype of its tensors."""
THREADS, REGISTERS, RESERVED = 2048, 65_536, 1024
"""Limits of a multiprocessor, and the shared memory that each block takes besides its
own."""


SOURCE_DEVICE = "NVIDIA A100-SXM4-80GB"
SOURCE_KIND = "bf16"
SOURCE_FLOP = 2 * 8192 * 768 * 3072
SOURCE_GEMM_SECONDS = 190e-6
"""The GEMM of gate in the MLP of the source, and its time with cuBLAS."""
SOURCE_BYTES = 3 * 8192 * 3072 * ITEM_BYTES[SOURCE_KIND]
SOURCE_POINTWISE_SECONDS = 89.4e-6
"""What gelu and mul as one kernel move there, and the time of the generated kernel."""


@dataclass(frozen=True)
class Work:
    """What one launch does, and the kind of its arithmetic: a key of `Peak.teraflops`."""

    flop: int
    moved: int
    programs: int
    kind: str = SOURCE_KIND


def work_of(launch: Launch) -> Work:
    """Return the FLOP and the bytes of a launch, in which each tensor moves once, and
    the number of its blocks."""
    kind = next(kind[1:] for _, kind in launch.signature if kind.startswith("*"))

    item_bytes = ITEM_BYTES[kind]
    programs = prod(launch.grid)
    if launch.kernel == "geglu_gemm":
        rows, hidden, dim = (launch[name] for name in ("rows", "hidden", "dim"))
        elements = rows * dim + 2 * hidden * dim + rows * hidden
        return Work(
            flop=4 * rows * hidden * dim,
            moved=item_bytes * elements,
            programs=programs,
            kind=kind,
        )

    if launch.kernel == "grouped_gemm":
        groups = launch.grid[1]
        m, n, k = (launch[name] for name in ("rows", "columns", "depth"))
        return Work(
            flop=2 * groups * m * n * k,
            moved=item_bytes * groups * (m * k + k * n + m * n),
            programs=programs,
            kind=kind,
        )

    tensors = sum(kind.startswith("*") for _, kind in launch.signature)

    return Work(
        flop=0,
        moved=item_bytes * tensors * launch["count"],
        programs=programs,
        kind=kind,
    )


def at_once(code: Code, architecture: str, multiprocessors: int) -> int:
    """Return how many blocks of a kernel run at the same time on a GPU. Threads,
    registers and shared memory limit them."""
    threads = 32 * code.warps
    registers = ceil(code.registers / 8) * 8 * threads
    shared = (SHARED[architecture] + RESERVED) // (code.shared + RESERVED)
    return multiprocessors * max(
        min(THREADS // threads, REGISTERS // registers, shared), 1
    )


@dataclass(frozen=True)
class Seconds:
    """What the arithmetic of a launch takes, and what its memory traffic does; 0 for
    what has no known rate."""

    arithmetic: float
    traffic: float


def seconds_of(work: Work, slots: int, peak: Peak) -> Seconds:
    """Return the seconds that the arithmetic of a launch takes and those of its memory
    traffic, at the rates of `peak`. A last wave of blocks that is not full takes as
    long as a full one."""
    waves = ceil(work.programs / slots)
    busy_share = work.programs / (waves * slots)
    rate, bandwidth = peak.flop_per_s(work.kind), peak.bytes_per_s
    return Seconds(
        arithmetic=work.flop / rate / busy_share if rate else 0.0,
        traffic=work.moved / bandwidth if bandwidth else 0.0,
    )


def predicted_ns(work: Work, slots: int, peak: Peak) -> int:
    """Return the predicted time of a launch in ns: that of its arithmetic or its memory
    traffic, whichever is longer."""
    seconds = seconds_of(work, slots, peak)
    return round(1e9 * max(seconds.arithmetic, seconds.traffic))


def assumed(work: Work, slots: int, peak: Peak) -> str:
    """Return the rate that the best case assumes of what limits the kernel, its
    arithmetic or its memory traffic, as text."""
    seconds = seconds_of(work, slots, peak)
    rate, bandwidth = peak.flop_per_s(work.kind), peak.bytes_per_s
    if rate and seconds.arithmetic > seconds.traffic:
        return quantity(rate, "FLOP/s")
    return quantity(bandwidth, "B/s") if bandwidth else "-"


@dataclass(frozen=True)
class Shares:
    """What the kernels of the source reached, as shares of the attainable rates of its
    device."""

    arithmetic: float
    bandwidth: float


def shares_of_source() -> Shares:
    """Return what the kernels of the source reached, as shares of the attainable rates
    of its device: its GEMM, and its fused pointwise kernel."""
    _, multiprocessors = DEVICES[SOURCE_DEVICE]
    peak = _peak(SOURCE_DEVICE, multiprocessors)
    assert peak is not None, "the device of the source is listed"
    rate, bandwidth = peak.flop_per_s(SOURCE_KIND), peak.bytes_per_s
    assert rate, "with its rate in that format"
    assert bandwidth, "and its bandwidth"

    return Shares(
        arithmetic=SOURCE_FLOP / SOURCE_GEMM_SECONDS / rate,
        bandwidth=SOURCE_BYTES / SOURCE_POINTWISE_SECONDS / bandwidth,
    )


def best_case(peak: Peak) -> Peak:
    """Return the higher of two rates each: what the device attains, and what the source
    would reach on it."""
    shares = shares_of_source()
    return _scaled(peak, max(1.0, shares.arithmetic), max(1.0, shares.bandwidth))


def slow_end(peak: Peak) -> Peak:
    """Return the lower of two rates each: what the device attains, and what the source
    would reach on it."""
    shares = shares_of_source()
    return _scaled(peak, min(1.0, shares.arithmetic), min(1.0, shares.bandwidth))


def _scaled(peak: Peak, arithmetic: float, bandwidth: float) -> Peak:
    """Return the rates with the arithmetic and the bandwidth multiplied by these
    factors."""
    return msgspec.structs.replace(
        peak,
        teraflops={kind: arithmetic * rate for kind, rate in peak.teraflops.items()},
        gigabytes_per_s=bandwidth * peak.gigabytes_per_s,
    )


@dataclass(frozen=True)
class Use:
    """A launch in an experiment, at a point of its sweep; `run` is the trace with its
    time."""

    what: str
    launch: Launch
    run: Path
    once: bool


def uses(experiment: Experiment, architecture: str) -> Iterator[Use]:
    """Yield the launches of our kernels in an experiment, in the order of a step. They
    have the dtype in which the experiment runs on a GPU."""
    workload = kernels.get(experiment.workload)
    dtype = getattr(torch, workload.dtype_on("cuda"))
    for point in _points(experiment):
        sizes = [f"{axis}={size}" for axis, size in point.items()]
        shapes = {**workload.gpu_shapes, **point}
        for name in (one for one in OURS if one in workload.variants):
            variant = workload.variants[name]
            made = launches(workload, variant, shapes, dtype, architecture)
            used = made if experiment.backward else made[:1]

            names = [launch.kernel for launch in used]
            run = Path(experiment.name, ",".join(sizes), f"{name}.json.gz")
            for launch in used:
                yield Use(
                    " ".join([name, *sizes]),
                    launch,
                    run,
                    names.count(launch.kernel) == 1,
                )


def _peak(name: str, multiprocessors: int) -> Peak | None:
    """Return the rates that a device attains in practice, or None if its peaks are not
    known."""
    known = peak_of({"name": name, "numSms": multiprocessors})
    return attainable(known) if known else None


def rows(
    experiment: Experiment,
    name: str,
    architecture: str,
    multiprocessors: int,
    runs: Path | None,
) -> Iterator[Sequence[str]]:
    """Yield a row for each launch of our kernels in an experiment on one device."""
    peak = _peak(name, multiprocessors)
    for use in uses(experiment, architecture):
        work, code = work_of(use.launch), compiled(use.launch, architecture)
        slots = at_once(code, architecture, multiprocessors)
        assert peak is not None, "main has asked"
        best, slow = best_case(peak), slow_end(peak)
        yield (
            name,
            use.what,
            use.launch.kernel.replace("_", " "),
            work.kind,
            quantity(work.flop, "FLOP") if work.flop else "-",
            size(work.moved),
            f"{work.programs}",
            f"{work.programs / slots:.2f}",
            assumed(work, slots, best),
            duration(predicted_ns(work, slots, best)),
            duration(predicted_ns(work, slots, slow)),
            *([_measured(runs, use)] if runs else ()),
        )


def _points(experiment: Experiment) -> Sequence[Mapping[str, int]]:
    """Return the points of the sweep of an experiment; one empty point without a sweep."""
    if not experiment.sweep:
        return ({},)
    workload = kernels.get(experiment.workload)
    return parse_sweep([experiment.sweep], list(workload.gpu_shapes), workload.sweeps)


def _measured(runs: Path, use: Use) -> str:
    """Return the mean time of a kernel in the trace of its run, or "-" unless it runs
    once in a step."""
    path, (_, function) = runs / use.run, KERNELS[use.launch.kernel]
    if not (use.once and path.is_file()):
        return "-"
    totals = sum_kernels_by_name(open_trace(str(path), cached=False))
    found = [one for one in totals if one.name.startswith(function)]
    count = sum(one.count for one in found)
    return duration(sum(one.total_ns for one in found) // count) if count else "-"


def main() -> None:
    """Predict the times for all devices and print the tables; with --write they go into
    the page. Exits if the peak rates of a device are unknown."""
    parser = argparse.ArgumentParser(
        description="Predicts the times of our Triton kernels."
    )
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--write", action="store_true")

    options = parser.parse_args()
    devices = dict(DEVICES)
    if options.runs:
        found = torch.cuda.get_device_properties(torch.cuda.current_device())
        devices = {
            found.name: (f"sm_{found.major}{found.minor}", found.multi_processor_count)
        }

    columns = [Column(name, left=True) for name in ("device", "variant", "kernel")]
    columns += [Column("dtype", left=True)]
    columns += [Column(name) for name in ("FLOP", "bytes", "blocks", "waves")]
    columns += [Column("assumes at best"), Column("best case"), Column("slow end")]
    columns += [Column("measured")] if options.runs else []

    unknown = [name for name, (_, count) in devices.items() if not _peak(name, count)]
    if unknown:
        sys.exit(
            f"the peak rates of {', '.join(unknown)} are not known: "
            "add them to src/fusetui/gpu/roofline."
        )

    for experiment in EXPERIMENTS:
        made = (
            rows(experiment, name, *given, options.runs)
            for name, given in devices.items()
        )
        lines = list(chain.from_iterable(made))
        if lines:
            text = table(columns, lines)
            print(f"{experiment.name}\n\n{text}\n")
            if options.write:
                put(PAGE, f"{experiment.name} predicted", f"```\n{text}\n```", __file__)


if __name__ == "__main__":
    main()
