"""Traces of one op and the kernels that it launched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from fusetui.trace import Trace

Inputs = Sequence[tuple[list[int] | None, str, str]]
Launched = Callable[..., Trace]

A100 = {
    "id": 0,
    "name": "NVIDIA A100-SXM4-80GB",
    "computeMajor": 8,
    "computeMinor": 0,
    "numSms": 108,
    "maxThreadsPerMultiprocessor": 2048,
    "regsPerMultiprocessor": 65536,
    "sharedMemPerMultiprocessor": 167936,
}


@pytest.fixture
def op_trace(
    trace_of: Callable[..., Trace], event: Callable[..., dict[str, Any]]
) -> Launched:
    """An op with inputs (dims, type, value), and kernels of `us` microseconds each
    under it.

    A kernel is a name or (name, args). GPU rows are in the order of the kernels.
    """

    def make(
        op: str,
        inputs: Inputs,
        *kernels: str | tuple[str, dict[str, Any]],
        us: int = 100,
        call: str = "cudaLaunchKernel",
        device: dict[str, Any] | None = None,
        more: dict[str, Any] | None = None,
    ) -> Trace:
        args = {
            "Input Dims": [dims or [] for dims, _, _ in inputs],
            "Input type": [kind for _, kind, _ in inputs],
            "Concrete Inputs": [value for _, _, value in inputs],
            "Input Strides": [dense(dims or []) for dims, _, _ in inputs],
            **(more or {}),
        }
        args = {key: value for key, value in args.items() if value is not None}
        events = [event(op, 0, 1000, args=args)]
        for number, kernel in enumerate(kernels, start=1):
            name, extra = (kernel, {}) if isinstance(kernel, str) else kernel
            link = {"correlation": number}
            events.append(event(call, number * 10, 2, cat="cuda_runtime", args=link))
            place = {"cat": "kernel", "pid": 0, "tid": 7, "args": {**extra, **link}}
            events.append(event(name, 1000 + number * 1000, us, **place))
        return trace_of(events, deviceProperties=[device or A100])

    return make


def dense(shape: list[int]) -> list[int]:
    """The strides of a contiguous tensor."""
    steps = [1]
    for size in reversed(shape[1:]):
        steps.append(steps[-1] * size)
    return steps[::-1] if shape else []


@pytest.fixture
def tensor() -> Callable[..., tuple[list[int], str, str]]:
    """One recorded tensor; bf16 by default."""

    def make(*shape: int, kind: str = "c10::BFloat16") -> tuple[list[int], str, str]:
        return list(shape), kind, ""

    return make


@pytest.fixture
def scalar() -> Callable[[str], tuple[None, str, str]]:
    """One recorded plain value."""
    return lambda value: (None, "Scalar", value)
