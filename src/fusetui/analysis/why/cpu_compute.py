"""Ops that compute on the CPU: they launch nothing, so no other way of launching
helps."""

from __future__ import annotations

import numpy as np

from fusetui.analysis.questions.launches import LAUNCHES
from fusetui.trace.model.arrays import Flags, Int64s, Rows, distinct, summed
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.memo import memo
from fusetui.trace.model.op_names import METADATA, stem, words

COMPUTES_NS = 100_000
"""An op of ATen that launches nothing and takes at least so long by itself computes on
the CPU: dispatching an op takes far less, even beside a profiler that records
stacks."""

COMPUTES_SHARE = 0.25
"""Of the host part of a gap: from this share of such ops on, the gap is due to them and
to what prepares them."""

PREFIX = "aten::"
"""The launches of other ops, such as those of Triton, are not in every trace."""

NO_COMPUTE = METADATA | words("pin_memory _pin_memory record_stream")
"""Ops that allocate, describe or pin tensors, by their stems; see op_names."""

CREATES = words(
    """arange bernoulli cauchy empty exponential eye fill full geometric linspace log_normal
    logspace multinomial new_full new_ones new_zeros normal ones rand randint randn random randperm
    tril_indices triu_indices uniform zero zeros"""
)
"""Ops that make a tensor of nothing, or fill one, by their stems."""


BY_ITSELF = 0.5
"""Of the duration of an op: one that spends less of it by itself is made of others, as
of views."""


@memo()
def cpu_compute_rows(trace: Trace) -> Rows:
    """The ops of ATen that compute on the CPU, on any thread: they take at least
    COMPUTES_NS, spend most of it by themselves, and neither they nor an op of ATen
    around them launch work of the GPU. (Ops inside of one that launches may compute
    with tensors without data, for their shapes.) Sorted rows."""
    ops = trace.rows_of(Role.OP)
    ops = ops[trace.matching(ops, _is_of_aten)]
    ops = ops[~_in_launching_ops(trace, ops)[ops]]
    ops = ops[trace.dur[ops] >= COMPUTES_NS]
    ops = ops[trace.matching(ops, _may_compute)]
    if not len(ops):
        return ops
    own_ns = trace.dur[ops] - _children_ns(trace, ops)
    takes_long = own_ns >= COMPUTES_NS
    is_mostly_own = own_ns >= BY_ITSELF * trace.dur[ops]
    computes: Rows = ops[takes_long & is_mostly_own]
    return computes


def _children_ns(trace: Trace, ops: Rows) -> Int64s:
    """How long the slices directly inside of each of these ops take together (ns)."""
    place_of_row = np.full(len(trace), -1, dtype=np.intp)
    place_of_row[ops] = np.arange(len(ops))
    children = np.flatnonzero(trace.parent >= 0)
    place = place_of_row[trace.parent[children]]
    is_of_op = place >= 0
    children = children[is_of_op]
    return summed(place[is_of_op], trace.dur[children], len(ops))


def _in_launching_ops(trace: Trace, ops: Rows) -> Flags:
    """Which rows are one of these ops that launches, or lie inside of one; shape
    [slices]."""
    launches = _launch_rows(trace)
    first_inside = launches.searchsorted(ops)
    after_last_inside = launches.searchsorted(trace.end_row[ops])
    launching = ops[first_inside < after_last_inside]
    # rows of an op are those from its own to its end_row: count how many are open
    opened = np.zeros(len(trace) + 1, dtype=np.int32)
    np.add.at(opened, launching, 1)
    np.add.at(opened, trace.end_row[launching], -1)
    open_at_row = opened.cumsum()[:-1]
    is_inside: Flags = open_at_row > 0
    return is_inside


def _is_of_aten(name: str) -> bool:
    """Whether it is the name of an op of ATen."""
    return name.startswith(PREFIX)


def _may_compute(name: str) -> bool:
    """Whether an op of this name may compute; see NO_COMPUTE."""
    return stem(name) not in NO_COMPUTE


def _launch_rows(trace: Trace) -> Rows:
    """Calls that launched GPU events, and those whose names say that they launch;
    sorted."""
    calls = trace.launch[trace.gpu_rows]
    with_event = calls[calls >= 0].astype(np.intp)
    by_name = trace.rows_named(LAUNCHES.search, Role.CALL)
    return distinct(np.concatenate((with_event, by_name)))
