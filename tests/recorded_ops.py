"""Ops as torch records them, with their inputs."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

Event = dict[str, Any]


class Input(NamedTuple):
    """One recorded argument: what stands in each of the four lists."""

    dims: Any
    type: str
    strides: Any
    value: str = ""


def tensor(*shape: int, type: str = "float", strides: Any = None) -> Input:  # noqa: A002
    """A contiguous tensor, unless strides are given."""
    if strides is None:
        strides = [math.prod(shape[place + 1 :]) for place in range(len(shape))]
    return Input([*shape], type, strides)


def number(text: str) -> Input:
    return Input([], "Scalar", [], text)


def numbers(text: str) -> Input:
    return Input([], "ScalarList", [], text)


def tensors(*shapes: tuple[int, ...]) -> Input:
    members = [tensor(*shape) for shape in shapes]
    return Input(
        [member.dims for member in members],
        "TensorList",
        [member.strides for member in members],
    )


NOTHING = Input([], "", [])


def args(*inputs: Input, **more: Any) -> dict[str, Any]:
    """The args of an op with these inputs."""
    return {
        "Input Dims": [given.dims for given in inputs],
        "Input type": [given.type for given in inputs],
        "Input Strides": [given.strides for given in inputs],
        "Concrete Inputs": [given.value for given in inputs],
        **more,
    }


def op(name: str, *inputs: Input, ts: float = 0, dur: float = 10, **more: Any) -> Event:
    plain = {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1}
    return {**plain, "name": name, "ts": ts, "dur": dur, "args": args(*inputs, **more)}


def kernel(
    name: str, ts: float, number: int, dur: float = 20, cat: str = "kernel"
) -> list[Event]:
    """A launch call at `ts`, and its kernel on GPU 0, stream 7, 100 us later."""
    same = {"correlation": number}
    call = {"ph": "X", "cat": "cuda_runtime", "pid": 1, "tid": 1}
    work = {"ph": "X", "cat": cat, "pid": 0, "tid": 7}
    return [
        {**call, "name": "cudaLaunchKernel", "ts": ts, "dur": 1, "args": same},
        {**work, "name": name, "ts": ts + 100, "dur": dur, "args": same},
    ]
