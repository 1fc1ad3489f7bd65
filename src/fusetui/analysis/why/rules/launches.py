"""The CPU does not launch fast enough, does something else, or is held by the launch
calls; kernels so short or so many that starting them costs as much as running them."""

from __future__ import annotations

from collections.abc import Iterator

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
from fusetui.analysis.why.host import LAYERS, Host
from fusetui.analysis.why.kernels import the_most
from fusetui.analysis.why.model import Hurried, Shorter
from fusetui.analysis.why.remedies import tags_of
from fusetui.analysis.why.rule import (
    Claim,
    Rule,
    is_mostly_warm_up,
    of_span,
    why_likely,
)
from fusetui.analysis.why.warming import LONG_NS
from fusetui.text.figures import count, duration, percent, plural
from fusetui.text.patterns import late
from fusetui.text.printable import printable
from fusetui.trace.layout.devices import gpu_activity
from fusetui.trace.model.arrays import Flags, Int64s, distinct
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import FOREVER, Cover, joined, union
from fusetui.trace.model.intervals import without as without_cover
from fusetui.trace.model.op_names import stem
from fusetui.trace.model.report import recorded_with

WORDS = {
    Host.CALL: "in runtime calls",
    Host.OP: "in ops",
    Host.PYTHON: "in Python",
    Host.ANNOTATION: "in annotations, outside of ops",
    Host.NOTHING: "with nothing recorded",
}
SHOWN = 3  # of the words above
TOLD = 0.01  # of the span; that less is not counted is not told
UNSEEN = (Host.ANNOTATION, Host.NOTHING)  # what the CPU did is not known
MARKS = "{}() around parts of the step, to see what the CPU did."
"""The remedy when nothing within an annotation was recorded for most of the time."""
REPLAYED = (
    "Most of the GPU's work is replayed from graphs already: prepare the next replay meanwhile "
    "(SGLang's overlap scheduler, vLLM's --async-scheduling), and capture what still runs between "
    "replays, such as sampling and copies."
)
"""The remedy where graphs launch most of the GPU's work."""
AS_GRAPHS = (
    '{graphs:torch.compile(mode="reduce-overhead") or torch.cuda.graph() replays the launches'
    "|nvidia:torch.cuda.graph() replays the launches|:torch.compile fuses kernels}"
)
LATER_FIRST = "Record later steps first, to see whether it stays. If it does:"
FEWER_LAUNCHES = "larger batches{training: and fused optimizers} need fewer launches."


@Rule(
    remedy="{serving:vLLM without --enforce-eager and SGLang without --disable-cuda-graph replay "
    f"the launches as graphs|{AS_GRAPHS[1:]}; {FEWER_LAUNCHES}",
    thresholds={"least_share": CPU_BOUND},
    by_launches=True,
)
def host_bound(facts: Facts) -> Iterator[Claim]:
    which = ~facts.busy_cpu & ~facts.set_up
    by_kind = facts.late[:, which].sum(axis=1)
    at_stake = int(by_kind.sum())
    if at_stake <= 0:
        return
    if not facts.is_late:
        yield Claim(text="", at_stake_ns=at_stake, is_little=True)
        return
    yield Claim(
        text=f"The GPU waits {of_span(facts, at_stake)} for the CPU to launch the next kernel"
        f"{without(facts)}: {doing(facts, by_kind, which)}.",
        at_stake_ns=at_stake,
        wanted=Hurried(
            without_cover(_told(facts), joined(facts.explained, _busy(facts)))
        ),
        rows=the_most(facts.idle.launch[which], facts.late[:, which].sum(axis=0)),
        remedy=unseen_remedy(facts, by_kind) or _remedy(facts),
        why_likely=why_likely(facts),
    )


def _remedy(facts: Facts) -> str | None:
    """None for that of the rule. After a start that took most of the time, what is left
    may be part of it."""
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
            f"The data loader fetches a batch {where}, which no graph can contain: {AS_GRAPHS} "
            f"from one batch to the next; {FEWER_LAUNCHES}"
        )
    return (
        f"A graph cannot wait for the GPU, as {obstacle.name} does {where}: take that wait out "
        f"first, then {AS_GRAPHS}; {FEWER_LAUNCHES}"
    )


