"""Who holds up the job, and what is said where nobody does."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.ranks.blame import BUBBLE, OUTSIDE, TRANSFER, UNTOLD, Charges
from fusetui.analysis.ranks.causing import LEAST, Caused
from fusetui.analysis.ranks.clocks import Clocks
from fusetui.analysis.ranks.job import Job
from fusetui.analysis.ranks.matching import Matched
from fusetui.analysis.ranks.pipeline import Pipeline, Slow
from fusetui.analysis.ranks.reasons import ENOUGH, Excess, Reason, reason_of, slower_kernels
from fusetui.analysis.ranks.records import Straggler
from fusetui.analysis.ranks.replay import Steps, what_if
from fusetui.analysis.ranks.steps import StepsOfRows
from fusetui.analysis.ranks.telling import (
    flips_text,
    none_text,
    pipeline_text,
    slow_text,
    straggler_text,
)
from fusetui.analysis.ranks.waits import OfRanks, Waits
from fusetui.text.figures import percent

Floats = NDArray[np.float64]

MOST = 5  # stragglers
WHY = {
    TRANSFER: "transfers of other collectives take longer on some of them",
    UNTOLD: "clocks do not tell which of several ranks was last, or their work cannot be compared",
    OUTSIDE: "it goes back to ranks that are not given",
    BUBBLE: "it goes back to sends and receives of a pipeline",
}


class Told(msgspec.Struct, frozen=True, eq=False):
    """Everything that was found out about a job."""

    job: Job
    matched: Matched
    clocks: Clocks
    waits: Waits
    steps: StepsOfRows
    sums: OfRanks
    charges: Charges
    caused: Caused
    pipeline: Pipeline | None
    replay: Steps | str


def stragglers_of(told: Told) -> Iterator[Straggler]:
    """Ranks that hold up others, who hold them up longest first; else those that compute longer
    than their like in a pipeline."""
    caused = told.caused
    order = np.argsort(-caused.total, kind="stable").tolist()
    late = [rank for rank in order if caused.straggles[rank]][:MOST]
    for rank in late:
        yield _held_up(told, rank)
    for one in (told.pipeline.slow if told.pipeline else ())[: MOST - len(late)]:
        if one.rank not in late:
            yield _slow(told, one)


def _held_up(told: Told, rank: int) -> Straggler:
    one = told.matched.ranks[rank]
    reason = reason_of(told.matched, told.charges, told.clocks, rank)
    others = [other for other in told.matched.ranks if other is not one]
    cause = cause_of(reason)
    slower = slower_kernels(one, others) if cause == "inside" else None
    replayed = what_if(told.matched, told.replay, rank) if isinstance(told.replay, Steps) else None
    counts = int(told.sums.last[rank]), int(told.sums.collectives[rank])
    caused, waiters = int(told.caused.total[rank]), int(told.caused.waiters[rank])
    text = straggler_text(told.job, one, counts, (caused, waiters), cause, reason, slower, replayed)
    return Straggler(one.rank, *counts, caused, waiters, cause, None, text, reason, replayed)


def _slow(told: Told, slow: Slow) -> Straggler:
    """A rank that computes longer than its like; nobody waits for it but in the bubble."""
    one = told.matched.ranks[slow.rank]
    total = slow.excess_ns * len(one.steps)
    reason = Reason(total, 0, total, None, None, False, (Excess("class", slow.what, total),))
    counts = int(told.sums.last[slow.rank]), int(told.sums.collectives[slow.rank])
    waiters = int(told.caused.waiters[slow.rank])
    caused = int(told.caused.total[slow.rank])
    text = slow_text(one, slow)
    return Straggler(one.rank, *counts, caused, waiters, "inside", slow.stage, text, reason, None)


def cause_of(reason: Reason) -> str:
    if reason.outside_ns > reason.inside_ns:
        return "outside"
    largest = reason.excess[0].ns if reason.excess else 0
    return "inside" if largest >= ENOUGH * reason.inside_ns else "untold"


def verdict_of(told: Told, stragglers: tuple[Straggler, ...]) -> Iterator[str]:
    """What else is to say of who is late: the bubble, and why nobody is named, where that is so."""
    if told.pipeline is not None:
        yield from pipeline_text(told.pipeline, told.steps.length_ns, bool(stragglers))
    if stragglers or not len(told.matched) or told.clocks.refused:
        return
    every, least = told.caused.every_step, LEAST * told.steps.length_ns
    if every.mean() >= least:
        in_turn = int((told.caused.by_step.max(axis=1) >= least).sum())
        yield flips_text(every.tolist(), in_turn)
        return
    lost = _lost(told) / len(every)
    worst = int(np.argmax(lost))
    if lost[worst] >= least:
        yield none_text(float(lost[worst]), WHY[worst])
    else:
        yield f"No rank holds up the others by {percent(LEAST, 1)} of a step."


def _lost(told: Told) -> Floats:
    """Waits that go back to nobody, by the reason, ns of the mean rank over all steps."""
    matched, waits = told.matched, told.waits
    unsure = (waits.last < 0) & ~matched.point_to_point
    lost = told.charges.lost.copy()
    lost[UNTOLD] = max(lost[UNTOLD], waits.alone[unsure[matched.of_row]].sum())
    found: Floats = lost / max(len(matched.ranks) - 1, 1)
    return found
