"""Turns groups of items into rows, in the words of the user's program."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.diff.groups import Group
from fusetui.analysis.diff.items import KERNEL_MASK, Items
from fusetui.analysis.diff.model import ELSEWHERE, REPEATED, Kind, Row
from fusetui.analysis.diff.names import adds_up_parts, differences, identity, part
from fusetui.analysis.diff.noise import Noise, beyond_noise, noise_of
from fusetui.analysis.diff.ops import saved
from fusetui.analysis.diff.program_location import Program
from fusetui.analysis.diff.statistics import resolution
from fusetui.analysis.diff.work_kind import OTHER, of_all
from fusetui.text.figures import change, duration, plural
from fusetui.text.printable import printable
from fusetui.trace.model.op_names import stem


class Context(NamedTuple):
    """Where in the program a row is, and what sort of work it is."""

    where: str
    phase: str
    work: str
    compiled: str


_CHOSEN = re.compile(r"cudnn|miopen|convolution")
"""Ops whose kernels a library chooses among several algorithms."""

LOOKED_UP = 500
"""Shapes are looked up for at most this many fusions, because each has to be parsed."""


def rows(
    a: Items, b: Items, groups: Sequence[Group], programs: tuple[Program, Program]
) -> list[Row]:
    """One row for every group, in program order."""
    groups = _with_savings(a, groups)
    kinds = _kinds(a, b, groups)
    found = [
        (_pair if len(group.a) == len(group.b) == 1 else _row)(
            a, b, group, kind, _context(group, *programs)
        )
        for group, kind in zip(groups, kinds, strict=True)
    ]
    for n, group in enumerate(groups):
        if group.why == ELSEWHERE:
            found[n] = msgspec.structs.replace(found[n], kind=Kind.MOVED)
    return [found[n] for n in _program_order(a, b, groups)]


def _context(group: Group, a: Program, b: Program) -> Context:
    """Where the program does the work, according to A, or to B for work that only B has."""
    if group.named:
        return _of_block(group, a if group.a else b, "a" if group.a else "b")
    program, first = (a, group.a[0]) if group.a else (b, group.b[0])
    if len(group.a) + len(group.b) <= 2:
        work = next((s for s in _sorts(group, a, b) if s != OTHER), OTHER)
    else:
        work = of_all(set(_sorts(group, a, b)))
    sides = "a" if any(map(a.compiled, group.a)) else ""
    sides += "b" if any(map(b.compiled, group.b)) else ""
    return Context(program.places[first], program.phases[first], work, sides)


def _of_block(group: Group, program: Program, side: str) -> Context:
    """A block has many places, and may be of the forward and of the backward pass."""
    members = group.a or group.b
    phases = {program.phases[item] for item in members}
    compiled = side if any(map(program.compiled, members)) else ""
    return Context("", phases.pop() if len(phases) == 1 else "", REPEATED, compiled)


def _sorts(group: Group, a: Program, b: Program) -> list[str]:
    return [*(a.sorts[i] for i in group.a), *(b.sorts[j] for j in group.b)]


def _with_savings(a: Items, groups: Sequence[Group]) -> Sequence[Group]:
    """Adds to each fusion the tensors that it avoids, unless there are too many to look up."""
    fused = [n for n, group in enumerate(groups) if _is_chain(a, group)]
    if len(fused) > LOOKED_UP:
        return groups
    found = list(groups)
    for n in fused:
        spared = saved(a, groups[n].a)
        if spared:
            found[n] = msgspec.structs.replace(groups[n], why=f"{groups[n].why}; {spared}")
    return found


def _is_chain(a: Items, group: Group) -> bool:
    """Whether different ops became one kernel: then each used the result of the one before it."""
    return len(group.b) == 1 and len({a.op_names[i] for i in group.a}) > 1


def _pair(a: Items, b: Items, group: Group, kind: Kind, context: Context) -> Row:
    """The same as `_row` for a pair, but fast: most rows are pairs, and there may be very many."""
    i, j = group.a[0], group.b[0]
    a_ns, b_ns, op = a.times[i], b.times[j], a.op_names[i]
    names = a.names[i], b.names[j]
    said = [_change_of_op(op, b.op_names[j], names)]
    if kind is Kind.REPLACED:
        said.append(differences(*names) if any(names) else "")
    else:
        thing = "kernel" if a.work.gpu and b.work.gpu else "op"
        timed = "" if kind is Kind.SAME else f", {change(a_ns, b_ns)} time"
        if kind is Kind.SAME and 4 * abs(b_ns - a_ns) >= a_ns > 0:
            timed = f", may be noise: {_range(a, i)} -> {_range(b, j)}"
        said.append(f"the same {thing}{timed}")
    why = "; ".join([text for text in (*said, group.why) if text])
    rows = (a.rows[i],), (b.rows[j],)
    medians = a.medians[i], b.medians[j]
    where, phase, work, compiled = context
    times = a_ns, b_ns, 1, 1
    hidden = a.hidden[i], b.hidden[j]
    head = kind, op, names[:1], names[1:]
    return Row(*head, *times, why, *rows, where, True, *medians, phase, work, compiled, *hidden)


def _range(items: Items, item: int) -> str:
    """The shortest and the longest time of all steps."""
    times = items.samples[:, item]
    return f"{duration(int(times.min()))} to {duration(int(times.max()))}"


def _row(a: Items, b: Items, group: Group, kind: Kind, context: Context) -> Row:
    one, other = group.a, group.b
    chosen = kind is Kind.REPLACED and not group.together and _other_algorithm(a, b, group)
    main = any(part(name) == "main" for name in [a.names[i] for i in one])
    what = (
        f"another algorithm: {plural(len(one), 'kernel')}" if main else plural(len(one), "helper")
    )
    why = f"{what} -> {len(other)}; {group.why}" if chosen else group.why
    a_ns, b_ns = sum(a.times[i] for i in one), sum(b.times[j] for j in other)
    return Row(
        kind=kind,
        op=group.named or _op(a, b, group),
        a=tuple(a.names[i] for i in one),
        b=tuple(b.names[j] for j in other),
        a_ns=a_ns,
        b_ns=b_ns,
        a_count=len(one),
        b_count=len(other),
        why=why,
        a_rows=tuple(a.rows[i] for i in one),
        b_rows=tuple(b.rows[j] for j in other),
        where=context.where,
        a_median_ns=sum(a.medians[i] for i in one),
        b_median_ns=sum(b.medians[j] for j in other),
        phase=context.phase,
        work=context.work,
        compiled=context.compiled,
        a_hidden_ns=sum(a.hidden[i] for i in one),
        b_hidden_ns=sum(b.hidden[j] for j in other),
        together=group.together,
    )


def _kinds(a: Items, b: Items, groups: Sequence[Group]) -> list[Kind]:
    pairs = [n for n, group in enumerate(groups) if len(group.a) == len(group.b) == 1]
    one = np.array([groups[n].a[0] for n in pairs], dtype=np.intp)
    other = np.array([groups[n].b[0] for n in pairs], dtype=np.intp)
    same = (a.exact[one] & KERNEL_MASK) == (b.exact[other] & KERNEL_MASK)
    noise = noise_of(
        a.samples[:, one[same]],
        b.samples[:, other[same]],
        same_steps=np.array_equal(a.alike, b.alike),
    )
    timed = _timed(a, b, one, other, noise)
    kinds = [k if s else Kind.REPLACED for k, s in zip(timed, same.tolist(), strict=True)]
    known = dict(zip(pairs, kinds, strict=True))
    return [
        known[n] if n in known else _shape(a, b, group, noise) for n, group in enumerate(groups)
    ]


def _shape(a: Items, b: Items, group: Group, noise: Noise) -> Kind:
    """The kind of a group that is no pair."""
    if group.together:
        return _as_a_whole(a, b, group, noise) if _one_kernel(a, b, group) else Kind.REPLACED
    if not group.b:
        return Kind.REMOVED
    if not group.a:
        return Kind.ADDED
    if len(group.a) == len(group.b) or _other_algorithm(a, b, group):
        return Kind.REPLACED
    return Kind.FUSED if len(group.a) > len(group.b) else Kind.SPLIT


def _other_algorithm(a: Items, b: Items, group: Group) -> bool:
    """Whether cuDNN or MIOpen chose other kernels, more or fewer of them, for one op: nothing of
    the program was fused. One kernel whose parts another adds up is split."""
    sides = [{*map(a.op_word, group.a)}, {*map(b.op_word, group.b)}]
    stems = a.stems[group.a[0]], b.stems[group.b[0]]
    names = [a.names[i] for i in group.a], [b.names[j] for j in group.b]
    main = [sum(not adds_up_parts(name) for name in side) for side in names]
    chosen = [len(ops) for ops in sides] == [1, 1] and all(map(_CHOSEN.search, stems))
    return chosen and main != [1, 1]


def _one_kernel(a: Items, b: Items, group: Group) -> bool:
    found = {*(a.exact[[*group.a]] & KERNEL_MASK).tolist()}
    return len(found | {*(b.exact[[*group.b]] & KERNEL_MASK).tolist()}) == 1


def _as_a_whole(a: Items, b: Items, group: Group, noise: Noise) -> Kind:
    """Of one kernel several times on both sides: by the time of all of them."""
    before, after = (
        items.samples[:, [*members]].sum(axis=1, keepdims=True)
        for items, members in ((a, group.a), (b, group.b))
    )
    tick = max(resolution(a.samples), resolution(b.samples))
    if not beyond_noise(before, after, tick, noise)[0]:
        return Kind.SAME
    return Kind.FASTER if np.median(after) < np.median(before) else Kind.SLOWER


def _timed(
    a: Items, b: Items, one: NDArray[np.intp], other: NDArray[np.intp], noise: Noise
) -> list[Kind]:
    """The kind of pairs of the same kernel: its time within noise or not."""
    tick = max(resolution(a.samples), resolution(b.samples))
    changed = beyond_noise(a.samples[:, one], b.samples[:, other], tick, noise)
    faster = b.median_ns[other] < a.median_ns[one]
    return [
        Kind.SAME if not far else Kind.FASTER if less else Kind.SLOWER
        for far, less in zip(changed.tolist(), faster.tolist(), strict=True)
    ]


def _op(a: Items, b: Items, group: Group) -> str:
    """The ops of the side that has more of them, as `aten::gelu + aten::mul x2`."""
    items, members = (a, group.a) if len(group.a) >= len(group.b) else (b, group.b)
    if group.together and not any(items.op_word(item) for item in members):
        items, members = (b, group.b) if items is a else (a, group.a)
    if len(members) == 1:
        return items.op_names[members[0]]
    ops = {int(items.op[m]) if items.op_word(m) else -m - 1: items.op_names[m] for m in members}
    named = [f"{op} x{n}" if n > 1 else op for op, n in Counter(ops.values()).items() if op]
    return " + ".join(named)


@cache
def _change_of_op(before: str, after: str, names: tuple[str, str]) -> str:
    """Says that another op does the work, unless the op is all that is known of it."""
    unchanged = identity(stem(before)) == identity(stem(after))
    if unchanged or not before or not after or (before, after) == names:
        return ""
    return f"{printable(before)} -> {printable(after)}"


def _program_order(a: Items, b: Items, groups: Sequence[Group]) -> list[int]:
    """In the order of A's launches; what only B has comes after what precedes it on its lane."""
    rank_a, rank_b = _launch_ranks(a), _launch_ranks(b)
    known = sorted(
        (min(group.b), min(rank_a[i] for i in group.a)) for group in groups if group.a and group.b
    )
    before = [first for first, _ in known]
    keys = []
    for number, group in enumerate(groups):
        if group.a:
            keys.append((min(rank_a[i] for i in group.a), -1, number))
        else:
            place = bisect_right(before, group.b[0]) - 1
            same_lane = place >= 0 and b.lane[before[place]] == b.lane[group.b[0]]
            keys.append((known[place][1] if same_lane else -1, rank_b[group.b[0]], number))
    return [number for _, _, number in sorted(keys)]


def _launch_ranks(items: Items) -> list[int]:
    """The place of each item in the order of the calls that launched them."""
    trace = items.trace
    launch = trace.launch[items.row] if items.work.gpu else np.full(len(items), -1)
    called = np.where(launch >= 0, trace.start[launch], trace.start[items.row])
    ranks = np.empty(len(items), dtype=np.intp)
    ranks[np.lexsort((trace.start[items.row], called))] = np.arange(len(items))
    return ranks.tolist()
