"""All answers about one trace, or about a part of it."""

from __future__ import annotations

import msgspec

from fusetui.analysis.why.account import accounts
from fusetui.analysis.why.breakdown import breakdown_of
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.model import Unknown, Why
from fusetui.analysis.why.reading import args_read
from fusetui.analysis.why.recorded import lacks_of
from fusetui.analysis.why.rules import findings_of
from fusetui.analysis.why.selection import Asked, Selection, account_of, asked, on_this_device
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.program.modules import module_times


def why(trace: Trace, selection: Selection | None = None) -> Why:
    """The account, the gaps, the ceiling, the modules and the findings. Raises NotThere."""
    return explained(asked(accounts(trace), selection))[0]


def explained(question: Asked) -> tuple[Why, Facts]:
    """All answers, and what was computed for them."""
    with args_read(question.accounts.trace):
        found = account_of(question)
    facts = Facts(question.accounts, question.lines, *(question.window or ()))
    findings, unknown, below = findings_of(facts)
    modules = module_times(facts.kernels.origins) if question.is_whole else None
    answers = msgspec.structs.replace(
        found,
        findings=findings,
        cannot_tell=on_this_device(
            facts.trace, (*found.cannot_tell, *_without_ceiling(facts), *unknown)
        ),
        ceiling=facts.kernels.ceiling if found.devices else None,
        modules=modules,
        breakdown=breakdown_of(facts.kernels, modules) if found.devices else None,
        families=facts.kernels.family_ns,
        below=below,
        left_out=int(facts.steady is not facts),
        lacks=lacks_of(facts),
    )
    return answers, facts


def _without_ceiling(facts: Facts) -> list[Unknown]:
    """What the ceiling lacks where the work of no kernel is known."""
    trace, kernels = facts.trace, facts.kernels
    if not kernels.is_kernel.any():
        return []
    if not (trace.role == Role.OP).any():
        return [Unknown("ceiling", "CPU ops", "ProfilerActivity.CPU")]
    of_ops = (trace.op[kernels.rows] >= 0).any()
    if of_ops and (kernels.jobs.inputs.number < 0).all():
        return [Unknown("ceiling", "input shapes", "record_shapes=True")]
    return []
