"""Rules about the GPU waiting for the data loader, or for memory allocation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from fusetui.analysis.questions.loaders import (
    LOADER,
    WORKERS,
    estimate_batch_waits,
    find_loader_calls,
    find_worker_loader_calls,
)
from fusetui.analysis.why.causes import format_frame
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.kernels import choose_heaviest_rows
from fusetui.analysis.why.model import RemovedCalls
from fusetui.analysis.why.rule import (
    Claim,
    Rule,
    explain_uncertainty,
    format_share_of_span,
)
from fusetui.analysis.why.thread_activity import ThreadActivity
from fusetui.analysis.why.warming import (
    MIN_CALLS_PER_GPU_EVENT,
    MIN_SHARE_OF_TIME_LATE,
    mark_recurring_calls,
)
from fusetui.text.figures import duration, plural
from fusetui.text.patterns import lazy_pattern
from fusetui.text.printable import printable
from fusetui.trace.model.arrays import (
    Int64s,
    Rows,
    distinct,
    distinct_rows,
    heaviest_id,
    last_at_or_before,
)
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import common, union

INSIDE_LOADER: Final = lazy_pattern(
    rf"{LOADER.pattern}|torch/utils/data/(?:dataloader|_utils/fetch)\.py"
)
"""Matches frames and ops of the loader itself: naming them would not help."""

MORE_WORKERS: Final = (
    "Prepare more batches in advance: use more workers (num_workers), a larger "
    "prefetch_factor and persistent_workers=True. If that does not help, make "
    "preprocessing cheaper or move it to the GPU."
)
"""The remedy where batches come from other processes."""

FEWER_BATCHES: Final = (
    "Build batches from fewer, larger tensors, or fetch the next "
    "batch in a thread while the step runs (a prefetcher). More workers do not help, "
    "because the batches were ready."
)
"""The remedy where the calls return as soon as they can."""

MIN_CALLS: Final = 3
"""Fewer calls for batches do not show how long a call takes whose batch is ready."""
MIN_SHARE_TO_NAME: Final = 0.5
"""A frame is named if it has at least this share of the time."""


@Rule(
    needs=("launch calls", "CPU ops", "annotations", "Python frames and modules"),
    remedy="Use DataLoader(num_workers=..., persistent_workers=True, "
    "prefetch_factor=...) to prepare batches ahead, and move heavy transforms "
    "to the GPU.",
)
def data_loading(facts: Facts) -> Iterator[Claim]:
    """Report how long the GPU is idle while a thread waits for the data loader.

    The remedy depends on whether the batches come from workers, and were ready.
    """
    loader_calls = find_loader_calls(facts.trace)
    waited_ns = facts.measure_idle_during(loader_calls)
    if not waited_ns:
        return

    has_workers = fetches_from_workers(facts.trace)
    were_ready = has_workers and were_batches_ready(facts)
    remedy = MORE_WORKERS if has_workers else None
    reason = (
        f"for the data loader{_describe_longest_name(facts, loader_calls, waited_ns)}."
    )
    if were_ready:
        remedy = FEWER_BATCHES
        reason = (
            "to receive batches that the data loader's workers have already loaded."
        )

    yield Claim(
        text=f"The GPU waits {format_share_of_span(facts, waited_ns)} {reason}",
        at_stake_ns=waited_ns,
        rows=facts.choose_longest_waited_for(loader_calls),
        remedy=remedy,
        wanted=None if were_ready else "loader",
        why_likely=explain_uncertainty(facts),
    )


def fetches_from_workers(trace: Trace) -> bool:
    """Whether a data loader of the trace gets its batches from other processes."""
    name_indices = distinct(trace.name[find_loader_calls(trace)]).tolist()
    return any(WORKERS.search(trace.names[index]) for index in name_indices)


def were_batches_ready(facts: Facts) -> bool:
    """Return whether calls that fetch batches from workers mostly take one that is
    ready.

    The shortest call tells how long it takes to receive a batch; what a call takes
    longer is waiting. The answer is False with fewer than MIN_CALLS calls in the
    window.
    """
    trace = facts.trace
    calls = facts.select_rows_in_window(find_worker_loader_calls(trace))
    if len(calls) < MIN_CALLS:
        return False

    waited_ns = estimate_batch_waits(trace, calls)
    lasted_ns = trace.end[calls] - trace.start[calls]
    return bool(waited_ns.sum() < MIN_SHARE_TO_NAME * lasted_ns.sum())


def _describe_longest_name(facts: Facts, loading: Rows, waited_ns: int) -> str:
    """Name the frame, else the op, in which the loader spends most of the waiting time.

    The text is `, 3 ms of it in FRAME`. It is "" if none has MIN_SHARE_TO_NAME of the
    time, or only frames of the loader itself do.

    Args:
        loading: The slices in which a batch is loaded, as rows of the trace.
        waited_ns: How long the GPU waited for the loader.
    """
    least_ns = MIN_SHARE_TO_NAME * waited_ns
    for kind in (ThreadActivity.PYTHON, ThreadActivity.OP):
        ns_of_name = _measure_idle_by_name(facts, loading, kind)
        is_enough = ns_of_name >= least_ns
        candidates = np.flatnonzero(is_enough)
        longest_first = candidates[np.argsort(-ns_of_name[candidates], kind="stable")]

        for name_index in longest_first.tolist():
            name = facts.trace.names[name_index]
            if not INSIDE_LOADER.search(name):
                length = duration(int(ns_of_name[name_index]))
                return f", {length} of it in {format_frame(name)}"

    return ""


def _measure_idle_by_name(facts: Facts, loading: Rows, kind: ThreadActivity) -> Int64s:
    """Measure by name how long a device was idle while a thread loaded a batch.

    The time counts for the innermost slice of one kind.

    Args:
        loading: The slices in which a batch is loaded, as rows of the trace.
        kind: The kind of the slices whose names count.

    Returns:
        ns for each name of the trace.
    """
    gaps = facts.gaps
    ns_of_name = np.zeros(len(facts.trace.names), dtype=np.int64)
    for threads, _, on_axis in facts.group_gaps_by_axis():
        idle_time = union(on_axis(gaps.begin), on_axis(gaps.end))
        load_start, load_end = threads.place_slices(threads.select_own_rows(loading))
        waiting = common(idle_time, union(load_start, load_end))

        slices = threads.find_slices(kind).select_touching(waiting.start, waiting.end)
        innermost = slices.cut_innermost_parts()
        waited_ns = waiting.within(innermost.start, innermost.end)
        np.add.at(ns_of_name, facts.trace.name[innermost.rows], waited_ns)

    return ns_of_name


UNCACHED: Final = (
    "Look for {intel:|:PYTORCH_NO_CUDA_MEMORY_CACHING}{amd: or "
    "PYTORCH_NO_HIP_MEMORY_CACHING}{intel:|: in the environment, "
    "}torch.{intel:xpu|:cuda}.empty_cache() in the loop, or a library with its own "
    "allocator. Such frequent frees mean that something bypasses the caching allocator."
)
"""The remedy where memory is freed all the time."""

GROWING: Final = (
    "Run each shape on each stream before recording, because the "
    "caching allocator is still growing and frees nothing.{segments: If sizes vary, "
    "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to reduce the number of calls.}"
)
"""The remedy where memory is allocated and never freed."""
MAY_STILL_GROW: Final = (
    "The trace has no steps, so the allocator may still be filling its pool."
)
"""Why a finding about growing memory is only likely without steps."""

FREES: Final = lazy_pattern(r"Free")
GIVES_BACK: Final = lazy_pattern(r"Free|Release|Unmap|Unregister")
"""Matches calls that give memory back."""
MIN_SHARE_OF_STEPS: Final = 0.5
"""Calls of a name recur only if they are in this share of the steps after the first
one."""
MIN_STEPS: Final = 2
"""They must also be in this many of these steps."""


@Rule(
    remedy="Let the caching allocator keep its memory: do not call "
    "torch.{intel:xpu|:cuda}.empty_cache() in the loop,{segments: set "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True against fragmentation,} "
    "and leave some GPU memory free.",
    thresholds={
        "often": MIN_CALLS_PER_GPU_EVENT,
        "goes_on": MIN_SHARE_OF_TIME_LATE,
        "often_steps": MIN_SHARE_OF_STEPS,
    },
    by_launches=True,
)
def allocation(facts: Facts) -> Iterator[Claim]:
    """Report how long the GPU waits while memory is allocated or freed again and again.

    Allocations at the start of the program do not count.
    """
    trace = facts.trace
    calls = _find_recurring_allocations(facts)
    cover_of_calls = facts.cover_launching_threads(calls)
    under_calls_ns = facts.measure_activities_during(cover_of_calls)
    at_stake_ns = int(under_calls_ns[ThreadActivity.ALLOC].sum())
    if not at_stake_ns:
        return

    waited_ns = facts.measure_idle_of_each(calls)
    longest_calls = _describe_longest_calls(trace, calls, waited_ns)
    gives_back = bool(trace.matching(calls, GIVES_BACK.search).any())
    has_steps = len(facts.steps) > 1

    yield Claim(
        text=f"The GPU waits {format_share_of_span(facts, at_stake_ns)} while memory is allocated or "
        f"freed{longest_calls}.",
        at_stake_ns=at_stake_ns,
        wanted=RemovedCalls(calls),
        rows=choose_heaviest_rows(calls, waited_ns),
        remedy=_choose_allocation_remedy(facts, calls, gives_back=gives_back),
        why_likely=None if gives_back or has_steps else MAY_STILL_GROW,
    )


def _describe_longest_calls(trace: Trace, calls: Rows, waited_ns: Int64s) -> str:
    """Name the calls for which the GPU waited longest: `, mostly in 2 calls to NAME`.

    It is `, longest in` if the name has no more than half of the time.

    Args:
        calls: The calls, as rows of the trace.
        waited_ns: How long the GPU waited during each.
    """
    longest_name = heaviest_id(trace.name[calls], waited_ns)
    has_name = trace.name[calls] == longest_name
    call_count = int(np.count_nonzero(has_name & (waited_ns > 0)))
    is_majority = 2 * waited_ns[has_name].sum() > waited_ns.sum()

    before = "mostly in" if is_majority else "longest in"
    name = printable(trace.names[longest_name])
    return f", {before} {plural(call_count, 'call')} to {name}"


def _find_recurring_allocations(facts: Facts) -> Rows:
    """Return the calls in the window that allocate or free memory again and again.

    Those that are part of the start of the program are left out.
    """
    is_allocation = facts.accounts.kinds == ThreadActivity.ALLOC
    calls = facts.select_rows_in_window(np.flatnonzero(is_allocation))
    calls = calls[mark_recurring_calls(facts.trace, facts.steps, calls)]

    return _select_calls_in_many_steps(facts, calls)


def _select_calls_in_many_steps(facts: Facts, calls: Rows) -> Rows:
    """Return the calls whose names are called in many steps after the first one.

    These are at least MIN_STEPS, and MIN_SHARE_OF_STEPS of those steps. If there are
    too few steps, all calls are returned.

    Args:
        calls: Rows of the trace.
    """
    trace = facts.trace
    later_steps = len(facts.steps) - 1
    if later_steps < MIN_STEPS:
        return calls

    step = last_at_or_before(facts.steps.start, trace.start[calls])
    is_in_later_step = step > 0
    later_names = trace.name[calls[is_in_later_step]]

    # Count for each name the steps that have it: only its first call of each step.
    first_of_step, _ = distinct_rows((later_names, step[is_in_later_step]))
    steps_of_name = np.bincount(later_names[first_of_step], minlength=len(trace.names))
    least_steps = max(MIN_STEPS, MIN_SHARE_OF_STEPS * later_steps)
    is_in_many_steps = steps_of_name[trace.name[calls]] >= least_steps

    return np.asarray(calls[is_in_many_steps])


def _choose_allocation_remedy(
    facts: Facts, calls: Rows, *, gives_back: bool
) -> str | None:
    """Choose what to do about recurring allocation; None for the remedy of the rule.

    Args:
        calls: The calls, as rows of the trace.
        gives_back: Whether any of the calls gives memory back.
    """
    if not gives_back:
        return GROWING

    frees = int(np.count_nonzero(facts.trace.matching(calls, FREES.search)))
    are_frequent = frees >= MIN_CALLS_PER_GPU_EVENT * len(facts.gpu_rows)
    return UNCACHED if are_frequent else None