def _told(facts: Facts) -> Cover:
    """The time that the worth is about: all of it where there are steps; else from the
    first kernel (the first GPU event where there is none) to the end of the GPUs' work,
    because what the program does before and after that delays none of it."""
    if len(facts.spans):
        return Cover(np.array([-FOREVER]), np.array([FOREVER]))
    trace, rows = facts.trace, facts.gpu_rows
    kernels = rows[trace.role[rows] == Role.KERNEL]
    first = kernels if len(kernels) else rows
    return Cover(
        trace.start[first].min(keepdims=True), trace.end[rows].max(keepdims=True)
    )


def doing(facts: Facts, by_kind: Int64s, which: Flags) -> str:
    """`60 us in ops, mostly aten::add (3 x, 40 us), 15 us with nothing recorded`, and
    modules."""
    has_ops = bool((facts.trace.role == Role.OP).any())
    words = WORDS if has_ops else {**WORDS, Host.ANNOTATION: "in annotations"}
    kinds = sorted(
        (kind for kind in words if by_kind[kind]), key=lambda kind: -by_kind[kind]
    )
    # without what other rules explain
    rows, ns = held(facts, which, facts.explained, LAYERS)
    all_ns, parts = int(ns.sum()), []
    for kind in kinds[:SHOWN]:
        own, whole = facts.accounts.kinds[rows] == kind, int(by_kind[kind])
        found = holders(facts.trace, rows[own], ns[own], label, all_ns)
        named = f", such as {' and '.join(text for text, _ in found)}" if found else ""
        if found and 2 * found[0][1] > whole:
            named = f", mostly {found[0][0]}"
        parts.append(f"{duration(whole)} {words[kind]}{named}")
    # The modules with the most time, each without what lies in modules inside it.
    spans = facts.kernels.origins.modules
    around = spans.rows_at(spans.around(rows)).astype(np.intp)
    inside = around >= 0
    found = holders(facts.trace, around[inside], ns[inside], module_text, all_ns)
    modules = " and ".join(text for text, _ in found)
    return "; ".join(parts) + (
        f". Among modules, longest in {modules}" if modules else ""
    )


def unseen_remedy(facts: Facts, by_kind: Int64s) -> str | None:
    if 2 * int(by_kind[[*UNSEEN]].sum()) <= int(by_kind.sum()):
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


CPU_ACTIVITY = "ProfilerActivity.CPU"
GPU_ACTIVITY = "ProfilerActivity.CUDA"


def _has_cpu_activity(trace: Trace) -> bool:
    """Whether anything was recorded that torch.profiler records of the CPU alone.
    Without that activity with_stack=True records nothing either."""
    roles = (Role.OP, Role.PYTHON, Role.ANNOTATION)
    return bool(np.isin(trace.role, roles).any())


def without(facts: Facts) -> str:
    """What host-bound and cpu-work do not count."""
    names = ("the data loader", "compilation", "the warm-up")
    covers = zip(names, (facts.loading, facts.compiling, facts.warming), strict=True)
    claimed = [
        one for one, cover in covers if facts.late_under(cover) > TOLD * facts.span_ns
    ]
    set_up_ns = int(facts.late[:, facts.set_up].sum())
    if set_up_ns > TOLD * facts.span_ns:
        claimed.append("the set-up before the first kernel")
    *most, last = claimed or [""]
    return (
        f", {', '.join(most)}{' and ' * bool(most)}{last} not counted" if last else ""
    )


def _busy(facts: Facts) -> Cover:
    return union(facts.idle.begin[facts.busy_cpu], facts.idle.called[facts.busy_cpu])


