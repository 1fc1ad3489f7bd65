"""Rules for traces without GPU events: where the CPU threads spend their time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from fusetui.analysis.questions.collectives import ON_CPU
from fusetui.analysis.questions.launches import LAUNCHES
from fusetui.analysis.questions.loaders import find_loader_calls
from fusetui.analysis.why.cpu_compute import find_cpu_compute_ops
from fusetui.analysis.why.cpu_work import (
    NamedTime,
    OwnTimes,
    divide_by_kind,
    rank_names,
)
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.kernels import choose_heaviest_rows
from fusetui.analysis.why.rule import (
    STACKS_ADD_OVERHEAD,
    Claim,
    Rule,
    format_share_of_recording,
    is_large_enough,
    name_most_frequent,
)
from fusetui.analysis.why.rules.launches import advise_against_cpu_op
from fusetui.analysis.why.rules.recompiling import note_graph_breaks
from fusetui.analysis.why.rules.waiting import (
    FEWER_BATCHES,
    INSIDE_LOADER,
    MORE_WORKERS,
    fetches_from_workers,
    were_batches_ready,
)
from fusetui.analysis.why.thread_activity import ThreadActivity
from fusetui.text.figures import count, duration, plural
from fusetui.text.patterns import lazy_pattern
from fusetui.text.printable import printable
from fusetui.trace.layout.steps import steps_of
from fusetui.trace.model.arrays import NO_ROW, Flags, Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import Cover, common, joined, union, without
from fusetui.trace.model.quantiles import median
from fusetui.trace.model.report import recorded_with

MIN_SHARE_TO_NAME: Final = 0.5
"""A name is reported if it has at least this share of the time of a cause."""
MAIN_THREAD_SHARE: Final = 0.8
"""The thread that runs at least this share of the time of all ops is the program."""
LEAST_OWN_SHARE: Final = 0.10
"""An op or function is no finding if its own time is a smaller share of the recording.
"""


def _explain_uncertain_times(facts: Facts) -> str | None:
    """Say why times of the CPU are only likely; None if no Python stacks were recorded.

    Recording stacks takes time of its own.
    """
    return STACKS_ADD_OVERHEAD if facts.has_stacks else None


def _cover_rows(facts: Facts, rows: Rows) -> Cover:
    """Return the time within the window in which any of some rows of the trace runs.

    The result is disjoint intervals in ns of the file.
    """
    running = union(facts.trace.start[rows], facts.trace.end[rows])
    return common(running, facts.whole_time)


def _rank_names(facts: Facts, cover: Cover) -> list[NamedTime]:
    """Return the ops, functions and waits with the longest own time during a cover.

    The longest one comes first.
    """
    trace = facts.trace
    times = divide_by_kind(facts.accounts, cover)
    names = rank_names(trace, times.ops)
    names += rank_names(trace, times.functions)
    names += rank_names(trace, times.waits, with_caller=True)

    return sorted(names, key=lambda named: -named.share.ns)


@Rule(
    without_gpu=True,
    needs=("annotations", "Python frames and modules"),
    remedy="Use DataLoader(num_workers=..., persistent_workers=True, "
    "prefetch_factor=...) to prepare batches ahead in other processes. Make "
    "each sample cheaper, or prepare it once beforehand.",
)
def cpu_data_loading(facts: Facts) -> Iterator[Claim]:
    """Report how long the data loader runs, in a trace without GPU events.

    The remedy depends on whether its batches come from workers, and were ready.
    """
    loader_calls = find_loader_calls(facts.trace)
    loading_time = _cover_rows(facts, loader_calls)
    if facts.devices or not loading_time.ns:
        return

    has_workers = fetches_from_workers(facts.trace)
    remedy = MORE_WORKERS if has_workers else None
    reason = f"for the data loader{_describe_longest_name(facts, loading_time)}."
    if has_workers and were_batches_ready(facts):
        remedy = FEWER_BATCHES
        reason = (
            "to receive batches that the data loader's workers have already loaded."
        )

    yield Claim(
        text=f"The program waits {format_share_of_recording(facts, loading_time.ns)} {reason}",
        at_stake_ns=loading_time.ns,
        rows=choose_heaviest_rows(loader_calls, facts.trace.dur[loader_calls]),
        remedy=remedy,
        why_likely=_explain_uncertain_times(facts),
    )


def _describe_longest_name(facts: Facts, cover: Cover) -> str:
    """Name the op, function or wait that takes most of a cover: `, 2 s of it in NAME`.

    The text is "" if none takes at least MIN_SHARE_TO_NAME of it, or only those of the
    loader itself.
    """
    least_ns = MIN_SHARE_TO_NAME * cover.ns
    for named in _rank_names(facts, cover):
        share = named.share
        if share.ns >= least_ns and not INSIDE_LOADER.search(share.name):
            return f", {duration(share.ns)} of it in {share.name}"

    return ""


READS_ONE_VALUE: Final = lazy_pattern(
    r"\Aaten::(?:item|_local_scalar_dense|is_nonzero)\Z"
)
"""Matches ops that read one value of a tensor.

