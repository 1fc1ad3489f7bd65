"""Chooses the steps of each side that represent all of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fusetui.trace.model.columns import Floats, Int64s, Rows

WITHIN = 0.005  # the mean time of the chosen steps is within this share of the median


def usual_steps(a: Int64s, b: Int64s, alike_a: Rows, alike_b: Rows) -> tuple[Rows, Rows]:
    """The steps of each side over which every figure is a mean, so that parts add up to the whole.

    `a` and `b` are the durations of all steps (ns), `alike_*` the steps that do the usual work. Of
    these, as many as possible around the median step whose mean is the median. The same steps on
    both sides, where the two have equally many and the same ones will do.
    """
    from_a, from_b = _distance(a, alike_a), _distance(b, alike_b)
    of_a = _around_median(a[None], [middle(a, alike_a)], alike_a, from_a)
    of_b = _around_median(b[None], [middle(b, alike_b)], alike_b, from_b)
    if len(a) == len(b):
        common = np.intersect1d(alike_a, alike_b)
        middles = [middle(a, alike_a), middle(b, alike_b)]
        both = _around_median(np.stack([a, b]), middles, common, from_a + from_b)
        if 2 * len(both) > min(len(of_a), len(of_b)):
            return both, both
    return _or_nearest(a, alike_a, of_a), _or_nearest(b, alike_b, of_b)


def mean(samples: Int64s) -> Int64s:
    """Along the first axis, in whole numbers, halves away from zero; 0 of none."""
    count = max(1, len(samples))
    total = samples.sum(axis=0)
    found: Int64s = np.sign(total) * ((2 * np.abs(total) + count) // (2 * count))
    return found


def middle(durations: Int64s, alike: Rows) -> float:
    """The median step: of those that do the usual work, where these are most of them."""
    of = durations[alike] if 2 * len(alike) > len(durations) else durations
    return float(np.median(of)) if len(of) else 0.0


def _distance(durations: Int64s, alike: Rows) -> Floats:
    median = middle(durations, alike)
    found: Floats = np.abs(durations - median) / max(median, 1.0)
    return found


def _around_median(
    durations: Int64s, medians: Sequence[float], alike: Rows, distance: Floats
) -> Rows:
    """The most of the alike steps, nearest to the median first, whose mean is the median on each
    side; `durations`: [sides, steps]. Empty when there are none."""
    if not len(alike):
        return alike
    order = alike[np.argsort(distance[alike], kind="stable")]
    means = np.cumsum(durations[:, order], axis=1) / np.arange(1, len(order) + 1)
    wanted = np.array(medians)[:, None]
    near = (np.abs(means - wanted) <= WITHIN * np.maximum(wanted, 1)).all(axis=0)
    most = int(np.flatnonzero(near)[-1]) + 1 if near.any() else 0
    return np.sort(order[:most])


def _or_nearest(durations: Int64s, alike: Rows, found: Rows) -> Rows:
    """The chosen steps or, if there are none, the one nearest to the median."""
    if len(found) or not len(alike):
        return found
    return alike[[int(np.argmin(_distance(durations, alike)[alike]))]]
