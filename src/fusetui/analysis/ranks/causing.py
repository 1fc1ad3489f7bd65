"""How long others wait for each rank, and who of them is a straggler."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.ranks.blame import Charges
from fusetui.analysis.ranks.matching import Matched
from fusetui.analysis.ranks.steps import StepsOfRows

Floats = NDArray[np.float64]
Int64s = NDArray[np.int64]

LEAST = 0.02  # of a step: nobody who holds up others for less is called a straggler
QUARTER = 25  # percent of the steps in which a straggler may be in time
ALMOST_ALL = 0.8  # of the waiting that ranks cause: then it is one rank's, in however few steps
AS_LONG = 0.1
"""The others are the ranks that wait for it at least this part as long as the one that waits
longest: in a job of many groups not everyone is held up."""


class Caused(msgspec.Struct, frozen=True, eq=False):
    """How long others wait for each rank: the mean over those that do, in ns."""

    total: Int64s  # [ranks]
    waiters: Int64s  # [ranks]
    by_step: Floats  # [ranks, steps]
    straggles: NDArray[np.bool_]  # [ranks]
    every_step: Floats  # [steps]: for whomever, the mean over the other ranks


def caused_by(matched: Matched, charges: Charges, steps: StepsOfRows) -> Caused:
    ranks, count = len(matched.ranks), max(len(steps.names), 1)
    key = charges.owner * ranks + matched.rank[charges.row]
    pairs, which = np.unique(key, return_inverse=True)
    owner = pairs // max(ranks, 1)
    waited = np.bincount(which, weights=charges.ns, minlength=len(pairs))
    longest = np.zeros(ranks)
    np.maximum.at(longest, owner, waited)
    counted = waited >= AS_LONG * longest[owner]
    waiters = np.maximum(np.bincount(owner[counted], minlength=ranks), 1)
    kept = counted[which]
    step = steps.of_row[charges.row]
    kept_in = kept & (step >= 0)
    at = charges.owner[kept_in] * count + step[kept_in]
    sums = np.bincount(at, weights=charges.ns[kept_in], minlength=ranks * count)
    by_step: Floats = np.asarray(sums, dtype=np.float64).reshape(ranks, count) / waiters[:, None]
    total = np.bincount(charges.owner[kept], weights=charges.ns[kept], minlength=ranks) / waiters
    inside = step >= 0
    every = np.bincount(step[inside], weights=charges.ns[inside], minlength=count)
    return Caused(
        total=np.rint(total).astype(np.int64),
        waiters=waiters,
        by_step=by_step,
        straggles=_straggle(by_step, LEAST * steps.length_ns),
        every_step=np.asarray(every / max(ranks - 1, 1), dtype=np.float64),
    )


def _straggle(by_step: Floats, least: float) -> NDArray[np.bool_]:
    """Who holds up the others by enough in at least three of four steps, or causes almost all
    of the waiting."""
    mean = by_step.sum(axis=1) / by_step.shape[1]
    enough = (mean >= least) & (mean > 0)
    almost_alone = mean >= ALMOST_ALL * mean.sum()
    often = np.zeros(len(by_step), dtype=np.bool_)
    if len(by_step):
        often = np.percentile(by_step, QUARTER, axis=1) >= least
    found: NDArray[np.bool_] = enough & (often | almost_alone)
    return found
