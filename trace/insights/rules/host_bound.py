"""The CPU does not launch fast enough."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fusetui.trace.insights.cover import cover_of, joined
from fusetui.trace.insights.facts import Facts
from fusetui.trace.insights.host import Host
from fusetui.trace.insights.rule import NO_LAUNCHES, Claim, Rule
from fusetui.trace.insights.wording import share_of_span, the_most
from fusetui.trace.text.figures import duration

LEAST = 0.10  # of the span
LATE = ("host_call", "host_op", "host_python", "host_annotation", "host_nothing")
KINDS = (Host.CALL, Host.OP, Host.PYTHON, Host.ANNOTATION, Host.NOTHING)


def find(facts: Facts) -> Iterator[Claim]:
    if not facts.has_launches:
        raise NO_LAUNCHES
    late = facts.idle_ns(*LATE)
    if late < LEAST * facts.span_ns:
        return
    explained = joined(facts.loading, facts.compiling)
    at_stake = late - facts.host_ns(explained, KINDS)
    if at_stake <= 0:
        return
    rest = "" if at_stake == late else f" beside {_beside(facts)}"
    text = f"The GPU waits {duration(at_stake)} ({share_of_span(facts, at_stake)}) for the CPU"
    yield Claim(
        text=f"{text} to launch the next kernel{rest}: {_where(facts)}.",
        at_stake_ns=at_stake,
        rows=_longest(facts),
        certainty="likely" if facts.has_stacks else "certain",
        why_likely="Python stacks were recorded: these times include the profiler's own work."
        if facts.has_stacks
        else None,
    )


def _beside(facts: Facts) -> str:
    """What other rules claim."""
    names = {"the data loader": facts.loading, "compilation": facts.compiling}
    return " and ".join(name for name, cover in names.items() if len(cover.start))


def _where(facts: Facts) -> str:
    """The kinds of the host part, and the ops or frames that it was in most."""
    whole = cover_of(
        np.concatenate([idle.begin for idle in facts.idle]),
        np.concatenate([idle.end for idle in facts.idle]),
    )
    explained = joined(facts.loading, facts.compiling)
    shown = {
        words: facts.host_ns(whole, (kind,)) - facts.host_ns(explained, (kind,))
        for kind, words in WORDS.items()
    }
    longest = sorted(shown.items(), key=lambda item: -item[1])
    return ", ".join(f"{duration(ns)} {words}" for words, ns in longest[:3] if ns)


WORDS = {
    Host.CALL: "in runtime calls",
    Host.OP: "in ops",
    Host.PYTHON: "in Python",
    Host.ANNOTATION: "in annotations without ops",
    Host.NOTHING: "in nothing that was recorded",
}


def _longest(facts: Facts) -> tuple[int, ...]:
    return the_most(
        np.concatenate([idle.launch for idle in facts.idle]),
        np.concatenate([idle.ns(*LATE) for idle in facts.idle]),
    )


RULE = Rule(
    id="host-bound",
    title="Waiting for launches",
    question="Does the GPU wait because the CPU launches too late?",
    needs="Launch calls.",
    formula="The host part of all gaps but synchronisation and allocation, less what data-loading "
    "and recompilation claim.",
    remedy='torch.compile(mode="reduce-overhead") or torch.cuda.graph() replays the launches; '
    "larger batches and fused optimizers need fewer of them.",
    thresholds={"least_share": LEAST},
    find=find,
)
