"""Which slices of CPU threads the idle time of the devices is due to, also by name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from fusetui.analysis.why.account import Accounts
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.host import LAYERS, Host, together
from fusetui.analysis.why.kernels import by_text, sums
from fusetui.analysis.why.model import COMPILER, LOADER
from fusetui.analysis.why.rule import frame_text, module_text
from fusetui.text.figures import count, duration
from fusetui.trace.model.arrays import Flags, Int64s, Rows
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
from fusetui.trace.program.regions import is_module


def idle_causes(trace: Trace) -> tuple[Rows, Int64s] | None:
    """Rows of CPU threads, and how long (ns) a device waited for a launch while each of them was
    the innermost slice of the launching thread: a row may occur several times, and time in which
    only an annotation was recorded is left out. None if no launch call is known.
    """
    facts = Facts(Accounts(trace))
    if not facts.has_launches:
        return None
    return held(facts, np.ones(len(facts.idle), dtype=np.bool_), NOTHING, LAYERS[:-1])


def held(
    facts: Facts, which: Flags, leaving_out: Cover, layers: Sequence[tuple[Host, ...]]
) -> tuple[Rows, Int64s]:
    """Likewise in the host parts of some gaps, except during a cover (ns of the file), by the
    innermost slice of some layers."""
    idle, found = facts.idle, []
    for line, _, placed in facts.launched(which & (idle.called > idle.begin)):
        waiting = counted(placed(idle.begin), placed(idle.called))  # for each of several devices
        waiting = line.parts(waiting, outside(leaving_out))
        for kinds in layers:
            touching = [line.slices(kind).touching(waiting.start, waiting.end) for kind in kinds]
            rows, start, end = together(touching).parts()
            found.append((rows, waiting.within(start, end)))
            waiting = waiting.only(outside(union(start, end)))
    none = np.empty(0, dtype=np.int64)
    every = np.concatenate([none, *(rows for rows, _ in found)]).astype(np.intp)
    return every, np.concatenate([none, *(ns for _, ns in found)])


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
    every = Accounts(trace)
    whole = every.as_one()
    for account in whole.over(begin, end)[0]:
        found.update(account.idle)
    facts = Facts(every, (whole,), int(begin.min()), int(end.max()))
    loading = common(facts.loading, union(begin, end))
    compiling = without(common(facts.compiling, union(begin, end)), loading)
    for cause, cover in ((LOADER, loading), (COMPILER, compiling)):
        for kind, ns in zip(Host, facts.host_under(cover).sum(axis=1).tolist(), strict=True):
            found[f"host_{kind.name.lower()}"] -= ns
            found[cause] += ns
    means = {cause: round(ns / len(begin)) for cause, ns in found.items() if ns}
    if means:
        means[max(means, key=lambda cause: means[cause])] += idle_ns - sum(means.values())
    return means


SHOWN = 2  # names of one kind
NUMBER = re.compile(r"#[0-9]{1,18}\Z")
LEAST = 0.02  # of all time; a name with less is not told


class Holder(msgspec.Struct, frozen=True):
    """All slices of one name that held a launching thread."""

    name: str
    ns: int  # for which they were the innermost ones while a GPU waited for a launch
    calls: int

    @property
    def text(self) -> str:
        """`aten::conv2d (265 x, 21.3 ms)`."""
        return f"{self.name} ({count(self.calls)} x, {duration(self.ns)})"


class Holding(msgspec.Struct, frozen=True, eq=False):
    """What held the launching threads in some gaps."""

    facts: Facts
    rows: Rows
    ns: Int64s

    def of(self, kind: Host) -> list[Holder]:
        """The names of a kind with the most time."""
        own = self.facts.accounts.kinds[self.rows] == kind
        return self._named(self.rows[own], self.ns[own], _label)

    @property
    def modules(self) -> list[Holder]:
        """The modules with the most time, each without what lies in modules inside it."""
        spans = self.facts.kernels.origins.modules
        around = spans.rows_at(spans.around(self.rows)).astype(np.intp)
        return self._named(around[around >= 0], self.ns[around >= 0], module_text)

    def _named(self, rows: Rows, ns: Int64s, text: Callable[[str], str]) -> list[Holder]:
        each, place = np.unique(rows, return_inverse=True)
        total = sums(place, ns, len(each))
        found = by_text(self.facts.trace, each, total, text)
        every = [Holder(label, amount, calls) for label, (calls, amount) in found.items()]
        enough = [one for one in every if one.ns >= LEAST * int(self.ns.sum()) > 0]
        return sorted(enough, key=lambda one: -one.ns)[:SHOWN]


def _label(name: str) -> str:
    """Steps count as one, as do modules of one class."""
    return module_text(name) if is_module(name) else frame_text(NUMBER.sub("", name))


def holding(facts: Facts, which: Flags) -> Holding:
    """In the host parts of some gaps (see held), without what other rules explain."""
    return Holding(facts, *held(facts, which, facts.explained, LAYERS))
