"""The rules: each file has those about one subject. Adding one is adding it there, or a file.

A remedy is one line that says of a trace only what its devices and its program have. A part in
braces is for some traces only: `{nvidia:A|amd:B|:C}` is the first of its texts whose tag holds, C
where none does, and nothing if there is no C.

| tag | holds |
|---|---|
| nvidia, amd, intel | for devices of this vendor; none of them where nothing tells |
| compile | if torch.compile has a code generator for the device |
| graphs | if besides there are graphs: torch.cuda.graph |
| pdl | on Hopper and later: programmatic dependent launch |
| torch2 | unless the trace comes from a version of torch before 2.0 |
| segments | for devices of NVIDIA, likewise: expandable_segments |
| training | if there is backward work or an optimizer, or no op was recorded |
| scaler | in training, unless before torch 2.0: torch.amp.GradScaler |
| serving | in steps of vLLM and SGLang |

A rule is a question with its threshold, what it needs, and a function that answers it; here is also
how rules write shares.
"""

from __future__ import annotations

import pkgutil
import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.why.causes import module_text
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.kernels import Kernels, by_text
from fusetui.analysis.why.model import (
    LISTED_DEVICE,
    NEGLIGIBLE_SHARE,
    Finding,
    Unknown,
    Wanted,
)
from fusetui.analysis.why.selection import activity_to_add
from fusetui.analysis.why.versions import is_before_torch_2, with_versions
from fusetui.text.figures import count, duration, percent, plural
from fusetui.text.patterns import late
from fusetui.trace.layout.devices import device_names, device_properties, gpu_activity, is_rocm
from fusetui.trace.model.arrays import Flags, Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.memo import memo
from fusetui.trace.model.report import recorded_with
from fusetui.trace.program.regions import is_module


class CannotTell(Exception):  # noqa: N818
    """A rule lacks what it needs: what was not recorded, and what records it."""


MANY = 100  # rules
LEAST_SHARE = 0.02  # of the span; less is not worth a look
LEAST_OF_BUSY = 0.05
"""Of the time in which the device is busy: a finding about its kernels is worth a look from there
on too, however idle the span is."""


def is_worth(facts: Facts, ns: int, of_kernels: bool) -> bool:
    least = LEAST_SHARE * facts.span_ns
    if of_kernels:
        least = min(least, LEAST_OF_BUSY * facts.kernels.busy_ns)
    return ns >= max(1, least)


class Claim(msgspec.Struct, frozen=True, eq=False):
    """What a rule says about a trace, before it is decided whether that is worth reporting."""

    text: str
    at_stake_ns: int | None = None  # an upper bound by the formula of the rule; None: a note
    rows: tuple[int, ...] = ()  # evidence, the largest first
    remedy: str | None = None  # instead of the rule's own
    why_likely: str | None = None  # None: certain
    part_of: str | None = None  # the rule that claims the same time
    is_little: bool = False  # by the rule's own threshold, so that it is no finding
    wanted: Wanted | None = None  # None: no change that can be replayed
    kernels: Flags | None = None  # those that it is about: evidence where there are no rows


