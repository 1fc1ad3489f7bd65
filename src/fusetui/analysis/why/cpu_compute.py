"""Find ops that compute on the CPU.

They launch nothing, so no other way of launching helps against them.
"""

from __future__ import annotations

import numpy as np

from fusetui.analysis.questions.launches import LAUNCHES
from fusetui.trace.model.arrays import (
    NO_ROW,
    Flags,
    Int64s,
    Rows,
    distinct,
    inside_ranges,
    summed,
)
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.memo import memo
from fusetui.trace.model.op_names import METADATA, stem, words
from fusetui.trace.model.sorted_arrays import count_between, positions_of

COMPUTES_NS = 100_000
"""An op of ATen that launches nothing and takes this long by itself computes on the
CPU.

Dispatching an op takes far less, even beside a profiler that records stacks.
"""

COMPUTES_SHARE = 0.25
"""From this share of the wait for a launch on, computing ops explain it.

The rest usually prepares the tensors for these ops.
"""

PREFIX = "aten::"
"""How the names of ops of ATen begin. Launches of other ops, such as those of Triton,
are not in every trace."""

NO_COMPUTE = METADATA | words("pin_memory _pin_memory record_stream")
"""Ops that allocate, describe or pin tensors, by their stems; see op_names."""

CREATES = words(
    """arange bernoulli cauchy empty exponential eye fill full geometric linspace log_normal
    logspace multinomial new_full new_ones new_zeros normal ones rand randint randn random randperm
    tril_indices triu_indices uniform zero zeros"""
)
"""Ops that make a tensor out of nothing, or fill one, by their stems."""


MIN_SHARE_BY_ITSELF = 0.5
"""An op that spends less than this share of its duration by itself is made of others.
"""


@memo()
def find_cpu_compute_ops(trace: Trace) -> Rows:
    """Find the ops of ATen that compute on the CPU, on any thread.

    They take at least COMPUTES_NS and spend most of it by themselves. Neither they nor
    an op of ATen around them launch work of the GPU: ops inside of one that launches
    may compute with tensors without data, for their shapes.

    Returns:
        Rows of the trace, ascending.
    """
    ops = trace.rows_of(Role.OP)
    ops = ops[trace.matching(ops, _is_of_aten)]
    ops = ops[~_mark_launching_ops(trace, ops)[ops]]
    ops = ops[trace.dur[ops] >= COMPUTES_NS]
    ops = ops[trace.matching(ops, _may_compute)]
    if not len(ops):
        return ops

    own_ns = trace.dur[ops] - _add_up_children(trace, ops)
    takes_long = own_ns >= COMPUTES_NS
    is_mostly_own = own_ns >= MIN_SHARE_BY_ITSELF * trace.dur[ops]
    computes: Rows = ops[takes_long & is_mostly_own]

    return computes


def _add_up_children(trace: Trace, ops: Rows) -> Int64s:
    """Add up the durations of the slices directly inside of each op, in ns.

    Args:
        ops: Rows of the trace, ascending.
    """
    is_op = np.zeros(len(trace), dtype=np.bool_)
    is_op[ops] = True
    parent = trace.parent
    children = np.flatnonzero((parent != NO_ROW) & is_op[parent])
    return summed(positions_of(ops, parent[children]), trace.dur[children], len(ops))


def _mark_launching_ops(trace: Trace, ops: Rows) -> Flags:
    """Tell which rows are one of some ops that launches, or lie inside of one.

    Returns flags of shape [slices].
    """
    # What lies inside of an op has the rows from the op to its end_row.
    launches_inside = count_between(_find_launch_calls(trace), ops, trace.end_row[ops])
    launching_ops = ops[launches_inside > 0]
    return inside_ranges(launching_ops, trace.end_row[launching_ops], len(trace))


def _is_of_aten(name: str) -> bool:
    """Whether a name is that of an op of ATen."""
    return name.startswith(PREFIX)


def _may_compute(name: str) -> bool:
    """Whether an op of this name may compute; see NO_COMPUTE."""
    return stem(name) not in NO_COMPUTE


def _find_launch_calls(trace: Trace) -> Rows:
    """Find the calls that launched GPU events, or whose names say that they launch.

    Returns rows of the trace, ascending.
    """
    launch = trace.launch[trace.gpu_rows]
    calls_with_event = launch[launch != NO_ROW].astype(np.intp)
    calls_by_name = trace.rows_named(LAUNCHES.search, Role.CALL)

    return distinct(np.concatenate((calls_with_event, calls_by_name)))