def _allocating(facts: Facts) -> Cover:
    """When a thread that launches allocates or frees memory."""
    calls = np.flatnonzero(facts.accounts.kinds == Host.ALLOC)
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
    which = facts.busy_cpu
    by_kind = facts.late[:, which].sum(axis=1)
    at_stake = int(by_kind.sum())
    if not at_stake:
        return
    gaps = plural(int(which.sum()), "gap")
    late_ns = facts.late[:, which].sum(axis=0)
    longer = f" of more than {duration(WORK_NS)}" if (late_ns > WORK_NS).all() else ""
    yield Claim(
        text=f"The GPU waits {of_span(facts, at_stake)} in {gaps}{longer} "
        f"while the CPU launches nothing for it{without(facts)}: {doing(facts, by_kind, which)}.",
        at_stake_ns=at_stake,
        wanted=Hurried(
            without_cover(_busy(facts), joined(facts.explained, _allocating(facts)))
        ),
        rows=the_most(facts.idle.launch[which], late_ns),
        remedy=_computing_remedy(facts, at_stake) or unseen_remedy(facts, by_kind),
        why_likely=why_likely(facts),
    )


NO_LAUNCHES = "Graphs do not help: nothing is launched meanwhile."
PLAIN_NAME = late(r"[A-Za-z0-9_:.]{1,100}")


def _computing_remedy(facts: Facts, at_stake_ns: int) -> str | None:
    """Where COMPUTES_SHARE of the time is computing on the CPU: what to do about the op
    with the most."""
    if int(facts.computing_ns[facts.busy_cpu].sum()) < COMPUTES_SHARE * at_stake_ns:
        return None
    rows, ns = held(facts, facts.busy_cpu, facts.explained, LAYERS)
    computes = np.isin(rows, cpu_compute_rows(facts.trace))
    if not computes.any():
        return None
    names = facts.trace.name[rows[computes]]
    name = facts.trace.names[int(np.bincount(names, ns[computes]).argmax())]
    return f"{instead_of_computing(name)} {NO_LAUNCHES}"


def instead_of_computing(op: str) -> str:
    """What to do about an op that computes on the CPU, in a program that uses a GPU."""
    called = op if PLAIN_NAME.fullmatch(op) else "The op"
    device = "{intel:xpu|:cuda}"
    if stem(op) in CREATES:
        how = f'create the tensor on the device instead, as in torch.randn(..., device="{device}")'
    else:
        how = f'keep its inputs on the GPU (.to("{device}")) instead of in the memory of the host'
    return f"{called} computes on the CPU: {how}."


SLOW_NS = LONG_NS


@Rule(
    remedy="See whether they recur at the same place: allocation inside the call, a full queue of "
    "another stream, and a CPU that is taken away from the thread look the same.",
    thresholds={"slow_ns": SLOW_NS},
    by_launches=True,
)
def slow_launches(facts: Facts) -> Iterator[Claim]:
    trace, idle, launch = facts.trace, facts.idle, facts.idle.launch
    waited = idle.ns("launch_call") - facts.warming.within(idle.called, idle.returned)
    slow = (launch >= 0) & (trace.dur[launch] > SLOW_NS) & (waited > 0)
    slow &= ~graph_calls(trace)[launch]
    at_stake = int(waited[slow].sum())
    if at_stake:
        rows = the_most(launch[slow], waited[slow])
        longest = duration(int(trace.dur[launch[slow]].max()))
        calls, name = int(slow.sum()), printable(trace.name_of(rows[0]))
        which = f"{count(calls)} launch calls of more than {duration(SLOW_NS)}, up to {longest}, "
        which = (
            f"{which}mostly {name}"
            if calls > 1
            else f"one launch call of {longest}, {name}"
        )
        yield Claim(
            text=f"The GPU waits {of_span(facts, at_stake)} inside {which}.",
            at_stake_ns=at_stake,
            wanted=Shorter(launch[slow].astype(np.intp), waited[slow]),
            rows=rows,
        )


SHORTER_NS = 5_000
LEAST_COUNT = 0.5  # of all kernels
FEWEST_KERNELS = 20  # kernels
LEAST_TIME = 0.1  # of the span: the short kernels, and the gaps between two of them

REPLAYED_ALREADY = (
    "Graphs launch them already, so what is left is to fuse them: pointwise work with itself"
    "{compile: (torch.compile)} or with the products beside it."
)
"""The remedy where graphs launch most of the GPU's work."""


