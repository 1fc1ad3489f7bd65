"""How long our Triton kernels should take, from bytes, FLOP, waves of blocks and attainable rates.

    python -P benchmarks/predictions.py [--write]          for the devices of the sources
    python -P benchmarks/predictions.py --runs FOLDER      beside what runs on this GPU measured

A kernel takes as long as its arithmetic or its memory traffic, whichever is longer, at the rates
that devices attain in practice (trace/roofline/attainable.py); each tensor moves once. The blocks
that run at once follow from the registers and the shared memory of the compiled code, and a last
wave that is not full takes as long as a full one. Launching is not included.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parents[1]))

from benchmarks.capture_experiments import PAGE
from benchmarks.pages import put
from tests.kernels.launches import KERNELS, Launch, launches
from tests.kernels.machine_code import SHARED, Code, compiled

from fusetui import kernels
from fusetui.trace import open_trace
from fusetui.trace.questions.totals import kernel_totals
from fusetui.trace.roofline.attainable import attainable
from fusetui.trace.roofline.peaks import Peak, peak_of
from fusetui.trace.text.figures import duration, quantity, size
from fusetui.trace.text.tables import Column, table

DEVICES = {
    "NVIDIA A100-SXM4-80GB": ("sm_80", 108),
    "NVIDIA H100 80GB HBM3": ("sm_90", 132),
}
"""Devices by name: their architecture, and the number of multiprocessors."""
ITEM = 2  # bytes of bfloat16
THREADS, REGISTERS, RESERVED = 2048, 65_536, 1024
"""Limits of a multiprocessor, and the shared memory that each block takes besides its own."""
CASES = (
    ("mlp", "fused", "mlp"),
    ("mlp", "fused-gemm", "mlp"),
    ("partitioned-linear", "fused", "partitioned-linear"),
)
"""Workload, variant, and the folder of its run."""


@dataclass(frozen=True)
class Work:
    """What one launch does."""

    flop: int
    moved: int
    programs: int


def work_of(launch: Launch) -> Work:
    """FLOP and bytes, each tensor once."""
    programs = prod(launch.grid)
    if launch.kernel == "geglu_gemm":
        rows, hidden, dim = (launch[name] for name in ("rows", "hidden", "dim"))
        return Work(
            4 * rows * hidden * dim,
            ITEM * (rows * dim + 2 * hidden * dim + rows * hidden),
            programs,
        )
    if launch.kernel == "grouped_gemm":
        groups = launch.grid[1]
        m, n, k = (launch[name] for name in ("rows", "columns", "depth"))
        return Work(2 * groups * m * n * k, ITEM * groups * (m * k + k * n + m * n), programs)
    tensors = sum(kind.startswith("*") for _, kind in launch.signature)
    return Work(0, ITEM * tensors * launch["count"], programs)


def at_once(code: Code, architecture: str, multiprocessors: int) -> int:
    """How many blocks run at the same time."""
    threads = 32 * code.warps
    registers = ceil(code.registers / 8) * 8 * threads
    shared = (SHARED[architecture] + RESERVED) // (code.shared + RESERVED)
    return multiprocessors * max(min(THREADS // threads, REGISTERS // registers, shared), 1)


def predicted_ns(work: Work, slots: int, peak: Peak) -> int:
    """The longer of both times; a wave that is not full counts as a full one."""
    waves = ceil(work.programs / slots)
    busy = work.programs / (waves * slots)
    rate, bandwidth = peak.flop_per_s("bf16"), peak.bytes_per_s
    compute = work.flop / rate / busy if rate else 0.0
    memory = work.moved / bandwidth if bandwidth else 0.0
    return round(1e9 * max(compute, memory))


def rows(
    name: str, architecture: str, multiprocessors: int, runs: Path | None
) -> Iterator[Sequence[str]]:
    """A row for each launch of each case."""
    known = peak_of({"name": name, "numSms": multiprocessors})
    if known is None:
        return
    peak = attainable(known)
    for workload_name, variant, run in CASES:
        workload = kernels.get(workload_name)
        made = launches(
            workload, workload.variants[variant], workload.gpu_shapes, torch.bfloat16, architecture
        )
        measured = _measured(runs / run / f"{variant}.json.gz") if runs else {}
        for launch in made[: 1 if workload_name == "mlp" else None]:  # the others are of gradients
            work, code = work_of(launch), compiled(launch, architecture)
            slots = at_once(code, architecture, multiprocessors)
            yield (
                name,
                f"{workload_name} {variant}",
                launch.kernel.replace("_", " "),
                quantity(work.flop, "FLOP") if work.flop else "-",
                size(work.moved),
                f"{work.programs}",
                f"{work.programs / slots:.2f}",
                duration(predicted_ns(work, slots, peak)),
                *([measured.get(launch.kernel, "-")] if runs else ()),
            )


def _measured(path: Path) -> Mapping[str, str]:
    """The mean time of each of our kernels in a trace, by our name."""
    if not path.is_file():
        return {}
    totals = kernel_totals(open_trace(str(path), cached=False))
    found = {}
    for kernel, (_, function) in KERNELS.items():
        of_it = [one for one in totals if one.name.startswith(function)]
        count = sum(one.count for one in of_it)
        if count:
            found[kernel] = duration(sum(one.total_ns for one in of_it) // count)
    return found


def main() -> None:
    """Prints the table, and writes it into the page if requested."""
    parser = argparse.ArgumentParser(description="Predicts the times of our Triton kernels.")
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    devices = dict(DEVICES)
    if options.runs:
        found = torch.cuda.get_device_properties(torch.cuda.current_device())
        devices = {found.name: (f"sm_{found.major}{found.minor}", found.multi_processor_count)}
    lines = [line for name, given in devices.items() for line in rows(name, *given, options.runs)]
    names = ("device", "variant", "kernel", "FLOP", "bytes", "blocks", "waves", "predicted")
    columns = [Column(name, left=at < 3) for at, name in enumerate(names)]
    columns += [Column("measured")] if options.runs else []
    text = table(columns, lines)
    print(text)
    if options.write:
        put(PAGE, "predictions", f"```\n{text}\n```")


if __name__ == "__main__":
    main()
