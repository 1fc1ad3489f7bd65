"""The CPU does not launch fast enough."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fusetui.trace.insights.evidence import the_most
from fusetui.trace.insights.facts import Facts
from fusetui.trace.insights.host import Host
from fusetui.trace.insights.idle import CPU_BOUND
from fusetui.trace.insights.rule import NO_LAUNCHES, Claim, Rule
from fusetui.trace.insights.wording import share_of_span, why_likely
from fusetui.trace.model.categories import Role
from fusetui.trace.text.figures import duration

WORDS = {
    Host.CALL: "in runtime calls",
    Host.OP: "in ops",
    Host.PYTHON: "in Python",
    Host.ANNOTATION: "in annotations without ops",
    Host.NOTHING: "with nothing recorded",
}
SHOWN = 3  # of the words above
UNSEEN = (Host.ANNOTATION, Host.NOTHING)  # what the CPU did is not known
TO_SEE_MORE = (
    "Record with with_stack=True, or put record_function() around parts of the step, to see what "
    "the CPU did."
)
TO_SEE_MORE_WITH_STACKS = "Put record_function() around parts of the step, to see what the CPU did."
"""The remedies when nothing within an annotation was recorded for most of the time."""
REPLAYED = (
    "Most of the GPU's work is replayed from graphs already: prepare the next replay meanwhile "
    "(SGLang's overlap scheduler, vLLM's --async-scheduling), and capture what still runs between "
    "replays, such as sampling and copies."
)
"""The remedy where graphs launch most of the GPU's work."""


def find(facts: Facts) -> Iterator[Claim]:
    if not facts.has_launches:
        raise NO_LAUNCHES
    if not facts.is_late:
        return
    by_kind = sum(ns.sum(axis=1) for ns in facts.late)
    at_stake = int(np.sum(by_kind))
    if at_stake <= 0:
        return
    has_ops = bool((facts.trace.role == Role.OP).any())
    words = WORDS if has_ops else {**WORDS, Host.ANNOTATION: "in annotations"}
    shown = {words[kind]: int(by_kind[kind]) for kind in words}
    longest = sorted(shown.items(), key=lambda item: -item[1])[:SHOWN]
    where = ", ".join(f"{duration(ns)} {doing}" for doing, ns in longest if ns)
    text = f"The GPU waits {duration(at_stake)} ({share_of_span(facts, at_stake)}) for the CPU"
    yield Claim(
        text=f"{text} to launch the next kernel{_without(facts)}: {where}.",
        at_stake_ns=at_stake,
        rows=_longest(facts),
        remedy=_remedy(facts, int(by_kind[[*UNSEEN]].sum()), at_stake),
        why_likely=why_likely(facts),
    )


def _remedy(facts: Facts, unseen_ns: int, at_stake_ns: int) -> str | None:
    if 2 * unseen_ns > at_stake_ns:
        return TO_SEE_MORE_WITH_STACKS if facts.has_stacks else TO_SEE_MORE
    return REPLAYED if facts.is_replayed else None


def _without(facts: Facts) -> str:
    """Says what other rules claim."""
    names = {"the data loader": facts.loading, "compilation": facts.compiling}
    claimed = [name for name, cover in names.items() if len(cover.start)]
    return f", {' and '.join(claimed)} not counted" if claimed else ""


def _longest(facts: Facts) -> tuple[int, ...]:
    return the_most(
        np.concatenate([idle.launch for idle in facts.idle]),
        np.concatenate([ns.sum(axis=0) for ns in facts.late]),
    )


RULE = Rule(
    id="host-bound",
    title="Waiting for launches",
    question="Does the GPU wait because the CPU launches too late?",
    needs="Launch calls; stacks or annotations to say what the CPU did between ops.",
    formula="The host part of all gaps except synchronization and allocation, minus what "
    "data-loading and recompilation claim, if the host part is at least a tenth of the span.",
    remedy='torch.compile(mode="reduce-overhead") or torch.cuda.graph() replays the launches; '
    "larger batches and fused optimizers need fewer of them.",
    thresholds={"least_share": CPU_BOUND},
    find=find,
)
