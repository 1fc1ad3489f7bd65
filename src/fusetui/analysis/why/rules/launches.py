"""Rules about launches: the CPU is late, or kernels are too short or too many.

The CPU does not launch fast enough, does something else, or is held by the launch
calls. Or starting the kernels costs as much as running them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from fusetui.analysis.questions.launches import mark_graph_calls
from fusetui.analysis.why.causes import (
    SliceTimes,
    find_slices_in_idle_time,
    format_module,
    make_grouping_label,
    rank_delaying_names,
)
from fusetui.analysis.why.cpu_compute import (
    COMPUTES_NS,
    COMPUTES_SHARE,
    CREATES,
    find_cpu_compute_ops,
)
from fusetui.analysis.why.facts import (
    LONG_WORK_NS,
    MIN_SHARE_CPU_BOUND,
    SLICE_NS,
    WORK_NS,
    Facts,
)
from fusetui.analysis.why.graph_obstacles import GraphObstacle, find_graph_obstacle
from fusetui.analysis.why.kernels import choose_heaviest_rows
from fusetui.analysis.why.model import FreeThreadTime, ReducedDurations
from fusetui.analysis.why.remedies import find_tags
from fusetui.analysis.why.rule import (
    Claim,
    Rule,
    explain_uncertainty,
    format_share_of_span,
    is_mostly_warm_up,
    name_most_frequent,
)
from fusetui.analysis.why.thread_activity import LAYERS, ThreadActivity
from fusetui.analysis.why.warming import LONG_NS
from fusetui.gpu.kernel_names import KernelName
from fusetui.text.figures import count, duration, percent, plural
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.layout.devices import gpu_activity
from fusetui.trace.model.arrays import (
    NO_ROW,
    Flags,
    Int64s,
    Rows,
    distinct,
    heaviest_id,
)
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import FOREVER, Cover, joined, union, without
from fusetui.trace.model.op_names import stem
from fusetui.trace.model.report import recorded_with

WORDS_OF_ACTIVITIES: Final = {
    ThreadActivity.CALL: "in runtime calls",
    ThreadActivity.OP: "in ops",
    ThreadActivity.PYTHON: "in Python functions",
    ThreadActivity.ANNOTATION: "in annotations outside ops",
    ThreadActivity.NOTHING: "outside recorded events",
}
"""How a sentence says what the CPU did."""
MAX_KINDS_NAMED: Final = 3
"""How many activities of the CPU a sentence names."""
MIN_SHARE_TOLD: Final = 0.01
"""A cause that is not counted is reported from this share of the span on."""
UNEXPLAINING_ACTIVITIES: Final = (ThreadActivity.ANNOTATION, ThreadActivity.NOTHING)
"""Activities from which one does not learn what the CPU did."""
PUT_ANNOTATIONS: Final = "{}() around parts of the step."
"""The remedy when nothing within an annotation was recorded for most of the time."""
PREPARE_REPLAYS: Final = (
    "Prepare the next replay while the GPU works (SGLang's overlap scheduler, vLLM's "
    "--async-scheduling). Capture the work that still runs between replays, such as "
    "sampling and copies. Graphs already replay most of the GPU work."
)
"""The remedy where graphs launch most of the GPU's work."""
AS_GRAPHS: Final = (
    '{graphs:torch.compile(mode="reduce-overhead") or torch.cuda.graph() to replay the launches'
    "|nvidia:torch.cuda.graph() to replay the launches|:torch.compile to fuse kernels}"
)
"""How to replay launches instead of making them, by what the device can."""
RECORD_LATER_STEPS: Final = (
    "First, record later steps to see whether the delay remains. Then"
)
"""What to do before anything else where most of the span is warm-up."""
FEWER_LAUNCHES: Final = (
    "Larger batches also reduce the number of launches per sample"
    "{training:, and fused optimizers reduce the number per step}."
)
"""What helps everywhere."""


