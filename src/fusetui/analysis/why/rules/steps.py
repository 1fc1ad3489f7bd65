"""Steps that differ: kernels that vary, what a program does once, and the clocks and
power at which kernels ran, where counters were recorded."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.device_counters import CLOCK, POWER, device_counters
from fusetui.analysis.why.causes import frame_text
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.host import Slices
from fusetui.analysis.why.kernels import Kernels, the_most
from fusetui.analysis.why.rule import Claim, Rule, of_span, of_work
from fusetui.analysis.why.warming import (
    GOES_ON,
    LONG_NS,
    LONG_OP_NS,
    OFTEN,
    SLOW_FIRST,
    TIMES,
    earlier_steps_are_missing,
)
from fusetui.text.figures import count, duration, percent, plural
from fusetui.text.printable import printable
from fusetui.trace.model.arrays import (
    Flags,
    Floats,
    Int64s,
    Rows,
    distinct,
    distinct_rows,
    ordinals,
)
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import counted
from fusetui.trace.model.quantiles import percentiles_of_runs

VARIES = 1.3  # p90 / p10
FEWEST = 5  # steps
SHORTEST_NS = 10_000
KINDS = ("matmul", "conv", "elementwise")
"""Work that shapes alone determine: not attention, whose lengths may vary within its
tensors."""


@Rule(
    needs=("launch calls", "input shapes"),
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
    low, middle, high = (
        percentiles_of_runs(ns, first, counts, percent) for percent in (10, 50, 90)
    )
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
    """Launches of the same work at the same place of their steps, as places in the rows
    of Kernels, one group after the other, sorted by their time in each; and the sizes
    of the groups."""
    kernels, spans = facts.kernels, facts.spans
    launch = kernels.trace.launch[kernels.rows]
    step = np.where(launch >= 0, spans.at(kernels.trace.start[launch]), -1)
    plain = kernels.of_jobs(lambda job: float(job.amount.kind in KINDS)) == 1
    places = np.flatnonzero((step >= 0) & plain & kernels.alone & ~kernels.communicates)
    job, by_start = (
        kernels.job_numbers[places],
        np.argsort(kernels.start[places], kind="stable"),
    )
    # how many of its job its step launched before it
    within = np.empty(len(places), np.int64)
    within[by_start] = ordinals(distinct_rows((job, step[places]))[1][by_start])
    group = distinct_rows((job, within))[1]
    order = np.lexsort((kernels.effective_ns[places], group))
    count = np.bincount(group)
    enough = count >= FEWEST
    return places[order[enough[group[order]]]], count[enough].astype(np.int64)


SHOWN = 3  # parts that are named
FEWEST_SHARE = 0.05  # of the warm-up; less is not named


@Rule(
    needs=("launch calls",),
    remedy="Nothing, if this is about the steady state: record later steps, "
    "{nsys:nsys profile --capture-range=cudaProfilerApi and torch.cuda.profiler.start() before them|"
    ":torch.profiler.schedule(wait=..., warmup=..., active=...)}. If the start itself matters: "
    "{nvidia:CUDA_MODULE_LOADING=EAGER, |amd:HIP_ENABLE_DEFERRED_LOADING=0, }cached compilation, "
    "and one run of each shape beforehand.",
    thresholds={
        "long_ns": LONG_NS,
        "long_op_ns": LONG_OP_NS,
        "times": TIMES,
        "slow_first": SLOW_FIRST,
        "often": OFTEN,
        "goes_on": GOES_ON,
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
    parts = [
        f"{duration(waited[n])} in {_part(facts, n, len(shown) == 1)}" for n in shown
    ]
    if rest := whole - sum(waited[n] for n in shown):
        parts.append(f"{duration(rest)} in the rest")
    yield Claim(
        text=f"Warm-up: the GPU waits {of_span(facts, whole)} for what happens once: "
        f"{', '.join(parts)}. What "
        "is said of launches, loading and compilation leaves it out.",
        at_stake_ns=whole,
        rows=facts.heaviest(np.concatenate([facts.warm_up[n][0].rows for n in shown])),
        why_likely=_why_warm_up_is_likely(facts),
    )


def _why_warm_up_is_likely(facts: Facts) -> str | None:
    """None where the recording begins with the first step, or nothing numbers the
    steps."""
    if not earlier_steps_are_missing(facts.spans):
        return None
    first = printable(facts.spans.names[0])
    return f"The recording begins with {first}: earlier steps may have done the same."


def _part(facts: Facts, number: int, alone: bool) -> str:
    """`first launches of kernels (mostly 19 x cudaLaunchKernel)`: the name that cost
    most. Of ops, that of the innermost one, and the first call that it is in."""
    part, cover = facts.warm_up[number]
    if not len(part.rows):
        return "the first step" if alone else "the rest of the first step"
    trace = facts.trace
    waits = counted(facts.idle.begin, facts.idle.returned).only(cover)
    slices = Slices(part.rows, part.start, part.end)
    if part.of_ops:
        ops = _ops_within(trace, part.rows)
        slices = Slices(ops, trace.start[ops], trace.end[ops])
    innermost = slices.only(
        np.lexsort((slices.start - slices.end, slices.start))
    ).parts()
    ns = waits.within(innermost.start, innermost.end)
    most = int(np.bincount(trace.name[innermost.rows], ns).argmax())
    waiting = distinct(innermost.rows[ns > 0])
    calls = waiting[trace.name[waiting] == most]
    mostly = "mostly " if len(calls) < len(waiting) else ""
    calls = calls[~np.isin(trace.parent[calls], calls)]  # an op that calls itself
    name = frame_text(trace.names[most])
    outer = _outer_op(trace, calls, part.rows) if part.of_ops else ""
    return f"{part.what} ({mostly}{count(len(calls))} x {name}{outer})"


def _ops_within(trace: Trace, rows: Rows) -> Rows:
    """Some ops, and the ops that they call."""
    ops = trace.rows_of(Role.OP)
    depth = np.zeros(len(trace) + 1, dtype=np.int64)
    np.add.at(depth, rows, 1)
    np.add.at(depth, trace.end_row[rows], -1)
    return ops[np.cumsum(depth)[ops] > 0]


def _outer_op(trace: Trace, calls: Rows, firsts: Rows) -> str:
    """`, in aten::repeat`: the first call of an op around some calls that are no first
    calls; blank where these are."""
    if np.isin(calls, firsts).any():
        return ""
    around = (firsts <= calls[0]) & (trace.end_row[firsts] > calls[0])
    return f", in {frame_text(trace.name_of(int(firsts[around][-1])))}"


RUNS = 20  # runs of a kernel
DROPS = 0.05  # by how much the clock must differ, as a share of the highest
NEAR = 0.02  # a clock this near to the highest is the highest
CERTAIN = 4.0  # the t statistic of the rank correlation from which on it is no chance
AT_THE_TOP = 0.97  # of the highest power
CAPPED = 0.2  # of the time in which the device computes


@Rule(
    remedy="Look for what lowers the clock ({nvidia:nvidia-smi -q -d PERFORMANCE|amd:amd-smi metric"
    "|:the limits of power and temperature}); lock it to compare measurements.",
    thresholds={"fewest": RUNS, "varies": DROPS, "near": NEAR, "certain": CERTAIN},
    of_kernels=True,
    without_gpu=True,  # silent without counters, and so without GPU events
)
def clock_drop(facts: Facts) -> Iterator[Claim]:
    kernels = facts.kernels
    clock = over_kernels(kernels, CLOCK)
    slower, ns, highest, number = slower_runs(kernels, clock)
    at_stake = int(ns.sum())
    if not at_stake:
        return
    low, high = np.median(clock[slower]), np.median(highest)
    yield Claim(
        text=f"{plural(len(slower), 'run')} of {plural(number, 'kernel')} took longer "
        f"while the SM clock was lower, {count(round(low))} instead of {count(round(high))} MHz "
        f"(medians): an estimated {of_work(facts, at_stake)}.",
        at_stake_ns=at_stake,
        rows=the_most(kernels.rows[slower], ns),
        why_likely="What lowers the clock may slow these kernels in other ways, too.",
        part_of="power-capped",
    )


@Rule(
    remedy="Raise the limit of power if it was lowered{nvidia: (nvidia-smi -pl)|amd: (amd-smi set "
    "--power-cap)}; else fewer bytes and bits per result: low precision, fused kernels.",
    thresholds={"at_the_top": AT_THE_TOP, "often": CAPPED, "varies": DROPS},
    of_kernels=True,
    without_gpu=True,  # silent without counters, and so without GPU events
)
def power_capped(facts: Facts) -> Iterator[Claim]:
    kernels = facts.kernels
    clock, power = (over_kernels(kernels, kind) for kind in (CLOCK, POWER))
    for device in kernels.devices:
        own = (
            (kernels.device == device)
            & kernels.computes
            & ~np.isnan(clock)
            & ~np.isnan(power)
        )
        if not own.any():
            continue
        highest, fastest = power[own].max(), clock[own].max()
        capped = (
            own & (power >= AT_THE_TOP * highest) & (clock <= (1 - DROPS) * fastest)
        )
        taken, every = (kernels.cover(which, device).ns for which in (capped, own))
        if taken < CAPPED * every or not (own & (power < AT_THE_TOP * highest)).any():
            continue
        slowed = kernels.effective_ns[capped] * (1 - clock[capped] / fastest)
        slowed *= taken / max(kernels.ns(capped), 1)  # what overlaps counts once
        yield Claim(
            text=f"For {percent(taken, every)} of the time in which it computed, the GPU drew "
            f"{count(round(highest))} W, the most that it ever drew, at an SM clock of "
            f"{count(round(float(np.median(clock[capped]))))} MHz (median) instead of "
            f"{count(round(fastest))} MHz: at most {of_work(facts, int(slowed.sum()))}.",
            at_stake_ns=int(slowed.sum()),
            kernels=capped,
            why_likely="The limit itself is not recorded.",
        )


def over_kernels(kernels: Kernels, kind: str) -> Floats:
    """The mean of a counter over each kernel; nan where it was not recorded."""
    found = np.full(len(kernels.rows), np.nan)
    trace = kernels.trace
    pid = np.array([track.pid for track in trace.tracks] or [None], dtype=object)
    for one in device_counters(trace):
        if one.kind == kind:
            own = np.flatnonzero((pid == one.device)[trace.track[kernels.rows]])
            rows = kernels.rows[own]
            found[own] = one.mean(trace.start[rows], trace.end[rows])
    return found


def slower_runs(kernels: Kernels, clock: Floats) -> tuple[Rows, Int64s, Floats, int]:
    """Of each kernel with the same name, shapes and blocks that ran often enough at
    clocks that differ: by how much a run took longer (ns) than the median at the
    highest clock (MHz, the next array), but no more than the clock explains; nothing
    unless the durations follow the clock by rank. First come the places in Kernels of
    those that did, last the number of kernels."""
    places = np.flatnonzero(kernels.computes & kernels.alone & ~np.isnan(clock))
    ns, highest, found = np.zeros(len(places), dtype=np.int64), np.zeros(len(places)), 0
    if not len(places):
        return places, ns, highest, found
    work = (kernels.trace.name[kernels.rows[places]], kernels.job_numbers[places])
    group = distinct_rows((*work, kernels.blocks[places], kernels.device[places]))[1]
    order, ends = (
        np.argsort(group, kind="stable"),
        np.cumsum(np.bincount(group)).tolist(),
    )
    for first, end in zip([0, *ends], ends, strict=False):
        own = order[first:end]
        took = (kernels.end - kernels.start)[places[own]]
        lost = _lost(took, clock[places[own]])
        found += bool(lost.any())
        ns[own], highest[own] = lost, clock[places[own]].max()
    slow = ns > 0
    return places[slow], ns[slow], highest[slow], found


def _lost(took: Int64s, clock: Floats) -> Int64s:
    """By how much each run of one kernel took longer because of the clock (ns)."""
    highest = clock.max()
    if len(took) < RUNS or clock.min() > (1 - DROPS) * highest:
        return np.zeros_like(took)
    fast: Flags = clock >= (1 - NEAR) * highest
    if 4 * fast.sum() < RUNS or not follows(took, clock):
        return np.zeros_like(took)
    explained = took * (1 - clock / highest)
    lost = np.minimum(took - np.median(took[fast]), explained)
    return np.where(fast, 0, np.maximum(lost, 0)).astype(np.int64)


def follows(took: Int64s, clock: Floats) -> bool:
    """Whether runs take longer the lower the clock is: Spearman's rank correlation, by
    its t statistic with n - 2 degrees of freedom."""
    by_time, by_clock = ranks(took), ranks(clock)
    if not (by_time.std() and by_clock.std()):
        return False
    rho = float(np.corrcoef(by_time, by_clock)[0, 1])
    freedom = len(took) - 2
    return rho < 0 and rho * rho * freedom >= CERTAIN**2 * (1 - rho * rho)


def ranks(values: NDArray[np.int64] | Floats) -> Floats:
    """The rank of each value; equal ones share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return ((2 * last - counts + 1) / 2)[inverse]