They are behind `.item()`, `float(tensor)` and `if tensor:`.
"""


@Rule(
    without_gpu=True,
    needs=("CPU ops",),
    remedy="Keep .item(), float(tensor) and `if tensor:` out of inner loops. Compute "
    "on whole tensors, or read many values at once with .tolist().",
)
def cpu_scalars(facts: Facts) -> Iterator[Claim]:
    """Report the time of calls that read one value of a tensor, without GPU events.

    Such a call inside of another one counts as part of that.
    """
    trace = facts.trace
    reads = facts.select_rows_in_window(
        trace.rows_named(READS_ONE_VALUE.search, Role.OP)
    )
    reading_time = _cover_rows(facts, reads)
    if facts.devices or not reading_time.ns:
        return

    outer_reads = _drop_nested_rows(trace, reads)
    calls = plural(len(outer_reads), "call")
    s = "s" if len(outer_reads) == 1 else ""

    yield Claim(
        text=f"{calls} that read{s} one value of a tensor "
        f"({name_most_frequent(facts.trace, outer_reads)}) take{s} "
        f"{format_share_of_recording(facts, reading_time.ns)}. On a GPU, each "
        "would also wait for all earlier work.",
        at_stake_ns=reading_time.ns,
        rows=choose_heaviest_rows(outer_reads, trace.dur[outer_reads]),
        why_likely=_explain_uncertain_times(facts),
    )


def _drop_nested_rows(trace: Trace, rows: Rows) -> Rows:
    """Return those of some rows whose parent is none of these rows."""
    is_given = np.zeros(len(trace), dtype=np.bool_)
    is_given[rows] = True
    parent = trace.parent[rows]
    is_nested: Flags = (parent != NO_ROW) & is_given[parent]
    return rows[~is_nested]


@Rule(
    without_gpu=True,
    needs=("runtime calls",),
    remedy="Record the GPU too ({nsys:nsys profile -t "
    "cuda,nvtx|intel:ProfilerActivity.XPU|:ProfilerActivity.CUDA}) to see "
    "whether it is busy meanwhile. Keep .item(), copies to the CPU and "
    "synchronize() out of the loop.",
)
def cpu_waits_for_gpu(facts: Facts) -> Iterator[Claim]:
    """Note how long calls wait for a GPU of which no events were recorded."""
    trace = facts.trace
    is_wait = facts.accounts.kinds == ThreadActivity.SYNC
    waits = facts.select_rows_in_window(np.flatnonzero(is_wait))
    waiting_time = _cover_rows(facts, waits)
    if facts.devices or not is_large_enough(facts, waiting_time.ns, of_kernels=False):
        return

    calls = plural(len(waits), "call")
    wait = "waits" if len(waits) == 1 else "wait"

    yield Claim(
        text=f"CPU threads wait {format_share_of_recording(facts, waiting_time.ns)} in {calls} that "
        f"{wait} for a GPU ({name_most_frequent(facts.trace, waits)}). GPU work was not recorded.",
        rows=choose_heaviest_rows(waits, trace.dur[waits]),
    )


COMPILES: Final = lazy_pattern(
    r"_compile\.compile_inner \(dynamo_timed\)\Z|torch/_dynamo/convert_frame\.py\(\d+\): _compile\Z"
)
"""Matches one slice for each compilation of a region by Dynamo.

