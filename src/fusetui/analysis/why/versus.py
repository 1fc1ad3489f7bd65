"""What changed from one trace to another, by the classes of the account."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fusetui.analysis.why.compared import FEWEST, Compared, compared
from fusetui.analysis.why.gaps import IDLE
from fusetui.analysis.why.model import Why
from fusetui.analysis.why.typical import CLASSES, median_step, steps_tell, totals, working


class Change(msgspec.Struct, frozen=True):
    """One class on both sides, summed over devices; ns."""

    name: str = msgspec.field(name="class")
    a_ns: int
    b_ns: int


class Moved(msgspec.Struct, frozen=True):
    """GPU time of one module or one family of kernels on both sides; ns."""

    name: str
    a_ns: int
    b_ns: int


class Versus(msgspec.Struct, frozen=True):
    """Two traces. The four classes of `change` add up to its first row, the span, and the reasons
    after them to idle, on each side.

    `modules` (the GPU time of nothing further inside, by path) and `families` have what differs,
    the largest change first: means of all steps where steps are compared, else of all that was
    asked about. `findings`: what became of them.
    """

    a: Why
    b: Why
    of: str  # what is compared: the median step of each, or the span of its devices
    change: tuple[Change, ...]
    modules: tuple[Moved, ...]
    families: tuple[Moved, ...]
    findings: tuple[Compared, ...]
    is_sure: bool  # enough steps are compared to know how much they differ by themselves


def versus(a: Why, b: Why) -> Versus:
    """Compares the median steps if those of both sides hold the work, else the spans."""
    both = steps_tell(a) and steps_tell(b)
    counts = [len(one.steps) if both else 1 for one in (a, b)]
    sides = [totals(median_step(one.steps).devices if both else one.devices) for one in (a, b)]
    before, after = sides
    steps = [working(one.steps) if both else () for one in (a, b)]
    change = tuple(
        Change(name, before[name], after[name])
        for name in ("span", *CLASSES, *IDLE)
        if before[name] or after[name]
    )
    return Versus(
        a=a,
        b=b,
        of="median step" if both else "span",
        change=change,
        modules=_moved(_module_ns(a), _module_ns(b), counts),
        families=_moved(a.families, b.families, counts),
        findings=compared(a, b, steps),
        is_sure=max(map(len, steps)) >= FEWEST,
    )


def _module_ns(found: Why) -> dict[str, int]:
    modules = found.modules.modules if found.modules else ()
    return {one.path: one.gpu_self_ns for one in modules}


def _moved(a: dict[str, int], b: dict[str, int], counts: Sequence[int]) -> tuple[Moved, ...]:
    """What differs of the means over so many steps, rounded down."""
    names = dict.fromkeys((*a, *b))
    every = (Moved(n, a.get(n, 0) // counts[0], b.get(n, 0) // counts[1]) for n in names)
    moved = [one for one in every if one.a_ns != one.b_ns]
    return tuple(sorted(moved, key=lambda one: -abs(one.b_ns - one.a_ns)))
