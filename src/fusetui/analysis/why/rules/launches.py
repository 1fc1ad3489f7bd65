"""The CPU does not launch fast enough, does something else, or is held by the launch
calls; kernels so short or so many that starting them costs as much as running them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from fusetui.analysis.questions.launches import graph_calls
from fusetui.analysis.why.causes import held, holders, label, module_text
from fusetui.analysis.why.cpu_compute import (
    COMPUTES_NS,
    COMPUTES_SHARE,
    CREATES,
    cpu_compute_rows,
)
from fusetui.analysis.why.facts import CPU_BOUND, LONG_WORK_NS, SLICE_NS, WORK_NS, Facts
from fusetui.analysis.why.graph_obstacles import graph_obstacle
from fusetui.analysis.why.kernels import the_most
from fusetui.analysis.why.model import FreeThreadTime, ReducedDurations
from fusetui.analysis.why.remedies import tags_of
from fusetui.analysis.why.rule import (
    Claim,
    Rule,
    is_mostly_warm_up,
    of_span,
    why_likely,
)
from fusetui.analysis.why.thread_activity import LAYERS, ThreadActivity
from fusetui.analysis.why.warming import LONG_NS
from fusetui.gpu.kernel_names import KernelName
from fusetui.text.figures import count, duration, percent, plural
from fusetui.text.patterns import lazy_pattern
from fusetui.text.printable import printable
from fusetui.trace.layout.devices import gpu_activity
from fusetui.trace.model.arrays import Flags, Int64s, Rows, distinct
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import FOREVER, Cover, joined, union, without
from fusetui.trace.model.op_names import stem
from fusetui.trace.model.report import recorded_with

WORDS: Final = {
    ThreadActivity.CALL: "in runtime calls",
    ThreadActivity.OP: "in ops",
    ThreadActivity.PYTHON: "in Python",
    ThreadActivity.ANNOTATION: "in annotations, outside of ops",
    ThreadActivity.NOTHING: "with nothing recorded",
}
MAX_KINDS_NAMED: Final = 3
MIN_SHARE_TOLD: Final = 0.01
"""Of the span; that less is not counted is not told."""
UNSEEN: Final = (ThreadActivity.ANNOTATION, ThreadActivity.NOTHING)
"""Where what the CPU did is not known."""
MARKS: Final = "{}() around parts of the step, to see what the CPU did."
"""The remedy when nothing within an annotation was recorded for most of the time."""
REPLAYED: Final = (
    "Prepare the next replay while the GPU works (SGLang's overlap scheduler, vLLM's "
    "--async-scheduling). Capture what still runs between replays, such as sampling and copies. "
    "Graphs replay most of the GPU's work already."
)
"""The remedy where graphs launch most of the GPU's work."""
AS_GRAPHS: Final = (
    '{graphs:torch.compile(mode="reduce-overhead") or torch.cuda.graph() replays the launches'
    "|nvidia:torch.cuda.graph() replays the launches|:torch.compile fuses kernels}"
)
LATER_FIRST: Final = "Record later steps first, to see whether it stays; then"
FEWER_LAUNCHES: Final = (
    "larger batches{training: and fused optimizers} need fewer launches."
)


