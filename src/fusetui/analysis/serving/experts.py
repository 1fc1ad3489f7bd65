"""What the experts of a mixture took in one pass of a model.

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
from fusetui.trace.model.arrays import Flags, Rows, distinct, distinct_rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.quantiles import lower_median

EXPERT_NAME = re.compile(
    r"moe|expert|matmul_ogs|group(?:ed)?_?gemm",
    re.IGNORECASE,
)
"""Kernels and ops of experts, in vLLM, SGLang, Triton's kernels, TensorRT-LLM and
DeepGEMM."""

MAX_NAME_LENGTH = 400
"""Characters of a name that are searched."""

MIN_RUNS = 3
"""Of one product; of fewer nothing is said."""


class Experts(msgspec.Struct, frozen=True):
    """The kernels of experts in one pass, products and routing; `name` is that of the
    one with the largest total, and the figures after it are those of its runs."""

    kernels: int
    total_ns: int
    share: float  # of the durations of all kernels of the pass
    name: str
    runs: int
    median_ns: int  # the lower median
    max_ns: int
    slowest: int  # which run is the longest, from 1, in order of time


def experts_of(trace: Trace, rows: Rows) -> Experts | None:
    """Of a pass with these GPU events; None if none is known to be of experts."""
    kernels = rows[trace.role[rows] == Role.KERNEL]
    kernels = kernels[np.argsort(trace.start[kernels], kind="stable")]
    of_experts = kernels[_are_of_experts(trace, kernels)]
    if not len(of_experts):
        return None
    name = _name_of_most_time(trace, of_experts)
    run_ns = trace.dur[of_experts[trace.name[of_experts] == name]]
    if len(run_ns) < MIN_RUNS:
        return None
    experts_ns = int(trace.dur[of_experts].sum())
    kernels_ns = int(trace.dur[kernels].sum())
    return Experts(
        kernels=len(of_experts),
        total_ns=experts_ns,
        share=experts_ns / kernels_ns if kernels_ns else 0.0,
        name=trace.names[name],
        runs=len(run_ns),
        median_ns=lower_median(run_ns),
        max_ns=int(run_ns.max()),
        slowest=int(run_ns.argmax()) + 1,
    )


def _name_of_most_time(trace: Trace, kernels: Rows) -> int:
    """The number of the name whose kernels take longest in all."""
    names = distinct(trace.name[kernels])
    places = np.searchsorted(names, trace.name[kernels])
    total_ns = np.bincount(places, weights=trace.dur[kernels])
    return int(names[total_ns.argmax()])


def _are_of_experts(trace: Trace, kernels: Rows) -> Flags:
    """Which kernels are of experts, by their own name, or if they are products, by that
    of their op; shape [kernels]. Equal pairs of names are looked at once."""
    ops = trace.op[kernels]
    op_name_or_none = np.where(ops >= 0, trace.name[ops], -1)
    name_pairs = (trace.name[kernels], op_name_or_none)
    first_of_pair, pair_of_kernel = distinct_rows(name_pairs)
    is_of_experts = []
    for place in first_of_pair.tolist():
        op = int(ops[place])
        op_name = trace.name_of(op) if op >= 0 else ""
        kernel_name = trace.name_of(int(kernels[place]))
        is_of_experts.append(_is_of_experts(kernel_name, op_name))
    return np.array(is_of_experts, dtype=np.bool_)[pair_of_kernel]


def _is_of_experts(kernel_name: str, op_name: str) -> bool:
    """Whether a kernel is of experts, by its name and that of its op; "" if the op is
    not known."""
    decoded = decode(kernel_name)
    if decoded is None or decoded.op not in PRODUCT_KINDS:
        return False
    if decoded.op == "moe":
        return True
    names = (kernel_name, op_name)
    return any(EXPERT_NAME.search(name, 0, MAX_NAME_LENGTH) for name in names)
