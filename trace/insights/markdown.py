"""`why --markdown`: Markdown for a pull request or an issue."""

from __future__ import annotations

from collections.abc import Sequence

from fusetui.trace.insights.model import Finding, Gap, Why
from fusetui.trace.insights.telling import answer, covered_by, device_text, named, not_recorded
from fusetui.trace.insights.versus import CLASSES as PARTS
from fusetui.trace.insights.versus import Versus, totals
from fusetui.trace.insights.words import CLASSES, REASONS, SHORT
from fusetui.trace.text.figures import duration, percent
from fusetui.trace.text.markdown import markdown, markdown_table

GAPS = 5


def why_markdown(found: Why) -> str:
    """The answer, the account of the span or window, the findings and the longest gaps."""
    lines = [f"**{markdown(found.file)}**: {markdown(answer(found))}", ""]
    if found.devices:
        lines += [*_account(found), ""]
    else:
        lines += [*_threads(found), ""]
    lines += [*_findings(found.findings), *_gaps(found.gaps[:GAPS], found.base_ns)]
    lines.append(markdown(not_recorded(found)))
    return "\n".join(lines).rstrip() + "\n"


def versus_markdown(found: Versus) -> str:
    """A table of the classes of both sides."""
    rows = [
        (
            markdown(named(one.name)),
            duration(one.a_ns),
            duration(one.b_ns),
            _delta(one.b_ns - one.a_ns),
        )
        for one in found.change
    ]
    lines = [f"**{markdown(found.a.file)} -> {markdown(found.b.file)}**", ""]
    return "\n".join([*lines, *markdown_table([found.of, "A", "B", "change"], rows, [0])]) + "\n"


def _delta(ns: int) -> str:
    return f"{'+' if ns > 0 else ''}{duration(ns)}"


def _account(found: Why) -> list[str]:
    sums = totals(found.devices)
    names = [(name, CLASSES[name]) for name in PARTS]
    reasons = sorted(REASONS, key=lambda name: -sums[name])
    names += [(name, f"idle, {REASONS[name]}") for name in reasons]
    rows = [
        (markdown(text), duration(sums[name]), percent(sums[name], sums["span"]))
        for name, text in names
        if sums[name]
    ]
    return markdown_table([markdown(device_text(found)), "time", "share"], rows, [0])


def _threads(found: Why) -> list[str]:
    rows = [
        (
            markdown(one.label),
            *map(duration, (one.op_ns, one.python_ns, one.wait_ns, one.nothing_ns)),
        )
        for one in found.cpu
    ]
    return markdown_table(["thread", "ops", "Python", "waiting", "nothing"], rows, [0])


def _findings(findings: Sequence[Finding]) -> list[str]:
    lines = [f"{n}. {markdown(one.text)}{_remedy(one)}" for n, one in enumerate(findings, 1)]
    return [*lines, ""] if lines else []


def _remedy(finding: Finding) -> str:
    return f" Try: {markdown(finding.try_)}" if finding.try_ else ""


def _gaps(gaps: Sequence[Gap], base_ns: int) -> list[str]:
    rows = [
        (
            duration(gap.dur_ns),
            duration(gap.start_ns - base_ns),
            SHORT[max(gap.idle, key=lambda name: gap.idle[name])],
            markdown(covered_by(gap)),
        )
        for gap in gaps
    ]
    lines = markdown_table(["idle for", "from", "mostly", "while"], rows, [2, 3])
    return [*lines, ""] if rows else []
