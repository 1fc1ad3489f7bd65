"""From the summaries of ranks to everything that is known about their job."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.analysis.ranks import model
from fusetui.analysis.ranks.blame import charges_of
from fusetui.analysis.ranks.caused import caused_by
from fusetui.analysis.ranks.clocks import Clocks, clocks_of
from fusetui.analysis.ranks.facts import JobFacts
from fusetui.analysis.ranks.groups import with_groups, with_peers
from fusetui.analysis.ranks.ideal import replayable
from fusetui.analysis.ranks.matching import RankJob, job_of, match, steps_of
from fusetui.analysis.ranks.pipeline import balance, outliers, pipeline_of
from fusetui.analysis.ranks.stragglers import stragglers_of, verdict_of
from fusetui.analysis.ranks.waits import kinds_of, sums_of_ranks, waits_of
from fusetui.text.figures import plural
from fusetui.trace.model.arrays import Int64s, summed

ACCOUNT = ("step_ns", "compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
FIGURES = (*ACCOUNT, "caused_ns")  # in which a rank can stand out
ALL = "all"  # the only step of a job without steps


class Explained(msgspec.Struct, frozen=True, eq=False):
    """The answer, and what it is made from."""

    facts: JobFacts
    answer: model.JobAnswer


class Strip(msgspec.Struct, frozen=True, eq=False):
    """How long each rank waited in each step: `waited` [ranks, steps] in ns; `ranks`
    ascend."""

    ranks: tuple[int, ...]
    steps: tuple[str, ...]
    waited: Int64s

    def shares(self, rank: int, width: int) -> tuple[float, ...]:
        """Waits in at most `width` places, of each the longest, as shares of the
        longest of all."""
        row, most = (
            self.waited[self.ranks.index(rank)],
            max(int(self.waited.max(initial=0)), 1),
        )
        if not (count := min(width, len(row))):
            return ()
        first = np.arange(count) * len(row) // count
        return tuple((np.maximum.reduceat(row, first) / most).tolist())


def explained(found: Iterable[model.RankSummary | model.LeftOut]) -> Explained:
    """Everything about the job that most of these ranks are of."""
    job = job_of(found)
    job = replace(job, ranks=with_peers(with_groups(job.ranks)))
    matched = match(job.ranks)
    clocks = clocks_of(matched)
    if matched.no_group:
        some = f"of {plural(matched.no_group, 'collective')} it is not recorded"
        clocks = replace(
            clocks, refused=f"{some} of which of several process groups they are"
        )
    waits, steps = waits_of(matched, clocks), steps_of(matched)
    pipeline = pipeline_of(matched, steps.length_ns)
    stage_of = pipeline.stage_of if pipeline else ()
    charges = charges_of(matched, waits, clocks, steps, stage_of)
    sums, caused = sums_of_ranks(matched, waits), caused_by(matched, charges, steps)
    replay = replayable(job, matched, waits)
    facts = JobFacts(
        job, matched, clocks, waits, steps, sums, charges, caused, pipeline, replay
    )
    return Explained(facts, _answer(facts))


def strip_of(found: Explained) -> Strip:
    """What the strip of the app's page shows. A wait belongs to the step in which its
    rank issued the collective; those in sends and receives are not counted."""
    matched, steps = found.facts.matched, found.facts.steps
    counted = (steps.of_row >= 0) & ~matched.point_to_point[matched.of_row]
    places = matched.rank[counted], steps.of_row[counted]
    shape = len(matched.ranks), max(len(steps.names), 1)
    waited = summed(places, found.facts.waits.alone[counted], shape)
    return Strip(
        tuple(one.rank for one in matched.ranks), steps.names or (ALL,), waited
    )


def _answer(facts: JobFacts) -> model.JobAnswer:
    job, matched, waits = facts.job, facts.matched, facts.waits
    stragglers, rows = tuple(stragglers_of(facts)), _rows(facts)
    first = {one.rank: place for place, one in enumerate(stragglers)}
    rows.sort(
        key=lambda row: (first.get(row.rank, len(first)), -row.caused_ns, row.rank)
    )
    return model.JobAnswer(
        world_size=job.world_size or None,
        given=len(job.ranks),
        missing=job.missing,
        steps=max((len(one.steps) for one in job.ranks), default=0),
        collectives=len(matched),
        unmatched=int(matched.unmatched.sum()),
        no_group=matched.no_group,
        one_given=matched.one_given,
        cut=matched.cut,
        untold=int(np.count_nonzero((waits.last < 0) & ~matched.point_to_point)),
        clocks=_clocks(job, facts.clocks),
        ranks=tuple(rows),
        left_out=job.left,
        stragglers=stragglers,
        verdict=verdict_of(facts, stragglers),
        bubble=facts.pipeline.bubble if facts.pipeline else None,
        kinds=kinds_of(matched, waits),
        balance=balance(np.array([r.compute_ns for r in rows], dtype=np.float64)),
        no_what_if=facts.replay if isinstance(facts.replay, str) else "",
        inferred=tuple(
            dict.fromkeys(what for one in job.ranks for what in one.inferred)
        ),
        notes=job.notes,
    )


def _rows(facts: JobFacts) -> list[model.RankRow]:
    matched, sums, caused, clocks = (
        facts.matched,
        facts.sums,
        facts.caused,
        facts.clocks,
    )
    figures = [_figures(one) for one in matched.ranks]
    columns = [
        np.array([own[name] for own in figures], dtype=np.float64) for name in ACCOUNT
    ]
    step = float(np.median(columns[0])) if figures else 0.0
    caused_a_step = caused.total / [max(len(one.steps), 1) for one in matched.ranks]
    stand_out = np.array(
        [outliers(column, step) for column in (*columns, caused_a_step)]
    )
    stand_out = stand_out.reshape(len(FIGURES), -1)
    if figures:  # to cause less than others is no distinction
        stand_out[-1] &= caused.total > np.median(caused.total)
    return [
        model.RankRow(
            rank=one.rank,
            path=one.path,
            host=one.host,
            device=one.device_name,
            steps=len(one.steps),
            **figures[n],
            collectives=len(one.collectives),
            unmatched=int(matched.unmatched[n]),
            last_count=int(sums.last[n]),
            caused_ns=int(caused.total[n]),
            waited_ns=int(sums.waited[n]),
            bubble_ns=int(sums.bubble[n]),
            memory_peak_bytes=one.memory_peak if one.memory_peak >= 0 else None,
            **_clock(clocks, n),
            outliers=tuple(np.array(FIGURES)[stand_out[:, n]].tolist()),
            worst_wait=_worst(facts, int(sums.worst[n])),
            damage=one.damage,
            inferred=one.inferred,
        )
        for n, one in enumerate(matched.ranks)
    ]


def _figures(one: model.RankSummary) -> dict[str, Any]:
    """The medians over the steps, else the figures of the device's span or of the
    trace."""
    steps = one.step_end - one.step_start
    step_ns = int(np.median(steps)) if len(steps) else one.end_ns - one.begin_ns
    account = np.median(one.accounts, axis=0) if len(one.accounts) else one.account
    if not len(account):
        return {**dict.fromkeys(ACCOUNT), "step_ns": step_ns, "idle": {}}
    each = list(map(int, account))
    idle = {
        name: ns for name, ns in zip(model.CLASSES[5:], each[5:], strict=True) if ns
    }
    step_ns = step_ns if len(steps) else each[0]
    return {**dict(zip(ACCOUNT, each, strict=False)), "step_ns": step_ns, "idle": idle}


def _worst(facts: JobFacts, row: int) -> model.WorstWait | None:
    if row < 0:
        return None
    matched, waits = facts.matched, facts.waits
    place = int(matched.of_row[row])
    last, since = int(waits.last[place]), matched.ranks[matched.rank[row]].begin_ns
    whom = matched.ranks[last].rank if last >= 0 else None
    start_ns, wait_ns = int(matched.start[row]) - since, int(waits.wait[row])
    return model.WorstWait(matched.names[place], start_ns, wait_ns, whom)


def _clocks(job: RankJob, clocks: Clocks) -> model.ClockAnswer:
    bounded = len(clocks.half) and bool(np.isfinite(clocks.half).all())
    hosts = clocks.hosts
    own = [np.flatnonzero(hosts.of_rank == n) for n in range(len(hosts.names))]
    share_a_host = any(len(ranks) > 1 for ranks in own)
    return model.ClockAnswer(
        reference_rank=job.ranks[clocks.reference].rank if job.ranks else None,
        shared=clocks.shared,
        feasible=not clocks.refused,
        uncertainty_ns=round(float(clocks.half.max())) if bounded else None,
        on_one_host_ns=round(clocks.resolution) if share_a_host else None,
        refused=clocks.refused,
        guessed=hosts.why if hosts.guessed and len(hosts.names) > 1 else "",
        hosts=tuple(
            model.HostClock(
                host=name,
                ranks=len(ranks),
                by=by,
                **_clock(clocks, int(ranks[0])),
                contradicted=name in clocks.contradicted,
            )
            for name, ranks, by in zip(hosts.names, own, clocks.by, strict=True)
        ),
    )


def _clock(clocks: Clocks, rank: int) -> dict[str, Any]:
    """The clock of a rank, an index; None where nothing bounds the offset."""
    bounded = bool(np.isfinite(clocks.half[rank]))
    return {
        "offset_ns": round(float(clocks.used[rank])) if bounded else None,
        "uncertainty_ns": round(float(clocks.half[rank])) if bounded else None,
        "drift_ns_per_s": round(float(clocks.drift[rank]), 3) + 0.0,  # no negative zero
    }
