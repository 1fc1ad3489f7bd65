"""The CPU does not launch fast enough, does something else, or is held by the launch calls."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fusetui.analysis.why.causes import Holder, Holding, holding
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.host import Host
from fusetui.analysis.why.idle import CPU_BOUND, LONG_WORK_NS, SLICE_NS, WORK_NS
from fusetui.analysis.why.kernels import the_most
from fusetui.analysis.why.rule import Claim, of_span, rule, why_likely
from fusetui.analysis.why.warming import GRAPH_LAUNCH, LONG_NS
from fusetui.text.figures import count, duration, plural
from fusetui.text.printable import printable
from fusetui.trace.model.arrays import Flags, Int64s
from fusetui.trace.model.categories import Role

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
TO_SEE_MORE = (
    "Record with with_stack=True, or put record_function() around parts of the step, to see what "
    "the CPU did."
)
TO_SEE_MORE_WITH_STACKS = "Put record_function() around parts of the step, to see what the CPU did."
"""The remedies when nothing within an annotation was recorded for most of the time."""
REPLAYED = (
    "Most of the GPU's work is replayed from graphs already: prepare the next replay meanwhile "
    "(SGLang's overlap scheduler, vLLM's --async-scheduling), and capture what still runs between "
    "replays, such as sampling and copies."
)
"""The remedy where graphs launch most of the GPU's work."""


@rule(
    "launch calls",
    remedy="{serving:vLLM without --enforce-eager and SGLang without --disable-cuda-graph replay "
    'the launches as graphs|graphs:torch.compile(mode="reduce-overhead") or torch.cuda.graph() '
    "replays the launches|nvidia:torch.cuda.graph() replays the launches|:torch.compile fuses "
    "kernels}; larger batches{training: and fused optimizers} need fewer launches.",
    thresholds={"least_share": CPU_BOUND},
    by_launches=True,
)
def host_bound(facts: Facts) -> Iterator[Claim]:
    which = ~facts.busy_cpu
    by_kind = facts.late[:, which].sum(axis=1)
    at_stake = int(by_kind.sum())
    if at_stake <= 0:
        return
    if not facts.is_late:
        yield Claim(text="", at_stake_ns=at_stake, is_little=True)
        return
    found = holding(facts, which)
    text = f"The GPU waits {of_span(facts, at_stake)} for the CPU"
    yield Claim(
        text=f"{text} to launch the next kernel{without(facts)}: {doing(facts, by_kind, found)}.",
        at_stake_ns=at_stake,
        rows=heaviest(facts, which),
        remedy=_more_or_replayed(facts, int(by_kind[[*UNSEEN]].sum()), at_stake),
        why_likely=why_likely(facts),
    )


def doing(facts: Facts, by_kind: Int64s, found: Holding) -> str:
    """`60 us in ops, mostly aten::add (3 x, 40 us), 15 us with nothing recorded`, and modules."""
    has_ops = bool((facts.trace.role == Role.OP).any())
    words = WORDS if has_ops else {**WORDS, Host.ANNOTATION: "in annotations"}
    kinds = sorted((kind for kind in words if by_kind[kind]), key=lambda kind: -by_kind[kind])
    parts = [
        f"{duration(int(by_kind[kind]))} {words[kind]}{_named(found.of(kind), int(by_kind[kind]))}"
        for kind in kinds[:SHOWN]
    ]
    modules = " and ".join(one.text for one in found.modules)
    longest = f". Among modules, longest in {modules}" if modules else ""
    return "; ".join(parts) + longest


def _named(holders: list[Holder], whole_ns: int) -> str:
    if holders and 2 * holders[0].ns > whole_ns:
        return f", mostly {holders[0].text}"
    return f", such as {' and '.join(one.text for one in holders)}" if holders else ""


def _more_or_replayed(facts: Facts, unseen_ns: int, at_stake_ns: int) -> str | None:
    unseen = unseen_remedy(facts, unseen_ns, at_stake_ns)
    return unseen or (REPLAYED if facts.is_replayed else None)


def unseen_remedy(facts: Facts, unseen_ns: int, at_stake_ns: int) -> str | None:
    """How to record more, if for most of the time it is not known what the CPU did."""
    if 2 * unseen_ns <= at_stake_ns:
        return None
    return TO_SEE_MORE_WITH_STACKS if facts.has_stacks else TO_SEE_MORE


def without(facts: Facts) -> str:
    """Says what other rules claim."""
    names = {
        "the data loader": facts.loading,
        "compilation": facts.compiling,
        "the warm-up": facts.warming,
    }
    least = TOLD * facts.span_ns
    claimed = [name for name, cover in names.items() if facts.late_under(cover) > least]
    *most, last = claimed or [""]
    return f", {', '.join(most)}{' and ' * bool(most)}{last} not counted" if last else ""


def heaviest(facts: Facts, which: Flags) -> tuple[int, ...]:
    """The launches that end the longest of some gaps."""
    return the_most(facts.idle.launch[which], facts.late[:, which].sum(axis=0))


@rule(
    "launch calls",
    remedy="Do this work ahead, in workers of the data loader or in a thread while the GPU runs, "
    "or do it on the GPU. Graphs do not help: nothing is launched meanwhile.",
    thresholds={"work_ns": WORK_NS, "slice_ns": SLICE_NS, "long_work_ns": LONG_WORK_NS},
    by_launches=True,
)
def cpu_work(facts: Facts) -> Iterator[Claim]:
    by_kind = facts.late[:, facts.busy_cpu].sum(axis=1)
    at_stake = int(by_kind.sum())
    if not at_stake:
        return
    gaps = plural(int(facts.busy_cpu.sum()), "gap")
    found = holding(facts, facts.busy_cpu)
    yield Claim(
        text=f"The GPU waits {of_span(facts, at_stake)} in {gaps} of "
        f"more than {duration(WORK_NS)} while the CPU launches nothing for it"
        f"{without(facts)}: {doing(facts, by_kind, found)}.",
        at_stake_ns=at_stake,
        rows=heaviest(facts, facts.busy_cpu),
        remedy=unseen_remedy(facts, int(by_kind[[*UNSEEN]].sum()), at_stake),
        why_likely=why_likely(facts),
    )


SLOW_NS = LONG_NS


@rule(
    "launch calls",
    remedy="See whether they recur at the same place: allocation inside the call, a full queue of "
    "another stream, and a CPU that is taken away from the thread look the same.",
    thresholds={"slow_ns": SLOW_NS},
    by_launches=True,
)
def slow_launches(facts: Facts) -> Iterator[Claim]:
    trace, idle, launch = facts.trace, facts.idle, facts.idle.launch
    waited = idle.ns("launch_call") - facts.warming.within(idle.called, idle.returned)
    graphs = np.isin(launch, facts.named(GRAPH_LAUNCH.search, Role.CALL))
    slow = (launch >= 0) & (trace.dur[launch] > SLOW_NS) & ~graphs & (waited > 0)
    at_stake = int(waited[slow].sum())
    if at_stake:
        rows = the_most(launch[slow], waited[slow])
        longest = duration(int(trace.dur[launch[slow]].max()))
        calls = int(np.count_nonzero(slow))
        name = printable(trace.name_of(rows[0]))
        which = (
            f"one launch call of {longest}, {name}"
            if calls == 1
            else f"{count(calls)} launch calls of more than {duration(SLOW_NS)}, up to {longest}, "
            f"mostly {name}"
        )
        yield Claim(
            text=f"The GPU waits {of_span(facts, at_stake)} inside {which}.",
            at_stake_ns=at_stake,
            rows=rows,
        )
