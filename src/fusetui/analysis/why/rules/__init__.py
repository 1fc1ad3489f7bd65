"""The rules, one file each, all with the name of their rule: adding a rule is adding a file."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from typing import NamedTuple

import msgspec

from fusetui.analysis.why.advice import said, tags_of
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.model import Finding, Unknown
from fusetui.analysis.why.rule import CannotTell, Claim, Rule, is_worth


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, by its id."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return tuple(import_module(f"{__name__}.{name}").RULE for name in names)


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
    found = [
        finding if _is_part(finding, found) else msgspec.structs.replace(finding, part_of=None)
        for finding in found
    ]
    found.sort(key=lambda finding: -1 if finding.at_stake_ns is None else -finding.at_stake_ns)
    found.sort(key=lambda finding: finding.at_stake_ns is None)
    return Answers(tuple(found), tuple(unknown), below)


def _is_part(finding: Finding, found: list[Finding]) -> bool:
    """Whether what it is part of is told, and is no less than it."""
    wholes = [one.at_stake_ns or 0 for one in found if one.rule == finding.part_of]
    return bool(wholes) and (finding.at_stake_ns or 0) <= max(wholes)


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
