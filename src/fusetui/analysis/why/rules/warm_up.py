"""The rule warm-up: how long the GPU waits for one-time work of a program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from fusetui.analysis.why.causes import format_frame
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.rule import Claim, Rule, format_share_of_span
from fusetui.analysis.why.thread_activity import Slices
from fusetui.analysis.why.warming import (
    LONG_NS,
    LONG_OP_NS,
    MIN_CALLS_PER_GPU_EVENT,
    MIN_RATIO_OF_FIRST_STEP,
    MIN_RATIO_TO_LATER_CALLS,
    MIN_SHARE_OF_TIME_LATE,
    OneTimeSlices,
    are_earlier_steps_missing,
)
from fusetui.text.figures import duration, plural
from fusetui.text.printable import printable
from fusetui.trace.layout.steps import Steps
from fusetui.trace.model.arrays import (
    Int64s,
    Rows,
    distinct,
    heaviest_id,
    inside_ranges,
)
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import Cover, counted, order_by_start

MAX_PARTS_NAMED: Final = 3
"""How many parts of the warm-up a sentence names."""
MIN_SHARE_NAMED: Final = 0.05
"""A part with a smaller share of the warm-up is not named."""


@Rule(
    needs=("launch calls",),
    remedy="To measure the steady state, record later steps with {nsys:nsys profile "
    "--capture-range=cudaProfilerApi and a call to torch.cuda.profiler.start() before "
    "them|:torch.profiler.schedule(wait=..., warmup=..., active=...)}. To "
    "shorten startup, {nvidia:set CUDA_MODULE_LOADING=EAGER, |amd:set "
    "HIP_ENABLE_DEFERRED_LOADING=0, }cache compiled code, and run each shape "
    "once beforehand.",
    thresholds={
        "long_ns": LONG_NS,
        "long_op_ns": LONG_OP_NS,
        "times": MIN_RATIO_TO_LATER_CALLS,
        "slow_first": MIN_RATIO_OF_FIRST_STEP,
        "often": MIN_CALLS_PER_GPU_EVENT,
        "goes_on": MIN_SHARE_OF_TIME_LATE,
    },
    once=True,
)
def warm_up(facts: Facts) -> Iterator[Claim]:
    """Report how long the GPU waits for what happens only once.

    Loading of kernels is an example. The largest parts are named.
    """
    if not facts.has_launches:
        return

    parts: list[_OneTimeWork] = []
    for piece in facts.warm_up_pieces:
        waited_ns = facts.measure_waits_during(piece.cover)
        parts.append(
            _OneTimeWork(slices=piece.slices, cover=piece.cover, waited_ns=waited_ns)
        )

    all_ns = sum(part.waited_ns for part in parts)
    if not all_ns:
        return

    largest = _choose_largest_parts(parts, all_ns)
    rows = np.concatenate([part.slices.rows for part in largest])

    yield Claim(
        text=f"The GPU waits {format_share_of_span(facts, all_ns)} for warm-up"
        f"{_describe_parts(facts, largest, all_ns)}. Other findings exclude this time.",
        at_stake_ns=all_ns,
        rows=facts.choose_longest_waited_for(rows),
        why_likely=_explain_doubt(facts.steps),
    )


class _OneTimeWork(NamedTuple):
    """One kind of one-time work, such as first kernel launches."""

    slices: OneTimeSlices
    cover: Cover
    """The time that counts for it, in ns of the file."""
    waited_ns: int
    """How long the GPU waits for it."""


def _choose_largest_parts(
    parts: Sequence[_OneTimeWork], all_ns: int
) -> list[_OneTimeWork]:
    """Choose the parts that are named, the longest first.

    They are at most MAX_PARTS_NAMED, each with MIN_SHARE_NAMED of the time.

    Args:
        all_ns: The time of all parts together.
    """
    longest_first = sorted(parts, key=lambda part: -part.waited_ns)
    candidates = longest_first[:MAX_PARTS_NAMED]
    least_ns = MIN_SHARE_NAMED * all_ns

    return [part for part in candidates if part.waited_ns >= least_ns]


def _describe_parts(facts: Facts, named: Sequence[_OneTimeWork], all_ns: int) -> str:
    """List the named parts with their times, and the time of all others.

    An example is `2 ms in first kernel launches (...), 1 ms in other one-time work`; a
    part that is all of it stands without a time.

    Args:
        named: The parts that are named.
        all_ns: The time of all parts together.
    """
    is_alone = len(named) == 1
    rest_ns = all_ns - sum(part.waited_ns for part in named)
    if is_alone and not rest_ns:
        return f", all of it in {_describe_part(facts, named[0], is_alone=True)}"

    texts = []
    for part in named:
        description = _describe_part(facts, part, is_alone=is_alone)
        texts.append(f"{duration(part.waited_ns)} in {description}")

    if rest_ns:
        texts.append(f"{duration(rest_ns)} in other one-time work")

    *before, last = texts
    return f": {', '.join(before)}, and {last}" if before else f": {last}"


def _explain_doubt(steps: Steps) -> str | None:
    """Say why it is not certain that the warm-up happens only once; None if it is
    certain.

    It is not certain if the program ran steps before the recording. It counts as
    certain if the recording begins with the first step, or if nothing numbers the
    steps.
    """
    if not are_earlier_steps_missing(steps):
        return None

    first = printable(steps.names[0])
    return f"Earlier steps may have done the same work, because the recording begins with {first}."


def _describe_part(facts: Facts, part: _OneTimeWork, *, is_alone: bool) -> str:
    """Describe a part of the warm-up, with the name that the GPU waited for longest.

    An example is `first kernel launches (mostly in 19 calls to cudaLaunchKernel)`. It
    is `longest: 19 calls to` if the name has no more than half of the time. Of ops, the
    innermost one is named, and the first call around it too.

    Args:
        is_alone: Whether no other part is named.
    """
    slices = part.slices
    if not len(slices.rows):
        return "the first step" if is_alone else "the rest of the first step"

    trace = facts.trace
    rows, waited_ns = _measure_waits(facts, part.cover, _find_causes(trace, slices))
    longest_name = heaviest_id(trace.name[rows], waited_ns)
    rows_with_wait = distinct(rows[waited_ns > 0])
    has_name = trace.name[rows_with_wait] == longest_name

    of_name_ns = int(waited_ns[trace.name[rows] == longest_name].sum())
    if has_name.all():
        before = ""
    elif 2 * of_name_ns > part.waited_ns:
        before = "mostly in "
    else:
        before = "longest: "

    calls = _select_outermost(trace, rows_with_wait[has_name])
    text = f"{plural(len(calls), 'call')} to {format_frame(trace.names[longest_name])}"
    outer_op = _name_outer_op(trace, calls, slices.rows) if slices.of_ops else ""

    return f"{slices.what} ({before}{text}{outer_op})"


def _select_outermost(trace: Trace, rows: Rows) -> Rows:
    """Return those of some rows whose parent is none of them: an op may call itself."""
    is_inner = np.isin(trace.parent[rows], rows)
    return rows[~is_inner]


def _find_causes(trace: Trace, once: OneTimeSlices) -> Slices:
    """Return the slices that the GPU may have waited for, of one kind of one-time work.

    They are the slices of that kind. If the kind is first calls of ops, all ops inside
    these calls are included too.
    """
    if not once.of_ops:
        return Slices(rows=once.rows, start=once.start, end=once.end)

    ops = _select_ops_within(trace, once.rows)
    return Slices(rows=ops, start=trace.start[ops], end=trace.end[ops])


def _measure_waits(facts: Facts, cover: Cover, slices: Slices) -> tuple[Rows, Int64s]:
    """Measure how long the devices waited for a launch while a slice was innermost.

    Args:
        cover: The time that counts, in ns of the file.
        slices: The slices of which the innermost one counts.

    Returns:
        Rows of the trace and their times in ns, of one shape. A row occurs once for
        each interval in which it is the innermost one.
    """
    outer_first = order_by_start(slices.start, slices.end)
    innermost = slices.select(outer_first).cut_innermost_parts()
    waits = counted(facts.gaps.begin, facts.gaps.call_end).only(cover)

    return innermost.rows, waits.within(innermost.start, innermost.end)


def _select_ops_within(trace: Trace, rows: Rows) -> Rows:
    """Return some ops and all ops that they call, directly or not."""
    ops = trace.rows_of(Role.OP)
    # What lies inside of an op has the rows from the op to its end_row.
    return ops[inside_ranges(rows, trace.end_row[rows], len(trace))[ops]]


def _name_outer_op(trace: Trace, calls: Rows, first_calls: Rows) -> str:
    """Name the first call of an op that is around the first of some calls.

    The text is `, in aten::repeat`. It is "" if any of the calls is a first call
    itself.

    Args:
        calls: The calls, as rows of the trace.
        first_calls: The first calls of ops, of which the last one around counts.
    """
    if np.isin(calls, first_calls).any():
        return ""

    # What lies inside of an op has the rows from the op to its end_row.
    call = calls[0]
    is_around = (first_calls <= call) & (trace.end_row[first_calls] > call)
    calls_around = first_calls[is_around]
    innermost = int(calls_around[-1])

    return f", in {format_frame(trace.name_of(innermost))}"
