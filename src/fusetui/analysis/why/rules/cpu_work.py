"""The CPU does something else than launching, and the GPU waits for it."""

from __future__ import annotations

from collections.abc import Iterator

from fusetui.analysis.why.causes import holding
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.idle import LONG_WORK_NS, SLICE_NS, WORK_NS
from fusetui.analysis.why.rule import NO_LAUNCHES, Claim, Rule, share_of_span, why_likely
from fusetui.analysis.why.rules.host_bound import (
    UNSEEN,
    doing,
    heaviest,
    late_of,
    unseen_remedy,
    without,
)
from fusetui.text.figures import duration, plural


def find(facts: Facts) -> Iterator[Claim]:
    if not facts.has_launches:
        raise NO_LAUNCHES
    by_kind = late_of(facts, facts.busy_cpu)
    at_stake = int(by_kind.sum())
    if not at_stake:
        return
    gaps = plural(sum(int(busy.sum()) for busy in facts.busy_cpu), "gap")
    found = holding(facts, facts.busy_cpu)
    yield Claim(
        text=f"The GPU waits {duration(at_stake)} ({share_of_span(facts, at_stake)}) in {gaps} of "
        f"more than {duration(WORK_NS)} while the CPU does other work than launching"
        f"{without(facts)}: {doing(facts, by_kind, found)}.",
        at_stake_ns=at_stake,
        rows=heaviest(facts, facts.busy_cpu),
        remedy=unseen_remedy(facts, int(by_kind[[*UNSEEN]].sum()), at_stake),
        why_likely=why_likely(facts),
    )


RULE = Rule(
    id="cpu-work",
    title="Waiting for work of the CPU",
    question="Does the GPU wait while the CPU does something else than launching?",
    needs="Launch calls; ops, stacks or annotations to say what the CPU did.",
    formula="The host part of gaps except synchronization and allocation, minus what data-loading, "
    "recompilation and warm-up claim, where it is more than 5 ms and the ops, calls and frames in "
    "it take more than 0.2 ms each on average, or where it is more than 50 ms.",
    remedy="Do this work ahead, in workers of the data loader or in a thread while the GPU runs, "
    "or do it on the GPU. Graphs do not help: nothing is launched meanwhile.",
    thresholds={"work_ns": WORK_NS, "slice_ns": SLICE_NS, "long_work_ns": LONG_WORK_NS},
    find=find,
)
