"""A rule asked about a few events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from fusetui.analysis.why.account import Accounts
from fusetui.analysis.why.engine import collect_findings
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.model import Finding, Unknown
from fusetui.trace import Trace

Events = Sequence[dict[str, Any]]
Ask = Callable[..., list[Finding]]
Lack = Callable[..., list[Unknown]]


@pytest.fixture
def found(trace_of: Callable[..., Trace]) -> Ask:
    """What a rule finds in these events; keywords become keys of the file."""

    def ask(rule: str, events: Events, **keys: Any) -> list[Finding]:
        findings = collect_findings(Facts(Accounts(trace_of(events, **keys)))).findings
        return [finding for finding in findings if finding.rule == rule]

    return ask


@pytest.fixture
def lacking(trace_of: Callable[..., Trace]) -> Lack:
    """What a rule cannot tell of these events."""

    def ask(rule: str, events: Events, **keys: Any) -> list[Unknown]:
        unknown = collect_findings(Facts(Accounts(trace_of(events, **keys)))).unknown
        return [lack for lack in unknown if lack.rule == rule]

    return ask
