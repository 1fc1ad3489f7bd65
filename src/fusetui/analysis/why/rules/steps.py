"""Steps that differ: kernels that vary, and what a program does once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fusetui.analysis.questions.totals import percentile
from fusetui.analysis.why.causes import frame_text
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.kernels import the_most
from fusetui.analysis.why.rules import Claim, of_span, of_work, rule
from fusetui.analysis.why.warming import LONG_NS, LONG_OP_NS, OFTEN, SLOW_FIRST, TIMES
from fusetui.gpu.roofline.many import distinct_rows
from fusetui.text.figures import count, duration, plural
from fusetui.trace.model.arrays import Int64s, Rows, ordinals
from fusetui.trace.model.intervals import counted

VARIES = 1.3  # p90 / p10
FEWEST = 5  # steps
SHORTEST_NS = 10_000
KINDS = ("matmul", "conv", "elementwise")
"""Work that shapes alone determine: not attention, whose lengths may vary within its tensors."""


@rule(
    "launch calls",
    "input shapes",
    remedy="Look at clocks and temperature {nvidia:(nvidia-smi -q -d PERFORMANCE,CLOCK) "
    "|amd:(amd-smi metric) }and at other work on the device; lock the clocks to compare "
    "measurements.",
    thresholds={"varies": VARIES, "fewest": FEWEST, "shortest_ns": SHORTEST_NS},
    of_kernels=True,
)
def unsteady(facts: Facts) -> Iterator[Claim]:
    if len(facts.spans) < FEWEST:
        return
    places, counts = _alike(facts)
    ns, first = facts.kernels.effective_ns[places], np.cumsum(counts) - counts
    low, middle, high = (percentile(ns, first, counts, share) for share in (10, 50, 90))
    varies = (high >= VARIES * low) & (low >= SHORTEST_NS)
    slower = np.maximum(ns - np.repeat(middle, counts), 0)
    slower[~np.repeat(varies, counts)] = 0
    at_stake = int(slower.sum())
    if at_stake:
        rows, number = facts.kernels.rows[places], int(varies.sum())
        yield Claim(
            text=f"{plural(number, 'kernel')} of a step, alone on the device, "
            f"{'varies' if number == 1 else 'vary'} from step to step by more than a factor of "
            f"{VARIES} (p90 / p10): what took longer than the median adds up to "
            f"{of_work(facts, at_stake)}.",
            at_stake_ns=at_stake,
            rows=the_most(rows[slower > 0], slower[slower > 0]),
            why_likely="Data may decide how long a kernel takes.",
        )


def _alike(facts: Facts) -> tuple[Rows, Int64s]:
    """Launches of the same work at the same place of their steps, as places in the rows of Kernels,
    one group after the other, sorted by their time in each; and the sizes of the groups."""
    kernels, spans = facts.kernels, facts.spans
    launch = kernels.trace.launch[kernels.rows]
    step = np.where(launch >= 0, spans.at(kernels.trace.start[launch]), -1)
    plain = kernels.of_jobs(lambda job: float(job.amount.kind in KINDS)) == 1
    places = np.flatnonzero((step >= 0) & plain & kernels.alone & ~kernels.communicates)
    job, by_start = kernels.job_numbers[places], np.argsort(kernels.start[places], kind="stable")
    within = np.empty(
        len(places), dtype=np.int64
    )  # how many of its job its step launched before it
    within[by_start] = ordinals(distinct_rows((job, step[places]))[1][by_start])
    group = distinct_rows((job, within))[1]
    order = np.lexsort((kernels.effective_ns[places], group))
    count = np.bincount(group)
    enough = count >= FEWEST
    return places[order[enough[group[order]]]], count[enough].astype(np.int64)


SHOWN = 3  # parts that are named
FEWEST_SHARE = 0.05  # of the warm-up; less is not named


@rule(
    "launch calls",
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
    once=True,
)
def warm_up(facts: Facts) -> Iterator[Claim]:
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
        text=f"Warm-up: the GPU waits {of_span(facts, whole)} for what "
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
    trace, waits = facts.trace, counted(facts.idle.begin, facts.idle.returned)
    ns = waits.within(part.start, part.end)
    most = int(np.bincount(trace.name[part.rows], ns).argmax())
    waited = trace.name[part.rows[ns > 0]]
    calls = int(np.count_nonzero(waited == most))
    mostly = "mostly " if calls < len(waited) else ""
    return f"{part.what} ({mostly}{count(calls)} x {frame_text(trace.names[most])})"
