"""What holds the threads that launch, by name: ops, frames, calls and modules, with counts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from fusetui.analysis.why.causes import held
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.host import LAYERS, Host
from fusetui.analysis.why.idle import Flags, Int64s, Rows
from fusetui.analysis.why.wording import frame_text, module_text
from fusetui.text.figures import count, duration
from fusetui.trace.model.intervals import joined
from fusetui.trace.program.regions import is_module

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
        names, place = np.unique(self.facts.trace.name[rows], return_inverse=True)
        labels = [text(self.facts.trace.names[number]) for number in names.tolist()]
        found: dict[str, Holder] = {}
        total = np.zeros(len(names), dtype=np.int64)
        np.add.at(total, place, ns)
        once = np.unique(rows, return_index=True)[1]
        calls = np.bincount(place[once], minlength=len(names))
        for label, amount, number in zip(labels, total.tolist(), calls.tolist(), strict=True):
            before = found.get(label, Holder(label, 0, 0))
            found[label] = Holder(label, before.ns + amount, before.calls + number)
        enough = [one for one in found.values() if one.ns >= LEAST * int(self.ns.sum()) > 0]
        return sorted(enough, key=lambda one: -one.ns)[:SHOWN]


def _label(name: str) -> str:
    """Steps count as one, as do modules of one class."""
    return module_text(name) if is_module(name) else frame_text(NUMBER.sub("", name))


def holding(facts: Facts, which: Sequence[Flags]) -> Holding:
    """In the host parts of some gaps (see causes.held), without what other rules explain."""
    explained = joined(facts.loading, facts.compiling, facts.warming)
    return Holding(facts, *held(facts, which, explained, LAYERS))
