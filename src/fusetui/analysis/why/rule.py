"""What a rule is: a question with its threshold, what it needs, and a function that answers it; and
how rules write names and shares."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import msgspec

from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.idle import by_text
from fusetui.analysis.why.kernels import Kernels
from fusetui.text.cutting import clip
from fusetui.text.figures import count, duration, percent, plural
from fusetui.text.printable import printable
from fusetui.trace.layout.devices import gpu_activity
from fusetui.trace.model.arrays import Flags, Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.recording import recorded_with
from fusetui.trace.program.regions import MODULE_PREFIX, NUMBER, is_module


class CannotTell(Exception):  # noqa: N818
    """A rule lacks what it needs: what was not recorded, and what records it."""

    def __init__(self, missing: str, record_with: str) -> None:
        super().__init__(missing)
        self.missing = missing
        self.record_with = record_with


LEAST_SHARE = 0.02  # of the span; less is not worth a look
LEAST_OF_BUSY = 0.05
"""Of the time in which the device is busy: a finding about its kernels is worth a look from there
on too, however idle the span is."""


def is_worth(facts: Facts, ns: int, of_kernels: bool) -> bool:
    """Whether so much time is worth a look."""
    least = LEAST_SHARE * facts.span_ns
    if of_kernels:
        least = min(least, LEAST_OF_BUSY * facts.kernels.busy_ns)
    return ns >= max(1, least)


NO_LAUNCHES = CannotTell("launch calls", "ProfilerActivity.CUDA")


class Claim(msgspec.Struct, frozen=True):
    """What a rule says about a trace, before it is decided whether that is worth reporting."""

    text: str
    at_stake_ns: int | None  # an upper bound by the formula of the rule; None: a note
    rows: tuple[int, ...] = ()  # evidence, the largest first
    remedy: str | None = None  # instead of the rule's own
    why_likely: str | None = None  # None: certain
    part_of: str | None = None  # the rule that claims the same time
    is_little: bool = False  # by the rule's own threshold, so that it is no finding


class Rule(msgspec.Struct, frozen=True):
    """One rule. docs/why.md has a section of each, with its question, the formula of the time at
    stake, and when it is silent although one might expect a finding."""

    id: str
    needs: tuple[str, ...]  # what it may be silent without although it holds: keys of lacks_of
    remedy: str  # what to try: one line with the torch call or option; see rules.said
    thresholds: dict[str, float]
    find: Callable[[Facts], Iterable[Claim]]
    """Raises CannotTell."""
    by_launches: bool = False  # cannot tell without launch calls
    of_kernels: bool = False  # about the work of the device, not about its idle time
    once: bool = False  # about what happens once, however many steps are recorded


def rule(
    *needs: str,
    remedy: str,
    thresholds: dict[str, float] | None = None,
    by_launches: bool = False,
    of_kernels: bool = False,
    once: bool = False,
    without_gpu: bool = False,
) -> Callable[[Callable[[Facts], Iterable[Claim]]], Rule]:
    """Makes a function a rule whose id is its name; all but those `without_gpu` need GPU events."""
    every = needs if without_gpu else ("GPU events", *needs)
    flags = (by_launches, of_kernels, once)
    return lambda find: Rule(
        find.__name__.replace("_", "-"), every, remedy, thresholds or {}, find, *flags
    )


PROPERTIES = "deviceProperties, as torch 1.12 and later"


def lacks_of(facts: Facts) -> dict[str, str]:
    """What of all that rules need was not recorded, and what records it."""
    trace, kernels, activity = facts.trace, facts.kernels, gpu_activity(facts.trace)
    form = trace.report.format
    if not len(facts.gpu_rows):
        return {"GPU events": recorded_with(activity, form)}
    recorded = {
        "launch calls": (facts.has_launches, activity),
        "CPU ops": ((trace.role == Role.OP).any(), "ProfilerActivity.CPU"),
        "annotations": ((trace.role == Role.ANNOTATION).any(), "record_function"),
        "Python frames and modules": (facts.has_stacks, "with_stack=True"),
        "input shapes": ((kernels.jobs.inputs.number >= 0).any(), "record_shapes=True"),
        "launch configurations": ((kernels.blocks > 0).any(), activity),
        "the number of multiprocessors": ((kernels.sms > 0).any(), PROPERTIES),
        "a device of the table of peaks": (kernels.peak is not None, PROPERTIES),
    }
    lacking = {what: with_ for what, (is_there, with_) in recorded.items() if not is_there}
    return {what: recorded_with(with_, form) for what, with_ in lacking.items()}


FRAME = re.compile(r"(?:.*/)?([^/]+)\((\d+)\): (.+)", re.DOTALL)
BUILT_IN = re.compile(r"<built-in (?:method|function) (\S+)")
LONGEST = 60


def frame_text(name: str, most: int = LONGEST) -> str:
    """A frame as a user would name it: `zoom (_interpolation.py:691)`, `zoom_shift`."""
    name = name[:1000]
    if found := BUILT_IN.match(name):
        return printable(clip(found[1].removesuffix(">"), most))
    if found := FRAME.fullmatch(name):
        return printable(clip(f"{found[3]} ({found[1]}:{found[2]})", most))
    return printable(clip(name, most))


def of_span(facts: Facts, ns: int) -> str:
    """`12 ms (45.8 % of the span)`; of a step or a window, `45.8 % of the time`, or what it is
    called; of several GPUs together, `45.8 % of the spans of 2 GPUs`."""
    gpus = len(facts.devices)
    span = "the span" if gpus < 2 else "the spans"
    whole = span if facts.is_whole else facts.called
    of = f" of {count(gpus)} GPUs" if gpus > 1 else ""
    return f"{duration(ns)} ({percent(ns, facts.span_ns, fine=True)} of {whole}{of})"


def of_work(facts: Facts, ns: int) -> str:
    """The same for the time of kernels; where the GPU is mostly idle, their share of its busy time
    too: `12 ms (0.9 % of the span, 12 % of the busy time)`."""
    text, busy = of_span(facts, ns), facts.kernels.busy_ns
    if 2 * busy >= facts.span_ns:
        return text
    return f"{text.removesuffix(')')}, {percent(ns, busy)} of the busy time)"


def subject(number: int, noun: str, verb: str, of: str = "") -> str:
    """`1 kernel takes`, `3 kernels of cuDNN take`."""
    return f"{plural(number, noun)}{of} {verb}{'s' if number == 1 else ''}"


def module_text(name: str, most: int = LONGEST) -> str:
    """A module without its number, or an annotation: `Qwen2MLP`, `## forward ##`."""
    return frame_text(NUMBER.sub("", name.removeprefix(MODULE_PREFIX)), most)


def most_module(kernels: Kernels, which: Flags | Rows, before: str = ", most of it in ") -> str:
    """The kind of module in which some kernels take most of their time, after these words; blank
    where none is known."""
    module, ns = kernels.module[which], kernels.effective_ns[which]

    def kind(name: str) -> str:
        return module_text(name) if is_module(name) else ""

    found = by_text(kernels.trace, module[module >= 0], ns[module >= 0], kind)
    most = max(filter(None, found), key=lambda text: found[text][1], default="")
    return before + most if most else ""


STACKS = "Python stacks were recorded: these times include the profiler's own work."


COLD = "Most of the time is warm-up: what is left may be, too."


def why_likely(facts: Facts) -> str | None:
    """Why CPU times are only likely; None if they are certain."""
    if facts.is_profiled:
        return STACKS
    return COLD if 2 * facts.late_under(facts.warming) >= facts.span_ns else None
