"""Why no GPU event ran in some of the time of the steps."""

from __future__ import annotations

from collections import Counter

from fusetui.analysis.why.idle_reasons import COMPILER, IDLE, LOADER

_LAUNCHES = "waiting for launches"
_SAID = {
    LOADER: "waiting for the data loader",
    COMPILER: "while code is compiled",
    **{
        reason: IDLE[reason].where
        for reason in ("unlinked", "graph", "launch_latency", "queued", "after")
    },
    **{reason: IDLE[reason].while_ for reason in ("host_sync", "host_alloc")},
}


def said(cause: str) -> str:
    """`waiting for the data loader`: causes that are said alike are told together."""
    return _SAID.get(cause, _LAUNCHES)


def changes(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    """What is said of each cause, and how much more idle time it makes in B (ns); by size."""
    found: Counter[str] = Counter()
    for side, sign in ((b, 1), (a, -1)):
        for cause, ns in side.items():
            found[said(cause)] += sign * ns
    return {text: ns for text, ns in sorted(found.items(), key=lambda item: -abs(item[1])) if ns}