@Rule(
    remedy="Use {serving:vLLM without --enforce-eager or SGLang without --disable-cuda-graph, "
    f"to replay the launches as graphs|{AS_GRAPHS[1:]}. {FEWER_LAUNCHES}",
    thresholds={"least_share": MIN_SHARE_CPU_BOUND},
    by_launches=True,
)
def host_bound(facts: Facts) -> Iterator[Claim]:
    """Report how long the GPU waits because the CPU launches too late.

    At stake is the time from the begin of each gap until the call begins that launches
    the next work. Only time counts in which the CPU neither waits nor allocates and
    that no other rule explains (Facts.late_activity_ns). Gaps in which the CPU does
    other work are left to the rule cpu-work.

    Nothing is claimed if there is no such time. Where the GPU waits for less than
    MIN_SHARE_CPU_BOUND of the span, the claim is marked as little and has no text.
    """
    is_counted = ~facts.has_other_cpu_work & ~facts.is_set_up_gap
    late_ns_of_gap = facts.late_ns[is_counted]
    ns_of_activity = facts.late_activity_ns[:, is_counted].sum(axis=1)
    at_stake_ns = int(late_ns_of_gap.sum())
    if at_stake_ns <= 0:
        return

    if not facts.is_cpu_bound:
        # No finding, but its time is among what lies below the thresholds.
        yield Claim(text="", at_stake_ns=at_stake_ns, is_little=True)
        return

    claimed_by_others = joined(facts.explained_time, _find_other_work(facts))
    free_time = without(_find_time_that_counts(facts), claimed_by_others)
    recording_remedy = choose_recording_remedy(facts, ns_of_activity)

    yield Claim(
        text=f"The GPU waits {format_share_of_span(facts, at_stake_ns)} for the CPU to launch the next "
        f"kernel{describe_excluded_causes(facts)}. The CPU spends "
        f"{describe_activities(facts, ns_of_activity, is_counted)}.",
        at_stake_ns=at_stake_ns,
        wanted=FreeThreadTime(free_time),
        rows=choose_heaviest_rows(facts.gaps.launch[is_counted], late_ns_of_gap),
        remedy=recording_remedy or _choose_host_bound_remedy(facts),
        why_likely=explain_uncertainty(facts),
    )


def _choose_host_bound_remedy(facts: Facts) -> str | None:
    """Choose what to do about late launches; None for the remedy of the rule.

    Where most of the span is warm-up, it says to record later steps first: the
    remaining delay may be part of the start of the program.
    """
    remedy = (
        PREPARE_REPLAYS if facts.is_mostly_replayed else _compose_obstacle_remedy(facts)
    )
    if is_mostly_warm_up(facts):
        later_remedy = remedy or host_bound.remedy
        return f"{RECORD_LATER_STEPS} {later_remedy[0].lower()}{later_remedy[1:]}"
    return remedy


def _compose_obstacle_remedy(facts: Facts) -> str | None:
    """Compose the advice to remove what a CUDA graph cannot contain, and then to use
    one.

    Such an obstacle is a data loader or a wait for the device between the launches.
    Returns None where there is no obstacle, or where graphs are no remedy. They are
    none for a server, which captures the model alone.
    """
    tags = find_tags(facts)
    has_graphs = "graphs" in tags or "nvidia" in tags
    if "serving" in tags or not has_graphs:
        return None

    obstacle = find_graph_obstacle(facts)
    if obstacle is None:
        return None

    where = _describe_obstacle_place(obstacle)
    if not obstacle.name:
        return (
            f"Move the data loader, which fetches a batch {where}, out of the "
            f"captured part. Then use {AS_GRAPHS} from one batch to the next. "
            f"{FEWER_LAUNCHES}"
        )
    return (
        f"Remove the wait in {obstacle.name} {where}, because a graph cannot "
        f"contain it. Then use {AS_GRAPHS}. {FEWER_LAUNCHES}"
    )


