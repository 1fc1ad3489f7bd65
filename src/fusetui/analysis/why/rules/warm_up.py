"""What a program does once, told apart from its steady state."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.rule import Claim, Rule, frame_text, share_of_span
from fusetui.analysis.why.warming import LONG_NS, LONG_OP_NS, OFTEN, SLOW_FIRST, TIMES
from fusetui.text.figures import count, duration
from fusetui.trace.model.intervals import counted

SHOWN = 3  # parts that are named
FEWEST_SHARE = 0.05  # of the warm-up; less is not named


def find(facts: Facts) -> Iterator[Claim]:
    if not facts.has_launches:
        return
    waited = {n: facts.late_under(cover) for n, (_, cover) in enumerate(facts.warm_up)}
    whole = sum(waited.values())
    if not whole:
        return
    longest = sorted(waited, key=lambda n: -waited[n])[:SHOWN]
    shown = [n for n in longest if waited[n] >= FEWEST_SHARE * whole]
    named = ", ".join(f"{duration(waited[n])} in {_part(facts, n, len(shown) == 1)}" for n in shown)
    yield Claim(
        text=f"Warm-up: the GPU waits {duration(whole)} ({share_of_span(facts, whole)}) for what "
        f"happens once: {named}. What is said of launches, loading and compilation leaves it "
        "out.",
        at_stake_ns=whole,
        rows=facts.heaviest(np.concatenate([facts.warm_up[n][0].rows for n in shown])),
    )


def _part(facts: Facts, number: int, alone: bool) -> str:
    """`first launches of kernels (mostly 19 x cudaLaunchKernel)`: the name that cost most."""
    part, _ = facts.warm_up[number]
    if not len(part.rows):
        return "the first step" if alone else "the rest of the first step"
    trace, waits = facts.trace, [counted(idle.begin, idle.returned) for idle in facts.idle]
    ns = np.sum([waiting.within(part.start, part.end) for waiting in waits], axis=0)
    most = int(np.bincount(trace.name[part.rows], ns).argmax())
    waited = trace.name[part.rows[ns > 0]]
    calls = int(np.count_nonzero(waited == most))
    mostly = "mostly " if calls < len(waited) else ""
    return f"{part.what} ({mostly}{count(calls)} x {frame_text(trace.names[most])})"


RULE = Rule(
    id="warm-up",
    title="Warm-up",
    question="How much of the idle time is due to what happens only once?",
    needs="Launch calls.",
    formula="The time that the GPU waits for a launch, or inside one, while a thread that launches "
    "captures a graph, compiles, allocates or sets something up before the second step; while it "
    "launches a kernel, or runs an op that launches, for the first time, if that takes more than "
    "0.1 ms or 1 ms and ten times as long as ever after; and all of a first step that takes twice "
    "the median of the others. What recurs in later steps is left out; without steps, what still "
    "goes on in the second half of the GPU events.",
    remedy="Nothing, if this is about the steady state: record later steps, "
    "torch.profiler.schedule(wait=..., warmup=..., active=...). If the start itself matters: "
    "{nvidia:CUDA_MODULE_LOADING=EAGER, |amd:HIP_ENABLE_DEFERRED_LOADING=0, }cached compilation, "
    "and one run of each shape beforehand.",
    thresholds={
        "long_ns": LONG_NS,
        "long_op_ns": LONG_OP_NS,
        "times": TIMES,
        "slow_first": SLOW_FIRST,
        "often": OFTEN,
    },
    find=find,
    once=True,
    silent="A program whose recording begins in the steady state has none.",
)
