"""Times the fused pointwise kernel beside Inductor's and beside a copy of the same
bytes, on a GPU.

    python -P benchmarks/capture_pointwise.py [--out FILE.json]

gelu(gate) * up reads two tensors and writes one: three transfers. A copy of a tensor of
1.5 times the size moves the same bytes, which is the lower bound. Inputs are rotated so
that together they exceed the L2 cache. The benchmark also counts how often the shapes
made Triton compile.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import torch
from torch.nn.functional import gelu

from fusetui.capture.provenance import find_device
from fusetui.capture.step import forward_step, input_copies, run_step, time_steps
from fusetui.text.figures import duration
from fusetui.text.tables import Column, table

SHAPES = ((8192, 3072), (512, 3072), (8192, 12288), (4096, 3000), (1, 3072))
TIMING_SECONDS = 1.0
WAYS = ("eager", "inductor", "fused", "copy")
"""How the result is computed, in the order of the columns."""


def reference(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Return gelu(gate) * up, which eager mode computes with two kernels."""
    return gelu(gate, approximate="tanh") * up


def measure(shape: tuple[int, int], cache_bytes: int) -> dict[str, int]:
    """Return the median time of each way in ns, for tensors of one shape in bfloat16."""
    from fusetui.kernels.geglu import multiply

    gate, up = (
        torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(2)
    )
    copied_elements = 3 * gate.numel() // 2
    target, source = (
        torch.empty(copied_elements, device="cuda", dtype=torch.bfloat16)
        for _ in range(2)
    )
    compiled = torch.compile(reference, dynamic=False)

    return {
        "eager": _time_call(reference, [gate, up], cache_bytes),
        "inductor": _time_call(compiled, [gate, up], cache_bytes),
        "fused": _time_call(multiply, [gate, up], cache_bytes),
        "copy": _time_call(torch.Tensor.copy_, [target, source], cache_bytes),
    }


def _time_call(
    call: Callable[..., object], inputs: list[torch.Tensor], cache_bytes: int
) -> int:
    """Return the median time of a call in ns. The inputs are copied until they exceed
    the cache, so that no call finds its inputs there."""
    copies = input_copies(inputs, cache_bytes, backward=False)
    step = forward_step(call, "pointwise", copies)
    with torch.no_grad():
        timing = time_steps(partial(run_step, step), "cuda", TIMING_SECONDS)
    return timing.step_ns.median


def compilations() -> int:
    """Return how often Triton has compiled our forward kernel in this process."""
    from fusetui.kernels.geglu import geglu_forward_kernel_triton

    device = torch.cuda.current_device()
    compiled, *_ = geglu_forward_kernel_triton.device_caches[device]
    return len(compiled)


def row(result: Mapping[str, Any]) -> list[str]:
    """Return the cells of one line of the table: the shape, the time of each way, and
    the number of compilations."""
    times = [duration(result[way]) for way in WAYS]
    share = result["fused"] / result["copy"]
    return [result["shape"], *times, f"{share:.2f}", str(result["compilations"])]


def main() -> None:
    """Measure all shapes and print the table. With --out, the figures are written as
    JSON too."""
    parser = argparse.ArgumentParser(description="Times gelu(gate) * up.")
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out

    device = find_device("cuda")
    results: list[dict[str, Any]] = []
    for shape in SHAPES:
        result: dict[str, Any] = {"shape": "x".join(str(size) for size in shape)}
        result |= measure(shape, device.cache_bytes)
        result["compilations"] = compilations()
        results.append(result)

    print(f"gelu(gate) * up, bfloat16, on {device.name}\n")
    columns = [Column("shape", left=True)]
    columns += [Column(title) for title in (*WAYS, "fused / copy", "compilations")]
    print(table(columns, [row(result) for result in results]))

    if out:
        document = {"device": device.name, "results": results}
        out.write_bytes(
            orjson.dumps(
                document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
            )
        )


if __name__ == "__main__":
    main()