def _describe_obstacle_place(obstacle: GraphObstacle) -> str:
    """Say where an obstacle lies: `between the launches in 3 of 10 steps`.

    If it lies in all steps, the text ends with `in each of 10 steps`. Without steps, or
    with a single one, it is only `between the launches`.
    """
    where = "between the launches"
    if 0 < obstacle.steps < obstacle.of_steps:
        all_steps = plural(obstacle.of_steps, "step")
        return f"{where} in {count(obstacle.steps)} of {all_steps}"
    if obstacle.steps > 1:
        return f"{where} in each of {plural(obstacle.steps, 'step')}"

    return where


def _find_time_that_counts(facts: Facts) -> Cover:
    """Return the time in which a faster CPU would help, in ns of the file.

    With steps, this is all of the time. Otherwise it goes from the first kernel, or the
    first GPU event if there is no kernel, to the end of the last GPU event. What the
    program does outside of that delays no GPU work.
    """
    if len(facts.steps):
        return Cover(np.array([-FOREVER]), np.array([FOREVER]))

    trace = facts.trace
    events = facts.gpu_rows
    kernels = events[trace.role[events] == Role.KERNEL]
    first_work = kernels if len(kernels) else events
    begin_ns = trace.start[first_work].min(keepdims=True)
    end_ns = trace.end[events].max(keepdims=True)

    return Cover(begin_ns, end_ns)


def describe_activities(facts: Facts, ns_of_activity: Int64s, is_counted: Flags) -> str:
    """Describe what the CPU did in some gaps, and in which modules.

    An example is `60 us in ops, mostly aten::add (3 x, 40 us), and 15 us outside
    recorded events`.

    Args:
        ns_of_activity: The time of each ThreadActivity in these gaps, of which the
            longest are described.
        is_counted: Which gaps they are; one flag per gap.
    """
    words = _list_activity_words(facts.trace)
    explained_by_others = facts.explained_time
    slices = find_slices_in_idle_time(facts, is_counted, explained_by_others, LAYERS)

    activities = [activity for activity in words if ns_of_activity[activity]]
    activities.sort(key=lambda activity: -ns_of_activity[activity])

    texts = []
    for activity in activities[:MAX_KINDS_NAMED]:
        activity_ns = int(ns_of_activity[activity])
        length = duration(activity_ns)
        names = _name_longest_slices(facts, activity, activity_ns, slices)
        texts.append(f"{length} {words[activity]}{names}")

    modules = _name_longest_modules(facts, slices)
    if len(texts) == 2:
        comma = "," if "," in texts[0] else ""
        return f"{texts[0]}{comma} and {texts[1]}{modules}"

    if len(texts) > 1:
        texts[-1] = f"and {texts[-1]}"
    return "; ".join(texts) + modules


def _list_activity_words(trace: Trace) -> dict[ThreadActivity, str]:
    """Return how a sentence names each activity of the CPU, such as `in ops`.

    In a trace without ops, annotations are `in annotations` instead of `in annotations
    outside ops`.
    """
    words = dict(WORDS_OF_ACTIVITIES)
    has_ops = (trace.role == Role.OP).any()
    if not has_ops:
        words[ThreadActivity.ANNOTATION] = "in annotations"

    return words


def _name_longest_slices(
    facts: Facts, activity: ThreadActivity, activity_ns: int, slices: SliceTimes
) -> str:
    """Name the slices with most of the time of one activity.

    The text is `, mostly NAME` for a name with more than half of the time, else `, such
    as NAME and NAME`. It is "" without a considerable name.

    Args:
        activity: The activity.
        activity_ns: Its time.
        slices: Slices of all activities.
    """
    is_of_activity = facts.accounts.kinds[slices.rows] == activity
    all_ns = int(slices.ns.sum())
    names = rank_delaying_names(
        facts.trace, slices.select(is_of_activity), make_grouping_label, all_ns
    )
    if not names:
        return ""

    longest = names[0]
    if 2 * longest.ns > activity_ns:
        return f", mostly {longest.text}"
    return f", such as {' and '.join(name.text for name in names)}"


