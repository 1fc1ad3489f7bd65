"""What a program does once: how long the GPU waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from fusetui.analysis.why.causes import frame_text
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.rule import Claim, Rule, of_span
from fusetui.analysis.why.thread_activity import Slices
from fusetui.analysis.why.warming import (
    GOES_ON,
    LONG_NS,
    LONG_OP_NS,
    OFTEN,
    SLOW_FIRST,
    TIMES,
    earlier_steps_are_missing,
)
from fusetui.text.figures import count, duration
from fusetui.text.printable import printable
from fusetui.trace.model.arrays import Int64s, Rows, distinct
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import Cover, counted

MAX_PARTS_NAMED: Final = 3
LEAST_SHARE_NAMED: Final = 0.05
"""Of the warm-up; a smaller part is not named."""


@Rule(
    needs=("launch calls",),
    remedy="Record later steps to measure the steady state: "
    "{nsys:nsys profile --capture-range=cudaProfilerApi and torch.cuda.profiler.start() before them|"
    ":torch.profiler.schedule(wait=..., warmup=..., active=...)}. A shorter start needs "
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
    """One claim: how long the GPU waits for what happens only once, such as loading of
    kernels; its largest parts are named."""
    if not facts.has_launches:
        return
    waited_ns = [facts.late_under(part.cover) for part in facts.warm_up]
    all_ns = sum(waited_ns)
    if not all_ns:
        return
    longest_first = sorted(range(len(waited_ns)), key=lambda part: -waited_ns[part])
    named = [
        part
        for part in longest_first[:MAX_PARTS_NAMED]
        if waited_ns[part] >= LEAST_SHARE_NAMED * all_ns
    ]
    texts = []
    for part in named:
        what = _part(facts, part, is_alone=len(named) == 1)
        texts.append(f"{duration(waited_ns[part])} in {what}")
    rest_ns = all_ns - sum(waited_ns[part] for part in named)
    if rest_ns:
        texts.append(f"{duration(rest_ns)} in the rest")
    yield Claim(
        text=f"Warm-up: the GPU waits {of_span(facts, all_ns)} for what happens once: "
        f"{', '.join(texts)}. Other findings exclude this time.",
        at_stake_ns=all_ns,
        rows=facts.heaviest(
            np.concatenate([facts.warm_up[part].slices.rows for part in named])
        ),
        why_likely=_why_likely(facts),
    )


def _why_likely(facts: Facts) -> str | None:
    """Why it is not certain that this happens only once: earlier steps were not
    recorded. None where the recording begins with the first step, or nothing numbers
    the steps."""
    if not earlier_steps_are_missing(facts.spans):
        return None
    first = printable(facts.spans.names[0])
    return f"Earlier steps may have done the same: the recording begins with {first}."


def _part(facts: Facts, number: int, *, is_alone: bool) -> str:
    """A part of the warm-up as text, such as `first launches of kernels (mostly 19 x
    cudaLaunchKernel)`, with the name that the GPU waited for longest. Of ops, that is
    the innermost one, and the first call around it is named too. `number`: its place in
    Facts.warm_up; `is_alone`: no other part is told."""
    part = facts.warm_up[number]
    once = part.slices
    if not len(once.rows):
        return "the first step" if is_alone else "the rest of the first step"
    trace = facts.trace
    slices = Slices(once.rows, once.start, once.end)
    if once.of_ops:
        ops = _ops_within(trace, once.rows)
        slices = Slices(ops, trace.start[ops], trace.end[ops])
    rows, waited_ns = _waits_in_slices(facts, part.cover, slices)
    name = int(np.bincount(trace.name[rows], waited_ns).argmax())
    with_waits = distinct(rows[waited_ns > 0])
    of_name = with_waits[trace.name[with_waits] == name]
    mostly = "mostly " if len(of_name) < len(with_waits) else ""
    calls = of_name[~np.isin(trace.parent[of_name], of_name)]  # an op may call itself
    text = f"{count(len(calls))} x {frame_text(trace.names[name])}"
    if once.of_ops:
        text += _outer_op(trace, calls, once.rows)
    return f"{once.what} ({mostly}{text})"


def _waits_in_slices(facts: Facts, cover: Cover, slices: Slices) -> tuple[Rows, Int64s]:
    """How long the devices waited for a launch, within a cover (ns of the file), while
    each of some slices was the innermost of them: (rows, ns), two arrays of one shape.
    A row occurs once for each stretch of time in which it is the innermost one."""
    outer_first = np.lexsort((slices.start - slices.end, slices.start))
    innermost = slices.only(outer_first).parts()
    waits = counted(facts.idle.begin, facts.idle.returned).only(cover)
    return innermost.rows, waits.within(innermost.start, innermost.end)


def _ops_within(trace: Trace, rows: Rows) -> Rows:
    """Some ops and all ops that they call, directly or not."""
    ops = trace.rows_of(Role.OP)
    change = np.zeros(len(trace) + 1, dtype=np.int64)
    np.add.at(change, rows, 1)
    np.add.at(change, trace.end_row[rows], -1)
    return ops[np.cumsum(change)[ops] > 0]


def _outer_op(trace: Trace, calls: Rows, first_calls: Rows) -> str:
    """`, in aten::repeat`: the first call of an op around some calls that are no first
    calls; blank where these are."""
    if np.isin(calls, first_calls).any():
        return ""
    begins_before = first_calls <= calls[0]
    around = first_calls[begins_before & (trace.end_row[first_calls] > calls[0])]
    return f", in {frame_text(trace.name_of(int(around[-1])))}"
