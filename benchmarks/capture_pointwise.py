"""The fused pointwise kernel against Inductor's and against a copy of the same bytes,
on a GPU.

    python -P benchmarks/capture_pointwise.py [--out FILE.json]

gelu(gate) * up reads two tensors and writes one: three transfers. A copy of a tensor of
1.5 times the size moves the same bytes, which is the lower bound. Inputs are rotated so
that together they exceed the L2 cache. The benchmark also counts how often the shapes
made Triton compile.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch.nn.functional import gelu

from fusetui.capture.provenance import find_device
from fusetui.capture.step import forward_step, input_copies, run_step, time_steps
from fusetui.text.figures import duration
from fusetui.text.tables import Column, table

SHAPES = ((8192, 3072), (512, 3072), (8192, 12288), (4096, 3000), (1, 3072))
SECONDS = 1.0
HEADER = ("shape", "eager", "inductor", "fused", "copy", "fused / copy", "compilations")


def reference(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """What eager mode runs as two kernels."""
    return gelu(gate, approximate="tanh") * up


def measure(shape: tuple[int, int], cache_bytes: int) -> dict[str, int]:
    """Medians in ns for one shape, in bfloat16."""
    from fusetui.kernels.geglu import multiply

    pair = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
    elements = 3 * pair[0].numel() // 2
    copied = [
        torch.empty(elements, device="cuda", dtype=torch.bfloat16) for _ in range(2)
    ]
    ways: dict[str, tuple[Callable[..., object], list[torch.Tensor]]] = {
        "eager": (reference, pair),
        "inductor": (torch.compile(reference, dynamic=False), pair),
        "fused": (multiply, pair),
        "copy": (lambda target, source: target.copy_(source), copied),
    }
    return {name: _median(*way, cache_bytes) for name, way in ways.items()}


def _median(
    call: Callable[..., object], inputs: list[torch.Tensor], cache_bytes: int
) -> int:
    step = forward_step(call, "pointwise", input_copies(inputs, cache_bytes, False))
    with torch.no_grad():
        return time_steps(partial(run_step, step), "cuda", SECONDS).step_ns.median


def compilations() -> int:
    """How often Triton has compiled our forward kernel in this process."""
    from fusetui.kernels.geglu import geglu_forward_kernel_triton

    return len(
        geglu_forward_kernel_triton.device_caches[torch.cuda.current_device()][0]
    )


def row(result: dict[str, object]) -> list[str]:
    """One line of the table."""
    times = {name: int(str(result[name])) for name in HEADER[1:5]}
    cells = [duration(time) for time in times.values()]
    share = times["fused"] / times["copy"]
    return [str(result["shape"]), *cells, f"{share:.2f}", str(result["compilations"])]


def main() -> None:
    """Prints the table, and writes the figures as JSON if requested."""
    parser = argparse.ArgumentParser(description="Times gelu(gate) * up.")
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    device = find_device("cuda")
    measured = partial(measure, cache_bytes=device.cache_bytes)
    results: list[dict[str, object]] = [
        {
            "shape": "x".join(map(str, shape)),
            **measured(shape),
            "compilations": compilations(),
        }
        for shape in SHAPES
    ]
    print(f"gelu(gate) * up, bfloat16, on {device.name}\n")
    columns = [Column(title, left=not n) for n, title in enumerate(HEADER)]
    print(table(columns, [row(result) for result in results]))
    if out:
        out.write_text(
            json.dumps({"device": device.name, "results": results}, indent=2) + "\n"
        )


if __name__ == "__main__":
    main()