@Rule(
    remedy="{serving:vLLM without --enforce-eager and SGLang without --disable-cuda-graph replay "
    f"the launches as graphs|{AS_GRAPHS[1:]}; {FEWER_LAUNCHES}",
    thresholds={"least_share": CPU_BOUND},
    by_launches=True,
)
def host_bound(facts: Facts) -> Iterator[Claim]:
    """One claim: how long the GPU waits because the CPU launches too late. At stake is
    the time from the beginning of each gap until the call begins that launches the next
    work, as far as the CPU neither waits nor allocates in it, and no other rule
    explains it (Facts.late). Gaps in which the CPU does other work are those of
    cpu-work. The claim is little where the GPU is not late by CPU_BOUND of the span."""
    is_counted = ~facts.busy_cpu & ~facts.set_up
    late_ns = facts.late[:, is_counted]  # [ThreadActivity, counted gaps]
    ns_of_activity = late_ns.sum(axis=1)
    ns_of_gap = late_ns.sum(axis=0)
    at_stake_ns = int(ns_of_gap.sum())
    if at_stake_ns <= 0:
        return
    if not facts.is_late:
        # no finding, but its time is among what lies below the thresholds
        yield Claim(text="", at_stake_ns=at_stake_ns, is_little=True)
        return
    claimed_by_others = joined(facts.explained, _busy(facts))
    yield Claim(
        text=f"The GPU waits {of_span(facts, at_stake_ns)} for the CPU to launch the next kernel"
        f"{not_counted(facts)}: {doing(facts, ns_of_activity, is_counted)}.",
        at_stake_ns=at_stake_ns,
        wanted=FreeThreadTime(without(_time_that_counts(facts), claimed_by_others)),
        rows=the_most(facts.idle.launch[is_counted], ns_of_gap),
        remedy=unseen_remedy(facts, ns_of_activity) or _remedy(facts),
        why_likely=why_likely(facts),
    )


def _remedy(facts: Facts) -> str | None:
    """What to do about late launches, where that is not the remedy of the rule (None).
    Where most of the span is warm-up, it says to record later steps first: what is left
    may be part of the start."""
    remedy = REPLAYED if facts.is_replayed else _obstacle_first(facts)
    if is_mostly_warm_up(facts):
        return f"{LATER_FIRST} {remedy or host_bound.remedy}"
    return remedy


def _obstacle_first(facts: Facts) -> str | None:
    """The remedy where what no graph can contain lies between the launches; None where
    nothing does, or graphs are no remedy. A server captures the model alone."""
    tags = tags_of(facts)
    if "serving" in tags or not tags & {"graphs", "nvidia"}:
        return None
    obstacle = graph_obstacle(facts)
    if obstacle is None:
        return None
    where = "between the launches"
    if 0 < obstacle.steps < obstacle.of_steps:
        where += f" in {count(obstacle.steps)} of {plural(obstacle.of_steps, 'step')}"
    elif obstacle.steps > 1:
        where += f" in each of {plural(obstacle.steps, 'step')}"
    if not obstacle.name:
        return (
            f"Move the data loader, which fetches a batch {where}, out of the captured part. "
            f"Then {AS_GRAPHS} from one batch to the next; {FEWER_LAUNCHES}"
        )
    return (
        f"Remove the wait in {obstacle.name} {where}, which a graph cannot contain. "
        f"Then {AS_GRAPHS}; {FEWER_LAUNCHES}"
    )


def _time_that_counts(facts: Facts) -> Cover:
    """The time that the worth is about: all of it where there are steps; else from the
    first kernel (the first GPU event where there is none) to the end of the GPUs' work,
    because what the program does before and after that delays none of it."""
    if len(facts.spans):
        return Cover(np.array([-FOREVER]), np.array([FOREVER]))
    trace = facts.trace
    events = facts.gpu_rows
    kernels = events[trace.role[events] == Role.KERNEL]
    first = kernels if len(kernels) else events
    begin_ns = trace.start[first].min(keepdims=True)
    end_ns = trace.end[events].max(keepdims=True)
    return Cover(begin_ns, end_ns)