def _name_longest_modules(facts: Facts, slices: SliceTimes) -> str:
    """Name the modules with the most of some time, as a sentence; "" without modules.

    The text is `. The module with the largest share is Attention (3 x, 2 ms)`. Each module
    counts without what lies in modules inside it.

    Args:
        slices: The time, by the slices that it was spent in.
    """
    modules = facts.kernels.origins.modules
    module_rows = modules.rows_at(modules.around(slices.rows)).astype(np.intp)
    module_times = SliceTimes(rows=module_rows, ns=slices.ns)
    has_module = module_rows != NO_ROW
    all_ns = int(slices.ns.sum())
    names = rank_delaying_names(
        facts.trace, module_times.select(has_module), format_module, all_ns
    )
    if not names:
        return ""

    modules_are = "module with the largest share is"
    if len(names) > 1:
        modules_are = "modules with the largest shares are"
    return f". The {modules_are} {' and '.join(name.text for name in names)}"


def choose_recording_remedy(facts: Facts, ns_of_activity: Int64s) -> str | None:
    """Say how to record what the CPU does in the gaps, if most of it is unknown.

    Args:
        ns_of_activity: The time of each ThreadActivity in the gaps.

    Returns:
        The advice. None if at most half of the time is of UNEXPLAINING_ACTIVITIES, which
            do not tell what the CPU did.
    """
    unseen_ns = sum(
        int(ns_of_activity[activity]) for activity in UNEXPLAINING_ACTIVITIES
    )
    if 2 * unseen_ns <= int(ns_of_activity.sum()):
        return None

    writer = facts.trace.report.writer
    marks = PUT_ANNOTATIONS.format(recorded_with("record_function", writer))
    if facts.has_stacks:
        return f"To see what the CPU does, put {marks}"
    if writer != "nsys" and not _has_cpu_activity(facts.trace):
        activities = f"[{CPU_ACTIVITY}, {gpu_activity(facts.trace) or GPU_ACTIVITY}]"
        return (
            f"To see what the CPU does, record it too with activities={activities}, "
            "and with_stack=True for Python frames."
        )

    return (
        f"To see what the CPU does, {'use' if writer == 'nsys' else 'set'} "
        f"{recorded_with('with_stack=True', writer)}, or put {marks}"
    )


CPU_ACTIVITY: Final = "ProfilerActivity.CPU"
GPU_ACTIVITY: Final = "ProfilerActivity.CUDA"


def _has_cpu_activity(trace: Trace) -> bool:
    """Whether anything was recorded that torch.profiler records of the CPU alone.

    Without that activity, with_stack=True records nothing either.
    """
    roles = (Role.OP, Role.PYTHON, Role.ANNOTATION)
    return bool(np.isin(trace.role, roles).any())


def describe_excluded_causes(facts: Facts) -> str:
    """Say what the figures of host-bound and cpu-work leave out.

    The text is `, excluding the data loader and the warm-up`. It is "" where each
    cause takes less than MIN_SHARE_TOLD of the span.
    """
    set_up_ns = int(facts.late_activity_ns[:, facts.is_set_up_gap].sum())
    ns_of_cause = {
        "the data loader": facts.measure_waits_during(facts.loading_time),
        "compilation": facts.measure_waits_during(facts.compiling_time),
        "the warm-up": facts.measure_waits_during(facts.warm_up_time),
        "setup before the first kernel": set_up_ns,
    }
    least_ns = MIN_SHARE_TOLD * facts.span_ns
    causes = [cause for cause, ns in ns_of_cause.items() if ns > least_ns]

    if not causes:
        return ""
    if len(causes) == 1:
        return f", excluding {causes[0]}"
    return f", excluding {', '.join(causes[:-1])} and {causes[-1]}"


