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
| training | if there is backward work or an optimizer, or no op was recorded |
| serving | in steps of vLLM and SGLang |
"""

from __future__ import annotations

import pkgutil
import re
from functools import cache
from importlib import import_module
from typing import NamedTuple

import msgspec

from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.model import Finding, Unknown
from fusetui.analysis.why.rule import NO_LAUNCHES, CannotTell, Claim, Rule, is_worth
from fusetui.trace.layout.devices import device_names, device_properties, gpu_activity, is_rocm
from fusetui.trace.model.categories import Role

PART = re.compile(r"\{([^{}]*)\}")
BACKWARD = re.compile(
    r"[Bb]ackward|_bwd_|dgrad|wgrad|Optimizer\.(?:step|zero_grad)|autograd::engine"
)
HIP, CUDA = re.compile(r"hip[A-Z]"), re.compile(r"cu(?:da)?[A-Z]")
TRITON, HOPPER = 7, 9  # compute capabilities from which on there is Triton, and PDL


def said(remedy: str, tags: frozenset[str]) -> str:
    """The remedy for a trace with these tags."""

    def chosen(part: re.Match[str]) -> str:
        texts = (text.partition(":") for text in part[1].split("|"))
        return next((text for tag, _, text in texts if tag in tags or not tag), "")

    return PART.sub(chosen, remedy)


def tags_of(facts: Facts) -> frozenset[str]:
    """The tags that hold."""
    trace, names = facts.trace, " ".join(device_names(facts.trace))
    vendor = "nvidia" if names or _calls(facts, CUDA) else ""
    if gpu_activity(trace) == "ProfilerActivity.XPU" or "Intel" in names:
        vendor = "intel"
    elif is_rocm(trace) or "AMD" in names or _calls(facts, HIP):
        vendor = "amd"
    majors = [one.get("computeMajor") for one in device_properties(trace).values()]
    major = min((one for one in majors if isinstance(one, int)), default=HOPPER)
    compiles = vendor != "nvidia" or major >= TRITON
    trains = facts.named(BACKWARD.search, Role.OP, Role.ANNOTATION, Role.KERNEL)
    found = {
        vendor: True,
        "compile": compiles,
        "graphs": compiles and vendor != "intel",
        "pdl": vendor == "nvidia" and major >= HOPPER,
        "training": len(trains) > 0 or not (trace.role == Role.OP).any(),
        "serving": facts.spans.are_of_server,
    }
    return frozenset(tag for tag, holds in found.items() if holds and tag)


def _calls(facts: Facts, pattern: re.Pattern[str]) -> bool:
    return bool(len(facts.named(pattern.match, Role.CALL)))


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, by its id."""
    modules = (import_module(f"{__name__}.{one.name}") for one in pkgutil.iter_modules(__path__))
    every = [one for module in modules for one in vars(module).values() if isinstance(one, Rule)]
    return tuple(sorted(every, key=lambda rule: rule.id))


class Answers(NamedTuple):
    """What the rules find, the most time at stake first and notes last; what they cannot tell; and
    by rule the time at stake (ns) that is too little for a finding."""

    findings: tuple[Finding, ...]
    unknown: tuple[Unknown, ...]
    below: dict[str, int]


def findings_of(facts: Facts) -> Answers:
    """What all rules say."""
    found: list[Finding] = []
    unknown: list[Unknown] = []
    below: dict[str, int] = {}
    tags = tags_of(facts)
    for rule in all_rules():
        if not len(facts.gpu_rows) and rule.needs:
            unknown.append(Unknown(rule.id, "GPU events", "ProfilerActivity.CUDA"))
            continue
        try:
            asked = facts.steady if rule.of_kernels else facts
            if rule.by_launches and not asked.has_launches:
                raise NO_LAUNCHES
            for claim in rule.find(asked):
                at_stake = claim.at_stake_ns
                if at_stake is None or (
                    not claim.is_little and is_worth(asked, at_stake, rule.of_kernels)
                ):
                    found.append(_finding(rule, claim, asked, tags))
                else:
                    below[rule.id] = below.get(rule.id, 0) + at_stake
        except CannotTell as lack:
            unknown.append(Unknown(rule.id, lack.missing, lack.record_with))
    for n, finding in enumerate(found):  # it is a part of what is told, and of no less than it
        wholes = [one.at_stake_ns or 0 for one in found if one.rule == finding.part_of]
        if (finding.at_stake_ns or 0) > max(wholes, default=-1):
            found[n] = msgspec.structs.replace(finding, part_of=None)
    found.sort(key=lambda one: (one.at_stake_ns is None, -(one.at_stake_ns or 0)))
    return Answers(tuple(found), tuple(unknown), below)


def _finding(rule: Rule, claim: Claim, facts: Facts, tags: frozenset[str]) -> Finding:
    known = claim.at_stake_ns is not None and facts.span_ns > 0
    return Finding(
        rule=rule.id,
        text=claim.text,
        certainty="likely" if claim.why_likely else "certain",
        at_stake_ns=claim.at_stake_ns,
        share=claim.at_stake_ns / facts.span_ns if known and claim.at_stake_ns else None,
        why_likely=claim.why_likely,
        evidence=claim.rows,
        try_=said(claim.remedy or rule.remedy, tags),
        part_of=claim.part_of,
        thresholds=rule.thresholds,
    )
