"""A trace with modules, frames and a data loader that the GPU waits for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def training(steps: int = 3) -> list[dict[str, Any]]:
    """In each step of 1 ms the loader takes 600 us, and two modules launch a kernel
    each."""
    return [event for step in range(steps) for event in _step(step)]


def _step(step: int) -> Iterator[dict[str, Any]]:
    begin = 1000 * step
    yield slice_(f"ProfilerStep#{step}", "user_annotation", begin, 990)
    yield slice_("train.py(9): main", "python_function", begin + 1, 985)
    yield slice_(LOADER, "user_annotation", begin + 5, 600)
    yield slice_("scipy/zoom.py(7): zoom_shift", "python_function", begin + 10, 590)
    yield slice_("nn.Module: Net_0", "python_function", begin + 610, 300)
    for number, module in enumerate(("Attention_0", "MLP_0")):
        at, link = begin + 620 + 130 * number, {"correlation": 2 * step + number + 1}
        yield slice_(f"nn.Module: {module}", "python_function", at, 120)
        yield slice_(
            f"my_model.py({40 + number}): forward", "python_function", at + 2, 110
        )
        yield slice_("aten::mm", "cpu_op", at + 10, 90)
        yield slice_("cudaLaunchKernel", "cuda_runtime", at + 20, 10, args=link)
        yield slice_(GEMM, "kernel", at + 40, 80 + 20 * number, 0, 7, link)


def slice_(
    name: str,
    cat: str,
    ts: int,
    dur: int,
    pid: int = 1,
    tid: int = 1,
    args: dict[str, Any] | None = None,
) -> dict[str, Any]:
    event = {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": ts,
        "dur": dur,
    }
    return {**event, "args": args} if args else event
