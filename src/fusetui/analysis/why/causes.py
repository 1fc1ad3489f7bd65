"""Which slices of CPU threads the idle time of the devices is due to, also by name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from fusetui.analysis.why.account import Accounts
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.host import LAYERS, Host, together
from fusetui.analysis.why.kernels import by_text
from fusetui.analysis.why.model import COMPILER, LOADER
from fusetui.text.cutting import clip
from fusetui.text.figures import count, duration
from fusetui.text.patterns import late
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
from fusetui.trace.program.regions import MODULE_PREFIX, is_module
from fusetui.trace.program.regions import NUMBER as MODULE_NUMBER


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
    facts: Facts, which: Flags, leaving_out: Cover, layers: Sequence[tuple[Host, ...]]
) -> tuple[Rows, Int64s]:
    """Likewise in the host parts of some gaps, except during a cover (ns of the file),
    by the innermost slice of some layers."""
    idle, found = facts.idle, []
    for line, _, placed in facts.launched(which & (idle.called > idle.begin)):
        # for each of several devices
        waiting = counted(placed(idle.begin), placed(idle.called))
        waiting = line.parts(waiting, outside(leaving_out))
        for kinds in layers:
            touching = [
                line.slices(kind).touching(waiting.start, waiting.end) for kind in kinds
            ]
            rows, start, end = together(touching).parts()
            found.append((rows, waiting.within(start, end)))
            waiting = waiting.only(outside(union(start, end)))
    none = np.empty(0, dtype=np.int64)
    every = np.concatenate([none, *(rows for rows, _ in found)]).astype(np.intp)
    return every, np.concatenate([none, *(ns for _, ns in found)])


def idle_by_cause(
    trace: Trace, begin: Int64s, end: Int64s, idle_ns: int
) -> dict[str, int]:
    """Means over some disjoint windows [begin, end) of the file: how long no GPU event
    ran (ns), by the reasons of the account, with all devices as one. Of the time before
    a launch, what a launching thread spent fetching a batch or compiling is taken out
    as `data_loading` and `compilation`. `idle_ns` is the mean of all, which these add
    up to."""
    found: Counter[str] = Counter()
    if not (len(trace.gpu_rows) and len(begin)):
        return {}
    every = Accounts(trace)
    whole = every.as_one()
    for account in whole.at(np.zeros(len(begin), dtype=np.intp), begin, end):
        found.update(account.idle)
    facts = Facts(every, (whole,), (int(begin.min()), int(end.max())))
    loading = common(facts.loading, union(begin, end))
    compiling = without(common(facts.compiling, union(begin, end)), loading)
    for cause, cover in ((LOADER, loading), (COMPILER, compiling)):
        for kind, ns in zip(
            Host, facts.host_under(cover).sum(axis=1).tolist(), strict=True
        ):
            found[f"host_{kind.name.lower()}"] -= ns
            found[cause] += ns
    means = {cause: round(ns / len(begin)) for cause, ns in found.items() if ns}
    if means:
        means[max(means, key=lambda cause: means[cause])] += idle_ns - sum(
            means.values()
        )
    return means


FRAME = late(r"(?:.*/)?([^/]+)\((\d+)\): (.+)", re.DOTALL)
BUILT_IN = late(r"<built-in (?:method|function) (\S+)")
LONGEST_TEXT = 60


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
    return frame_text(MODULE_NUMBER.sub("", name.removeprefix(MODULE_PREFIX)), most)


SHOWN = 2  # names of one kind
NUMBER = late(r"#[0-9]{1,18}\Z")
LEAST = 0.02  # of all time; a name with less is not told


def holders(
    trace: Trace, rows: Rows, ns: Int64s, text: Callable[[str], str], all_ns: int
) -> list[tuple[str, int]]:
    """Of some slices, with the time for which each held a launching thread, the names
    with the most time: `aten::conv2d (265 x, 21.3 ms)`, and these ns; `all_ns`: of all
    slices."""
    each, place = np.unique(rows, return_inverse=True)
    found = by_text(trace, each, summed(place, ns, len(each)), text)
    enough = [
        (name, *one) for name, one in found.items() if one[1] >= LEAST * all_ns > 0
    ]
    longest = sorted(enough, key=lambda one: -one[2])[:SHOWN]
    return [
        (f"{name} ({count(calls)} x, {duration(held)})", held)
        for name, calls, held in longest
    ]


def label(name: str) -> str:
    """Steps count as one, as do modules of one class."""
    return module_text(name) if is_module(name) else frame_text(NUMBER.sub("", name))