def doing(facts: Facts, ns_of_activity: Int64s, is_counted: Flags) -> str:
    """What the CPU did in some gaps, as text: `60 us in ops, mostly aten::add (3 x, 40
    us); 15 us with nothing recorded`, and the modules with most of it.
    `ns_of_activity`: the time of each ThreadActivity in these gaps, of which the
    longest are told; `is_counted`: which gaps, shape [gaps]."""
    trace = facts.trace
    has_ops = bool((trace.role == Role.OP).any())
    words = WORDS if has_ops else {**WORDS, ThreadActivity.ANNOTATION: "in annotations"}
    present = [activity for activity in words if ns_of_activity[activity]]
    longest_first = sorted(present, key=lambda activity: -ns_of_activity[activity])
    # without what other rules explain
    rows, ns = held(facts, is_counted, facts.explained, LAYERS)
    all_ns = int(ns.sum())
    parts = []
    for activity in longest_first[:MAX_KINDS_NAMED]:
        activity_ns = int(ns_of_activity[activity])
        part = f"{duration(activity_ns)} {words[activity]}"
        of_activity = facts.accounts.kinds[rows] == activity
        names = holders(trace, rows[of_activity], ns[of_activity], label, all_ns)
        if names:
            longest_name, longest_ns = names[0]
            if 2 * longest_ns > activity_ns:
                part += f", mostly {longest_name}"
            else:
                part += f", such as {' and '.join(text for text, _ in names)}"
        parts.append(part)
    return "; ".join(parts) + _longest_modules(facts, rows, ns)


def _longest_modules(facts: Facts, rows: Rows, ns: Int64s) -> str:
    """`. Among modules, longest in Attention (3 x, 2 ms)`: the modules with the most of
    some time, each without what lies in modules inside it; blank without modules.
    `rows` and `ns`: slices, and the time of each."""
    spans = facts.kernels.origins.modules
    around = spans.rows_at(spans.around(rows)).astype(np.intp)
    is_inside = around >= 0
    modules = holders(
        facts.trace, around[is_inside], ns[is_inside], module_text, int(ns.sum())
    )
    if not modules:
        return ""
    return f". Among modules, longest in {' and '.join(text for text, _ in modules)}"


def unseen_remedy(facts: Facts, ns_of_kind: Int64s) -> str | None:
    """How to record what the CPU does in the gaps, if more than half of their time is
    of the kinds UNSEEN; None if it is less. `ns_of_kind`: shape [ThreadActivity]."""
    if 2 * int(ns_of_kind[[*UNSEEN]].sum()) <= int(ns_of_kind.sum()):
        return None
    trace = facts.trace
    form = trace.report.writer
    marks = MARKS.format(recorded_with("record_function", form))
    if facts.has_stacks:
        return f"Put {marks}"
    if form != "nsys" and not _has_cpu_activity(trace):
        activities = f"[{CPU_ACTIVITY}, {gpu_activity(trace) or GPU_ACTIVITY}]"
        return (
            f"Record the CPU too (activities={activities}, with_stack=True for Python frames), to "
            "see what it did."
        )
    return f"Record with {recorded_with('with_stack=True', form)}, or put {marks}"


CPU_ACTIVITY: Final = "ProfilerActivity.CPU"
GPU_ACTIVITY: Final = "ProfilerActivity.CUDA"


def _has_cpu_activity(trace: Trace) -> bool:
    """Whether anything was recorded that torch.profiler records of the CPU alone.
    Without that activity with_stack=True records nothing either."""
    roles = (Role.OP, Role.PYTHON, Role.ANNOTATION)
    return bool(np.isin(trace.role, roles).any())


def not_counted(facts: Facts) -> str:
    """What the figures of host-bound and cpu-work leave out: `, the data loader and the
    warm-up not counted`; blank where each cause takes less than MIN_SHARE_TOLD of the
    span."""
    cover_of_cause = {
        "the data loader": facts.loading,
        "compilation": facts.compiling,
        "the warm-up": facts.warming,
    }
    least_ns = MIN_SHARE_TOLD * facts.span_ns
    causes = []
    for cause, cover in cover_of_cause.items():
        if facts.late_under(cover) > least_ns:
            causes.append(cause)
    if int(facts.late[:, facts.set_up].sum()) > least_ns:
        causes.append("the set-up before the first kernel")
    if not causes:
        return ""
    if len(causes) == 1:
        return f", {causes[0]} not counted"
    return f", {', '.join(causes[:-1])} and {causes[-1]} not counted"


