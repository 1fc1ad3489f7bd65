"""The documents of `why --json` and `gaps --json`. Start times are relative to `base_ns`."""

from __future__ import annotations

from typing import Any

from fusetui.analysis.why.model import Finding, Gap, StepAccount, Why
from fusetui.trace.model.columns import Trace

Document = dict[str, Any]


def why_document(found: Why, trace: Trace) -> Document:
    """The document for one trace; evidence is given as indices in traceEvents."""
    return {
        "file": found.file,
        "base_ns": str(found.base_ns),
        "about": found.about or None,
        "devices": found.devices,
        "steps_by": found.steps_by or None,
        "steps": [_step(one, found.base_ns) for one in found.steps],
        **gaps_document(found),
        "ceiling": found.ceiling,
        "modules": found.modules.modules if found.modules else None,
        "findings": [_finding(one, trace) for one in found.findings],
        "cannot_tell": found.cannot_tell,
        "cpu": found.cpu,
    }


def gaps_document(found: Why) -> Document:
    """The longest gaps, or all; `gaps_count` is the total number."""
    return {
        "gaps_count": found.gaps_count,
        "gaps": [_gap(one, found.base_ns) for one in found.gaps],
    }


def _step(step: StepAccount, base_ns: int) -> Document:
    return {
        "name": step.name,
        "start_ns": step.start_ns - base_ns,
        "dur_ns": step.dur_ns,
        "devices": step.devices,
    }


def _gap(gap: Gap, base_ns: int) -> Document:
    return {
        "device": gap.device,
        "start_ns": gap.start_ns - base_ns,
        "dur_ns": gap.dur_ns,
        "idle": gap.idle,
        "previous": gap.previous,
        "next": gap.next,
        "op": gap.op,
        "annotation": gap.annotation,
        "module": gap.module,
        "frame": gap.frame,
        "drained_by": gap.drained_by,
    }


def _finding(finding: Finding, trace: Trace) -> Document:
    return {
        "rule": finding.rule,
        "text": finding.text,
        "at_stake_ns": finding.at_stake_ns,
        "share": finding.share,
        "certainty": finding.certainty,
        "why_likely": finding.why_likely,
        "evidence": [int(trace.order[row]) for row in finding.evidence],
        "try": finding.try_,
        "part_of": finding.part_of,
        "thresholds": finding.thresholds,
    }
