"""Which figures of ranks stand out, and how evenly work is divided."""

from __future__ import annotations

import numpy as np

from fusetui.trace.model.arrays import Flags, Floats

SCALE = 1.4826  # a normal distribution's standard deviation is this many times its MAD
LIMIT = 3  # scaled median absolute deviations
LEAST = 0.01  # of a step: less is no difference that matters
FEWEST = 4  # ranks


def middle_and_limit(values: Floats) -> tuple[float, float]:
    """The median, and how far from it a value stands out."""
    middle = float(np.median(values))
    return middle, LIMIT * SCALE * float(np.median(np.abs(values - middle)))


def outliers(values: Floats, step: float) -> Flags:
    """Which values lie more than 3 scaled median absolute deviations, and more than 1 % of a step
    (ns), from the median; none of fewer than 4. nan is a value that is not known."""
    known = values[~np.isnan(values)]
    if len(known) < FEWEST:
        return np.zeros(len(values), dtype=np.bool_)
    middle, limit = middle_and_limit(known)
    return np.nan_to_num(np.abs(values - middle)) > max(limit, LEAST * step)


def balance(values: Floats) -> float | None:
    """The mean of the ranks as a share of the largest: 1 when all have equally much; None if that
    is not known."""
    known = values[~np.isnan(values)]
    if len(known) < 2 or not known.max() > 0:
        return None
    return float(known.mean() / known.max())