def _find_other_work(facts: Facts) -> Cover:
    """Return the time of the gaps of cpu-work until the next launch, in ns of the file."""
    gaps = facts.gaps
    has_other_work = facts.has_other_cpu_work
    return union(gaps.begin[has_other_work], gaps.call_begin[has_other_work])


def _find_allocating_time(facts: Facts) -> Cover:
    """Return when a thread that launches allocates or frees memory, in ns of the file."""
    calls = np.flatnonzero(facts.accounts.kinds == ThreadActivity.ALLOC)
    return facts.cover_launching_threads(calls)


@Rule(
    remedy="Do this work ahead (in data loader workers, or in a thread while the GPU "
    "runs) or on the GPU. Replaying launches as graphs does not help here, because "
    "the CPU launches nothing during this time.",
    thresholds={
        "work_ns": WORK_NS,
        "slice_ns": SLICE_NS,
        "long_work_ns": LONG_WORK_NS,
        "computes_ns": COMPUTES_NS,
        "computes_share": COMPUTES_SHARE,
    },
    by_launches=True,
)
def cpu_work(facts: Facts) -> Iterator[Claim]:
    """Report how long the GPU waits while the CPU does other work than launching.

    At stake is the time of these gaps (Facts.has_other_cpu_work) until the next launch,
    without what Facts.late_activity_ns leaves out.
    """
    is_counted = facts.has_other_cpu_work
    late_ns_of_gap = facts.late_ns[is_counted]
    ns_of_activity = facts.late_activity_ns[:, is_counted].sum(axis=1)
    at_stake_ns = int(late_ns_of_gap.sum())
    if not at_stake_ns:
        return

    gaps = plural(int(is_counted.sum()), "gap")
    all_are_long = bool((late_ns_of_gap > WORK_NS).all())
    longer = f" of more than {duration(WORK_NS)}" if all_are_long else ""
    computing_remedy = _choose_computing_remedy(facts, at_stake_ns)
    claimed_by_others = joined(facts.explained_time, _find_allocating_time(facts))
    free_time = without(_find_other_work(facts), claimed_by_others)

    yield Claim(
        text=f"The GPU waits {format_share_of_span(facts, at_stake_ns)} in {gaps}"
        f"{longer} while the CPU launches nothing{describe_excluded_causes(facts)}. "
        f"The CPU spends {describe_activities(facts, ns_of_activity, is_counted)}.",
        at_stake_ns=at_stake_ns,
        wanted=FreeThreadTime(free_time),
        rows=choose_heaviest_rows(facts.gaps.launch[is_counted], late_ns_of_gap),
        remedy=computing_remedy or choose_recording_remedy(facts, ns_of_activity),
        why_likely=explain_uncertainty(facts),
    )


NO_LAUNCHES: Final = (
    "Replaying launches as graphs does not help here, because the "
    "CPU launches nothing during this time."
)
PLAIN_NAME: Final = lazy_pattern(r"[A-Za-z0-9_:.]{1,100}")
"""Matches names that may be part of a remedy, in which braces have a meaning."""


def _choose_computing_remedy(facts: Facts, at_stake_ns: int) -> str | None:
    """Say what to do about the op that computes longest on the CPU while the GPU waits.

    Args:
        at_stake_ns: The time at stake in the finding.

    Returns:
        None if less than COMPUTES_SHARE of that time is computing on the CPU, or if no
            such op was recorded in it.
    """
    computing_ns = int(facts.computing_ns[facts.has_other_cpu_work].sum())
    if computing_ns < COMPUTES_SHARE * at_stake_ns:
        return None

    slices = find_slices_in_idle_time(
        facts, facts.has_other_cpu_work, facts.explained_time, LAYERS
    )
    computes = np.isin(slices.rows, find_cpu_compute_ops(facts.trace))
    if not computes.any():
        return None

    computing = slices.select(computes)
    longest_name = heaviest_id(facts.trace.name[computing.rows], computing.ns)
    op = facts.trace.names[longest_name]

    return f"{advise_against_cpu_op(op)} {NO_LAUNCHES}"


