"""Recognizes the layers of a model pass by the repetition of its kernels.

The kernels of a pass repeat for each layer, after kernels of a beginning and before
kernels of an end. The *period* is the number of kernels after which they repeat: the
shortest one that explains at least half of the sequence. Two layers that alternate, one
with a window and one with full attention, therefore count as one layer.

The kernels are taken in the order of their starts. If nothing repeats in it, the order
of the file is tried, because on AMD devices some times are wrong.
"""

from __future__ import annotations

import msgspec
import numpy as np

from fusetui.trace.model.arrays import Integers, Rows, runs_of_true
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.quantiles import lower_median

MIN_REPETITIONS = 3
MIN_REPEATED_SHARE = 0.5
"""More than this share of the kernels has to be in layers."""

MAX_PERIODS = 64
"""At most so many periods are tried."""

MIN_EXCESS = 0.05
"""A layer that takes more than this share longer than the median is a slow one."""


class ModelLayer(msgspec.Struct, frozen=True):
    """One layer of a model; its number counts from 1."""

    number: int
    dur_ns: int  # of all its kernels
    start_ns: int  # of its first kernel, from the beginning of the trace


class Layers(msgspec.Struct, frozen=True):
    """The layers of one pass: `count` repetitions of a sequence of `kernels` kernels.

    `others` kernels come before the first and after the last layer.
    """

    count: int
    kernels: int
    others: int
    total_ns: int  # of all layers
    others_ns: int  # of the kernels outside of layers
    median_ns: int  # of a layer: the lower median
    slow: tuple[ModelLayer, ...]  # see MIN_EXCESS, the slowest first


def recognize_layers(trace: Trace, rows: Rows) -> Layers | None:
    """Recognize the layers of one pass of a model by the sequence of its kernels, which
    repeats.

    Args:
        trace: The trace of the server.
        rows: The GPU events of the pass.

    Returns:
        How many layers there are and how long they take; None if the kernels do
        not repeat.
    """
    kernels = rows[trace.role[rows] == Role.KERNEL]
    for order in (trace.start[kernels], trace.order[kernels]):
        # np.lexsort sorts by its last key first.
        ordered = kernels[np.lexsort((kernels, order))]
        repeated = find_repetition(trace.name[ordered])
        if repeated is not None:
            return _measure_layers(trace, ordered, repeated)
    return None


class Repetition(msgspec.Struct, frozen=True):
    """The part of a sequence of kernels that repeats."""

    first: int  # the position in the sequence at which it begins
    period: int  # kernels of one repetition
    count: int  # repetitions

    @property
    def length(self) -> int:
        """The number of kernels of all repetitions together."""
        return self.period * self.count


def _measure_layers(trace: Trace, kernels: Rows, repeated: Repetition) -> Layers:
    """Measure the layers of a pass, given the part of its kernels that repeats.

    Args:
        trace: The trace of the server.
        kernels: All kernels of the pass, in order.
        repeated: The part of `kernels` that is layers.
    """
    # One row per layer, one column per kernel of a layer.
    after_last = repeated.first + repeated.length
    kernels_in_layers = kernels[repeated.first : after_last]
    kernels_by_layer = kernels_in_layers.reshape(repeated.count, repeated.period)
    first_kernels = kernels_by_layer[:, 0]

    layer_ns = trace.dur[kernels_by_layer].sum(axis=1)
    layer_start_ns = trace.start[first_kernels] - trace.begin_ns
    total_ns = int(layer_ns.sum())
    median_ns = lower_median(layer_ns)

    slow_layers = []
    for layer_index in np.argsort(-layer_ns, kind="stable").tolist():
        if layer_ns[layer_index] > (1 + MIN_EXCESS) * median_ns:
            layer = ModelLayer(
                number=layer_index + 1,
                dur_ns=int(layer_ns[layer_index]),
                start_ns=int(layer_start_ns[layer_index]),
            )
            slow_layers.append(layer)

    return Layers(
        count=repeated.count,
        kernels=repeated.period,
        others=len(kernels) - repeated.length,
        total_ns=total_ns,
        others_ns=int(trace.dur[kernels].sum()) - total_ns,
        median_ns=median_ns,
        slow=tuple(slow_layers),
    )


def find_repetition(names: Integers) -> Repetition | None:
    """Find the longest part of a sequence of kernel names that repeats.

    E.g. in x a b a b a b y it is a b a b a b: 3 repetitions of 2 kernels.

    Args:
        names: The index of the name of each kernel, in order.

    Returns:
        None if too little of the sequence repeats.
    """
    best: Repetition | None = None
    for period in _list_candidate_periods(names):  # ascending
        repeated = _find_longest_repetition(names, period)
        if repeated is None or repeated.count < MIN_REPETITIONS:
            continue
        if repeated.length <= MIN_REPEATED_SHARE * len(names):
            continue

        # Multiples of a period repeat too. So a longer period must explain more, by at
        # least a repetition.
        if best is None or repeated.length > best.length + period:
            best = repeated
    return best


def _find_longest_repetition(names: Integers, period: int) -> Repetition | None:
    """Find the longest part in which each name equals the one a period before.

    E.g. in x a b a b a b y, with a period of 2, it is a b a b a b: it begins at
    position 1 and has 3 repetitions.

    Args:
        names: The name of each kernel, as a number.
        period: How many kernels one repetition has.

    Returns:
        The first of the longest parts; None if no name recurs after a period.
    """
    # Whether the name a period later is the same; one flag for each position.
    recurs = names[period:] == names[:-period]
    runs = runs_of_true(recurs)
    if not len(runs.begin):
        return None

    run_lengths = runs.end - runs.begin
    longest = int(np.argmax(run_lengths))
    # The last repetition does not recur, so it is not in the run.
    length = int(run_lengths[longest]) + period
    return Repetition(
        first=int(runs.begin[longest]), period=period, count=length // period
    )


def _list_candidate_periods(names: Integers) -> list[int]:
    """List the periods with which a sequence of kernel names may repeat, ascending.

    They are the distances between neighboring kernels of the same name, beginning with
    the rarest name that recurs often enough: the rarer a name, the likelier it is that
    it occurs once per layer.
    """
    distinct_names, counts = np.unique(names, return_counts=True)
    recurs = counts >= MIN_REPETITIONS
    recurring_names = distinct_names[recurs]
    rarest_first = np.argsort(counts[recurs], kind="stable")

    periods: set[int] = set()
    for name_index in recurring_names[rarest_first].tolist():
        positions = np.flatnonzero(names == name_index)
        distances = np.diff(positions)
        periods.update(distances.tolist())
        if len(periods) >= MAX_PERIODS:
            break
    return sorted(periods)[:MAX_PERIODS]