class Rule(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """One rule. docs/why.md has a section of each, with its question, the formula of the time at
    stake, and when it is silent although one might expect a finding."""

    id: str = ""
    remedy: str  # what to try: one line with the torch call or option; see rules.said
    needs: tuple[str, ...] = ()  # what it may be silent without although it holds: see lacks_of
    thresholds: dict[str, float] = {}
    by_launches: bool = False  # cannot tell without launch calls
    of_kernels: bool = False  # about the work of the device, not about its idle time
    once: bool = False  # about what happens once, however many steps are recorded
    without_gpu: bool = False  # needs no GPU events
    reads: bool = False  # what only the file has; those of kernels may read args
    find: Callable[[Facts], Iterable[Claim]] = lambda _: ()  # raises CannotTell

    def __call__(self, find: Callable[[Facts], Iterable[Claim]]) -> Rule:
        """With the function that answers it, whose name is its id."""
        needs = ("launch calls", *self.needs) if self.by_launches else self.needs
        needs = needs if self.without_gpu else ("GPU events", *needs)
        id_ = find.__name__.replace("_", "-")
        return msgspec.structs.replace(self, id=id_, needs=needs, find=find)


PROPERTIES = "deviceProperties, as torch 1.12 and later"


def lacks_of(facts: Facts) -> dict[str, str]:
    trace, kernels, activity = facts.trace, facts.kernels, gpu_activity(facts.trace)
    form = trace.report.writer
    if not len(facts.gpu_rows):
        return {"GPU events": recorded_with(activity_to_add(trace), form)}
    recorded = {
        "launch calls": (facts.has_launches, activity),
        "CPU ops": ((trace.role == Role.OP).any(), "ProfilerActivity.CPU"),
        "annotations": ((trace.role == Role.ANNOTATION).any(), "record_function"),
        "Python frames and modules": (facts.has_stacks, "with_stack=True"),
        "input shapes": ((kernels.jobs.inputs.number >= 0).any(), "record_shapes=True"),
        "launch configurations": ((kernels.blocks > 0).any(), activity),
        "the number of multiprocessors": ((kernels.sms > 0).any(), PROPERTIES),
        LISTED_DEVICE: (kernels.peak is not None, properties_asked(facts)),
    }
    lacking = {what: with_ for what, (is_there, with_) in recorded.items() if not is_there}
    return {what: recorded_with(with_, form) for what, with_ in lacking.items()}


def properties_asked(facts: Facts) -> str:
    """What would tell which device it is; blank for a known one, which may not be in the table."""
    is_named = any("name" in each for each in device_properties(facts.trace).values())
    return "" if is_named else PROPERTIES


def of_span(facts: Facts, ns: int) -> str:
    """`12 ms (45.8 % of the span)`; of a step or a window, `45.8 % of the time`, or what it is
    called; of several GPUs together, `45.8 % of the spans of 2 GPUs`."""
    gpus = len(facts.devices)
    whole = f"the span{'s' if gpus > 1 else ''}" if facts.window is None else facts.called
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


def most_module(kernels: Kernels, which: Flags | Rows, before: str = ", most of it in ") -> str:
    """The kind of module in which some kernels take more than half of their time, after these
    words; blank where there is none."""
    module, ns = kernels.module[which], kernels.effective_ns[which]

    def kind(name: str) -> str:
        return module_text(name) if is_module(name) else ""

    found = by_text(kernels.trace, module[module >= 0], ns[module >= 0], kind)
    most = max(filter(None, found), key=lambda text: found[text][1], default="")
    return before + most if most and 2 * found[most][1] > int(ns.sum()) else ""


STACKS = "Python stacks were recorded: these times include the profiler's own work."
COLD = "Most of the time is warm-up: what is left may be, too."


def why_likely(facts: Facts) -> str | None:
    """Why CPU times are only likely; None if they are certain."""
    if facts.is_profiled:
        return STACKS
    return COLD if 2 * facts.late_under(facts.warming) >= facts.span_ns else None


PART = late(r"\{([^{}]*)\}")
BACKWARD = late(r"[Bb]ackward|_bwd_|dgrad|wgrad|Optimizer\.(?:step|zero_grad)|autograd::engine")
HIP, CUDA = late(r"hip[A-Z]"), late(r"cu(?:da)?[A-Z]")
TRITON, HOPPER = 7, 9  # compute capabilities from which on there is Triton, and PDL


def said(remedy: str, tags: frozenset[str]) -> str:
    def chosen(part: re.Match[str]) -> str:
        texts = (text.partition(":") for text in part[1].split("|"))
        return next((text for tag, _, text in texts if tag in tags or not tag), "")

    return PART.sub(chosen, remedy)


def tags_of(facts: Facts) -> frozenset[str]:
    trace, names = facts.trace, " ".join(device_names(facts.trace))
    vendor = "nvidia" if names or _calls(facts, CUDA) else ""
    if gpu_activity(trace) == "ProfilerActivity.XPU" or "Intel" in names:
        vendor = "intel"
    elif is_rocm(trace) or "AMD" in names or _calls(facts, HIP):
        vendor = "amd"
    majors = [one.get("computeMajor") for one in device_properties(trace).values()]
    major = min((one for one in majors if isinstance(one, int)), default=HOPPER)
    has_torch_2 = not is_before_torch_2(trace)
    compiles = has_torch_2 and (vendor != "nvidia" or major >= TRITON)
    trains = facts.trace.rows_named(BACKWARD.search, Role.OP, Role.ANNOTATION, Role.KERNEL)
    is_training = len(trains) > 0 or not (trace.role == Role.OP).any()
    found = {
        vendor: True,
        "compile": compiles,
        "graphs": compiles and vendor != "intel",
        "pdl": vendor == "nvidia" and major >= HOPPER,
        "torch2": has_torch_2,
        "segments": has_torch_2 and vendor == "nvidia",
        "training": is_training,
        "scaler": is_training and has_torch_2,
        "serving": facts.spans.are_of_server,
    }
    return frozenset(tag for tag, holds in found.items() if holds and tag)


def _calls(facts: Facts, pattern: re.Pattern[str]) -> bool:
    return bool(len(facts.trace.rows_named(pattern.match, Role.CALL)))


@cache
def all_rules() -> tuple[Rule, ...]:
    modules = (import_module(f"{__name__}.{one.name}") for one in pkgutil.iter_modules(__path__))
    every = (one for module in modules for one in vars(module).values() if isinstance(one, Rule))
    found = {rule.id: rule for rule in every}  # some ask others, which they import
    return tuple(found[id_] for id_ in sorted(found))


class Answers(NamedTuple):
    """What the rules find, the largest upper bound first, then notes, then what is negligible; what
    they cannot tell; and by rule the time at stake (ns) that is too little for a finding."""

    findings: tuple[Finding, ...]
    wanted: tuple[Wanted | None, ...]  # of each finding
    unknown: tuple[Unknown, ...]
    below: dict[str, int]


def answer_early(facts: Facts) -> None:
    """The rules that need nothing but columns, while another process reads the file."""
    for rule in all_rules():
        if not (rule.of_kernels or rule.reads):
            claims_of(facts, rule)


def findings_of(facts: Facts) -> Answers:
    found: list[tuple[Finding, Wanted | None]] = []
    unknown: list[Unknown] = []
    below: Counter[str] = Counter()
    tags = tags_of(facts)
    for rule in all_rules():
        asked = facts.steady if rule.of_kernels else facts
        claims, lack = claims_of(asked, rule)
        for claim in claims:
            if claim.at_stake_ns is None or is_finding(asked, rule, claim):
                wanted = claim.wanted if claim.at_stake_ns else None
                found.append((_finding(rule, claim, asked, tags), wanted))
            else:
                below[rule.id] += claim.at_stake_ns
        unknown += [Unknown(rule.id, *lack.args)] if lack else []
    for n, (one, wanted) in enumerate(found):  # a part of what is told, and of no less than it
        wholes = [other.at_stake_ns or 0 for other, _ in found if other.rule == one.part_of]
        if (one.at_stake_ns or 0) > max(wholes, default=-1):
            found[n] = msgspec.structs.replace(one, part_of=None), wanted
    least_ns = NEGLIGIBLE_SHARE * _compared_time_ns(facts)
    for n, (one, wanted) in enumerate(found):
        if one.at_stake_ns is not None and one.at_stake_ns < least_ns:
            found[n] = msgspec.structs.replace(one, negligible=True), wanted
    found.sort(key=lambda both: _by_upper_bound(both[0]))
    findings, changes = zip(*found, strict=True) if found else ((), ())
    return Answers(findings, changes, tuple(unknown), below)


def _by_upper_bound(finding: Finding) -> tuple[bool, bool, int]:
    return finding.negligible, finding.at_stake_ns is None, -(finding.at_stake_ns or 0)


def _compared_time_ns(facts: Facts) -> int:
    """What an upper bound is compared with to see whether it is negligible: the span, or the steps
    together if those are shorter, added up over the devices."""
    if facts.window is not None or not len(facts.spans):
        return facts.span_ns
    steps_ns = int((facts.spans.end - facts.spans.start).sum())
    return min(facts.span_ns, max(1, len(facts.devices)) * steps_ns)


@memo(MANY)
def claims_of(facts: Facts, rule: Rule) -> tuple[list[Claim], CannotTell | None]:
    """What a rule says, which other rules may ask too, and what it lacks."""
    found = list[Claim]()
    try:
        if not (rule.without_gpu or len(facts.gpu_rows)):
            raise CannotTell("GPU events", "ProfilerActivity.CUDA")
        if rule.by_launches and not facts.has_launches:
            raise CannotTell("launch calls", "ProfilerActivity.CUDA")
        for claim in rule.find(facts):
            found.append(claim)
    except CannotTell as lack:
        return found, lack
    return found, None


def is_finding(facts: Facts, rule: Rule, claim: Claim) -> bool:
    return not claim.is_little and is_worth(facts, claim.at_stake_ns or 0, rule.of_kernels)


def claimed_by(facts: Facts, *rules: Rule) -> Flags:
    """The kernels that findings of these rules are about."""
    found = np.zeros(len(facts.kernels.rows), dtype=np.bool_)
    for rule in rules:
        for claim in claims_of(facts, rule)[0]:
            if claim.kernels is not None and is_finding(facts, rule, claim):
                found |= claim.kernels
    return found


def _finding(rule: Rule, claim: Claim, facts: Facts, tags: frozenset[str]) -> Finding:
    known, which = claim.at_stake_ns is not None and facts.span_ns > 0, claim.kernels
    return Finding(
        rule=rule.id,
        text=claim.text,
        certainty="likely" if claim.why_likely else "certain",
        at_stake_ns=claim.at_stake_ns,
        share=claim.at_stake_ns / facts.span_ns if known and claim.at_stake_ns else None,
        why_likely=claim.why_likely,
        evidence=claim.rows or (() if which is None else facts.kernels.heaviest(which)),
        try_=with_versions(said(claim.remedy or rule.remedy, tags), facts.trace),
        part_of=claim.part_of,
        thresholds=rule.thresholds,
    )
