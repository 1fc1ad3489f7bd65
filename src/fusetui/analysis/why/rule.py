"""Define a rule: a question with thresholds, required data, and a function that answers
it.

Also how rules ask each other, and how their texts write shares of time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.why.causes import format_module
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.kernels import Kernels, add_up_by_text
from fusetui.analysis.why.model import (
    Wanted,
)
from fusetui.text.figures import count, duration, percent, plural
from fusetui.text.printable import printable
from fusetui.trace.model.arrays import NO_ROW, Flags, Rows
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.memo import memo
from fusetui.trace.program.regions import is_module


class CannotTellError(Exception):
    """A rule needs something that was not recorded.

    Attributes:
        missing: What it needs, in words.
        record_with: The option of the profiler that records it, or NOTHING_RECORDS.
    """

    def __init__(self, missing: str, record_with: str) -> None:
        super().__init__(missing)
        self.missing = missing
        self.record_with = record_with


NOTHING_RECORDS: Final = ""
"""The option for what comes with GPU events, which are there: no option records it."""
MAX_RULES: Final = 100
"""A limit for a cache: there are fewer rules."""
MIN_SHARE_OF_SPAN: Final = 0.02
"""A smaller share of the span is not worth a look."""
MIN_SHARE_OF_BUSY_TIME: Final = 0.05
"""From this share of the busy time on, a finding about kernels is worth a look too.