def advise_against_cpu_op(op: str) -> str:
    """Say how to avoid that an op computes on the CPU, in two sentences.

    An op that creates a tensor should create it on the GPU. Any other op should find
    its inputs there. The text has alternatives in braces, from which the vendor of the
    GPU selects.

    Args:
        op: The name of the op, such as `aten::randn`.
    """
    subject = op if PLAIN_NAME.fullmatch(op) else "the op"
    device = "{intel:xpu|:cuda}"
    if stem(op) in CREATES:
        how = (
            "Create the tensor on the GPU, for example with torch.randn(..., "
            f'device="{device}")'
        )
    else:
        how = (
            f'Keep the inputs of {subject} on the GPU (.to("{device}")) '
            "instead of in host memory"
        )

    return f"{how}. In this trace, {subject} runs on the CPU."


SLOW_NS: Final = LONG_NS
"""A launch call that takes longer than this is slow."""


@Rule(
    remedy="Check whether slow launch calls recur at the same place. Possible causes are "
    "allocation inside the call, a full launch queue, or the OS preempting "
    "the thread.",
    thresholds={"slow_ns": SLOW_NS},
    by_launches=True,
)
def slow_launches(facts: Facts) -> Iterator[Claim]:
    """Report how long the GPU waits inside launch calls of more than SLOW_NS.

    The warm-up and launches of graphs do not count.
    """
    gaps = facts.gaps
    warm_up_ns = facts.warm_up_time.within(gaps.call_begin, gaps.call_end)
    waited_ns = gaps.add_up_reasons("launch_call") - warm_up_ns
    is_slow = _ends_with_slow_launch(facts) & (waited_ns > 0)
    is_slow &= ~mark_graph_calls(facts.trace)[gaps.launch]

    slow_ns = waited_ns[is_slow]
    at_stake_ns = int(slow_ns.sum())
    if not at_stake_ns:
        return

    calls = gaps.launch[is_slow]
    heaviest = choose_heaviest_rows(calls, slow_ns)
    calls_text = _describe_slow_calls(facts.trace, calls.astype(np.intp))

    yield Claim(
        text=f"The GPU waits {format_share_of_span(facts, at_stake_ns)} inside {calls_text}.",
        at_stake_ns=at_stake_ns,
        wanted=ReducedDurations(calls.astype(np.intp), slow_ns),
        rows=heaviest,
    )


def _describe_slow_calls(trace: Trace, calls: Rows) -> str:
    """Describe slow launch calls: `one launch call of 2 ms, NAME`.

    Several are `3 launch calls of more than 100 us, up to 2 ms (mostly NAME)`.

    Args:
        calls: The calls, as rows of the trace.
    """
    names = name_most_frequent(trace, calls)
    longest = duration(int(trace.dur[calls].max()))
    if len(calls) == 1:
        return f"one launch call of {longest}, {names}"

    return (
        f"{count(len(calls))} launch calls of more than {duration(SLOW_NS)}, up to {longest} "
        f"({names})"
    )


def _ends_with_slow_launch(facts: Facts) -> Flags:
    """Tell which gaps end with a launch call of more than SLOW_NS; one flag per gap."""
    launch = facts.gaps.launch
    takes_long = facts.trace.dur[launch] > SLOW_NS
    is_slow: Flags = facts.gaps.has_launch & takes_long
    return is_slow


