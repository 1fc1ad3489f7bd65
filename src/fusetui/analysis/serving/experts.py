"""Measures how long the experts of a mixture take in one model pass.

A trace does not count the tokens of each expert. But the same product, with as many
tokens, runs once in each layer: where it takes longer, more experts were routed to, or
their tokens were less even.
"""

from __future__ import annotations

import re

import msgspec
import numpy as np

from fusetui.analysis.serving.products import PRODUCT_KINDS
from fusetui.gpu.kernel_names import decode
from fusetui.trace.model.arrays import Flags, Rows, distinct_rows, heaviest_id
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.quantiles import lower_median

EXPERT_NAME = re.compile(
    r"moe|expert|matmul_ogs|group(?:ed)?_?gemm",
    re.IGNORECASE,
)
"""Matches the names of kernels and ops of experts in vLLM, SGLang, Triton's kernels,
TensorRT-LLM and DeepGEMM."""

MAX_NAME_LENGTH = 400
"""How many characters of a name are searched."""

MIN_RUNS = 3
"""A product that ran less often in a pass is not worth a comparison of its runs."""


class Experts(msgspec.Struct, frozen=True):
    """What the experts of a mixture took in one pass: their products and their routing.

    `name` is the kernel with the largest total time; the fields after it describe the
    runs of this kernel alone.
    """

    kernels: int  # of experts
    total_ns: int  # of all these kernels
    share: float  # of the durations of all kernels of the pass
    name: str
    runs: int
    median_ns: int  # the lower median
    max_ns: int
    slowest: int  # which run is the longest, from 1, in order of time


def describe_experts(trace: Trace, rows: Rows) -> Experts | None:
    """Describe the time that the experts of a mixture take in one pass of a model.

    Args:
        trace: The trace of the server.
        rows: The GPU events of the pass.

    Returns:
        None if no kernel is known to be of experts, or too few runs can be compared.
    """
    kernels = rows[trace.role[rows] == Role.KERNEL]
    kernels = kernels[np.argsort(trace.start[kernels], kind="stable")]
    expert_kernels = kernels[_mark_expert_kernels(trace, kernels)]
    if not len(expert_kernels):
        return None

    # Only runs of the same kernel can be compared: those of the one with the most time.
    name_of_kernel = trace.name[expert_kernels]
    name_index = heaviest_id(name_of_kernel, trace.dur[expert_kernels])
    run_ns = trace.dur[expert_kernels[name_of_kernel == name_index]]
    if len(run_ns) < MIN_RUNS:
        return None

    experts_ns = int(trace.dur[expert_kernels].sum())
    kernels_ns = int(trace.dur[kernels].sum())
    return Experts(
        kernels=len(expert_kernels),
        total_ns=experts_ns,
        share=experts_ns / kernels_ns if kernels_ns else 0.0,
        name=trace.names[name_index],
        runs=len(run_ns),
        median_ns=lower_median(run_ns),
        max_ns=int(run_ns.max()),
        slowest=int(run_ns.argmax()) + 1,
    )


def _mark_expert_kernels(trace: Trace, kernels: Rows) -> Flags:
    """Tell which kernels compute experts of a mixture, by their names and those of
    their ops.

    Args:
        trace: The trace of the server.
        kernels: The kernels.

    Returns:
        One flag per kernel, in the order of `kernels`.
    """
    no_name = -1
    ops = trace.op[kernels]
    has_op = ops >= 0
    op_name_index = np.where(has_op, trace.name[ops], no_name)

    # Decide once per distinct pair of a kernel name and an op name.
    name_pairs = (trace.name[kernels], op_name_index)
    first_of_pair, pair_of_kernel = distinct_rows(name_pairs)
    is_pair_of_experts = []
    for position in first_of_pair.tolist():
        kernel_name = trace.name_of(int(kernels[position]))
        op_name = trace.name_of(int(ops[position])) if has_op[position] else ""
        is_pair_of_experts.append(_is_expert_kernel(kernel_name, op_name))
    return np.array(is_pair_of_experts, dtype=np.bool_)[pair_of_kernel]


def _is_expert_kernel(kernel_name: str, op_name: str) -> bool:
    """Decide by names whether a kernel computes a product of experts.

    Args:
        kernel_name: The name of the kernel.
        op_name: The name of the op that launched it; "" if it is not known.
    """
    decoded = decode(kernel_name)
    if decoded is None or decoded.op not in PRODUCT_KINDS:
        return False
    if decoded.op == "moe":
        return True
    names = (kernel_name, op_name)
    return any(EXPERT_NAME.search(name, 0, MAX_NAME_LENGTH) for name in names)
