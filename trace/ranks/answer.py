"""From the summaries of ranks to everything that is said about their job."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.ranks.bandwidth import kinds_of
from fusetui.trace.ranks.clocks import Clocks, clocks_of
from fusetui.trace.ranks.job import Job, job_of
from fusetui.trace.ranks.matching import Matched, match
from fusetui.trace.ranks.model import CLASSES, NoSummary, RankSummary
from fusetui.trace.ranks.outliers import balance, outliers
from fusetui.trace.ranks.reasons import ENOUGH, Reason, reason_of, slower_kernels
from fusetui.trace.ranks.records import (
    ClockAnswer,
    JobAnswer,
    LeftOut,
    RankRow,
    Straggler,
    WorstWait,
)
from fusetui.trace.ranks.replay import Steps, replayable, what_if
from fusetui.trace.ranks.telling import straggler_text
from fusetui.trace.ranks.waits import OfRanks, Waits, sums_of_ranks, waits_of

Int64s = NDArray[np.int64]
MOST_STRAGGLERS = 5
LEAST = 0.05  # of all waiting that ranks cause; who causes less is not named
FIGURES = ("step_ns", "compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns", "caused_ns")
"""In which a rank can stand out."""


class _Figures(msgspec.Struct, frozen=True):
    step_ns: int
    compute_ns: int | None = None
    exposed_comm_ns: int | None = None
    exposed_copy_ns: int | None = None
    idle_ns: int | None = None
    idle: dict[str, int] = {}


class Found(msgspec.Struct, frozen=True, eq=False):
    """What the answer is made from; the app draws its strip from it too."""

    job: Job
    matched: Matched
    clocks: Clocks
    waits: Waits
    answer: JobAnswer


def answer_of(found: Iterable[RankSummary | NoSummary]) -> JobAnswer:
    return explained(found).answer


def explained(found: Iterable[RankSummary | NoSummary]) -> Found:
    """Everything about the job that most of these ranks are of."""
    job = job_of(found)
    matched = match(job.ranks)
    clocks = clocks_of(matched)
    waits = waits_of(matched, clocks)
    sums = sums_of_ranks(matched, waits)
    rows = _rows(matched, clocks, waits, sums)
    steps = replayable(job, matched, waits)
    answer = JobAnswer(
        world_size=job.world_size or None,
        given=len(job.ranks),
        missing=job.missing,
        steps=max((len(one.steps) for one in job.ranks), default=0),
        collectives=len(matched),
        unmatched=int(matched.unmatched.sum()),
        untold=int(np.count_nonzero(waits.last < 0)),
        clocks=_clocks(job, clocks),
        ranks=tuple(sorted(rows, key=lambda row: (-row.caused_ns, row.rank))),
        left_out=tuple(
            LeftOut(one.path, one.rank if one.rank >= 0 else None, one.reason) for one in job.left
        ),
        stragglers=tuple(_stragglers(job, matched, clocks, waits, sums, steps)),
        kinds=kinds_of(matched, waits) if len(matched) else (),
        balance=balance(np.array([_or_nan(row.compute_ns) for row in rows])),
        no_what_if=steps if isinstance(steps, str) else "",
        inferred=tuple(dict.fromkeys(what for one in job.ranks for what in one.inferred)),
        notes=job.notes,
    )
    return Found(job, matched, clocks, waits, answer)


def _rows(matched: Matched, clocks: Clocks, waits: Waits, sums: OfRanks) -> list[RankRow]:
    figures = [_figures(one) for one in matched.ranks]
    caused = sums.caused.astype(np.float64)
    columns = [np.array([_or_nan(getattr(own, name)) for own in figures]) for name in FIGURES[:-1]]
    step = float(np.median(columns[0])) if figures else 0.0
    caused_a_step = caused / [max(len(one.steps), 1) for one in matched.ranks]
    every = (*columns, caused_a_step)
    stand_out = np.array([outliers(column, step) for column in every]).reshape(len(FIGURES), -1)
    found = []
    for n, one in enumerate(matched.ranks):
        bounded = bool(np.isfinite(clocks.half[n]))
        found.append(
            RankRow(
                rank=one.rank,
                path=one.path,
                host=one.host,
                device=one.device_name,
                steps=len(one.steps),
                step_ns=figures[n].step_ns,
                compute_ns=figures[n].compute_ns,
                exposed_comm_ns=figures[n].exposed_comm_ns,
                exposed_copy_ns=figures[n].exposed_copy_ns,
                idle_ns=figures[n].idle_ns,
                idle=figures[n].idle,
                collectives=len(one.collectives),
                unmatched=int(matched.unmatched[n]),
                last_count=int(sums.last[n]),
                caused_ns=int(sums.caused[n]),
                waited_ns=int(sums.waited[n]),
                memory_peak_bytes=one.memory_peak if one.memory_peak >= 0 else None,
                offset_ns=round(float(clocks.offset[n])) if bounded else None,
                uncertainty_ns=round(float(clocks.half[n])) if bounded else None,
                drift_ns_per_s=round(float(clocks.drift[n]), 3) + 0.0,  # no negative zero
                outliers=tuple(
                    name for name, out in zip(FIGURES, stand_out[:, n], strict=True) if out
                ),
                worst_wait=_worst(matched, waits, int(sums.worst[n])),
                damage=one.damage,
                inferred=one.inferred,
            )
        )
    return found


def _figures(one: RankSummary) -> _Figures:
    """The medians over the steps, else the figures of the device's span or of the trace."""
    steps = one.step_end - one.step_start
    step_ns = int(np.median(steps)) if len(steps) else one.end_ns - one.begin_ns
    account = np.median(one.accounts, axis=0) if len(one.accounts) else one.account
    if not len(account):
        return _Figures(step_ns)
    if not len(steps):
        step_ns = int(account[0])
    idle = {name: int(ns) for name, ns in zip(CLASSES[5:], account[5:], strict=True) if ns}
    compute, comm, copy, rest = (int(ns) for ns in account[1:5])
    return _Figures(step_ns, compute, comm, copy, rest, idle)


