"""Why no GPU event ran in some of the time of the steps."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from fusetui.trace.insights.account import Accounts, Device
from fusetui.trace.insights.cover import common, cover_of, without
from fusetui.trace.insights.facts import Facts
from fusetui.trace.insights.host import Host
from fusetui.trace.insights.words import WHERE, WHILE
from fusetui.trace.model.columns import Trace

Int64s = NDArray[np.int64]

LOADER, COMPILER = "data_loading", "compilation"
_LAUNCHES = "waiting for launches"
_SAID = {
    LOADER: "waiting for the data loader",
    COMPILER: "while code is compiled",
    **{reason: WHERE[reason] for reason in ("unlinked", "graph", "queued", "after")},
    **{reason: WHILE[reason] for reason in ("host_sync", "host_alloc")},
}


def idle_by_cause(trace: Trace, begin: Int64s, end: Int64s, idle_ns: int) -> dict[str, int]:
    """Means over some disjoint windows [begin, end) of the file: how long no GPU event ran (ns),
    by the reasons of the account, with all devices as one.

    Of the time before a launch, what a launching thread spent fetching a batch or compiling is
    taken out as `data_loading` and `compilation`. `idle_ns` is the mean of all, which these add up
    to.
    """
    found: Counter[str] = Counter()
    if not (len(trace.gpu_rows) and len(begin)):
        return {}
    accounts = Accounts(trace)
    rows = trace.gpu_rows
    pid = trace.track_of(int(rows[0])).pid
    device = Device(accounts, pid, "", rows, np.zeros(len(rows), dtype=np.bool_))
    for account in device.over(begin, end):
        found.update(account.idle)
    facts = Facts(accounts, (device,), int(begin.min()), int(end.max()))
    loading = common(facts.loading, cover_of(begin, end))
    compiling = without(common(facts.compiling, cover_of(begin, end)), loading)
    for cause, cover in ((LOADER, loading), (COMPILER, compiling)):
        for kind, ns in zip(Host, facts.host_under(cover)[0].sum(axis=1).tolist(), strict=True):
            found[f"host_{kind.name.lower()}"] -= ns
            found[cause] += ns
    means = {cause: round(ns / len(begin)) for cause, ns in found.items() if ns}
    if means:
        means[max(means, key=lambda cause: means[cause])] += idle_ns - sum(means.values())
    return means


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