def _busy(facts: Facts) -> Cover:
    """The time from the beginning of each gap of cpu-work until the call begins that
    launches the next work (ns of the file)."""
    idle = facts.idle
    return union(idle.begin[facts.busy_cpu], idle.called[facts.busy_cpu])


def _allocating(facts: Facts) -> Cover:
    """The time in which a thread that launches allocates or frees memory (ns of the
    file)."""
    calls = np.flatnonzero(facts.accounts.kinds == ThreadActivity.ALLOC)
    return facts.while_launching(calls)


@Rule(
    remedy="Do this work ahead, in workers of the data loader or in a thread while the GPU runs, "
    "or do it on the GPU. Graphs do not help: nothing is launched meanwhile.",
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
    """One claim: how long the GPU waits while the CPU does other work than to launch
    (Facts.busy_cpu). At stake is the time from the beginning of each of these gaps
    until the call begins that launches the next work, without what Facts.late leaves
    out."""
    gaps = facts.busy_cpu
    ns_of_kind = facts.late[:, gaps].sum(axis=1)
    at_stake_ns = int(ns_of_kind.sum())
    if not at_stake_ns:
        return
    ns_of_gap = facts.late[:, gaps].sum(axis=0)
    are_long = bool((ns_of_gap > WORK_NS).all())
    longer = f" of more than {duration(WORK_NS)}" if are_long else ""
    claimed_by_others = joined(facts.explained, _allocating(facts))
    yield Claim(
        text=f"The GPU waits {of_span(facts, at_stake_ns)} in {plural(int(gaps.sum()), 'gap')}"
        f"{longer} while the CPU launches nothing for it{not_counted(facts)}: "
        f"{doing(facts, ns_of_kind, gaps)}.",
        at_stake_ns=at_stake_ns,
        wanted=FreeThreadTime(without(_busy(facts), claimed_by_others)),
        rows=the_most(facts.idle.launch[gaps], ns_of_gap),
        remedy=_computing_remedy(facts, at_stake_ns)
        or unseen_remedy(facts, ns_of_kind),
        why_likely=why_likely(facts),
    )


NO_LAUNCHES: Final = "Graphs do not help: nothing is launched meanwhile."
PLAIN_NAME: Final = lazy_pattern(r"[A-Za-z0-9_:.]{1,100}")


def _computing_remedy(facts: Facts, at_stake_ns: int) -> str | None:
    """What to do about the op with the most time, where COMPUTES_SHARE of the time at
    stake is computing on the CPU; None where it is less."""
    if int(facts.computing_ns[facts.busy_cpu].sum()) < COMPUTES_SHARE * at_stake_ns:
        return None
    rows, ns = held(facts, facts.busy_cpu, facts.explained, LAYERS)
    computes = np.isin(rows, cpu_compute_rows(facts.trace))
    if not computes.any():
        return None
    ns_of_name = np.bincount(facts.trace.name[rows[computes]], ns[computes])
    name = facts.trace.names[int(ns_of_name.argmax())]
    return f"{instead_of_computing(name)} {NO_LAUNCHES}"


def instead_of_computing(op: str) -> str:
    """What to do about an op that computes on the CPU, in a sentence: create its tensor
    on the device, or keep its inputs there. For a program that uses a GPU."""
    subject = op if PLAIN_NAME.fullmatch(op) else "The op"
    device = "{intel:xpu|:cuda}"
    if stem(op) in CREATES:
        how = f'create the tensor on the device instead, as in torch.randn(..., device="{device}")'
    else:
        how = f'keep its inputs on the GPU (.to("{device}")) instead of in the memory of the host'
    return f"{subject} computes on the CPU: {how}."


SLOW_NS: Final = LONG_NS


@Rule(
    remedy="See whether they recur at the same place: allocation inside the call, a full queue of "
    "another stream, and a CPU that is taken away from the thread look the same.",
    thresholds={"slow_ns": SLOW_NS},
    by_launches=True,
)
def slow_launches(facts: Facts) -> Iterator[Claim]:
    """One claim: how long the GPU waits inside launch calls of more than SLOW_NS, which
    is at stake. The warm-up and launches of graphs do not count."""
    trace = facts.trace
    idle = facts.idle
    warm_up_ns = facts.warming.within(idle.called, idle.returned)
    waited_ns = idle.ns("launch_call") - warm_up_ns
    is_slow = _ends_with_slow_launch(facts) & (waited_ns > 0)
    is_slow &= ~graph_calls(trace)[idle.launch]
    at_stake_ns = int(waited_ns[is_slow].sum())
    if not at_stake_ns:
        return
    calls = idle.launch[is_slow]
    heaviest = the_most(calls, waited_ns[is_slow])
    longest = duration(int(trace.dur[calls].max()))
    name = printable(trace.name_of(heaviest[0]))
    which = f"one launch call of {longest}, {name}"
    if len(calls) > 1:
        which = (
            f"{count(len(calls))} launch calls of more than {duration(SLOW_NS)}, up to {longest}, "
            f"mostly {name}"
        )
    yield Claim(
        text=f"The GPU waits {of_span(facts, at_stake_ns)} inside {which}.",
        at_stake_ns=at_stake_ns,
        wanted=ReducedDurations(calls.astype(np.intp), waited_ns[is_slow]),
        rows=heaviest,
    )


def _ends_with_slow_launch(facts: Facts) -> Flags:
    """Whether each gap ends with a launch call of more than SLOW_NS; shape [gaps]."""
    launch = facts.idle.launch
    is_slow: Flags = (launch >= 0) & (facts.trace.dur[launch] > SLOW_NS)
    return is_slow


SHORT_KERNEL_NS: Final = 5_000
MIN_KERNELS: Final = 20
LEAST_COUNT: Final = 0.5
"""Of all kernels, for the short ones."""
LEAST_TIME: Final = 0.1
"""Of the span: the short kernels, and the gaps between two of them."""

REPLAYED_ALREADY: Final = (
    "Fuse them: pointwise work with itself{compile: (torch.compile)} or with the products beside "
    "it. Graphs launch them already."
)
"""The remedy where graphs launch most of the GPU's work."""


@Rule(
    remedy="{compile:torch.compile fuses|:Fused layers replace} pointwise work{training:; foreach "
    "and fused optimizers replace many launches}.",
    thresholds={
        "short_ns": SHORT_KERNEL_NS,
        "fewest": MIN_KERNELS,
        "least_count": LEAST_COUNT,
        "least_time": LEAST_TIME,
    },
    of_kernels=True,
)
def small_kernels(facts: Facts) -> Iterator[Claim]:
    """One note, if LEAST_COUNT of the kernels are shorter than SHORT_KERNEL_NS, and
    these take LEAST_TIME of the span together with the gaps between two of them. Gaps
    that end with a slow launch are slow-launches' own."""
    trace = facts.trace
    idle = facts.idle
    kernels = facts.kernels.rows[facts.kernels.is_kernel]
    short = kernels[trace.dur[kernels] < SHORT_KERNEL_NS]
    if len(kernels) < MIN_KERNELS or len(short) < LEAST_COUNT * len(kernels):
        return
    is_between = np.isin(idle.event, short) & np.isin(idle.before, short)
    is_between &= ~_ends_with_slow_launch(facts)
    gap_ns = idle.end - idle.begin
    together_ns = int(trace.dur[short].sum() + gap_ns[is_between].sum())
    if together_ns >= LEAST_TIME * facts.span_ns:
        yield Claim(
            text=f"{percent(len(short), len(kernels))} of the {plural(len(kernels), 'kernel')} are "
            f"shorter than {duration(SHORT_KERNEL_NS)}. They and the gaps between them take "
            f"{of_span(facts, together_ns)}.",
            rows=the_most(short, trace.dur[short]),
            remedy=REPLAYED_ALREADY if facts.is_replayed else None,
        )


LONGEST_SWITCH_NS: Final = 10_000
"""A longer gap is no switch from kernel to kernel."""


@Rule(
    needs=("launch calls",),
    remedy="Fewer, larger kernels (fusion{compile:, torch.compile}){pdl:; on Hopper and later "
    "programmatic dependent launch hides the switch}.",
    thresholds={"longest_ns": LONGEST_SWITCH_NS},
    of_kernels=True,
)
def kernel_switches(facts: Facts) -> Iterator[Claim]:
    """One claim: how long the GPU is idle in short gaps before work that was launched
    before the gap began, which is at stake."""
    idle = facts.idle
    waited_ns = idle.ns("queued", "graph")
    is_switch = idle.end - idle.begin <= LONGEST_SWITCH_NS
    is_switch &= (idle.called <= idle.begin) & (waited_ns > 0)
    at_stake_ns = int(waited_ns[is_switch].sum())
    if not at_stake_ns:
        return
    gaps = int(np.count_nonzero(is_switch))
    yield Claim(
        text=f"Switching from kernel to kernel takes {of_span(facts, at_stake_ns)}: "
        f"{plural(gaps, 'gap')} of at most {duration(LONGEST_SWITCH_NS)} before queued work, "
        f"{duration(round(at_stake_ns / gaps))} on average.",
        at_stake_ns=at_stake_ns,
        rows=the_most(idle.event[is_switch], waited_ns[is_switch]),
    )


MIN_OPTIMIZER_KERNELS: Final = 50
"""In one call of an optimizer."""
SHORT_OPTIMIZER_KERNEL_NS: Final = 20_000
"""On average."""
LEAST_SHARE: Final = 0.02
"""Of the span: the kernels, and the gaps before them."""


@Rule(
    needs=("launch calls", "CPU ops", "annotations"),
    remedy="optimizer(..., {torch2:fused=True), or foreach=True if there is no fused one"
    "|:foreach=True)}.",
    thresholds={
        "fewest": MIN_OPTIMIZER_KERNELS,
        "short_ns": SHORT_OPTIMIZER_KERNEL_NS,
        "least_share": LEAST_SHARE,
    },
    of_kernels=True,
)
def optimizer_launches(facts: Facts) -> Iterator[Claim]:
    """One note about optimizers that launch kernels for one parameter after another: at
    least MIN_OPTIMIZER_KERNELS in a call, most of all kernels of optimizers, short
    ones, and LEAST_SHARE of the span together with the gaps before them."""
    kernels = facts.kernels
    of_optimizer = kernels.is_kernel & kernels.in_optimizer
    of_one_parameter = of_optimizer & ~kernels.flags(_takes_many_parameters)
    # one region of the program (an annotation or module) is one call of an optimizer
    calls = len(distinct(kernels.module[of_one_parameter]))
    number = int(of_one_parameter.sum())
    if number < MIN_OPTIMIZER_KERNELS * max(1, calls):
        return
    if 2 * number < np.count_nonzero(of_optimizer):
        return
    idle = facts.idle
    taken_ns = kernels.ns(of_one_parameter)
    ends_with_one = np.isin(idle.event, kernels.rows[of_one_parameter])
    idle_ns = int((idle.end - idle.begin)[ends_with_one].sum())
    together_ns = taken_ns + idle_ns
    are_short = taken_ns <= SHORT_OPTIMIZER_KERNEL_NS * number
    if are_short and together_ns >= LEAST_SHARE * facts.span_ns:
        yield Claim(
            text=f"Each optimizer call launches {count(round(number / calls))} kernels of "
            f"{duration(round(taken_ns / number))} on average, parameter by parameter. With the "
            f"gaps before them, they take {of_span(facts, together_ns)}, "
            f"{percent(idle_ns, together_ns)} of it idle.",
            kernels=of_one_parameter,
        )


def _takes_many_parameters(kernel: KernelName) -> bool:
    """Whether a kernel is of a fused or foreach optimizer, by its name."""
    return kernel.op in ("foreach", "optimizer") or "multi_tensor" in kernel.name