It counts however idle the span is.
"""


def is_large_enough(facts: Facts, ns: int, of_kernels: bool) -> bool:
    """Return whether some time is long enough to be worth a finding.

    It must be MIN_SHARE_OF_SPAN of the span or more. For a finding about kernels,
    MIN_SHARE_OF_BUSY_TIME of the busy time is also enough. A time of 0 is never enough.

    Args:
        ns: The time at stake.
        of_kernels: Whether the finding is about kernels.
    """
    least_ns = MIN_SHARE_OF_SPAN * facts.span_ns
    if of_kernels:
        least_ns = min(least_ns, MIN_SHARE_OF_BUSY_TIME * facts.kernels.busy_ns)
    return ns >= max(1, least_ns)


class Claim(msgspec.Struct, frozen=True, eq=False):
    """What a rule says about a trace, before it is decided whether to report it."""

    text: str
    # The upper bound by the formula of the rule; None for a note.
    at_stake_ns: int | None = None
    rows: tuple[int, ...] = ()  # evidence, the largest first
    remedy: str | None = None  # None for the remedy of the rule
    why_likely: str | None = None  # None if the claim is certain
    part_of: str | None = None  # the rule that claims the same time
    is_little: bool = False  # too little by the rule's own threshold
    wanted: Wanted | None = None  # None if no change can be replayed
    # The kernels that it is about, one flag each: the evidence without `rows`.
    kernels: Flags | None = None


class Rule(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """One rule of `why`.

    docs/why.md has a section about each, with its question, the formula of the time at
    stake, and when it is silent although one might expect a finding. Used as a
    decorator, a rule takes the function that answers it.
    """

    id: str = ""
    remedy: str  # what to try: one line with the torch call or option; see remedies.py
    # Without these it may be silent although it holds; see needs.list_lacks.
    needs: tuple[str, ...] = ()
    thresholds: dict[str, float] = {}
    by_launches: bool = False  # it cannot tell without launch calls
    of_kernels: bool = False  # it is about the work of the device, not its idle time
    once: bool = False  # it is about what happens once, however many steps there are
    without_gpu: bool = False  # it needs no GPU events
    # Whether it reads what only the file has. Rules of kernels may read args anyway.
    reads: bool = False
    # The function that answers it. It may raise CannotTellError.
    find: Callable[[Facts], Iterable[Claim]] = lambda _: ()

    def __call__(self, find: Callable[[Facts], Iterable[Claim]]) -> Rule:
        """Return this rule with the function that answers it; used as a decorator.

        The name of the function becomes the id: `warm_up` defines the rule `warm-up`.
        If the rule needs launches or GPU events, these are put before its other
        `needs`.
        """
        needs = self.needs
        if self.by_launches:
            needs = ("launch calls", *needs)

        if not self.without_gpu:
            needs = ("GPU events", *needs)
        return msgspec.structs.replace(
            self, id=find.__name__.replace("_", "-"), needs=needs, find=find
        )


class RuleAnswer(NamedTuple):
    """What a rule says about a trace."""

    claims: list[Claim]
    lack: CannotTellError | None
    """What was not recorded but is needed for further claims; None if nothing is."""


@memo(MAX_RULES)
def run_rule(facts: Facts, rule: Rule) -> RuleAnswer:
    """Run a rule on the facts of a trace, or return its earlier result.

    The result is kept because other rules may ask for it too.
    """
    claims: list[Claim] = []
    try:
        if not (rule.without_gpu or len(facts.gpu_rows)):
            raise CannotTellError("GPU events", "ProfilerActivity.CUDA")
        if rule.by_launches and not facts.has_launches:
            raise CannotTellError("launch calls", NOTHING_RECORDS)

        for claim in rule.find(facts):  # one by one: those before an error count
            claims.append(claim)
    except CannotTellError as lack:
        return RuleAnswer(claims=claims, lack=lack)
    return RuleAnswer(claims=claims, lack=None)


def is_finding(facts: Facts, rule: Rule, claim: Claim) -> bool:
    """Whether a claim has so much time at stake that it is reported as a finding."""
    if claim.is_little:
        return False
    return is_large_enough(facts, claim.at_stake_ns or 0, rule.of_kernels)


def find_claimed_kernels(facts: Facts, *rules: Rule) -> Flags:
    """Tell which kernels the findings of some rules are about; one flag per kernel."""
    claimed = np.zeros(len(facts.kernels.rows), dtype=np.bool_)
    for rule in rules:
        for claim in run_rule(facts, rule).claims:
            if claim.kernels is not None and is_finding(facts, rule, claim):
                claimed |= claim.kernels

    return claimed


def format_share_of_span(facts: Facts, ns: int) -> str:
    """Format a time with its share of the span: `12 ms (45.8 % of the span)`.

    In a step or a window the share is `of the time`, or of what the window is called.
    For several GPUs together it is `of the spans of 2 GPUs`.
    """
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


def format_share_of_recording(facts: Facts, ns: int) -> str:
    """Format a time with its share of the recording, where no GPU event was recorded.

    An example is `480 ms (60 % of the recorded 800 ms)`. In a step
    or a window, the share is `of the selected 800 ms`.
    """
    which = "recorded" if facts.window is None else "selected"
    whole = f"{which} {duration(facts.span_ns)}"
    return f"{duration(ns)} ({percent(ns, facts.span_ns)} of the {whole})"


def format_share_of_work(facts: Facts, ns: int) -> str:
    """Format the time of kernels with its share of the span.

    Where the GPU is mostly idle, the share of the busy time is added: `12 ms (0.9 %
    of the span, 12 % of the busy time)`.
    """
    text = format_share_of_span(facts, ns)
    busy_ns = facts.kernels.busy_ns
    if 2 * busy_ns >= facts.span_ns:
        return text

    return f"{text.removesuffix(')')}, {percent(ns, busy_ns)} of the busy time)"


def name_most_frequent(trace: Trace, rows: Rows) -> str:
    """Name some rows: `aten::item`, or `mostly aten::item` if there are several names.

    It is `most often aten::item` if no name has more than half of the rows.
    """
    rows_of_name = np.bincount(trace.name[rows])
    most_frequent = int(rows_of_name.argmax())
    name = printable(trace.names[most_frequent])
    if rows_of_name[most_frequent] == len(rows):
        return name

    is_majority = 2 * rows_of_name[most_frequent] > len(rows)
    return f"mostly {name}" if is_majority else f"most often {name}"


def format_subject(total: int, noun: str, verb: str, suffix: str = "") -> str:
    """Compose the beginning of a sentence about a number of things.

    For 3, "kernel", "take" and " of cuDNN" it is `3 kernels of cuDNN take`, and for 1
    it is `1 kernel of cuDNN takes`.

    Args:
        total: How many there are.
        noun: What they are, in the singular.
        verb: The verb in the plural.
        suffix: What follows the noun.
    """
    verb_form = f"{verb}s" if total == 1 else verb
    return f"{plural(total, noun)}{suffix} {verb_form}"


def name_dominant_module(
    kernels: Kernels, selected: Flags | Rows, before: str = ", most of it in "
) -> str:
    """Name the kind of module in which some kernels take more than half of their time.

    The kind is the class of a module without its number, such as `Attention`.

    Args:
        selected: The kernels, as one flag each or as indices.
        before: The words before the name.

    Returns:
        `before` with the name; "" if no kind takes more than half.
    """
    module = kernels.module_row[selected]  # may be an annotation, which has the kind ""
    ns = kernels.effective_ns[selected]
    has_module = module != NO_ROW
    total_of_kind = add_up_by_text(
        kernels.trace, module[has_module], ns[has_module], _get_module_kind
    )
    total_of_kind.pop("", None)
    for kind, total in total_of_kind.items():
        if 2 * total.ns > int(ns.sum()):
            return before + kind

    return ""


def _get_module_kind(name: str) -> str:
    """Return the kind of a module by its name, "" for an annotation."""
    return format_module(name) if is_module(name) else ""


STACKS_ADD_OVERHEAD: Final = (
    "Python stacks were recorded, so these times include profiling overhead."
)
"""Why CPU times are only likely where Python stacks were recorded."""
MOSTLY_WARM_UP: Final = "Most of the time is warm-up; the rest may be warm-up too."
"""Why CPU times are only likely where most of the time is warm-up."""


def explain_uncertainty(facts: Facts) -> str | None:
    """Say why times of the CPU are only likely to be right; None if they are certain.

    They are uncertain if Python stacks were recorded while the GPU waited for the CPU,
    which takes time of its own. They also are if most of the span is warm-up.
    """
    if facts.is_slowed_by_stacks:
        return STACKS_ADD_OVERHEAD
    return MOSTLY_WARM_UP if is_mostly_warm_up(facts) else None


def is_mostly_warm_up(facts: Facts) -> bool:
    """Whether the devices wait for half of the span or longer for what happens once."""
    return 2 * facts.measure_waits_during(facts.warm_up_time) >= facts.span_ns
