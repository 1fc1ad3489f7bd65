"""A rule: a question with its threshold, what it needs, and a function that answers it.

Also how rules ask one another, and how they write shares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec
import numpy as np

from fusetui.analysis.why.causes import module_text
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.kernels import Kernels, by_text
from fusetui.analysis.why.model import (
    Wanted,
)
from fusetui.text.figures import count, duration, percent, plural
from fusetui.trace.model.arrays import Flags, Rows
from fusetui.trace.model.memo import memo
from fusetui.trace.program.regions import is_module


class CannotTellError(Exception):
    """A rule needs what was not recorded.

    `missing` names it. `record_with` is the option of the profiler that records it, or
    NOTHING_RECORDS.
    """

    def __init__(self, missing: str, record_with: str) -> None:
        super().__init__(missing)
        self.missing = missing
        self.record_with = record_with


NOTHING_RECORDS: Final = ""
"""What records a thing that comes with GPU events, which are there: no option does."""
MAX_RULES: Final = 100
"""More than there are."""
LEAST_SHARE: Final = 0.02
"""Of the span; less is not worth a look."""
LEAST_OF_BUSY: Final = 0.05
"""Of the time in which the device is busy: a finding about its kernels is worth a look
from there on too, however idle the span is."""


def is_large_enough(facts: Facts, ns: int, of_kernels: bool) -> bool:
    """Whether so much time is worth a look: LEAST_SHARE of the span or, for a finding
    about kernels, LEAST_OF_BUSY of the busy time, whichever is less; at least 1 ns."""
    least_ns = LEAST_SHARE * facts.span_ns
    if of_kernels:
        least_ns = min(least_ns, LEAST_OF_BUSY * facts.kernels.busy_ns)
    return ns >= max(1, least_ns)


class Claim(msgspec.Struct, frozen=True, eq=False):
    """What a rule says about a trace, before it is decided whether that is worth
    reporting."""

    text: str
    # an upper bound by the formula of the rule; None: a note
    at_stake_ns: int | None = None
    rows: tuple[int, ...] = ()  # evidence, the largest first
    remedy: str | None = None  # instead of the rule's own
    why_likely: str | None = None  # None: certain
    part_of: str | None = None  # the rule that claims the same time
    is_little: bool = False  # by the rule's own threshold, so that it is no finding
    wanted: Wanted | None = None  # None: no change that can be replayed
    # those that it is about: evidence where there are no rows
    kernels: Flags | None = None


class Rule(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """One rule. docs/why.md has a section of each, with its question, the formula of
    the time at stake, and when it is silent although one might expect a finding."""

    id: str = ""
    remedy: str  # what to try: one line with the torch call or option; see remedies.py
    # what it may be silent without although it holds: see lacks_of
    needs: tuple[str, ...] = ()
    thresholds: dict[str, float] = {}
    by_launches: bool = False  # cannot tell without launch calls
    of_kernels: bool = False  # about the work of the device, not about its idle time
    once: bool = False  # about what happens once, however many steps are recorded
    without_gpu: bool = False  # needs no GPU events
    reads: bool = False  # what only the file has; those of kernels may read args
    find: Callable[[Facts], Iterable[Claim]] = lambda _: ()  # raises CannotTellError

    def __call__(self, find: Callable[[Facts], Iterable[Claim]]) -> Rule:
        """This rule with the function that answers it, whose name is its id."""
        needs = self.needs
        if self.by_launches:
            needs = ("launch calls", *needs)
        if not self.without_gpu:
            needs = ("GPU events", *needs)
        return msgspec.structs.replace(
            self, id=find.__name__.replace("_", "-"), needs=needs, find=find
        )


@memo(MAX_RULES)
def claims_of(facts: Facts, rule: Rule) -> tuple[list[Claim], CannotTellError | None]:
    """What a rule says, which other rules may ask too, and what it lacks."""
    claims: list[Claim] = []
    try:
        if not (rule.without_gpu or len(facts.gpu_rows)):
            raise CannotTellError("GPU events", "ProfilerActivity.CUDA")
        if rule.by_launches and not facts.has_launches:
            raise CannotTellError("launch calls", NOTHING_RECORDS)
        for claim in rule.find(facts):
            claims.append(claim)
    except CannotTellError as lack:
        return claims, lack
    return claims, None


def is_finding(facts: Facts, rule: Rule, claim: Claim) -> bool:
    """Whether a claim has so much time at stake that it is reported as a finding."""
    if claim.is_little:
        return False
    return is_large_enough(facts, claim.at_stake_ns or 0, rule.of_kernels)


def claimed_by(facts: Facts, *rules: Rule) -> Flags:
    """The kernels that findings of these rules are about."""
    claimed = np.zeros(len(facts.kernels.rows), dtype=np.bool_)
    for rule in rules:
        for claim in claims_of(facts, rule)[0]:
            if claim.kernels is not None and is_finding(facts, rule, claim):
                claimed |= claim.kernels
    return claimed


def share_of_span(facts: Facts, ns: int) -> str:
    """`12 ms (45.8 % of the span)`; of a step or a window, `45.8 % of the time`, or
    what it is called; of several GPUs together, `45.8 % of the spans of 2 GPUs`."""
    gpus = len(facts.devices)
    if facts.window is not None:
        time = facts.window_name
    elif gpus > 1:
        time = "the spans"
    else:
        time = "the span"
    if gpus > 1:
        time += f" of {count(gpus)} GPUs"
    share = percent(ns, facts.span_ns, fine=True)
    return f"{duration(ns)} ({share} of {time})"


def share_of_recording(facts: Facts, ns: int) -> str:
    """`480 ms (60 % of the 800 ms from first start to last end)`: where no GPU event
    was recorded, of all that was; of a step or a window, `of the 800 ms asked
    about`."""
    until = "from first start to last end" if facts.window is None else "asked about"
    whole = f"{duration(facts.span_ns)} {until}"
    return f"{duration(ns)} ({percent(ns, facts.span_ns)} of the {whole})"


def share_of_work(facts: Facts, ns: int) -> str:
    """The same for the time of kernels; where the GPU is mostly idle, their share of
    its busy time too: `12 ms (0.9 % of the span, 12 % of the busy time)`."""
    text = share_of_span(facts, ns)
    busy_ns = facts.kernels.busy_ns
    if 2 * busy_ns >= facts.span_ns:
        return text
    return f"{text.removesuffix(')')}, {percent(ns, busy_ns)} of the busy time)"


def counted_subject(number: int, noun: str, verb: str, of: str = "") -> str:
    """`1 kernel takes`, `3 kernels of cuDNN take`."""
    verb_form = f"{verb}s" if number == 1 else verb
    return f"{plural(number, noun)}{of} {verb_form}"


def most_module(
    kernels: Kernels, which: Flags | Rows, before: str = ", most of it in "
) -> str:
    """The kind of module in which some kernels take more than half of their time, after
    these words; "" where there is none."""
    module = kernels.module[which]  # -1 for none; may be an annotation
    ns = kernels.effective_ns[which]
    has_module = module >= 0
    by_kind = by_text(kernels.trace, module[has_module], ns[has_module], _module_kind)
    ns_of_kind = {kind: kind_ns for kind, (_, kind_ns) in by_kind.items() if kind}
    if not ns_of_kind:
        return ""
    longest = max(ns_of_kind, key=lambda kind: ns_of_kind[kind])
    is_most = 2 * ns_of_kind[longest] > int(ns.sum())
    return before + longest if is_most else ""


def _module_kind(name: str) -> str:
    """The kind of a module by its name; "" for an annotation."""
    return module_text(name) if is_module(name) else ""


STACKS: Final = (
    "Python stacks were recorded: these times include the profiler's own work."
)
COLD: Final = "Most of the time is warm-up; the rest may be, too."


def why_likely(facts: Facts) -> str | None:
    """Why CPU times are only likely; None if they are certain."""
    if facts.is_profiled:
        return STACKS
    return COLD if is_mostly_warm_up(facts) else None


def is_mostly_warm_up(facts: Facts) -> bool:
    """Whether the devices wait for half of the span or longer for what happens once."""
    return 2 * facts.late_ns_during(facts.warm_up_cover) >= facts.span_ns
