"""From the summaries of ranks to everything that is known about their job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
from fusetui.analysis.ranks.matching import (
    Matched,
    RankJob,
    job_of,
    match,
    steps_of,
)
from fusetui.analysis.ranks.pipeline import balance, outliers, pipeline_of
from fusetui.analysis.ranks.stragglers import stragglers_of, verdict_of
from fusetui.analysis.ranks.waits import (
    NO_ROW,
    UNTOLD,
    kinds_of,
    sums_of_ranks,
    waits_of,
)
from fusetui.analysis.why.model import IDLE
from fusetui.text.figures import plural
from fusetui.trace.layout.steps import step_wall
from fusetui.trace.model.arrays import Int64s, summed
from fusetui.trace.model.quantiles import median, medians

ACCOUNT = ("step_ns", "compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
FIGURES = (*ACCOUNT, "caused_ns")
"""In which a rank can stand out."""
ALL = "all"
"""The only step of a job without steps."""


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
        waits = self.waited[self.ranks.index(rank)]
        places = min(width, len(waits))
        if not places:
            return ()
        longest_of_all = max(int(self.waited.max(initial=0)), 1)
        first = np.arange(places) * len(waits) // places
        longest = np.maximum.reduceat(waits, first)
        return tuple((longest / longest_of_all).tolist())


def explained(
    summaries: Iterable[model.RankSummary | model.LeftOut],
) -> Explained:
    """Everything about the job that most of these ranks are of."""
    job = job_of(summaries)
    job = replace(job, ranks=with_peers(with_groups(job.ranks)))
    matched = match(job.ranks)
    clocks = _clocks_of(matched)
    waits = waits_of(matched, clocks)
    steps = steps_of(matched)
    pipeline = pipeline_of(matched, steps.length_ns)
    stage_of = pipeline.stage_of if pipeline else ()
    charges = charges_of(matched, waits, clocks, steps, stage_of)
    facts = JobFacts(
        job=job,
        matched=matched,
        clocks=clocks,
        waits=waits,
        steps=steps,
        sums=sums_of_ranks(matched, waits),
        charges=charges,
        caused=caused_by(matched, charges, steps),
        pipeline=pipeline,
        replay=replayable(job, matched, waits),
    )
    return Explained(facts=facts, answer=_answer(facts))


def _clocks_of(matched: Matched) -> Clocks:
    """Refused also where process groups of collectives are not known."""
    clocks = clocks_of(matched)
    if not matched.no_group:
        return clocks
    collectives = plural(matched.no_group, "collective")
    refused = f"of {collectives} it is not recorded of which of several process groups they are"
    return replace(clocks, refused=refused)


def strip_of(job: Explained) -> Strip:
    """What the strip of the app's page shows. A wait belongs to the step in which its
    rank issued the collective; those in sends and receives are not counted."""
    matched = job.facts.matched
    steps = job.facts.steps
    is_send = matched.point_to_point[matched.of_row]
    is_counted = (steps.of_row >= 0) & ~is_send
    waited = summed(
        (matched.rank[is_counted], steps.of_row[is_counted]),
        job.facts.waits.alone[is_counted],
        (len(matched.ranks), max(len(steps.names), 1)),
    )
    return Strip(
        ranks=tuple(summary.rank for summary in matched.ranks),
        steps=steps.names or (ALL,),
        waited=waited,
    )


def _answer(facts: JobFacts) -> model.JobAnswer:
    job = facts.job
    matched = facts.matched
    waits = facts.waits
    stragglers = tuple(stragglers_of(facts))
    rows = _rows(facts, stragglers)
    is_untold = (waits.last == UNTOLD) & ~matched.point_to_point
    compute_ns = np.array([row.compute_ns for row in rows], dtype=np.float64)
    inferred = [what for summary in job.ranks for what in summary.inferred]
    return model.JobAnswer(
        world_size=job.world_size or None,
        given=len(job.ranks),
        missing=job.missing,
        steps=max((len(summary.steps) for summary in job.ranks), default=0),
        collectives=len(matched),
        unmatched=int(matched.unmatched.sum()),
        no_group=matched.no_group,
        one_given=matched.one_given,
        cut=matched.cut,
        untold=int(np.count_nonzero(is_untold)),
        clocks=_clock_answer(job, facts.clocks),
        ranks=tuple(rows),
        left_out=job.left,
        stragglers=stragglers,
        verdict=verdict_of(facts, stragglers),
        bubble=facts.pipeline.bubble if facts.pipeline else None,
        kinds=kinds_of(matched, waits),
        balance=balance(compute_ns),
        no_what_if=facts.replay if isinstance(facts.replay, str) else "",
        inferred=tuple(dict.fromkeys(inferred)),
        notes=job.notes,
    )


class _Figures(msgspec.Struct, frozen=True):
    """The medians over the steps of a rank, else the figures of the span of its device,
    or of its trace; None without a GPU."""

    step_ns: int
    compute_ns: int | None
    exposed_comm_ns: int | None
    exposed_copy_ns: int | None
    idle_ns: int | None
    idle: dict[str, int]


def _rows(
    facts: JobFacts, stragglers: Sequence[model.Straggler]
) -> list[model.RankRow]:
    """Stragglers first, then the one that causes most waiting."""
    figures = [_figures(summary) for summary in facts.matched.ranks]
    outliers_of_ranks = _outliers(facts, figures)
    rows = [
        _row(facts, index, figures[index], outliers_of_ranks[index])
        for index in range(len(figures))
    ]
    place_of = {one.rank: place for place, one in enumerate(stragglers)}
    behind = len(place_of)
    rows.sort(
        key=lambda row: (place_of.get(row.rank, behind), -row.caused_ns, row.rank)
    )
    return rows


def _row(
    facts: JobFacts, index: int, figures: _Figures, stands_out_in: tuple[str, ...]
) -> model.RankRow:
    summary = facts.matched.ranks[index]
    sums = facts.sums
    clock = _clock(facts.clocks, index)
    has_memory = summary.memory_peak >= 0
    return model.RankRow(
        rank=summary.rank,
        path=summary.path,
        host=summary.host,
        device=summary.device_name,
        steps=len(summary.steps),
        step_ns=figures.step_ns,
        compute_ns=figures.compute_ns,
        exposed_comm_ns=figures.exposed_comm_ns,
        exposed_copy_ns=figures.exposed_copy_ns,
        idle_ns=figures.idle_ns,
        idle=figures.idle,
        collectives=len(summary.collectives),
        unmatched=int(facts.matched.unmatched[index]),
        last_count=int(sums.last[index]),
        caused_ns=int(facts.caused.total[index]),
        waited_ns=int(sums.waited[index]),
        bubble_ns=int(sums.bubble[index]),
        memory_peak_bytes=summary.memory_peak if has_memory else None,
        offset_ns=clock.offset_ns,
        uncertainty_ns=clock.uncertainty_ns,
        drift_ns_per_s=clock.drift_ns_per_s,
        outliers=stands_out_in,
        worst_wait=_worst_wait(facts, int(sums.worst[index])),
        damage=summary.damage,
        inferred=summary.inferred,
    )


def _figures(summary: model.RankSummary) -> _Figures:
    lengths_ns = step_wall(summary.step_start, summary.step_end)
    step_ns = summary.end_ns - summary.begin_ns
    if len(lengths_ns):
        step_ns = median(lengths_ns)
    account = summary.account
    if len(summary.accounts):
        account = medians(summary.accounts)
    if not len(account):
        return _Figures(
            step_ns=step_ns,
            compute_ns=None,
            exposed_comm_ns=None,
            exposed_copy_ns=None,
            idle_ns=None,
            idle={},
        )
    by_class = dict(zip(model.CLASSES, account.tolist(), strict=True))
    return _Figures(
        step_ns=step_ns if len(lengths_ns) else by_class["span"],
        compute_ns=by_class["compute"],
        exposed_comm_ns=by_class["exposed_comm"],
        exposed_copy_ns=by_class["exposed_copy"],
        idle_ns=by_class["idle"],
        idle={name: by_class[name] for name in IDLE if by_class[name]},
    )


def _outliers(facts: JobFacts, figures: Sequence[_Figures]) -> list[tuple[str, ...]]:
    """The names of the figures in which each rank stands out."""
    if not figures:
        return []
    steps = [max(len(summary.steps), 1) for summary in facts.matched.ranks]
    caused_ns = facts.caused.total
    columns = {
        name: np.array([getattr(own, name) for own in figures], dtype=np.float64)
        for name in ACCOUNT
    }
    columns["caused_ns"] = caused_ns / steps
    step_ns = float(np.median(columns["step_ns"]))
    stands_out = {name: outliers(columns[name], step_ns) for name in FIGURES}
    # To cause less than others is no distinction.
    stands_out["caused_ns"] &= caused_ns > np.median(caused_ns)
    names_of_ranks: list[tuple[str, ...]] = []
    for index in range(len(figures)):
        names = tuple(name for name in FIGURES if stands_out[name][index])
        names_of_ranks.append(names)
    return names_of_ranks


def _worst_wait(facts: JobFacts, row: int) -> model.WorstWait | None:
    """`row`: of Matched, NO_ROW for none."""
    if row == NO_ROW:
        return None
    matched = facts.matched
    collective = int(matched.of_row[row])
    last = int(facts.waits.last[collective])
    begin_ns = matched.ranks[matched.rank[row]].begin_ns
    return model.WorstWait(
        name=matched.names[collective],
        start_ns=int(matched.start[row]) - begin_ns,
        wait_ns=int(facts.waits.wait[row]),
        for_rank=None if last == UNTOLD else matched.ranks[last].rank,
    )


def _clock_answer(job: RankJob, clocks: Clocks) -> model.ClockAnswer:
    is_bounded = len(clocks.half) > 0 and bool(np.isfinite(clocks.half).all())
    hosts = clocks.hosts
    answers: list[model.HostClock] = []
    for host, name in enumerate(hosts.names):
        ranks = np.flatnonzero(hosts.of_rank == host)
        clock = _clock(clocks, int(ranks[0]))
        answer = model.HostClock(
            host=name,
            ranks=len(ranks),
            by=clocks.by[host],
            offset_ns=clock.offset_ns,
            uncertainty_ns=clock.uncertainty_ns,
            drift_ns_per_s=clock.drift_ns_per_s,
            contradicted=name in clocks.contradicted,
        )
        answers.append(answer)
    share_a_host = any(answer.ranks > 1 for answer in answers)
    return model.ClockAnswer(
        reference_rank=job.ranks[clocks.reference].rank if job.ranks else None,
        shared=clocks.shared,
        feasible=not clocks.refused,
        uncertainty_ns=round(float(clocks.half.max())) if is_bounded else None,
        on_one_host_ns=round(clocks.resolution) if share_a_host else None,
        refused=clocks.refused,
        guessed=hosts.why if hosts.guessed and len(hosts.names) > 1 else "",
        hosts=tuple(answers),
    )


class _Clock(msgspec.Struct, frozen=True):
    """The clock of a rank beside that of the reference; None where nothing bounds
    it."""

    offset_ns: int | None
    uncertainty_ns: int | None
    drift_ns_per_s: float


def _clock(clocks: Clocks, rank: int) -> _Clock:
    """`rank` is an index."""
    is_bounded = bool(np.isfinite(clocks.half[rank]))
    drift_ns_per_s = round(float(clocks.drift[rank]), 3)
    return _Clock(
        offset_ns=round(float(clocks.used[rank])) if is_bounded else None,
        uncertainty_ns=round(float(clocks.half[rank])) if is_bounded else None,
        drift_ns_per_s=drift_ns_per_s + 0.0,  # no negative zero
    )
