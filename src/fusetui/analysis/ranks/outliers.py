"""Which figures of ranks stand out, and how evenly work is divided."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SCALE = 1.4826  # a normal distribution's standard deviation is this many times its MAD
LIMIT = 3  # scaled median absolute deviations
LEAST = 0.01  # of a step: less is no difference that matters
FEWEST = 4  # ranks


def outliers(values: NDArray[np.float64], step: float) -> NDArray[np.bool_]:
    """Which values lie more than 3 scaled median absolute deviations, and more than 1 % of a step
    (ns), from the median; none of fewer than 4. nan is a value that is not known."""
    known = values[~np.isnan(values)]
    if len(known) < FEWEST:
        return np.zeros(len(values), dtype=np.bool_)
    middle = float(np.median(known))
    away = np.abs(values - middle)
    limit = max(LIMIT * SCALE * float(np.median(np.abs(known - middle))), LEAST * step)
    found: NDArray[np.bool_] = np.nan_to_num(away) > limit
    return found


def balance(values: NDArray[np.float64]) -> float | None:
    """The mean of the ranks as a share of the largest: 1 when all have equally much; None if that
    is not known."""
    known = values[~np.isnan(values)]
    if len(known) < 2 or not known.max() > 0:
        return None
    return float(known.mean() / known.max())
