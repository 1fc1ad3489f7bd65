"""What a step would take if one rank were as fast as the others between its collectives.

Every rank is a chain: a stretch of its own, a collective in which all meet, the next stretch. The
replay is believed only where the whole group is given, every collective was matched, stretches do
not overlap collectives, and replaying what was recorded gives the recorded steps within 1 %.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from fusetui.analysis.ranks.job import RankJob
from fusetui.analysis.ranks.matching import Matched, step_keys
from fusetui.analysis.ranks.records import WhatIf
from fusetui.analysis.ranks.waits import Waits
from fusetui.trace.model.arrays import Int64s

CLOSE = 0.01  # of a step
OVERLAP = "collectives overlap other work or the borders of steps"


class ReplayableSteps(msgspec.Struct, frozen=True, eq=False):
    """Steps that can be replayed: `own` [stretches, ranks] for each of them, the last of which
    follows the last collective; `transfer` [stretches - 1, ranks], from the last start to each
    rank's end; and the recorded mean lengths."""

    own: tuple[Int64s, ...]
    transfer: tuple[Int64s, ...]
    recorded: tuple[float, ...]


def replayable(job: RankJob, matched: Matched, waits: Waits) -> ReplayableSteps | str:
    """The steps, or why they cannot be replayed: the rest of a sentence."""
    ranks = len(matched.ranks)
    if not job.is_whole or ranks < 2:
        return "not all ranks of the job are given"
    if any(one.damage for one in matched.ranks) or matched.unmatched.any():
        return "not every collective could be matched"
    if not (matched.counts == ranks).all():
        return "some collectives are of a part of the ranks only"
    keys = [step_keys(one) for one in matched.ranks]
    if not keys[0] or any(own != keys[0] for own in keys):
        return "the ranks do not have the same steps"
    spans = sum(float((one.step_end - one.step_start).sum()) for one in matched.ranks)
    if matched.covered.sum() > CLOSE * spans:
        return OVERLAP
    return _steps(matched, waits) or OVERLAP


def what_if(matched: Matched, steps: ReplayableSteps, rank: int) -> WhatIf | None:
    """`rank` is an index. None if replaying what was recorded does not give what was recorded."""
    recorded = float(np.mean(steps.recorded))
    replayed = _mean(steps.own, steps)
    if abs(replayed - recorded) > CLOSE * recorded:
        return None
    changed = []
    for own in steps.own:
        better, rest = own.copy(), np.delete(own, rank, axis=1)
        better[:, rank] = np.minimum(own[:, rank], np.median(rest, axis=1).astype(np.int64))
        changed.append(better)
    would_be = _mean(changed, steps)
    return WhatIf(matched.ranks[rank].rank, round(recorded), round(replayed), round(would_be))


def _mean(stretches: Sequence[Int64s], steps: ReplayableSteps) -> float:
    """The mean end of the ranks over all steps, if all begin at 0 but for what `own[0]` says."""
    ends = []
    for own, transfer in zip(stretches, steps.transfer, strict=True):
        now = own[0].astype(np.float64)
        for stretch, moved in zip(own[1:], transfer, strict=True):
            now = now.max() + moved + stretch
        ends.append(float(now.mean()))
    return float(np.mean(ends))


def _steps(matched: Matched, waits: Waits) -> ReplayableSteps | None:
    ranks = len(matched.ranks)
    order = np.lexsort((matched.rank, matched.of_row))
    start, end = (times[order].reshape(-1, ranks) for times in (waits.start, waits.end))
    shift = (waits.start - matched.start)[order].reshape(-1, ranks)
    usual = shift[0] if len(shift) else np.zeros(ranks, dtype=np.int64)
    begins = np.stack([one.step_start for one in matched.ranks], axis=1) + usual
    ends = np.stack([one.step_end for one in matched.ranks], axis=1) + usual
    found = []
    for begin, until in zip(begins, ends, strict=True):
        inside = (start >= begin).all(axis=1) & (end <= until).all(axis=1)
        if (((start < until) & (end > begin)).any(axis=1) & ~inside).any():
            return None
        first, last = start[inside], end[inside]
        own = np.concatenate((first, until[None])) - np.concatenate((begin[None], last))
        if (own < 0).any():
            return None
        own[0] += begin - begin.min()
        transfer = np.maximum(last - first.max(axis=1, keepdims=True), 0)
        found.append((own, transfer, float((until - begin.min()).mean())))
    return ReplayableSteps(*zip(*found, strict=True))