@Rule(
    remedy="{compile:torch.compile fuses|:Fused layers replace} pointwise work{training:; foreach "
    "and fused optimizers replace many launches}.",
    thresholds={
        "short_ns": SHORTER_NS,
        "fewest": FEWEST_KERNELS,
        "least_count": LEAST_COUNT,
        "least_time": LEAST_TIME,
    },
    of_kernels=True,
)
def small_kernels(facts: Facts) -> Iterator[Claim]:
    trace, kernels = facts.trace, facts.kernels.rows[facts.kernels.is_kernel]
    # the last one for a gap without an event
    is_short = np.zeros(len(trace) + 1, dtype=np.bool_)
    is_short[kernels] = trace.dur[kernels] < SHORTER_NS
    short = np.flatnonzero(is_short)
    if len(kernels) < FEWEST_KERNELS or len(short) < LEAST_COUNT * len(kernels):
        return
    idle = facts.idle
    slow = (idle.launch >= 0) & (trace.dur[idle.launch] > SLOW_NS)
    between = is_short[idle.event] & is_short[idle.before] & ~slow
    together = int(trace.dur[short].sum() + (idle.end - idle.begin)[between].sum())
    if together >= LEAST_TIME * facts.span_ns:
        yield Claim(
            text=f"{percent(len(short), len(kernels))} of the {plural(len(kernels), 'kernel')} are "
            f"shorter than {duration(SHORTER_NS)}: with the gaps between them, they take "
            f"{of_span(facts, together)}.",
            rows=the_most(short, trace.dur[short]),
            remedy=REPLAYED_ALREADY if facts.is_replayed else None,
        )


LONGEST_NS = 10_000


@Rule(
    needs=("launch calls",),
    remedy="Fewer, larger kernels (fusion{compile:, torch.compile}){pdl:; on Hopper and later "
    "programmatic dependent launch hides the switch}.",
    thresholds={"longest_ns": LONGEST_NS},
    of_kernels=True,
)
def kernel_switches(facts: Facts) -> Iterator[Claim]:
    idle, waited = facts.idle, facts.idle.ns("queued", "graph")
    short = (
        (idle.end - idle.begin <= LONGEST_NS)
        & (idle.called <= idle.begin)
        & (waited > 0)
    )
    at_stake, gaps = int(waited[short].sum()), int(np.count_nonzero(short))
    if at_stake:
        yield Claim(
            text=f"The GPU switches from kernel to kernel for {of_span(facts, at_stake)}: "
            f"{plural(gaps, 'gap')} of at most {duration(LONGEST_NS)}, "
            f"{duration(round(at_stake / gaps))} each on average, before work that was already "
            "queued.",
            at_stake_ns=at_stake,
            rows=the_most(idle.event[short], waited[short]),
        )


FEWEST = 50  # kernels in one step of an optimizer
SHORT_NS = 20_000  # on average
LEAST_SHARE = 0.02  # of the span: the kernels, and the gaps before them


@Rule(
    needs=("launch calls", "CPU ops", "annotations"),
    remedy="optimizer(..., {torch2:fused=True), or foreach=True if there is no fused one"
    "|:foreach=True)}.",
    thresholds={"fewest": FEWEST, "short_ns": SHORT_NS, "least_share": LEAST_SHARE},
    of_kernels=True,
)
def optimizer_launches(facts: Facts) -> Iterator[Claim]:
    kernels, trace = facts.kernels, facts.trace
    inside = kernels.is_kernel & kernels.in_optimizer
    # parameters at once
    many = kernels.flags(lambda one: one.op in ("foreach", "optimizer"))
    single = inside & ~many & ~kernels.flags(lambda one: "multi_tensor" in one.name)
    calls = len(distinct(kernels.module[single]))
    number, taken = int(single.sum()), kernels.ns(single)
    if number < FEWEST * max(1, calls) or 2 * number < np.count_nonzero(inside):
        return
    before = np.zeros(len(trace), dtype=np.int64)
    before[facts.idle.event] = facts.idle.end - facts.idle.begin
    together = taken + int(before[kernels.rows[single]].sum())
    if taken <= SHORT_NS * number and together >= LEAST_SHARE * facts.span_ns:
        yield Claim(
            text=f"Each call of an optimizer launches {count(round(number / calls))} kernels of "
            f"{duration(round(taken / number))} on average, one parameter after another: with "
            f"the gaps before them, they take {of_span(facts, together)}, "
            f"{percent(together - taken, together)} of it idle.",
            kernels=single,
        )
