"""From the summaries of ranks to everything that is said about their job."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from fusetui.analysis.ranks.bandwidth import kinds_of
from fusetui.analysis.ranks.blame import charges_of
from fusetui.analysis.ranks.causing import Caused, caused_by
from fusetui.analysis.ranks.clocks import Clocks, clocks_of
from fusetui.analysis.ranks.groups import with_groups
from fusetui.analysis.ranks.job import Job, job_of
from fusetui.analysis.ranks.matching import Matched, match
from fusetui.analysis.ranks.model import CLASSES, NoSummary, RankSummary
from fusetui.analysis.ranks.outliers import balance, outliers
from fusetui.analysis.ranks.peers import with_peers
from fusetui.analysis.ranks.pipeline import pipeline_of
from fusetui.analysis.ranks.records import (
    ClockAnswer,
    HostClock,
    JobAnswer,
    LeftOut,
    RankRow,
    WorstWait,
)
from fusetui.analysis.ranks.replay import replayable
from fusetui.analysis.ranks.steps import StepsOfRows, steps_of
from fusetui.analysis.ranks.stragglers import Told, stragglers_of, verdict_of
from fusetui.analysis.ranks.telling import of_no_group
from fusetui.analysis.ranks.waits import OfRanks, Waits, sums_of_ranks, waits_of

Int64s = NDArray[np.int64]
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
    steps: StepsOfRows
    answer: JobAnswer


def answer_of(found: Iterable[RankSummary | NoSummary]) -> JobAnswer:
    return explained(found).answer


def explained(found: Iterable[RankSummary | NoSummary]) -> Found:
    """Everything about the job that most of these ranks are of."""
    job = job_of(found)
    job = replace(job, ranks=with_peers(with_groups(job.ranks)))
    matched = match(job.ranks)
    clocks = clocks_of(matched)
    if matched.no_group:
        clocks = replace(clocks, refused=of_no_group(matched.no_group))
    waits = waits_of(matched, clocks)
    sums = sums_of_ranks(matched, waits)
    steps = steps_of(matched)
    pipeline = pipeline_of(matched, steps.length_ns)
    charges = charges_of(matched, waits, clocks, pipeline.stage_of if pipeline else None)
    caused = caused_by(matched, charges, steps)
    replay = replayable(job, matched, waits)
    told = Told(job, matched, clocks, waits, steps, sums, charges, caused, pipeline, replay)
    stragglers = tuple(stragglers_of(told))
    first = {one.rank: place for place, one in enumerate(stragglers)}
    rows = _rows(matched, clocks, waits, sums, caused)
    answer = JobAnswer(
        world_size=job.world_size or None,
        given=len(job.ranks),
        missing=job.missing,
        steps=max((len(one.steps) for one in job.ranks), default=0),
        collectives=len(matched),
        unmatched=int(matched.unmatched.sum()),
        no_group=matched.no_group,
        one_given=matched.one_given,
        untold=int(np.count_nonzero((waits.last < 0) & ~matched.point_to_point)),
        clocks=_clocks(job, clocks),
        ranks=tuple(
            sorted(
                rows, key=lambda row: (first.get(row.rank, len(first)), -row.caused_ns, row.rank)
            )
        ),
        left_out=tuple(
            LeftOut(one.path, one.rank if one.rank >= 0 else None, one.reason) for one in job.left
        ),
        stragglers=stragglers,
        verdict=tuple(verdict_of(told, stragglers)),
        bubble=pipeline.bubble if pipeline else None,
        kinds=kinds_of(matched, waits) if len(matched) else (),
        balance=balance(np.array([_or_nan(row.compute_ns) for row in rows])),
        no_what_if=replay if isinstance(replay, str) else "",
        inferred=tuple(dict.fromkeys(what for one in job.ranks for what in one.inferred)),
        notes=job.notes,
    )
    return Found(job, matched, clocks, waits, steps, answer)


def _rows(
    matched: Matched, clocks: Clocks, waits: Waits, sums: OfRanks, caused: Caused
) -> list[RankRow]:
    figures = [_figures(one) for one in matched.ranks]
    columns = [np.array([_or_nan(getattr(own, name)) for own in figures]) for name in FIGURES[:-1]]
    step = float(np.median(columns[0])) if figures else 0.0
    caused_a_step = caused.total / [max(len(one.steps), 1) for one in matched.ranks]
    every = (*columns, caused_a_step)
    stand_out = np.array([outliers(column, step) for column in every]).reshape(len(FIGURES), -1)
    if figures:  # to cause less than others is no distinction
        stand_out[-1] &= caused.total > np.median(caused.total)
    found = []
    for n, one in enumerate(matched.ranks):
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
                caused_ns=int(caused.total[n]),
                waited_ns=int(sums.waited[n]),
                bubble_ns=int(sums.bubble[n]),
                memory_peak_bytes=one.memory_peak if one.memory_peak >= 0 else None,
                offset_ns=_rounded(clocks.used[n], clocks.half[n]),
                uncertainty_ns=_rounded(clocks.half[n], clocks.half[n]),
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
    hosts = clocks.hosts
    places = [int(np.flatnonzero(hosts.of_rank == n)[0]) for n in range(len(hosts.names))]
    return ClockAnswer(
        reference_rank=job.ranks[clocks.reference].rank if job.ranks else None,
        shared=clocks.shared,
        feasible=not clocks.refused,
        uncertainty_ns=round(float(clocks.half.max())) if bounded else None,
        refused=clocks.refused,
        guessed=hosts.why if hosts.guessed and len(hosts.names) > 1 else "",
        hosts=tuple(
            HostClock(
                host=name,
                ranks=int(np.count_nonzero(hosts.of_rank == n)),
                by=clocks.by[n],
                offset_ns=_rounded(clocks.used[place], clocks.half[place]),
                uncertainty_ns=_rounded(clocks.half[place], clocks.half[place]),
                drift_ns_per_s=round(float(clocks.drift[place]), 3) + 0.0,
                contradicted=name in clocks.contradicted,
            )
            for n, (name, place) in enumerate(zip(hosts.names, places, strict=True))
        ),
    )


def _rounded(value: float, half: float) -> int | None:
    """None where nothing bounds the offset."""
    return round(float(value)) if np.isfinite(half) else None


def _or_nan(value: int | None) -> float:
    return float("nan") if value is None else float(value)