def _worst(matched: Matched, waits: Waits, row: int) -> WorstWait | None:
    if row < 0:
        return None
    place = int(matched.of_row[row])
    last = int(waits.last[place])
    return WorstWait(
        name=matched.names[place],
        start_ns=int(matched.start[row]) - matched.ranks[matched.rank[row]].begin_ns,
        wait_ns=int(waits.wait[row]),
        for_rank=matched.ranks[last].rank if last >= 0 else None,
    )


def _clocks(job: Job, clocks: Clocks) -> ClockAnswer:
    bounded = len(clocks.half) and bool(np.isfinite(clocks.half).all())
    return ClockAnswer(
        reference_rank=job.ranks[clocks.reference].rank if job.ranks else None,
        shared=clocks.shared,
        feasible=clocks.feasible,
        uncertainty_ns=round(float(clocks.half.max())) if bounded else None,
    )


def _stragglers(
    job: Job, matched: Matched, clocks: Clocks, waits: Waits, sums: OfRanks, steps: Steps | str
) -> Iterable[Straggler]:
    """The ranks that cause most waiting."""
    for rank in np.argsort(-sums.caused, kind="stable")[:MOST_STRAGGLERS].tolist():
        if sums.caused[rank] <= LEAST * sums.caused.sum():
            return
        one = matched.ranks[rank]
        reason = reason_of(matched, waits, clocks, rank)
        others = [other for other in matched.ranks if other is not one]
        cause = cause_of(reason)
        slower = slower_kernels(one, others) if cause == "inside" else None
        replayed = what_if(matched, steps, rank) if isinstance(steps, Steps) else None
        counts = int(sums.last[rank]), int(sums.collectives[rank])
        caused = int(sums.caused[rank])
        text = straggler_text(job, one, counts, caused, cause, reason, slower, replayed)
        yield Straggler(one.rank, *counts, caused, cause, text, reason, replayed)


def cause_of(reason: Reason) -> str:
    if reason.outside_ns > reason.inside_ns:
        return "outside"
    largest = reason.excess[0].ns if reason.excess else 0
    return "inside" if largest >= ENOUGH * reason.inside_ns else "untold"


def _or_nan(value: int | None) -> float:
    return float("nan") if value is None else float(value)