It is an op, and with stacks also a frame.
"""


@Rule(
    without_gpu=True,
    needs=("annotations", "Python frames and modules"),
    remedy="Warm up before recording. If compilation recurs, find the failed guard "
    "with TORCH_LOGS=recompiles; to avoid recompiling for new sizes, use "
    "torch.compile(dynamic=True) or mark_dynamic.",
    once=True,
)
def cpu_compilation(facts: Facts) -> Iterator[Claim]:
    """Report the time in which something is compiled, and note graph breaks.

    Only in a trace without GPU events, and each only where there are some.
    """
    if facts.devices:
        return

    compiler_slices = facts.select_rows_in_window(facts.compiler_rows)
    compiling_time = _cover_rows(facts, compiler_slices)
    if compiling_time.ns:
        from fusetui.analysis.why.rules import compile_evidence  # rarely needed

        evidence = compile_evidence.explain_compilations(facts)
        compiling = format_share_of_recording(facts, compiling_time.ns)

        yield Claim(
            text="Compilation (torch.compile or Triton) takes "
            f"{compiling}{_describe_compilations(facts)}.{evidence.text}",
            at_stake_ns=compiling_time.ns,
            rows=choose_heaviest_rows(
                compiler_slices, facts.trace.dur[compiler_slices]
            ),
            remedy=evidence.remedy,
            why_likely=_explain_uncertain_times(facts),
        )

    yield from note_graph_breaks(facts)


def _describe_compilations(facts: Facts) -> str:
    """Count the compilations: `: 4 compilations, in 3 of 8 steps`.

    Without several steps it is `: 4 compilations`, and "" where they cannot be counted.
    """
    trace = facts.trace
    slices = facts.select_rows_in_window(
        trace.rows_named(COMPILES.search, Role.OP, Role.ANNOTATION, Role.PYTHON)
    )
    if not len(slices):
        return ""

    compilations = union(trace.start[slices], trace.end[slices])
    text = f": {plural(len(compilations.start), 'compilation')}"
    steps = facts.steps
    if len(steps) < 2:
        return text

    compiling_ns_of_step = compilations.within(steps.start, steps.end)
    compiling_steps = int(np.count_nonzero(compiling_ns_of_step))
    return f"{text} in {count(compiling_steps)} of {plural(len(steps), 'step')}"


def _find_claimed_time(facts: Facts) -> Cover:
    """Return the time that the other rules of this module claim.

    In it a data loader, a compiler or a read of one value runs.
    """
    reads = facts.trace.rows_named(READS_ONE_VALUE.search, Role.OP)
    return joined(
        _cover_rows(facts, find_loader_calls(facts.trace)),
        _cover_rows(facts, facts.compiler_rows),
        _cover_rows(facts, reads),
    )


@Rule(
    without_gpu=True,
    needs=("Python frames and modules",),
    remedy="To see what the CPU does, {nsys:put torch.cuda.nvtx.range()|:set "
    "with_stack=True, or put record_function()} around parts of the program.",
    thresholds={"least_own": LEAST_OWN_SHARE, "main": MAIN_THREAD_SHARE},
)
def cpu_unrecorded(facts: Facts) -> Iterator[Claim]:
    """Report how long nothing was recorded of the main thread, between its ops.

    The main thread runs nearly all ops; other threads, such as workers, wait for work.
    The claim is little below LEAST_OWN_SHARE of the recording.
    """
    if facts.devices:
        return

    thread = _find_main_thread(facts)
    if thread is None:
        return

    trace = facts.trace
    unrecorded = _find_unrecorded_time(facts, thread)
    first_row = int(_select_work_of_thread(facts, thread)[0])
    label = printable(trace.track_of(first_row).label)
    text = (
        f"Nothing was recorded on {label} between ops for "
        f"{format_share_of_recording(facts, unrecorded.ns)}. The thread ran Python or other "
        "code, or waited."
    )

    remedy = None
    annotation = _find_longest_annotation(facts, unrecorded, thread)
    if annotation is not None:
        name = printable(annotation.name)
        stacks = recorded_with("with_stack=True", trace.report.writer)
        text += f" {duration(annotation.ns)} of that is inside the annotation {name}."
        remedy = f"Record stacks ({stacks}) to see what {name} does in that time."

    yield Claim(
        text=text,
        at_stake_ns=unrecorded.ns,
        remedy=remedy,
        is_little=unrecorded.ns < LEAST_OWN_SHARE * facts.span_ns,
    )


def _find_main_thread(facts: Facts) -> int | None:
    """Return the thread that runs at least MAIN_THREAD_SHARE of the time of all ops.

    None if no thread does, or if the ops take no time.
    """
    trace = facts.trace
    ops = facts.select_rows_in_window(trace.rows_of(Role.OP))
    if not len(ops):
        return None

    thread = trace.thread_of(ops)
    ns_of_thread = np.bincount(thread, trace.dur[ops])
    total_ns = ns_of_thread.sum()
    busiest = int(ns_of_thread.argmax())
    if not total_ns or ns_of_thread[busiest] < MAIN_THREAD_SHARE * total_ns:
        return None

    return busiest


def _select_work_of_thread(facts: Facts, thread: int) -> Rows:
    """Return the ops, calls and frames of a thread that lie in the window."""
    trace = facts.trace
    is_work = np.isin(trace.role, (Role.OP, Role.CALL, Role.PYTHON))
    is_of_thread = trace.thread_of_track[trace.track] == thread
    return facts.select_rows_in_window(np.flatnonzero(is_work & is_of_thread))


def _find_unrecorded_time(facts: Facts, thread: int) -> Cover:
    """Return the time of a thread in which nothing of it was recorded.

    It is between the first and the last work of the thread, without the time that other
    rules claim.
    """
    trace = facts.trace
    work = _select_work_of_thread(facts, thread)
    begin_ns = trace.start[work].min(keepdims=True)
    end_ns = trace.end[work].max(keepdims=True)
    from_first_to_last = common(Cover(begin_ns, end_ns), facts.whole_time)

    collectives = trace.rows_named(ON_CPU.match, Role.ANNOTATION)
    recorded = joined(
        _cover_rows(facts, work),
        _find_claimed_time(facts),
        _cover_rows(facts, collectives),
    )
    return without(from_first_to_last, recorded)


class AnnotatedTime(NamedTuple):
    """How much of some time lies in the annotations of one name."""

    name: str
    ns: int


def _find_longest_annotation(
    facts: Facts, time: Cover, thread: int
) -> AnnotatedTime | None:
    """Find the name whose annotations on a thread hold most of some time.

    Steps do not count, and neither do those of the profiler.

    Args:
        time: The time, in ns of the file.
        thread: The index of the thread.

    Returns:
        None if no name holds at least MIN_SHARE_TO_NAME of the time.
    """
    trace = facts.trace
    annotations = facts.select_rows_in_window(trace.rows_of(Role.ANNOTATION))
    is_of_thread = trace.thread_of(annotations) == thread
    is_step = np.isin(annotations, steps_of(trace).rows)
    annotations = annotations[is_of_thread & ~is_step]
    if not len(annotations):
        return None

    ns_of_row = time.within(trace.start[annotations], trace.end[annotations])
    ns_of_name = np.bincount(trace.name[annotations], ns_of_row)
    longest_name = int(ns_of_name.argmax())
    longest_ns = int(ns_of_name[longest_name])
    if longest_ns < MIN_SHARE_TO_NAME * time.ns:
        return None

    # Annotations of one name may lie in each other, and then count twice.
    inside_ns = min(longest_ns, time.ns)
    return AnnotatedTime(name=trace.names[longest_name], ns=inside_ns)


MIN_RATIO_OF_FIRST_CALL: Final = 10
"""A first call that takes this many times the median of the others sets something up.
"""
FIRST_CALL: Final = (
    "Call the op once before recording, because its first call initializes libraries, loads "
    "kernels and chooses algorithms. Later calls are faster."
)
"""The remedy for an op whose first call takes most of the time."""
RUNTIME_CALL: Final = (
    "Check what the call waits for. A runtime call launches work, copies "
    "data, or waits for the device. This breakdown excludes the device's work."
)
LONG_CALLS_OF_OP: Final = (
    "Check the input sizes of the op (fusetui ops --by shape), and look for a cheaper way to "
    "compute the same result. Making fewer calls would hardly help."
)
LONG_CALLS_OF_FUNCTION: Final = (
    "Check the code of the function itself (fusetui lines) for loops over elements "
    "and for work that could be done once. Making fewer calls would hardly help."
)
MANY_CALLS_OF_FUNCTION: Final = (
    "Reduce the number of calls, or make each call "
    "cheaper. To see the callers, run fusetui lines."
)
CONCATENATES: Final = (
    "Write into slices of one buffer instead of calling torch.cat: growing a cache "
    "by concatenation copies the whole cache each time."
)
CONCATENATING_OPS: Final = lazy_pattern(
    r"aten::(?:_?cat|concat(?:enate)?|hstack|vstack|stack)\Z"
)
"""Matches ops that concatenate tensors."""
LONG_CALL_NS: Final = 100_000
"""What calls cost that are longer on average does not depend on how many there are."""
MIN_CALLS: Final = 10
"""Fewer calls are not many."""
WAIT_REMEDY: Final = "Check what the thread waits for, and overlap the wait with other work or shorten it."


PROFILER_FUNCTIONS: Final = lazy_pattern(
    r"\b_record_function_(?:enter|exit)|torch/autograd/profiler(?:_util)?\.py\(|torch/profiler/"
    r"|\b_(?:enable|disable|prepare)_profiler\b|\b_ProfilerResult\b"
)
"""Matches functions of torch's profiler, and those of record_function.

