"""`why --markdown`: Markdown for a pull request or an issue."""

from __future__ import annotations

from collections.abc import Sequence

from fusetui.analysis.why.breakdown_text import breakdown_parts, is_limit
from fusetui.analysis.why.model import Finding, Gap, Share, Why
from fusetui.analysis.why.telling import (
    HIDDEN,
    account_columns,
    answer,
    ceiling_text,
    covered_by,
    device_text,
    listed,
    not_recorded,
)
from fusetui.analysis.why.typical import CLASSES as PARTS
from fusetui.analysis.why.words import CLASSES, REASONS, SHORT
from fusetui.text.figures import count, duration, percent
from fusetui.text.printable import markdown, markdown_table

GAPS = 5
SHARES = 5  # kernels, and modules


def why_markdown(found: Why) -> str:
    """The answer, the account, the ceiling, the findings and the longest gaps."""
    lines = [f"**{markdown(found.file)}**: {markdown(answer(found))}", ""]
    if found.devices:
        lines += [*_account(found), ""]
    else:
        lines += [*_threads(found), ""]
    for what, some, whole in breakdown_parts(found) if is_limit(found) else ():
        lines += [*_shares(what, some[:SHARES], whole), ""]
    lines += [markdown(ceiling_text(found)), ""] if ceiling_text(found) else []
    lines += [*_findings(found.findings), *_gaps(listed(found)[:GAPS], found.base_ns)]
    lines.append(markdown(not_recorded(found)))
    return "\n".join(lines).rstrip() + "\n"


def _shares(what: str, some: Sequence[Share], whole_ns: int) -> list[str]:
    rows = [
        (markdown(one.name), duration(one.ns), percent(one.ns, whole_ns), count(one.count))
        for one in some
    ]
    return markdown_table([what, "GPU time", "share", "count"], rows, [0])


def _account(found: Why) -> list[str]:
    columns = account_columns(found)
    main = columns[0][1]
    names = [(name, CLASSES[name]) for name in PARTS]
    reasons = sorted(REASONS, key=lambda name: -main[name])
    names += [(name, f"idle, {REASONS[name]}") for name in reasons]
    rows = [
        (
            markdown(text),
            *(cell for _, sums in columns for cell in _share(sums[name], sums["span"])),
        )
        for name, text in [*names, *HIDDEN.items()]
        if any(sums[name] for _, sums in columns)
    ]
    titles = [cell for title, _ in columns for cell in (title, "share")]
    return markdown_table([markdown(device_text(found)), *titles], rows, [0])


def _share(ns: int, span: int) -> tuple[str, str]:
    return (duration(ns), percent(ns, span)) if ns else ("", "")


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
