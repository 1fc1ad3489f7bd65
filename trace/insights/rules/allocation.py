"""Device memory is allocated and freed in the middle of the work."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fusetui.trace.insights.facts import Facts, Rows
from fusetui.trace.insights.host import Host
from fusetui.trace.insights.rule import NO_LAUNCHES, Claim, Rule
from fusetui.trace.insights.wording import share_of_span
from fusetui.trace.layout.step_spans import step_spans
from fusetui.trace.model.categories import Role
from fusetui.trace.text.figures import count, duration
from fusetui.trace.text.printable import printable

OFTEN = 0.1
"""Calls that free memory per GPU event, from which on no caching allocator is in between: it frees
only when memory runs out, while a program that begins may allocate as often."""
UNCACHED = (
    "So many frees mean that the caching allocator does not serve the program: look for "
    "PYTORCH_NO_CUDA_MEMORY_CACHING (on ROCm also PYTORCH_NO_HIP_MEMORY_CACHING) in its "
    "environment, for torch.cuda.empty_cache() in the loop, and for a library that allocates by "
    "itself."
)
"""The remedy where memory is freed all the time."""

RECURS = 0.5  # of the steps after the first one, or of the parts of the span
PARTS = 10  # of a span without steps


def find(facts: Facts) -> Iterator[Claim]:
    if not facts.has_launches:
        raise NO_LAUNCHES
    rows = np.flatnonzero(facts.accounts.kinds == Host.ALLOC)
    inside = (facts.trace.end[rows] > facts.begin_ns) & (facts.trace.start[rows] < facts.end_ns)
    rows = _recurring(facts, rows[inside])
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


def _recurring(facts: Facts, rows: Rows) -> Rows:
    """The calls after the first step of those names that are called in at least two of the other
    steps, and in half of them; without steps, in half of the parts of the span."""
    spans, start = step_spans(facts.trace), facts.trace.start[rows]
    if len(spans):
        place = np.searchsorted(spans.start, start, side="right") - 1
        rows, place = rows[place > 0], place[place > 0]
        least = max(2, RECURS * (len(spans) - 1))
    else:
        place = (start - facts.begin_ns) * PARTS // max(1, facts.end_ns - facts.begin_ns)
        least = RECURS * PARTS
    name = facts.trace.name[rows]
    pairs = np.unique(np.stack((name, place)), axis=1)
    often = np.bincount(pairs[0], minlength=len(facts.trace.names))
    found: Rows = rows[often[name] >= least]
    return found


def _frees(facts: Facts, rows: Rows) -> int:
    freeing = facts.named(lambda name: "Free" in name, Role.CALL)
    return int(np.count_nonzero(np.isin(rows, freeing)))


RULE = Rule(
    id="allocation",
    title="Allocation during the work",
    question="Does the GPU wait for cudaMalloc, cudaFree and the like after the warm-up?",
    needs="Runtime calls and launch calls.",
    formula="The host part of gaps that lies in calls that allocate or free, after the first step, "
    "of those names that are called in at least two of the other steps and in half of them; "
    "without steps, in half of the tenths of the span.",
    remedy="Let the caching allocator keep its memory: no torch.cuda.empty_cache() in the loop, "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True against fragmentation, and room to spare.",
    thresholds={"recurs": RECURS, "parts": PARTS, "often": OFTEN},
    find=find,
    silent="What happens in one step only, or at the beginning, is warm-up.",
)
