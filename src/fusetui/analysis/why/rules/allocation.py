"""Device memory is allocated and freed in the middle of the work."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fusetui.analysis.why.facts import Facts, Rows
from fusetui.analysis.why.host import Host
from fusetui.analysis.why.rule import NO_LAUNCHES, Claim, Rule, share_of_span
from fusetui.analysis.why.warming import OFTEN, recurring
from fusetui.text.figures import count, duration
from fusetui.text.printable import printable
from fusetui.trace.model.categories import Role

UNCACHED = (
    "So many frees mean that the caching allocator does not serve the program: look for "
    "{intel:|:PYTORCH_NO_CUDA_MEMORY_CACHING}{amd: or PYTORCH_NO_HIP_MEMORY_CACHING}{intel:|: in "
    "its environment, for }torch.{intel:xpu|:cuda}.empty_cache() in the loop, and for a library "
    "that allocates by itself."
)
"""The remedy where memory is freed all the time."""

OFTEN_STEPS = 0.5
"""Of the steps after the first one: calls of a name in fewer of them do not recur."""


def find(facts: Facts) -> Iterator[Claim]:
    if not facts.has_launches:
        raise NO_LAUNCHES
    rows = np.flatnonzero(facts.accounts.kinds == Host.ALLOC)
    inside = (facts.trace.end[rows] > facts.begin_ns) & (facts.trace.start[rows] < facts.end_ns)
    rows = rows[inside][recurring(facts.trace, facts.spans, rows[inside])]
    rows = _in_many_steps(facts, rows)
    cover = facts.while_launching(rows)
    at_stake = sum(int(ns[Host.ALLOC].sum()) for ns in facts.host_under(cover))
    if not at_stake:
        return
    heaviest = facts.heaviest(rows)
    name = facts.trace.name_of(heaviest[0])
    alike = int(np.count_nonzero(facts.trace.name[rows] == facts.trace.name[heaviest[0]]))
    yield Claim(
        text=f"The GPU waits {duration(at_stake)} ({share_of_span(facts, at_stake)}) while memory "
        f"is allocated or freed, mostly in {count(alike)} x {printable(name)}.",
        at_stake_ns=at_stake,
        rows=heaviest,
        remedy=UNCACHED if _frees(facts, rows) >= OFTEN * len(facts.gpu_rows) else None,
    )


def _in_many_steps(facts: Facts, rows: Rows) -> Rows:
    """The calls of names that are called in at least two of the steps after the first one, and in
    half of them; all calls where there are fewer than three steps."""
    later = len(facts.spans) - 1
    if later < 2:
        return rows
    step = np.searchsorted(facts.spans.start, facts.trace.start[rows], side="right") - 1
    name = facts.trace.name[rows]
    called = np.unique(np.stack((name[step > 0], step[step > 0])), axis=1)[0]
    steps = np.bincount(called, minlength=len(facts.trace.names))
    found: Rows = rows[steps[name] >= max(2, OFTEN_STEPS * later)]
    return found


def _frees(facts: Facts, rows: Rows) -> int:
    freeing = facts.named(lambda name: "Free" in name, Role.CALL)
    return int(np.count_nonzero(np.isin(rows, freeing)))


RULE = Rule(
    id="allocation",
    title="Allocation during the work",
    question="Does the GPU wait for cudaMalloc, cudaFree and the like after the warm-up?",
    needs="Runtime calls and launch calls.",
    formula="The host part of gaps that lies in calls that allocate or free and recur: after the "
    "first step, or in it if each later step has at least half as many; of three steps or more, in "
    "two of the later ones and in half of them; without steps, if they go on in the second half of "
    "the GPU events.",
    remedy="Let the caching allocator keep its memory: no torch.{intel:xpu|:cuda}.empty_cache() "
    "in the loop, {nvidia:PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True against fragmentation, "
    "}and room to spare.",
    thresholds={"often": OFTEN, "often_steps": OFTEN_STEPS},
    find=find,
    silent="What happens in one step only is no reason to change all of them.",
)
