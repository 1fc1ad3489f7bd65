"""How much longer a step of B takes than one of A, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fusetui.analysis.diff.groups import Group
from fusetui.analysis.diff.interval import drift, ratio_interval, wider
from fusetui.analysis.diff.items import Items
from fusetui.analysis.diff.model import StepChange
from fusetui.analysis.diff.statistics import median
from fusetui.analysis.diff.turns import log_ratios, signed_rank_interval, take_turns
from fusetui.analysis.diff.undisturbed import Times, undisturbed


def step_change(a: Items, b: Items, groups: Sequence[Group]) -> StepChange:
    """The medians over the steps used, and the interval of their ratio.

    Where the steps of both took turns, each is compared with its neighbor, and what became slower
    or faster over time counts for nothing; else the drift of each run widens the interval.
    """
    of_a, of_b = a.work.windows.dur, b.work.windows.dur
    a_ns = int(median(of_a)) if len(of_a) else None
    b_ns = int(median(of_b)) if len(of_b) else None
    if not a_ns or b_ns is None:
        return StepChange(a_ns, b_ns, None, None, None)
    times = undisturbed(a, b, groups)
    found = _of_turns(*times) if take_turns(a.work, b.work) else _of_runs(*times)
    return StepChange(
        a_ns, b_ns, *found, interrupted_a=times[0].interrupted, interrupted_b=times[1].interrupted
    )


def _of_runs(a: Times, b: Times) -> tuple[float, float | None, float | None, float, float, bool]:
    ratio = int(median(b.ns)) / max(1, int(median(a.ns)))
    found = ratio_interval(a.ns, b.ns)
    if found is None:
        return ratio, None, None, 0.0, 0.0, False
    low, high = min(found.low, ratio), max(found.high, ratio)
    return ratio, low, high, found.drift_a, found.drift_b, False


def _of_turns(a: Times, b: Times) -> tuple[float, float | None, float | None, float, float, bool]:
    logs = log_ratios(a.ns, b.ns)
    found = signed_rank_interval(logs)
    drifts = drift(a.ns), drift(b.ns)
    if found is None:
        ratio = float(np.exp(np.median(logs))) if len(logs) else 1.0
        return ratio, None, None, *drifts, True
    low, center, high = found
    by = wider(logs)
    low, high = center + (low - center) * by, center + (high - center) * by
    return math.exp(center), math.exp(low), math.exp(high), *drifts, True