SHORT_KERNEL_NS: Final = 5_000
"""A kernel that takes less time than this is short."""
MIN_KERNELS: Final = 20
"""With fewer kernels, their number is no problem."""
MIN_SHARE_OF_KERNELS: Final = 0.5
"""Short kernels are worth a note from this share of all kernels on."""
MIN_SHARE_OF_SPAN: Final = 0.1
"""They must also take this share of the span, with the gaps between two of them."""

REPLAYED_ALREADY: Final = (
    "Fuse pointwise kernels with each other{compile: (torch.compile)} or with "
    "adjacent matrix products. Graphs already launch these kernels."
)
"""The remedy for short kernels where graphs launch most of the GPU's work."""


@Rule(
    remedy="{compile:Use torch.compile to fuse pointwise kernels|:Use fused layers "
    "instead of pointwise kernels}{training:, and foreach or fused optimizers "
    "to replace many launches}.",
    thresholds={
        "short_ns": SHORT_KERNEL_NS,
        "fewest": MIN_KERNELS,
        "least_count": MIN_SHARE_OF_KERNELS,
        "least_time": MIN_SHARE_OF_SPAN,
    },
    of_kernels=True,
)
def small_kernels(facts: Facts) -> Iterator[Claim]:
    """Note that many kernels are shorter than SHORT_KERNEL_NS.

    They must be MIN_SHARE_OF_KERNELS of all kernels, and take MIN_SHARE_OF_SPAN of the
    span together with the gaps between two of them. Gaps that end with a slow launch
    belong to slow-launches.
    """
    trace = facts.trace
    kernels = facts.kernels.rows[facts.kernels.is_kernel]
    short = kernels[trace.dur[kernels] < SHORT_KERNEL_NS]
    if len(kernels) < MIN_KERNELS or len(short) < MIN_SHARE_OF_KERNELS * len(kernels):
        return

    kernels_ns = int(trace.dur[short].sum())
    with_gaps_ns = kernels_ns + _add_up_gaps_between(facts, short)
    if with_gaps_ns < MIN_SHARE_OF_SPAN * facts.span_ns:
        return

    share = percent(len(short), len(kernels))
    yield Claim(
        text=f"{share} of the {plural(len(kernels), 'kernel')} are "
        f"shorter than {duration(SHORT_KERNEL_NS)}. These kernels and the gaps between them take "
        f"{format_share_of_span(facts, with_gaps_ns)}.",
        rows=choose_heaviest_rows(short, trace.dur[short]),
        remedy=REPLAYED_ALREADY if facts.is_mostly_replayed else None,
    )


def _add_up_gaps_between(facts: Facts, kernels: Rows) -> int:
    """Add up the gaps between two of some kernels, in ns.

    Gaps that end with a slow launch do not count.
    """
    gaps = facts.gaps
    is_between = np.isin(gaps.event, kernels) & np.isin(gaps.before, kernels)
    is_between &= ~_ends_with_slow_launch(facts)
    gap_ns = gaps.end - gaps.begin

    return int(gap_ns[is_between].sum())


LONGEST_SWITCH_NS: Final = 10_000
"""A longer gap is no switch from kernel to kernel."""


@Rule(
    needs=("launch calls",),
    remedy="Use fewer, larger kernels by fusing them{compile:, for example with torch.compile}.{pdl: On "
    "Hopper and later, programmatic dependent launch hides the switch.}",
    thresholds={"longest_ns": LONGEST_SWITCH_NS},
    of_kernels=True,
)
def kernel_switches(facts: Facts) -> Iterator[Claim]:
    """Report how long the GPU is idle in short gaps before work that is queued.

    That work was launched before the gap began, so the gap is the price of switching
    from one kernel to the next. Gaps longer than LONGEST_SWITCH_NS do not count: they
    have another cause.
    """
    gaps = facts.gaps
    waited_ns = gaps.add_up_reasons("queued", "graph")
    is_short = gaps.end - gaps.begin <= LONGEST_SWITCH_NS
    is_launched_before = gaps.call_begin <= gaps.begin
    is_switch = is_short & is_launched_before & (waited_ns > 0)
    at_stake_ns = int(waited_ns[is_switch].sum())
    if not at_stake_ns:
        return

    switches = int(np.count_nonzero(is_switch))
    mean_ns = round(at_stake_ns / switches)

    yield Claim(
        text=f"Switching between kernels takes {format_share_of_span(facts, at_stake_ns)}: "
        f"{plural(switches, 'gap')} of at most {duration(LONGEST_SWITCH_NS)} before "
        f"queued work, {duration(mean_ns)} on average.",
        at_stake_ns=at_stake_ns,
        rows=choose_heaviest_rows(gaps.event[is_switch], waited_ns[is_switch]),
    )