What they take is the cost of recording, which the program does not pay without the
profiler.
"""


def is_profiler_frame(trace: Trace, rows: Rows) -> Flags:
    """Tell which rows are Python frames of the profiler itself; one flag per row."""
    is_frame = trace.role[rows] == Role.PYTHON
    are_of_profiler: Flags = is_frame & trace.matching(rows, PROFILER_FUNCTIONS.search)
    return are_of_profiler


@Rule(
    without_gpu=True,
    needs=("CPU ops", "Python frames and modules"),
    remedy="Make fewer calls on larger tensors, or find a cheaper way to compute the "
    "same result. To see the callers, run fusetui ops and fusetui lines.",
    thresholds={
        "least_own": LEAST_OWN_SHARE,
        "slow_first": MIN_RATIO_OF_FIRST_CALL,
        "long_call_ns": LONG_CALL_NS,
        "fewest_calls": MIN_CALLS,
    },
)
def cpu_hot(facts: Facts) -> Iterator[Claim]:
    """Report the op, the function and the wait with the longest own time.

    Time that other findings of this module are about does not count.
    """
    if facts.devices:
        return

    unexplained = without(facts.whole_time, _find_claimed_time(facts))
    times = divide_by_kind(facts.accounts, unexplained)
    yield from _report_hot_op(facts, times.ops)
    yield from _report_hot_function(facts, times.functions)
    yield from _report_hot_wait(facts, times.waits)


def _report_hot_op(facts: Facts, ops: OwnTimes) -> Iterator[Claim]:
    """Report the op or call with the longest own time, if there is any."""
    longest_first = rank_names(facts.trace, _select_program_ops(facts.trace, ops))
    if not longest_first:
        return

    longest = longest_first[0]
    first_call = _describe_slow_first_call(longest)
    yield _make_hot_claim(
        facts,
        longest,
        verb="takes",
        suffix=f", excluding nested calls{first_call}",
        remedy=FIRST_CALL if first_call else _choose_op_remedy(facts.trace, longest),
    )


def _report_hot_function(facts: Facts, functions: OwnTimes) -> Iterator[Claim]:
    """Report the Python function with the longest own time, if there is any.

    The profiler's own functions do not count.
    """
    of_program = functions.select(~is_profiler_frame(facts.trace, functions.rows))
    longest_first = rank_names(facts.trace, of_program)
    if not longest_first:
        return

    longest = longest_first[0]
    has_many = _has_many_short_calls(longest)
    yield _make_hot_claim(
        facts,
        longest,
        verb="takes",
        suffix=", excluding nested calls",
        remedy=MANY_CALLS_OF_FUNCTION if has_many else LONG_CALLS_OF_FUNCTION,
    )


def _report_hot_wait(facts: Facts, waits: OwnTimes) -> Iterator[Claim]:
    """Report the wait with the longest own time, if there is any.

    Collectives belong to cpu-collectives, and the profiler's own waits do not count.
    """
    is_collective = facts.trace.matching(waits.rows, ON_CPU.match)
    is_of_profiler = is_profiler_frame(facts.trace, waits.rows)
    other_waits = waits.select(~is_collective & ~is_of_profiler)
    longest_first = rank_names(facts.trace, other_waits, with_caller=True)
    if not longest_first:
        return

    longest = longest_first[0]
    yield _make_hot_claim(facts, longest, verb="waits", suffix="", remedy=WAIT_REMEDY)


def _select_program_ops(trace: Trace, ops: OwnTimes) -> OwnTimes:
    """Return the ops and calls that the program itself makes slow.

    If the profiler measures hardware counters inside of the launch calls, calls are
    slow because of it. All calls are then left out, and only ops are returned.
    """
    has_counters = len(trace.rows_of(Role.DEVICE)) > 0
    has_launches = len(trace.rows_named(LAUNCHES.search, Role.CALL)) > 0
    if has_counters and has_launches:
        return ops.select(trace.role[ops.rows] != Role.CALL)

    return ops


def _describe_slow_first_call(named: NamedTime) -> str:
    """Say how long the first call takes, if it takes most of the time of all calls.

    It must also take MIN_RATIO_OF_FIRST_CALL times as long as the median of the others.
    The text is `. The first call takes 2.3 s of that; the median of the others is 1.6
    ms`. It is "" if the first call is not that slow, or the only one.
    """
    ns_of_call = named.own.ns  # in the order of the starts of the calls
    if len(ns_of_call) < 2:
        return ""

    first_ns = int(ns_of_call[0])
    usual_ns = median(ns_of_call[1:])
    is_most = first_ns >= MIN_SHARE_TO_NAME * ns_of_call.sum()
    is_slow = first_ns >= MIN_RATIO_OF_FIRST_CALL * usual_ns
    if not is_most or not is_slow:
        return ""

    return (
        f". The first call takes {duration(first_ns)} of this time; the median of the others is "
        f"{duration(usual_ns)}"
    )


def _choose_op_remedy(trace: Trace, named: NamedTime) -> str | None:
    """Choose what helps with an op or a call.

    None for the remedy of the rule, which is to call it less often.
    """
    row = int(named.own.rows[0])
    if trace.role[row] == Role.CALL:
        return RUNTIME_CALL

    uses_gpu = len(trace.rows_named(LAUNCHES.search, Role.CALL)) > 0
    if uses_gpu and _is_mostly_computing(trace, named):
        return advise_against_cpu_op(trace.name_of(row))

    if CONCATENATING_OPS.match(trace.name_of(row)):
        return CONCATENATES
    return None if _has_many_short_calls(named) else LONG_CALLS_OF_OP


def _is_mostly_computing(trace: Trace, named: NamedTime) -> bool:
    """Whether more than half of the time of an op is computing on the CPU."""
    computes = np.isin(named.own.rows, find_cpu_compute_ops(trace))
    computing_ns = int(named.own.ns[computes].sum())
    return 2 * computing_ns > named.share.ns


def _has_many_short_calls(named: NamedTime) -> bool:
    """Whether something is called often, for a short time each.

    That is MIN_CALLS times or more, and less than LONG_CALL_NS on average: then it
    matters how often it is called.
    """
    calls = named.share.count
    return calls >= MIN_CALLS and named.share.ns < LONG_CALL_NS * calls


def _make_hot_claim(
    facts: Facts, named: NamedTime, *, verb: str, suffix: str, remedy: str | None
) -> Claim:
    """Claim the own time of one op, function or wait.

    It is no more than the time in which any thread runs it: several may do so at once.

    Args:
        named: What it is about.
        verb: What it does with the time: "takes" or "waits".
        suffix: What follows the number of calls.
        remedy: None for the remedy of the rule.
    """
    own_ns = min(named.share.ns, _cover_rows(facts, named.own.rows).ns)
    return Claim(
        text=f"{named.share.name} {verb} {format_share_of_recording(facts, own_ns)} in "
        f"{plural(named.share.count, 'call')}{suffix}.",
        at_stake_ns=own_ns,
        rows=choose_heaviest_rows(named.own.rows, named.own.ns),
        remedy=remedy,
        why_likely=_explain_uncertain_times(facts),
        is_little=own_ns < LEAST_OWN_SHARE * facts.span_ns,
    )
