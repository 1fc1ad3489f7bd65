"""Describes the ranks that delay the job, according to caused.py, or that are late."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fusetui.analysis.ranks.caused import MIN_STEP_SHARE
from fusetui.analysis.ranks.chains import UnchargedReason
from fusetui.analysis.ranks.facts import JobFacts
from fusetui.analysis.ranks.ideal import (
    estimate_step_without_delays,
    estimate_step_without_stragglers,
)
from fusetui.analysis.ranks.model import (
    Excess,
    JobVerdict,
    LateStep,
    Reason,
    Slow,
    Straggler,
    StragglerCause,
)
from fusetui.analysis.ranks.reasons import (
    MIN_SHARE_OF_DELAY,
    compare_kernels,
    explain_lateness,
)
from fusetui.trace.model.arrays import Flags, Floats

MAX_STRAGGLERS = 5
UNCHARGED_TEXTS = {
    UnchargedReason.LONGER_TRANSFER: (
        "transfers of other collectives take longer on some of the ranks"
    ),
    UnchargedReason.UNDECIDED: (
        "the clocks do not show which rank was last, or the work of the ranks cannot "
        "be compared"
    ),
    UnchargedReason.RANK_NOT_GIVEN: "the cause lies in ranks that are not given",
    UnchargedReason.PIPELINE_BUBBLE: (
        "the cause lies in sends and receives of a pipeline"
    ),
}
"""Why no rank is to blame for waits, as the rest of a sentence. EARLY_ARRIVAL and
WAITING_RANK_ITSELF are missing, because they are not delays of another rank."""


def find_stragglers(facts: JobFacts) -> Iterator[Straggler]:
    """Yield the ranks that hold up others, the worst first.

    In a pipeline, waits do not show who is slow. So the ranks and stages that compute
    longer than the other ranks of their stage, or than other stages, follow. There are
    at most MAX_STRAGGLERS in all.
    """
    worst_first = np.argsort(-facts.caused.mean_ns, kind="stable").tolist()
    stragglers = [rank for rank in worst_first if facts.caused.is_straggler[rank]]
    stragglers = stragglers[:MAX_STRAGGLERS]
    for rank in stragglers:
        yield _describe_straggler(facts, rank)

    if facts.pipeline is None:
        return
    still_allowed = MAX_STRAGGLERS - len(stragglers)
    for slow in facts.pipeline.slow[:still_allowed]:
        if slow.index not in stragglers:
            yield _describe_slow_pipeline_rank(facts, slow)


def _describe_straggler(facts: JobFacts, rank: int) -> Straggler:
    """Describe a rank that others wait for.

    The description says how long they wait, why the rank is late, in which steps, and
    how long a step would take if it were not.

    Args:
        facts: The ranks of the job, and what was computed from them.
        rank: The index of the rank.
    """
    summaries = facts.matched.ranks
    reason = explain_lateness(facts, rank)
    cause = _locate_cause(reason)
    slower = None
    if cause == "inside":  # else its own kernels do not matter
        others = (*summaries[:rank], *summaries[rank + 1 :])
        slower = compare_kernels(summaries[rank], others)
    return Straggler(
        rank=summaries[rank].rank,
        last_count=int(facts.sums.last_count[rank]),
        of=int(facts.sums.collectives[rank]),
        caused_ns=int(facts.caused.mean_ns[rank]),
        waiters=int(facts.caused.waiter_count[rank]),
        cause=cause,
        stage=None,
        reason=reason,
        what_if=estimate_step_without_delays(facts.matched, facts.replay, rank),
        slower=slower,
        late_steps=_list_late_steps(
            facts.steps.names,
            caused_ns=facts.caused.mean_ns_by_step[rank],
            is_late=facts.caused.is_late_in_step[rank],
        ),
    )


def _locate_cause(reason: Reason) -> StragglerCause:
    """Return where the cause of a delay lies.

    Returns:
        `outside` of the recording, if more than half of the delay was there before it
        began. `inside`, if the work that took longest explains MIN_SHARE_OF_DELAY of
        the rest. Else `untold`: what was recorded does not explain the delay.
    """
    if reason.outside_ns > reason.inside_ns:
        return "outside"
    explained_ns = max((excess.ns for excess in reason.excess), default=0)
    if explained_ns >= MIN_SHARE_OF_DELAY * reason.inside_ns:
        return "inside"
    return "untold"


def _list_late_steps(
    names: Sequence[str], *, caused_ns: Floats, is_late: Flags
) -> tuple[LateStep, ...]:
    """List the steps in which a rank holds up the others.

    Args:
        names: The names of the steps; () in a job without steps.
        caused_ns: For each step how long others wait for the rank.
        is_late: For each step whether the rank holds up the others.

    Returns:
        The late steps in their order; none in a job without steps.
    """
    late_steps: list[LateStep] = []
    for step, name in enumerate(names):
        if is_late[step]:
            late_steps.append(LateStep(name=name, caused_ns=round(caused_ns[step])))
    return tuple(late_steps)


def _describe_slow_pipeline_rank(facts: JobFacts, slow: Slow) -> Straggler:
    """Describe a slow rank, or a slow stage, of a pipeline.

    It computes longer than the other ranks of its stage, or than the other stages. A
    stage is represented by its first rank.
    """
    rank = slow.index
    summary = facts.matched.ranks[rank]
    total_ns = slow.excess_ns * len(summary.steps)
    reason = Reason(
        late_ns=total_ns,
        outside_ns=0,
        inside_ns=total_ns,
        begins_after_ns=None,
        begins_after_rank=None,
        has_step=False,
        excess=(Excess(kind="class", name=slow.what, ns=total_ns),),
    )
    return Straggler(
        rank=summary.rank,
        last_count=int(facts.sums.last_count[rank]),
        of=int(facts.sums.collectives[rank]),
        caused_ns=int(facts.caused.mean_ns[rank]),
        waiters=int(facts.caused.waiter_count[rank]),
        cause="inside",
        stage=slow.stage,
        reason=reason,
        slow=slow,
    )


def decide_verdict(facts: JobFacts, stragglers: Sequence[Straggler]) -> JobVerdict:
    """Say what fixing all stragglers would save, or who is late if there are none.

    Without stragglers, the verdict is of one of these kinds:

    * `in turn`: ranks wait at least MIN_STEP_SHARE of a step, for another rank each
      time.
    * `untold`: they wait that long, but no rank is to blame.
    * `nobody`: they do not wait that long.
    * "": nothing was matched, or clocks cannot be compared, so it is not known.
    """
    stages = facts.pipeline.stages if facts.pipeline else None
    if stragglers:
        if_all = estimate_step_without_stragglers(
            facts.matched, facts.replay, stragglers
        )
        return JobVerdict(stages=stages, if_all=if_all)
    waits_are_known = len(facts.matched) > 0 and not facts.clocks.refused
    if not waits_are_known:
        return JobVerdict(stages=stages)

    wait_of_step_ns = facts.caused.mean_wait_of_step_ns
    min_ns = MIN_STEP_SHARE * facts.steps.length_ns
    if wait_of_step_ns.mean() >= min_ns:
        is_late_somewhere = facts.caused.mean_ns_by_step.max(axis=1) >= min_ns
        return JobVerdict(
            stages=stages,
            kind="in turn",
            waits_ns=tuple(wait_of_step_ns.tolist()),
            in_turn=int(np.count_nonzero(is_late_somewhere)),
        )

    # The wait of a mean rank in a mean step, by the reason why nobody is to blame. One
    # of the ranks does not wait, because somebody has to be last.
    waiting_ranks = max(len(facts.matched.ranks) - 1, 1)
    steps = len(wait_of_step_ns)
    uncharged_ns = facts.charged.uncharged_ns / (waiting_ranks * steps)
    reason = max(UNCHARGED_TEXTS, key=lambda reason: float(uncharged_ns[reason]))
    longest_ns = float(uncharged_ns[reason])
    if longest_ns >= min_ns:
        return JobVerdict(
            stages=stages,
            kind="untold",
            waits_ns=(longest_ns,),
            why=UNCHARGED_TEXTS[reason],
        )
    return JobVerdict(stages=stages, kind="nobody")
