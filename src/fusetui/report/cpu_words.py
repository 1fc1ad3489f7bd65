"""What the time of CPU threads goes to, in words: the breakdown of a trace without GPU
events."""

from __future__ import annotations

from fusetui.analysis.why.model import CpuWork, Share
from fusetui.text.figures import percent
from fusetui.text.tables import cut

NAMES_TOLD = 3  # of each kind, in a sentence
# of the CPU time; an op or function with less is not named in a sentence
LEAST_TOLD = 0.01


def cpu_parts(found: CpuWork) -> list[tuple[str, tuple[Share, ...]]]:
    """The time of CPU threads by op, by function, and where they wait; without what is
    empty."""
    parts = (
        ("op", found.ops),
        ("function", found.functions),
        ("wait", found.waits),
    )
    return [part for part in parts if part[1]]


def cpu_text(found: CpuWork, longest: int) -> str:
    """`CPU time by op: aten::mm 45 %, ...; by function: work (a.py:7) 30 %, ...`."""
    told = []
    for what, some in cpu_parts(found):
        large = [
            one for one in some[:NAMES_TOLD] if one.ns >= LEAST_TOLD * found.whole_ns
        ]
        shares = (
            f"{cut(one.name, longest)} {percent(one.ns, found.whole_ns)}"
            for one in large
        )
        if large:
            told.append(f"by {what}: {', '.join(shares)}")
    return f"CPU time {'; '.join(told)}." if told else ""
