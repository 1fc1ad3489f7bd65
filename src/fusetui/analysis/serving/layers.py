"""The layers of one pass of a model, by the repetition of its kernels.

The kernels of a pass repeat for each layer, between a beginning and an end of their
own. The period is the shortest one that explains at least half of the sequence; of
equal kernels in every layer no other claim is made. Layers that differ in turn (a
window and full attention) count as one. The sequence is that of the starts, or if
nothing repeats in it, that of the file: on AMD devices some times are wrong.
"""

from __future__ import annotations

import msgspec
import numpy as np

from fusetui.trace.model.arrays import Integers, Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.quantiles import lower_median

MIN_REPETITIONS = 3
MIN_REPEATED_SHARE = 0.5
"""Of the kernels: more than this share has to be in layers."""

MAX_PERIODS = 64
"""That are tried."""

MIN_EXCESS = 0.05
"""A layer that takes more than this share longer than the median is a slow one."""


class ModelLayer(msgspec.Struct, frozen=True):
    """One layer; its number counts from 1."""

    number: int
    dur_ns: int  # of all its kernels
    start_ns: int  # of its first kernel, from the beginning of the trace


class Layers(msgspec.Struct, frozen=True):
    """`count` repetitions of `kernels` kernels; `others` kernels come before and after
    them."""

    count: int
    kernels: int
    others: int
    total_ns: int  # of all layers
    others_ns: int
    median_ns: int  # of a layer: the lower median
    slow: tuple[ModelLayer, ...]  # see MIN_EXCESS, the slowest first


def layers_of(trace: Trace, rows: Rows) -> Layers | None:
    """The layers of a pass with these GPU events; None if nothing repeats."""
    kernels = rows[trace.role[rows] == Role.KERNEL]
    for order in (trace.start[kernels], trace.order[kernels]):
        ordered = kernels[np.lexsort((kernels, order))]
        repeated = repetition(trace.name[ordered])
        if repeated is not None:
            return _layers(trace, ordered, repeated)
    return None


class Repetition(msgspec.Struct, frozen=True):
    """The part of a sequence that repeats."""

    first: int  # the place where it begins
    period: int
    count: int

    @property
    def length(self) -> int:
        """How many places all repetitions take together."""
        return self.period * self.count


def _layers(trace: Trace, kernels: Rows, repeated: Repetition) -> Layers:
    """The layers that the repeated part of these kernels is; slow ones take MIN_EXCESS
    more than the median one, the slowest first."""
    after_last = repeated.first + repeated.length
    in_layers = kernels[repeated.first : after_last]
    layers = in_layers.reshape(repeated.count, repeated.period)
    layer_ns = trace.dur[layers].sum(axis=1)
    total_ns = int(layer_ns.sum())
    median_ns = lower_median(layer_ns)
    start_ns = trace.start[layers[:, 0]] - trace.begin_ns
    slow = []
    for place in np.argsort(-layer_ns, kind="stable").tolist():
        if layer_ns[place] > (1 + MIN_EXCESS) * median_ns:
            layer = ModelLayer(
                number=place + 1,
                dur_ns=int(layer_ns[place]),
                start_ns=int(start_ns[place]),
            )
            slow.append(layer)
    return Layers(
        count=repeated.count,
        kernels=repeated.period,
        others=len(kernels) - repeated.length,
        total_ns=total_ns,
        others_ns=int(trace.dur[kernels].sum()) - total_ns,
        median_ns=median_ns,
        slow=tuple(slow),
    )


def repetition(names: Integers) -> Repetition | None:
    """The longest repetition in a sequence of names (of shape [n]); of several the one
    of the shortest period, unless that of a longer one is longer by more than its
    period. None if too little repeats."""
    longest: Repetition | None = None
    for period in _periods(names):
        repeated = _longest_of_period(names, period)
        if repeated is None or repeated.count < MIN_REPETITIONS:
            continue
        if repeated.length <= MIN_REPEATED_SHARE * len(names):
            continue
        if longest is None or repeated.length > longest.length + period:
            longest = repeated
    return longest


def _longest_of_period(names: Integers, period: int) -> Repetition | None:
    """The longest part in which each name is that of `period` places before; None if no
    name is."""
    recurs = names[period:] == names[:-period]
    # a run of places that recur begins and ends with a change
    changes = np.flatnonzero(np.diff(np.concatenate(([False], recurs, [False]))))
    begins = changes[::2]
    ends = changes[1::2]
    if not len(begins):
        return None
    lengths = ends - begins
    longest = int(np.argmax(lengths))
    length = int(lengths[longest]) + period
    return Repetition(first=int(begins[longest]), period=period, count=length // period)


def _periods(names: Integers) -> list[int]:
    """Distances between neighboring kernels of one name, for the name that recurs least
    often but often enough: every period is the sum of such distances."""
    numbers, counts = np.unique(names, return_counts=True)
    recurs = counts >= MIN_REPETITIONS
    rarest_first = np.argsort(counts[recurs], kind="stable")
    periods: set[int] = set()
    for number in numbers[recurs][rarest_first].tolist():
        places = np.flatnonzero(names == number)
        periods |= set(np.diff(places).tolist())
        if len(periods) >= MAX_PERIODS:
            break
    return sorted(periods)[:MAX_PERIODS]
