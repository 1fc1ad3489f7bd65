"""A trace with work of several families, Python frames, and lanes that say little."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

ATTENTION = "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::Params)"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >"
GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
FRAMES = (
    "run.py(3): <module>",
    "train.py(9): main",
    "loop.py(20): step",
    "model.py(7): forward",
)
MAIN, OTHER = 100, 101


def mixed(steps: int = 2) -> list[dict[str, Any]]:
    """Steps of 1 ms: a GEMM, an attention, and additions that take longer than both
    together; a collective beside them. A second thread waits, the profiler has a lane
    of its own."""
    end = 1000 * steps
    return [
        *_frames(end),
        *(event for step in range(steps) for event in _step(step)),
        _slice("threading.py(9): wait", "python_function", 0, end, tid=OTHER),
        _slice("PyTorch Profiler (0)", "Trace", 0, end, "Spans", "PyTorch Profiler"),
    ]


def _frames(end: int) -> Iterator[dict[str, Any]]:
    for deep, name in enumerate(FRAMES[:2]):
        yield _slice(name, "python_function", deep, end - 2 * deep)


def _step(step: int) -> Iterator[dict[str, Any]]:
    begin = 1000 * step
    yield _slice(f"ProfilerStep#{step}", "user_annotation", begin + 3, 990)
    yield _slice(FRAMES[2], "python_function", begin + 5, 980)
    yield _slice("nn.Module: Net_0", "python_function", begin + 100, 700)
    yield _slice(FRAMES[3], "python_function", begin + 110, 600)
    work = [(GEMM, 100), (ATTENTION, 60), *[(ADD, 25)] * 10]
    gpu = begin + 160
    for number, (kernel, dur) in enumerate(work):
        at, link = begin + 120 + 40 * number, {"correlation": 100 * step + number + 1}
        yield _slice("aten::op", "cpu_op", at, 30)
        yield _slice("aten::inner", "cpu_op", at + 2, 26)
        yield _slice("cudaLaunchKernel", "cuda_runtime", at + 10, 8, args=link)
        yield _slice(kernel, "kernel", gpu, dur, 0, 7, link)
        gpu += dur + 2
    yield _slice(NCCL, "kernel", begin + 300, 450, 0, 9)


def _slice(
    name: str,
    cat: str,
    ts: int,
    dur: int,
    pid: int | str = 100,
    tid: int | str = MAIN,
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
