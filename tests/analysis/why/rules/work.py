"""Kernels that ops launch, one after the other on one stream."""

from __future__ import annotations

from typing import Any

ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
    "at::detail::Array<char*, 3> >(int, at::native::CUDAFunctor_add<float>, "
    "at::detail::Array<char*, 3>)"
)
COPY = (
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda("
    "at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#7}::operator()() const::"
    "{lambda(float)#1}, at::detail::Array<char*, 2> >(int)"
)
FILL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, "
    "at::detail::Array<char*, 1> >(int, at::native::FillFunctor<float>, "
    "at::detail::Array<char*, 1>)"
)
SOFTMAX = (
    "void (anonymous namespace)::softmax_warp_forward<float, float, float, 7, false, false>("
    "float*, float const*, int, int, int, bool const*, int, bool)"
)
SGEMM = "ampere_sgemm_128x64_tn"
ALL_REDUCE = (
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"
)
A100 = {"deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-80GB", "numSms": 108}]}
ROWS = {"Input Dims": [[1024, 1024], [1024, 1024]], "Input type": ["float", "float"]}
"""Two tensors of 4.19 MB."""

Event = dict[str, Any]


def work(
    *kernels: tuple[str, str, int], gap: int = 0, args: Event | None = None
) -> list[Event]:
    """(op, kernel, dur) of each kernel, all launched before the first one runs."""
    found: list[Event] = []
    ts = 1_000
    for n, (op, kernel, dur) in enumerate(kernels):
        link = {"correlation": n + 1}
        found += [
            {
                "ph": "X",
                "cat": "cpu_op",
                "name": op,
                "pid": 1,
                "tid": 1,
                "ts": n * 10,
                "dur": 8,
            }
            | ({"args": args} if args else {}),
            {
                "ph": "X",
                "cat": "cuda_runtime",
                "name": "cudaLaunchKernel",
                "pid": 1,
                "tid": 1,
            }
            | {"ts": n * 10 + 2, "dur": 2, "args": link},
            {
                "ph": "X",
                "cat": "kernel",
                "name": kernel,
                "pid": 0,
                "tid": 7,
                "ts": ts,
                "dur": dur,
            }
            | {"args": link},
        ]
        ts += dur + gap
    return found


def module(name: str, ts: int, dur: int) -> Event:
    """The call of a module around ops."""
    return {
        "ph": "X",
        "cat": "python_function",
        "name": f"nn.Module: {name}",
        "pid": 1,
        "tid": 1,
        "ts": ts,
        "dur": dur,
    }


def search(begin: int, kernels: list[Event], then: list[Event]) -> list[Event]:
    """A convolution for which the library measures these kernels, each of which it
    launches and waits for 100 us, and then runs another one. All run one after the
    other, on a stream of their own."""
    slice_ = {"ph": "X", "pid": 1, "tid": 1}
    length = 120 * (len(kernels) + len(then))
    found: list[Event] = [
        {**slice_, "cat": "cpu_op", "name": "aten::cudnn_convolution"}
        | {"ts": begin, "dur": length}
    ]
    for n, one in enumerate([*kernels, *then]):
        ts, link = begin + 1 + 120 * n, {"correlation": 1_000 + begin + n}
        runtime = {**slice_, "cat": "cuda_runtime"}
        launch = {"name": "cudaLaunchKernel", "ts": ts, "dur": 2, "args": link}
        found += [
            runtime | launch,
            {**one, "ts": ts + 3, "args": {**one.get("args", {}), **link}},
        ]
        if n < len(kernels):
            wait = {"name": "cudaEventSynchronize", "ts": ts + 4, "dur": 110}
            found.append(runtime | wait)
    return found


def tried(names: tuple[str, ...], dur: int, **args: object) -> list[Event]:
    """Kernels for `search`."""
    kernel = {"ph": "X", "cat": "kernel", "pid": 0, "tid": 7, "dur": dur, "args": args}
    return [{**kernel, "name": name} for name in names]