MIN_OPTIMIZER_KERNELS: Final = 50
"""One call of an optimizer with fewer kernels is no problem."""
SHORT_OPTIMIZER_KERNEL_NS: Final = 20_000
"""Kernels of an optimizer are short if they take no more than this on average."""
LEAST_SHARE: Final = 0.02
"""From this share of the span on, an optimizer is worth a note, with the gaps in it."""


@Rule(
    needs=("launch calls", "CPU ops", "annotations"),
    remedy="Use optimizer(..., {torch2:fused=True), or foreach=True if there is no fused version"
    "|:foreach=True)}.",
    thresholds={
        "fewest": MIN_OPTIMIZER_KERNELS,
        "short_ns": SHORT_OPTIMIZER_KERNEL_NS,
        "least_share": LEAST_SHARE,
    },
    of_kernels=True,
)
def optimizer_launches(facts: Facts) -> Iterator[Claim]:
    """Note optimizers that launch kernels for one parameter after another.

    They launch at least MIN_OPTIMIZER_KERNELS such kernels in a call, which are most of
    all kernels of optimizers and short. With the gaps before them they must take
    LEAST_SHARE of the span.
    """
    kernels = facts.kernels
    of_optimizer = kernels.is_kernel & kernels.is_of_optimizer
    of_one_parameter = of_optimizer & ~kernels.match_names(_takes_many_parameters)

    # One region of the program (an annotation or module) is one call of an optimizer.
    calls = len(distinct(kernels.module_row[of_one_parameter]))
    kernel_count = int(of_one_parameter.sum())
    if kernel_count < MIN_OPTIMIZER_KERNELS * max(1, calls):
        return
    if 2 * kernel_count < np.count_nonzero(of_optimizer):
        return

    taken_ns = kernels.add_up_ns(of_one_parameter)
    idle_ns = _add_up_gaps_before(facts, kernels.rows[of_one_parameter])
    with_gaps_ns = taken_ns + idle_ns
    are_short = taken_ns <= SHORT_OPTIMIZER_KERNEL_NS * kernel_count
    if not are_short or with_gaps_ns < LEAST_SHARE * facts.span_ns:
        return

    kernels_per_call = count(round(kernel_count / calls))
    yield Claim(
        text=f"Each optimizer call launches {kernels_per_call} kernels, one parameter "
        f"at a time, of {duration(round(taken_ns / kernel_count))} on average. "
        "Including the gaps before them, they take "
        f"{format_share_of_span(facts, with_gaps_ns)}, {percent(idle_ns, with_gaps_ns)} "
        "of it idle.",
        kernels=of_one_parameter,
    )


def _add_up_gaps_before(facts: Facts, events: Rows) -> int:
    """Add up the gaps that end with one of some GPU events, in ns."""
    gaps = facts.gaps
    ends_with_event = np.isin(gaps.event, events)
    gap_ns = gaps.end - gaps.begin
    return int(gap_ns[ends_with_event].sum())


def _takes_many_parameters(kernel: KernelName) -> bool:
    """Whether a kernel is of a fused or foreach optimizer, by its name."""
    return kernel.op in ("foreach", "optimizer") or "multi_tensor" in kernel.name
