"""Short gaps between kernels that were launched long before."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fusetui.analysis.why.facts import Facts, Flags
from fusetui.analysis.why.idle import Idle
from fusetui.analysis.why.kernels import the_most
from fusetui.analysis.why.rule import Claim, Rule, share_of_span
from fusetui.text.figures import duration, plural

LONGEST_NS = 10_000


def find(facts: Facts) -> Iterator[Claim]:
    if not facts.idle:
        return
    waited = np.concatenate([idle.ns("queued", "graph") for idle in facts.idle])
    events = np.concatenate([idle.event for idle in facts.idle])
    short = (waited > 0) & np.concatenate([_switches(idle) for idle in facts.idle])
    at_stake = int(waited[short].sum())
    if at_stake:
        gaps = int(np.count_nonzero(short))
        yield Claim(
            text=f"The GPU switches from kernel to kernel for {duration(at_stake)} "
            f"({share_of_span(facts, at_stake)}): {plural(gaps, 'gap')} of at most "
            f"{duration(LONGEST_NS)}, {duration(round(at_stake / gaps))} each on average, before "
            "work that was already queued.",
            at_stake_ns=at_stake,
            rows=the_most(events[short], waited[short]),
        )


def _switches(idle: Idle) -> Flags:
    """Which gaps are short, and end with an event that was launched before they began."""
    found: Flags = (idle.end - idle.begin <= LONGEST_NS) & (idle.called <= idle.begin)
    return found


RULE = Rule(
    id="kernel-switches",
    title="Switching from kernel to kernel",
    question="How much time is lost between kernels that are already in the queue?",
    needs="Launch calls, or graph launches.",
    formula="The time for which the next event was queued, or was the next node of a graph, in "
    "gaps of at most 10 us that begin after its launch.",
    remedy="Fewer, larger kernels (fusion{compile:, torch.compile}){pdl:; on Hopper and later "
    "programmatic dependent launch hides the switch}.",
    thresholds={"longest_ns": LONGEST_NS},
    find=find,
    of_kernels=True,
)
