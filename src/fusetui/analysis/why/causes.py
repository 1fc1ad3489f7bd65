"""Which slices of CPU threads the idle time of the devices is due to, also by name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from fusetui.analysis.why.account import Accounts
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.kernels import by_text
from fusetui.analysis.why.model import COMPILER, LOADER
from fusetui.analysis.why.thread_activity import LAYERS, ThreadActivity, merged_slices
from fusetui.text.cutting import clip
from fusetui.text.figures import count, duration
from fusetui.text.patterns import lazy_pattern
from fusetui.text.printable import printable
from fusetui.trace.model.arrays import Flags, Int64s, Rows, summed
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import (
    NOTHING,
    Cover,
    common,
    counted,
    outside,
    union,
    without,
)
from fusetui.trace.program.regions import MODULE_PREFIX, NUMBER_OF_MODULE, is_module


def idle_causes(trace: Trace) -> tuple[Rows, Int64s] | None:
    """Rows of CPU threads, and how long (ns) a device waited for a launch while each of
    them was the innermost slice of the launching thread: a row may occur several times,
    and time in which only an annotation was recorded is left out. None if no launch
    call is known."""
    facts = Facts(Accounts(trace))
    if not facts.has_launches:
        return None
    return held(facts, np.ones(len(facts.idle), dtype=np.bool_), NOTHING, LAYERS[:-1])


def held(
    facts: Facts,
    which: Flags,
    leaving_out: Cover,
    layers: Sequence[tuple[ThreadActivity, ...]],
) -> tuple[Rows, Int64s]:
    """Likewise in the host parts of some gaps, except during a cover (ns of the file),
    by the innermost slice of some layers."""
    idle = facts.idle
    rows = [np.empty(0, dtype=np.intp)]
    times = [np.empty(0, dtype=np.int64)]
    for line, _, placed in facts.launched(which & (idle.called > idle.begin)):
        # for each of several devices
        waiting = counted(placed(idle.begin), placed(idle.called))
        waiting = line.parts(waiting, outside(leaving_out))
        for kinds in layers:
            slices = []
            for kind in kinds:
                of_kind = line.slices(kind)
                slices.append(of_kind.touching(waiting.start, waiting.end))
            innermost = merged_slices(slices).parts()
            rows.append(innermost.rows)
            times.append(waiting.within(innermost.start, innermost.end))
            waiting = waiting.only(outside(union(innermost.start, innermost.end)))
    return np.concatenate(rows), np.concatenate(times)


def idle_by_cause(
    trace: Trace, begin: Int64s, end: Int64s, idle_ns: int
) -> dict[str, int]:
    """Means over some disjoint windows [begin, end) of the file: how long no GPU event
    ran (ns), by the reasons of the account, with all devices as one. Of the time before
    a launch, what a launching thread spent fetching a batch or compiling is taken out
    as `data_loading` and `compilation`. `idle_ns` is the mean of all, which these add
    up to."""
    if not (len(trace.gpu_rows) and len(begin)):
        return {}
    accounts = Accounts(trace)
    as_one = accounts.as_one()
    ns_of_cause: Counter[str] = Counter()
    for account in as_one.at(np.zeros(len(begin), dtype=np.intp), begin, end):
        ns_of_cause.update(account.idle)
    facts = Facts(accounts, (as_one,), (int(begin.min()), int(end.max())))
    windows = union(begin, end)
    loading = common(facts.loading, windows)
    compiling = without(common(facts.compiling, windows), loading)
    for cause, cover in ((LOADER, loading), (COMPILER, compiling)):
        ns_of_kind = facts.host_under(cover).sum(axis=1).tolist()
        for kind, ns in zip(ThreadActivity, ns_of_kind, strict=True):
            ns_of_cause[f"host_{kind.name.lower()}"] -= ns
            ns_of_cause[cause] += ns
    means = {cause: round(ns / len(begin)) for cause, ns in ns_of_cause.items() if ns}
    if means:
        longest = max(means, key=lambda cause: means[cause])
        means[longest] += idle_ns - sum(means.values())  # what rounding lost
    return means


FRAME: Final = lazy_pattern(r"(?:.*/)?([^/]+)\((\d+)\): (.+)", re.DOTALL)
BUILT_IN: Final = lazy_pattern(r"<built-in (?:method|function) (\S+)")
LONGEST_TEXT: Final = 60
"""Characters."""


def frame_text(name: str, most: int = LONGEST_TEXT) -> str:
    """A frame as a user would name it: `zoom (_interpolation.py:691)`, `zoom_shift`."""
    name = name[:1000]
    if found := BUILT_IN.match(name):
        name = found[1].removesuffix(">")
    elif found := FRAME.fullmatch(name):
        name = f"{found[3]} ({found[1]}:{found[2]})"
    return printable(clip(name, most))


def module_text(name: str, most: int = LONGEST_TEXT) -> str:
    """A module without its number, or an annotation: `Qwen2MLP`, `## forward ##`."""
    return frame_text(NUMBER_OF_MODULE.sub("", name.removeprefix(MODULE_PREFIX)), most)


MAX_NAMES: Final = 2
"""Of one kind."""
_STEP_NUMBER: Final = lazy_pattern(r"#[0-9]{1,18}\Z")
LEAST_SHARE: Final = 0.02
"""Of all time; a name with less is not told."""


def holders(
    trace: Trace, rows: Rows, ns: Int64s, text: Callable[[str], str], all_ns: int
) -> list[tuple[str, int]]:
    """Of some slices, with the time for which each held a launching thread, the names
    with the most time: `aten::conv2d (265 x, 21.3 ms)`, and these ns; `all_ns`: of all
    slices."""
    slices, place = np.unique(rows, return_inverse=True)
    by_name = by_text(trace, slices, summed(place, ns, len(slices)), text)
    considerable = {}
    for name, (calls, held_ns) in by_name.items():
        if held_ns >= LEAST_SHARE * all_ns > 0:
            considerable[f"{name} ({count(calls)} x, {duration(held_ns)})"] = held_ns
    longest_first = sorted(considerable.items(), key=lambda item: -item[1])
    return longest_first[:MAX_NAMES]


def label(name: str) -> str:
    """Steps count as one, as do modules of one class."""
    return (
        module_text(name) if is_module(name) else frame_text(_STEP_NUMBER.sub("", name))
    )
