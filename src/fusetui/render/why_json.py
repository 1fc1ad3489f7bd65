"""The documents of `why --json` and `gaps --json`. Start times count from `base_ns`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fusetui.trace.insights.model import (
    DeviceAccount,
    Finding,
    Gap,
    StepAccount,
    ThreadAccount,
    Unknown,
    Why,
)
from fusetui.trace.insights.versus import Versus
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import exact_id

Document = dict[str, Any]


def why_document(found: Why, trace: Trace) -> Document:
    """One trace; places of evidence are those in its traceEvents."""
    ceiling = found.ceiling
    return {
        "file": found.file,
        "base_ns": str(found.base_ns),
        "about": found.about or None,
        "devices": [_device(one) for one in found.devices],
        "steps_by": found.steps_by or None,
        "steps": [_step(one, found.base_ns) for one in found.steps],
        **gaps_document(found),
        "ceiling": ceiling
        and {
            "known_ns": ceiling.known_ns,
            "unknown_ns": ceiling.unknown_ns,
            "at_stake_ns": ceiling.at_stake_ns,
        },
        "modules": [
            {
                "module": one.module,
                "path": one.path,
                "gpu_ns": one.gpu_ns,
                "kernels": one.kernels,
                "count": one.count,
            }
            for one in found.modules
        ],
        "findings": [_finding(one, trace) for one in found.findings],
        "cannot_tell": unknown_documents(found.cannot_tell),
        "cpu": [_thread(one) for one in found.cpu],
    }


def gaps_document(found: Why) -> Document:
    """The longest gaps, or all; `gaps_count` is the number of all."""
    return {
        "gaps_count": found.gaps_count,
        "gaps": [_gap(one, found.base_ns) for one in found.gaps],
    }


def versus_document(found: Versus, traces: tuple[Trace, Trace]) -> Document:
    """Two traces and what changed."""
    return {
        "a": why_document(found.a, traces[0]),
        "b": why_document(found.b, traces[1]),
        "change_of": found.of,
        "change": [{"class": one.name, "a_ns": one.a_ns, "b_ns": one.b_ns} for one in found.change],
    }


def unknown_documents(unknown: Iterable[Unknown]) -> list[Document]:
    return [
        {"rule": one.rule, "missing": one.missing, "record_with": one.record_with}
        for one in unknown
    ]


def _device(account: DeviceAccount) -> Document:
    return {
        "device": exact_id(account.device),
        "name": account.name,
        "span_ns": account.span_ns,
        "compute_ns": account.compute_ns,
        "exposed_comm_ns": account.exposed_comm_ns,
        "exposed_copy_ns": account.exposed_copy_ns,
        "idle_ns": account.idle_ns,
        "hidden_comm_ns": account.hidden_comm_ns,
        "hidden_copy_ns": account.hidden_copy_ns,
        "launch_latency_usual_ns": account.launch_latency_usual_ns,
        "idle": account.idle,
    }


def _step(step: StepAccount, base_ns: int) -> Document:
    return {
        "name": step.name,
        "start_ns": step.start_ns - base_ns,
        "dur_ns": step.dur_ns,
        "devices": [_device(one) for one in step.devices],
    }


def _gap(gap: Gap, base_ns: int) -> Document:
    return {
        "device": exact_id(gap.device),
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


def _thread(thread: ThreadAccount) -> Document:
    return {
        "process": exact_id(thread.process),
        "thread": exact_id(thread.thread),
        "label": thread.label,
        "span_ns": thread.span_ns,
        "op_ns": thread.op_ns,
        "python_ns": thread.python_ns,
        "wait_ns": thread.wait_ns,
        "nothing_ns": thread.nothing_ns,
        "annotation_ns": thread.annotation_ns,
    }
