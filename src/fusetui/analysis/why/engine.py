"""Apply all rules to one trace, and sort their findings."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

import msgspec

from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.model import (
    NEGLIGIBLE_SHARE,
    Finding,
    Unknown,
    Wanted,
)
from fusetui.analysis.why.remedies import choose_remedy_words, find_tags
from fusetui.analysis.why.rule import Claim, Rule, is_finding, run_rule
from fusetui.analysis.why.rules import (
    clocks,
    communication,
    cpu_only,
    drained,
    far_from_peak,
    first_runs,
    fusion,
    launches,
    memory,
    missing_work,
    products,
    recompiling,
    recording,
    separate_attention,
    unrecognized,
    unsteady,
    waiting,
    warm_up,
)
from fusetui.analysis.why.versions import add_versions

RULES: Final = (
    products.alignment,
    waiting.allocation,
    memory.casts_and_copies,
    clocks.clock_drop,
    communication.cpu_collectives,
    cpu_only.cpu_compilation,
    cpu_only.cpu_data_loading,
    cpu_only.cpu_hot,
    cpu_only.cpu_scalars,
    cpu_only.cpu_unrecorded,
    cpu_only.cpu_waits_for_gpu,
    launches.cpu_work,
    waiting.data_loading,
    drained.drained_by_sync,
    communication.exposed_communication,
    far_from_peak.far_from_peak,
    products.few_blocks,
    first_runs.first_compiled_kernels,
    fusion.fusable_run,
    missing_work.holes,
    launches.host_bound,
    launches.kernel_switches,
    memory.layout_changes,
    memory.memory_headroom,
    products.no_tensor_cores,
    far_from_peak.old_architecture,
    launches.optimizer_launches,
    communication.overlap_tax,
    clocks.power_capped,
    recompiling.recompilation,
    memory.recompute,
    recording.recording,
    launches.slow_launches,
    communication.small_collectives,
    launches.small_kernels,
    far_from_peak.tail_wave,
    separate_attention.unfused_attention,
    unrecognized.unrecognized_kernel,
    unsteady.unsteady,
    missing_work.waits_outside,
    warm_up.warm_up,
)
"""All rules, in the order of their names."""


class Answers(NamedTuple):
    """What all rules say about a trace."""

    findings: tuple[Finding, ...]
    """The largest upper bound first, then notes, then what is negligible."""
    wanted: tuple[Wanted | None, ...]
    """The change that each finding would have made; None if none can be replayed."""
    unknown: tuple[Unknown, ...]
    """What rules cannot tell, because it was not recorded."""
    below: dict[str, int]
    """By rule the time at stake (ns) that is too little for a finding."""


def run_rules_of_columns(facts: Facts) -> None:
    """Run the rules that need only the columns of the trace.

    Meanwhile other threads read the details of events from the file. The answers of the
    rules are kept, so that `collect_findings` finds them.
    """
    for rule in RULES:
        if not (rule.of_kernels or rule.reads):
            run_rule(facts, rule)


class _Reported(NamedTuple):
    """A finding, and the change whose gain is estimated for it.

    The change is None if none can be replayed.
    """

    finding: Finding
    wanted: Wanted | None


def collect_findings(facts: Facts) -> Answers:
    """Ask every rule about one trace, or about a step or a window of it.

    The findings are ordered by their upper bounds, the largest first. Those without an
    upper bound follow, and negligible findings come last. Time that is too short for a
    finding is added up by rule.
    """
    tags = find_tags(facts)

    reported: list[_Reported] = []
    unknown: list[Unknown] = []
    below: Counter[str] = Counter()
    for rule in RULES:
        rule_facts = facts.steady_facts if rule.of_kernels else facts
        answer = run_rule(rule_facts, rule)
        if answer.lack is not None:
            missing = answer.lack.missing
            unknown.append(Unknown(rule.id, missing, answer.lack.record_with))

        for claim in answer.claims:
            if claim.at_stake_ns is None or is_finding(rule_facts, rule, claim):
                reported.append(_report_claim(rule, claim, rule_facts, tags))
            else:
                below[rule.id] += claim.at_stake_ns

    reported = _clear_missing_wholes(reported)
    reported = _mark_negligible(reported, _find_compared_time(facts))
    reported.sort(key=lambda report: _rank_by_upper_bound(report.finding))

    return Answers(
        findings=tuple(report.finding for report in reported),
        wanted=tuple(report.wanted for report in reported),
        unknown=tuple(unknown),
        below=below,
    )


def _report_claim(
    rule: Rule, claim: Claim, facts: Facts, tags: frozenset[str]
) -> _Reported:
    """Turn a claim of a rule into a finding, with the change that would save its time.

    A note, which has no time at stake, has no such change.

    Args:
        facts: What the rule was asked about.
        tags: What holds for the trace; see `find_tags`.
    """
    return _Reported(
        finding=_make_finding(rule, claim, facts, tags),
        wanted=claim.wanted if claim.at_stake_ns else None,
    )


def _clear_missing_wholes(reported: list[_Reported]) -> list[_Reported]:
    """Clear `part_of` of findings whose whole is not reported or is smaller.

    A finding is part of another rule's finding only if that rule reports at least as
    much time.
    """
    largest_ns_of_rule: dict[str, int] = {}
    for finding, _ in reported:
        known_ns = largest_ns_of_rule.get(finding.rule, 0)
        largest_ns_of_rule[finding.rule] = max(known_ns, finding.at_stake_ns or 0)

    result = []
    for finding, wanted in reported:
        if finding.part_of is not None:
            part_ns = finding.at_stake_ns or 0
            whole_ns = largest_ns_of_rule.get(finding.part_of)
            if whole_ns is None or part_ns > whole_ns:
                finding = msgspec.structs.replace(finding, part_of=None)

        result.append(_Reported(finding, wanted))

    return result


def _mark_negligible(reported: list[_Reported], compared_ns: int) -> list[_Reported]:
    """Mark the findings as negligible whose upper bound is too small.

    Args:
        compared_ns: An upper bound below NEGLIGIBLE_SHARE of this time is too small.
    """
    least_ns = NEGLIGIBLE_SHARE * compared_ns
    result = []
    for finding, wanted in reported:
        if finding.at_stake_ns is not None and finding.at_stake_ns < least_ns:
            finding = msgspec.structs.replace(finding, negligible=True)
        result.append(_Reported(finding, wanted))

    return result


def _rank_by_upper_bound(finding: Finding) -> tuple[bool, bool, int]:
    """Return the key that sorts findings, the most important first.

    Negligible findings come after all others, and notes after findings with an upper
    bound. Otherwise the largest upper bound comes first.
    """
    is_note = finding.at_stake_ns is None
    upper_bound_ns = finding.at_stake_ns or 0
    return finding.negligible, is_note, -upper_bound_ns


def _find_compared_time(facts: Facts) -> int:
    """Return the time with which upper bounds are compared, added up over the devices.

    That is the span, or the steps together if those are shorter.
    """
    if facts.window is not None or not len(facts.steps):
        return facts.span_ns

    steps_ns = int((facts.steps.end - facts.steps.start).sum())
    return min(facts.span_ns, max(1, len(facts.devices)) * steps_ns)


def _make_finding(
    rule: Rule, claim: Claim, facts: Facts, tags: frozenset[str]
) -> Finding:
    """Turn a claim of a rule into the record that is reported.

    The evidence is the rows of the claim, else the longest of its kernels. The remedy
    is that of the claim, else that of the rule.

    Args:
        facts: What the rule was asked about.
        tags: What holds for the trace, to choose the words of the remedy; see
            `find_tags`.
    """
    evidence = claim.rows
    if not evidence and claim.kernels is not None:
        evidence = facts.kernels.choose_longest_rows(claim.kernels)

    share = None
    if claim.at_stake_ns and facts.span_ns > 0:
        share = claim.at_stake_ns / facts.span_ns

    remedy = choose_remedy_words(claim.remedy or rule.remedy, tags)
    return Finding(
        rule=rule.id,
        text=claim.text,
        certainty="likely" if claim.why_likely else "certain",
        at_stake_ns=claim.at_stake_ns,
        share=share,
        why_likely=claim.why_likely,
        evidence=evidence,
        try_=add_versions(remedy, facts.trace),
        part_of=claim.part_of,
        thresholds=rule.thresholds,
    )
