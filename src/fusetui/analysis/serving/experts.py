"""What the experts of a mixture took in a pass of the model, and how unevenly over its layers.

A trace does not count the tokens of each expert. But the same product, with as many tokens, runs
once in each layer: where it takes longer, more experts were routed to, or their tokens were less
even.
"""

from __future__ import annotations

import re

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.serving.weights import PRODUCTS
from fusetui.gpu.kernel_names import decode
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace

Rows = NDArray[np.intp]
NAMED = re.compile(r"moe|expert|matmul_ogs|group(?:ed)?_?gemm", re.IGNORECASE)
"""Kernels and ops of experts, in vLLM, SGLang, Triton's kernels, TensorRT-LLM and DeepGEMM."""
FEWEST = 3  # runs of a product that can be compared
LONGEST_NAME = 400


class Experts(msgspec.Struct, frozen=True):
    """The kernels of experts in one pass, products and routing; `name` is that of the one with the
    largest total, and the figures after it are those of its runs."""

    kernels: int
    total_ns: int
    share: float  # of the durations of all kernels of the pass
    name: str
    runs: int
    median_ns: int  # of an even count the lower one
    max_ns: int
    slowest: int  # which run is the longest, from 1, in order of time


def experts_of(trace: Trace, rows: Rows) -> Experts | None:
    """Of a pass with these GPU events; None if none is known to be of experts."""
    kernels = rows[trace.role[rows] == Role.KERNEL]
    kernels = kernels[np.argsort(trace.start[kernels], kind="stable")]
    total = int(trace.dur[kernels].sum())
    own = kernels[_of_experts(trace, kernels)]
    if not len(own):
        return None
    numbers, which = np.unique(trace.name[own], return_inverse=True)
    longest = int(np.bincount(which, weights=trace.dur[own]).argmax())
    runs = trace.dur[own[which == longest]]
    if len(runs) < FEWEST:
        return None
    return Experts(
        kernels=len(own),
        total_ns=int(trace.dur[own].sum()),
        share=int(trace.dur[own].sum()) / total if total else 0.0,
        name=trace.names[int(numbers[longest])],
        runs=len(runs),
        median_ns=int(np.sort(runs)[(len(runs) - 1) // 2]),
        max_ns=int(runs.max()),
        slowest=int(runs.argmax()) + 1,
    )


def _of_experts(trace: Trace, kernels: Rows) -> NDArray[np.bool_]:
    """Which kernels their own name gives to experts, or if they are products, that of their op."""
    ops = np.where(trace.op[kernels] >= 0, trace.name[trace.op[kernels]], -1)
    pairs, which = np.unique(np.stack((trace.name[kernels], ops)), axis=1, return_inverse=True)
    told = [_tells(trace, kernel, op) for kernel, op in pairs.T.tolist()]
    found: NDArray[np.bool_] = np.array(told or [False])[which.reshape(-1)]
    return found[: len(kernels)]


def _tells(trace: Trace, kernel: int, op: int) -> bool:
    decoded = decode(trace.names[kernel])
    if decoded is None or decoded.op not in PRODUCTS:
        return False
    words = [trace.names[kernel]] + ([trace.names[op]] if op >= 0 else [])
    return decoded.op == "moe" or any(NAMED.search(word, 0, LONGEST_NAME) for word in words)
