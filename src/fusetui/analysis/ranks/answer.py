"""Turns the summaries of ranks into the answer about their job."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.analysis.ranks import model
from fusetui.analysis.ranks.blame import charge_waits
from fusetui.analysis.ranks.caused import measure_caused_waits
from fusetui.analysis.ranks.clocks import Clocks, estimate_clocks
from fusetui.analysis.ranks.facts import JobFacts
from fusetui.analysis.ranks.groups import infer_groups, resolve_peers
from fusetui.analysis.ranks.ideal import split_into_replayable_steps
from fusetui.analysis.ranks.matching import (
    Matched,
    RankJob,
    determine_job,
    find_job_steps,
    match_collectives,
)
from fusetui.analysis.ranks.pipeline import (
    mark_outliers,
    measure_balance,
    recognize_pipeline,
)
from fusetui.analysis.ranks.stragglers import decide_verdict, find_stragglers
from fusetui.analysis.ranks.waits import (
    UNKNOWN,
    Waits,
    measure_waits,
    sum_by_rank,
    summarize_kinds,
)
from fusetui.analysis.why.model import IDLE
from fusetui.text.figures import plural
from fusetui.trace.layout.steps import step_wall
from fusetui.trace.model.arrays import NO_ROW, Floats, Int64s, reduce_groups, summed
from fusetui.trace.model.quantiles import median, medians

ACCOUNT = ("step_ns", "compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
FIGURES = (*ACCOUNT, "caused_ns")
"""The figures in which a rank can stand out."""
NO_STEPS_NAME = "all"
"""The name of the only step of a job without steps."""


class Explained(msgspec.Struct, frozen=True, eq=False):
    """The answer about a job, and the facts that it is made from."""

    facts: JobFacts
    answer: model.JobAnswer


class Strip(msgspec.Struct, frozen=True, eq=False):
    """How long each rank waited in each step."""

    ranks: tuple[int, ...]  # ascending
    steps: tuple[str, ...]
    waited: Int64s  # [ranks, steps], in ns

    def measure_shares(self, rank: int, width: int) -> tuple[float, ...]:
        """Return how long a rank waited in each step, for a strip with one character
        per step.

        If there are more steps than characters, several steps share one, which shows
        their longest wait. E.g. waits of 0, 5, 10 and 2 ms in four steps become 0.5 and
        1 in two characters, if no rank waits longer than 10 ms.

        Args:
            rank: The number of the rank.
            width: How many characters there are at most.

        Returns:
            For each character a share from 0 to 1 of the longest wait of all ranks; ()
            without steps.
        """
        waits_ns = self.waited[self.ranks.index(rank)]
        step_count = len(waits_ns)
        character_count = min(width, step_count)
        if not character_count:
            return ()

        first_steps = np.arange(character_count) * step_count // character_count
        longest_ns = reduce_groups(np.maximum, waits_ns, first_steps)
        # at least 1, so that a job without waits does not divide by 0
        longest_of_all_ns = max(int(self.waited.max(initial=0)), 1)
        return tuple((longest_ns / longest_of_all_ns).tolist())


def explained(
    summaries: Iterable[model.RankSummary | model.LeftOut],
) -> Explained:
    """Find out everything about the job to which most of the ranks belong.

    Args:
        summaries: For each file the summary of its rank, or why it could not be read.
    """
    job = determine_job(summaries)
    with_groups = infer_groups(job.ranks)
    job = replace(job, ranks=resolve_peers(with_groups))

    # What each collective of several ranks is, and who waited in it for whom.
    matched = match_collectives(job.ranks)
    clocks = _estimate_clocks(matched)
    waits = measure_waits(matched, clocks)
    steps = find_job_steps(matched)
    pipeline = recognize_pipeline(matched, steps.length_ns)
    stage_of = pipeline.stage_of if pipeline else ()
    charged = charge_waits(matched, waits, clocks, steps, stage_of)
    facts = JobFacts(
        job=job,
        matched=matched,
        clocks=clocks,
        waits=waits,
        steps=steps,
        sums=sum_by_rank(matched, waits),
        charged=charged,
        caused=measure_caused_waits(matched, charged, steps),
        pipeline=pipeline,
        replay=split_into_replayable_steps(job, matched, waits),
    )
    return Explained(facts=facts, answer=_build_answer(facts))


def _estimate_clocks(matched: Matched) -> Clocks:
    """Estimate how far the clocks of the ranks are apart, or say why that is
    impossible.

    If the process group of some collective is unknown, it is unclear which ranks took
    part in it. Then `refused` of the result has this reason, and times of ranks are not
    compared.
    """
    clocks = estimate_clocks(matched)
    if not matched.no_group:
        return clocks
    collectives = plural(matched.no_group, "collective")
    reason = f"the process group of {collectives} was not recorded"
    return replace(clocks, refused=reason)


def make_strip(job: Explained) -> Strip:
    """Add up how long each rank waited in each step, for the strip of the app's page.

    A wait belongs to the step in which its rank issued the collective. Waits in sends
    and receives, and waits before the first step, are not counted.
    """
    matched = job.facts.matched
    steps = job.facts.steps
    idle_wait_ns = job.facts.waits.idle_wait_ns

    # Each row is one rank's part in one collective.
    is_send = matched.for_each_row(matched.point_to_point)
    is_counted = steps.is_in_step & ~is_send
    rank = matched.rank[is_counted]
    step = steps.step_of_row[is_counted]
    step_names = steps.names or (NO_STEPS_NAME,)
    return Strip(
        ranks=tuple(summary.rank for summary in matched.ranks),
        steps=step_names,
        waited=summed(
            (rank, step),
            idle_wait_ns[is_counted],
            (len(matched.ranks), len(step_names)),
        ),
    )


def _build_answer(facts: JobFacts) -> model.JobAnswer:
    """Build the answer about a job, which reports and pages show, from its facts.

    The facts are all arrays and results that the analysis of the ranks computed. The
    answer has plain figures and texts only, so that it can be written as JSON.
    """
    job = facts.job
    matched = facts.matched
    waits = facts.waits
    stragglers = tuple(find_stragglers(facts))
    rows = _make_rank_rows(facts, stragglers)
    last_is_unknown = (waits.last_rank == UNKNOWN) & ~matched.point_to_point
    compute_ns = np.array([row.compute_ns for row in rows], dtype=np.float64)
    inferred = [sentence for summary in job.ranks for sentence in summary.inferred]
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
        untold=int(np.count_nonzero(last_is_unknown)),
        clocks=_describe_clocks(job, facts.clocks),
        ranks=tuple(rows),
        left_out=job.left_out,
        stragglers=stragglers,
        verdict=decide_verdict(facts, stragglers),
        bubble=facts.pipeline.bubble if facts.pipeline else None,
        kinds=summarize_kinds(matched, waits),
        balance=measure_balance(compute_ns),
        no_what_if=facts.replay.refusal,
        inferred=tuple(dict.fromkeys(inferred)),
        notes=job.notes,
    )


class _Figures(msgspec.Struct, frozen=True):
    """The usual times of a rank: the medians over its steps.

    Without steps they are those of the span of its device, or of its trace. All but
    `step_ns` are None without a GPU.
    """

    step_ns: int
    compute_ns: int | None
    exposed_comm_ns: int | None
    exposed_copy_ns: int | None
    idle_ns: int | None
    idle: dict[str, int]


def _make_rank_rows(
    facts: JobFacts, stragglers: Sequence[model.Straggler]
) -> list[model.RankRow]:
    """Make the row of each rank for the table of all ranks.

    Stragglers come first, in their order, then the ranks that cause most waiting, then
    the others by their numbers.
    """
    summaries = facts.matched.ranks
    figures_of_ranks = [_measure_usual_times(summary) for summary in summaries]
    outliers_of_ranks = _find_outlying_figures(
        figures_of_ranks,
        caused_ns=facts.caused.mean_ns,
        step_counts=[len(summary.steps) for summary in summaries],
    )
    rows = []
    for index, (figures, stands_out_in) in enumerate(
        zip(figures_of_ranks, outliers_of_ranks, strict=True)
    ):
        rows.append(_make_rank_row(facts, index, figures, stands_out_in))

    position_of_straggler = {}
    for position, straggler in enumerate(stragglers):
        position_of_straggler[straggler.rank] = position
    behind_stragglers = len(stragglers)

    def sort_key(row: model.RankRow) -> tuple[int, int, int]:
        position = position_of_straggler.get(row.rank, behind_stragglers)
        most_caused_first = -row.caused_ns
        return position, most_caused_first, row.rank

    return sorted(rows, key=sort_key)


def _make_rank_row(
    facts: JobFacts, index: int, figures: _Figures, stands_out_in: tuple[str, ...]
) -> model.RankRow:
    """Make the row of one rank for the table of all ranks.

    Args:
        facts: The ranks of the job, and what was computed from them.
        index: The index of the rank.
        figures: Its usual times.
        stands_out_in: The names of the figures, such as `compute_ns`, in which it
            stands out among all ranks.
    """
    summary = facts.matched.ranks[index]
    sums = facts.sums
    clock = _round_clock_figures(facts.clocks, index)
    memory_peak = summary.memory_peak
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
        last_count=int(sums.last_count[index]),
        caused_ns=int(facts.caused.mean_ns[index]),
        waited_ns=int(sums.waited_ns[index]),
        bubble_ns=int(sums.bubble_ns[index]),
        memory_peak_bytes=memory_peak if memory_peak != model.UNKNOWN_BYTES else None,
        offset_ns=clock.offset_ns,
        uncertainty_ns=clock.uncertainty_ns,
        drift_ns_per_s=clock.drift_ns_per_s,
        outliers=stands_out_in,
        worst_wait=_describe_wait(
            facts.matched, facts.waits, int(sums.worst_row[index])
        ),
        damage=summary.damage,
        inferred=summary.inferred,
    )


def _measure_usual_times(summary: model.RankSummary) -> _Figures:
    """Measure how a usual step of a rank divides into compute, communication and idle
    time.

    The times are medians over all steps, in ns. Without steps, `step_ns` is the span of
    the device, or without a GPU the length of the trace.
    """
    step_lengths = step_wall(summary.step_start, summary.step_end)
    step_ns = median(step_lengths) if len(step_lengths) else None
    has_gpu = len(summary.account) > 0 or len(summary.accounts) > 0
    if not has_gpu:
        trace_ns = summary.end_ns - summary.begin_ns
        return _Figures(
            step_ns=trace_ns if step_ns is None else step_ns,
            compute_ns=None,
            exposed_comm_ns=None,
            exposed_copy_ns=None,
            idle_ns=None,
            idle={},
        )

    has_step_accounts = len(summary.accounts) > 0
    account = medians(summary.accounts) if has_step_accounts else summary.account
    ns_of_class = dict(zip(model.CLASSES, account.tolist(), strict=True))
    return _Figures(
        step_ns=ns_of_class["span"] if step_ns is None else step_ns,
        compute_ns=ns_of_class["compute"],
        exposed_comm_ns=ns_of_class["exposed_comm"],
        exposed_copy_ns=ns_of_class["exposed_copy"],
        idle_ns=ns_of_class["idle"],
        idle={name: ns_of_class[name] for name in IDLE if ns_of_class[name]},
    )


def _find_outlying_figures(
    figures: Sequence[_Figures], *, caused_ns: Int64s, step_counts: Sequence[int]
) -> list[tuple[str, ...]]:
    """Return for each rank the names of the figures in which it stands out among all
    ranks.

    E.g. `compute_ns`, if the rank computes much longer than the median rank. The
    figures are those of FIGURES.

    Args:
        figures: The usual times of each rank; may be empty.
        caused_ns: How long others wait for each rank, in its whole trace.
        step_counts: How many steps each rank recorded.
    """
    if not figures:
        return []

    # Figures that are None, without a GPU, become nan.
    columns: dict[str, Floats] = {}
    for name in ACCOUNT:
        values = [getattr(figures_of_rank, name) for figures_of_rank in figures]
        columns[name] = np.array(values, dtype=np.float64)

    # Waiting is caused in the whole trace, and the other figures are those of a step.
    columns["caused_ns"] = caused_ns / np.maximum(step_counts, 1)

    median_step_ns = float(np.median(columns["step_ns"]))
    stands_out = {
        name: mark_outliers(columns[name], median_step_ns) for name in FIGURES
    }
    # To cause less waiting than others is no distinction.
    stands_out["caused_ns"] &= caused_ns > np.median(caused_ns)

    names_of_ranks: list[tuple[str, ...]] = []
    for index in range(len(figures)):
        names = [name for name in FIGURES if stands_out[name][index]]
        names_of_ranks.append(tuple(names))
    return names_of_ranks


def _describe_wait(matched: Matched, waits: Waits, row: int) -> model.WorstWait | None:
    """Describe the wait of one rank in one collective: its name, start, length and
    cause.

    Args:
        matched: The collectives of the job; a row is one rank's part in one.
        waits: The waits in these collectives.
        row: The row of the rank in the collective; NO_ROW for a rank that never waits.

    Returns:
        The wait; None for NO_ROW. `for_rank` is the rank that started last, None if
        that is unknown.
    """
    if row == NO_ROW:
        return None

    collective = int(matched.collective_of_row[row])
    last_rank = int(waits.last_rank[collective])
    for_rank = None
    if last_rank != UNKNOWN:
        for_rank = matched.ranks[last_rank].rank

    recording_began_ns = matched.rank_at(row).begin_ns
    return model.WorstWait(
        name=matched.names[collective],
        start_ns=int(matched.start[row]) - recording_began_ns,
        wait_ns=int(waits.wait_ns[row]),
        for_rank=for_rank,
    )


def _describe_clocks(job: RankJob, clocks: Clocks) -> model.ClockAnswer:
    """Describe how far the clocks of the job are apart, in all and for each host.

    The uncertainty is None if the offset of some rank is not bounded. The one on a host
    is None if no two ranks share a host.
    """
    hosts = clocks.hosts
    host_clocks = _describe_host_clocks(clocks)
    some_share_a_host = any(host_clock.ranks > 1 for host_clock in host_clocks)

    # There is no largest uncertainty without ranks.
    largest_ns = float(clocks.uncertainty.max(initial=0.0))
    all_are_bounded = bool(job.ranks) and math.isfinite(largest_ns)

    # That there is one host is said by `shared`, guessed or not.
    are_several_guessed = hosts.guessed and len(hosts.names) > 1
    return model.ClockAnswer(
        reference_rank=job.ranks[clocks.reference].rank if job.ranks else None,
        shared=clocks.shared,
        feasible=not clocks.refused,
        uncertainty_ns=round(largest_ns) if all_are_bounded else None,
        on_one_host_ns=round(clocks.resolution) if some_share_a_host else None,
        refused=clocks.refused,
        guessed=hosts.shared_because if are_several_guessed else "",
        hosts=tuple(host_clocks),
    )


def _describe_host_clocks(clocks: Clocks) -> list[model.HostClock]:
    """Describe the clock of each host.

    The ranks of a host share its clock, so the first of them stands for it.
    """
    host_clocks = []
    for host, name in enumerate(clocks.hosts.names):
        ranks = np.flatnonzero(clocks.hosts.host_of_rank == host)
        first_rank = int(ranks[0])
        clock = _round_clock_figures(clocks, first_rank)
        host_clock = model.HostClock(
            host=name,
            ranks=len(ranks),
            by=clocks.offset_sources[host],
            offset_ns=clock.offset_ns,
            uncertainty_ns=clock.uncertainty_ns,
            drift_ns_per_s=clock.drift_ns_per_s,
            contradicted=name in clocks.contradicted,
        )
        host_clocks.append(host_clock)
    return host_clocks


class _ClockFigures(msgspec.Struct, frozen=True):
    """The clock of a rank relative to that of the reference, rounded."""

    offset_ns: int | None  # None where nothing bounds it
    uncertainty_ns: int | None  # None where the offset is
    drift_ns_per_s: float  # to three decimals


def _round_clock_figures(clocks: Clocks, rank_index: int) -> _ClockFigures:
    """Round the offset, the uncertainty and the drift of the clock of a rank.

    Offset and uncertainty are whole ns. Both are None if the collectives do not bound
    the offset.
    """
    offset_ns = None
    uncertainty_ns = None
    if math.isfinite(clocks.uncertainty[rank_index]):
        offset_ns = round(float(clocks.offset[rank_index]))
        uncertainty_ns = round(float(clocks.uncertainty[rank_index]))
    drift_ns_per_s = round(float(clocks.drift[rank_index]), 3)
    return _ClockFigures(
        offset_ns=offset_ns,
        uncertainty_ns=uncertainty_ns,
        drift_ns_per_s=drift_ns_per_s + 0.0,  # turns -0.0 into 0.0
    )
