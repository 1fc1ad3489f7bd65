"""Turns groups of items into rows, in the words of the user's program."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from operator import itemgetter

import msgspec
import numpy as np

from fusetui.analysis.diff.groups import WorkGroup, avoided_tensors, pairs_of
from fusetui.analysis.diff.items import KERNEL_MASK, WorkItems
from fusetui.analysis.diff.model import (
    ELSEWHERE,
    REPEATED,
    Row,
    RowKind,
    RowShare,
    row_of,
)
from fusetui.analysis.diff.names import differences, identity
from fusetui.analysis.diff.noise import Noise, beyond_noise, noise_of
from fusetui.analysis.diff.regions import OTHER, ProgramPlaces, of_all
from fusetui.analysis.diff.statistics import mean, median, resolution
from fusetui.gpu.kernel_roles import role_of_kernel
from fusetui.text.figures import change, duration, plural
from fusetui.text.patterns import late
from fusetui.text.printable import printable
from fusetui.trace.model.arrays import Int64s
from fusetui.trace.model.op_names import stem

# a library chooses among several algorithms for these
_CHOSEN = late(r"cudnn|miopen|convolution")
# shapes are looked up for at most this many fusions, because each has to be parsed
LOOKED_UP = 500


def rows(
    a: WorkItems,
    b: WorkItems,
    groups: Sequence[WorkGroup],
    programs: tuple[ProgramPlaces, ProgramPlaces],
) -> list[Row]:
    """One row for every group, in program order."""
    groups = _with_savings(a, groups)
    kinds, order = _kinds(a, b, groups), _program_order(a, b, groups)
    return [
        _row(a, b, groups[n], kinds[n], **_context(groups[n], *programs)) for n in order
    ]


def _context(group: WorkGroup, a: ProgramPlaces, b: ProgramPlaces) -> dict[str, str]:
    """Where the program does the work by A, or by B where only B has it; and its
    sort."""
    program, members = (a, group.a) if group.a else (b, group.b)
    sides = "a" if any(map(a.compiled, group.a)) else ""
    sides += "b" if any(map(b.compiled, group.b)) else ""
    where, phase = program.places[members[0]], program.phases[members[0]]
    sorts = [*(a.sorts[i] for i in group.a), *(b.sorts[j] for j in group.b)]
    pair = len(sorts) <= 2
    work = next((s for s in sorts if s != OTHER), OTHER) if pair else of_all(set(sorts))
    # a block has many places, and may be of the forward and of the backward pass
    if group.title:
        same = len({program.phases[item] for item in members}) == 1
        where, phase, work = "", phase if same else "", REPEATED
    return {"where": where, "phase": phase, "work": work, "compiled": sides}


def _with_savings(a: WorkItems, groups: Sequence[WorkGroup]) -> Sequence[WorkGroup]:
    """Adds to each fusion the tensors that it avoids, unless there are too many to look
    up: where different ops became one kernel, each used the result of the one before
    it."""
    several = [
        len(of.b) == 1 and len({a.op_names[i] for i in of.a}) > 1 for of in groups
    ]
    found = list(groups)
    for n in np.flatnonzero(several).tolist() if sum(several) <= LOOKED_UP else ():
        if spared := avoided_tensors(a, groups[n].a):
            found[n] = msgspec.structs.replace(
                groups[n], why=f"{groups[n].why}; {spared}"
            )
    return found


def _row(
    a: WorkItems, b: WorkItems, group: WorkGroup, kind: RowKind, **context: str
) -> Row:
    if len(group.a) == len(group.b) == 1:
        op, why, together = (
            a.op_names[group.a[0]],
            _why_of_pair(a, b, group, kind),
            False,
        )
    else:
        op, why, together = (
            group.title or _op(a, b, group),
            _why(a, b, group, kind),
            group.together,
        )
    kind = RowKind.MOVED if group.why == ELSEWHERE else kind
    before, after = _share(a, group.a), _share(b, group.b)
    return row_of(kind, op, before, after, why, together=together, **context)


def _share(items: WorkItems, members: Sequence[int]) -> RowShare:
    lists = items.times, items.medians, items.hidden
    ns, median_ns, hidden_ns = (sum(values[i] for i in members) for values in lists)
    rows = tuple(items.row[[*members]].tolist())
    return RowShare(
        [items.names[i] for i in members], ns, len(members), median_ns, rows, hidden_ns
    )


def _why_of_pair(a: WorkItems, b: WorkItems, group: WorkGroup, kind: RowKind) -> str:
    i, j = group.a[0], group.b[0]
    a_ns, b_ns, names = a.times[i], b.times[j], (a.names[i], b.names[j])
    ops = a.op_names[i], b.op_names[j]
    other = len({identity(stem(op)) for op in ops}) == 2 and "" not in ops
    # unless the op is all that is known of the work
    said = [" -> ".join(map(printable, ops)) if other and ops != names else ""]
    if kind is RowKind.REPLACED:
        said.append(differences(*names) if any(names) else "")
    else:
        thing = "kernel" if a.work.gpu and b.work.gpu else "op"
        timed = "" if kind is RowKind.SAME else f", {change(a_ns, b_ns)} time"
        if kind is RowKind.SAME and 4 * abs(b_ns - a_ns) >= a_ns > 0:
            ranges = (
                f"{duration(int(times.min()))} to {duration(int(times.max()))}"
                for times in (a.samples[:, i], b.samples[:, j])
            )
            timed = f", may be noise: {' -> '.join(ranges)}"
        said.append(f"the same {thing}{timed}")
    return "; ".join(text for text in (*said, group.why) if text)


def _why(a: WorkItems, b: WorkItems, group: WorkGroup, kind: RowKind) -> str:
    if (
        kind is not RowKind.REPLACED
        or group.together
        or not _other_algorithm(a, b, group)
    ):
        return group.why
    main = any(role_of_kernel(a.names[i]).part == "main" for i in group.a)
    what = plural(len(group.a), "kernel" if main else "helper")
    return f"{'another algorithm: ' * main}{what} -> {len(group.b)}; {group.why}"


def _kinds(a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]) -> list[RowKind]:
    one, other = pairs_of(groups)
    same = (a.exact[one] & KERNEL_MASK) == (b.exact[other] & KERNEL_MASK)
    samples = a.samples[:, one[same]], b.samples[:, other[same]]
    noise = noise_of(*samples, same_steps=np.array_equal(a.alike, b.alike))
    timed = _timed(a, b, a.samples[:, one], b.samples[:, other], noise)
    kinds = iter(
        k if s else RowKind.REPLACED for k, s in zip(timed, same.tolist(), strict=True)
    )
    return [
        next(kinds) if len(group.a) == len(group.b) == 1 else _shape(a, b, group, noise)
        for group in groups
    ]


def _shape(a: WorkItems, b: WorkItems, group: WorkGroup, noise: Noise) -> RowKind:
    """The kind of a group that is no pair."""
    if group.together:
        if len({*map(a.kernel_word, group.a), *map(b.kernel_word, group.b)}) > 1:
            return RowKind.REPLACED
        before, after = (
            items.samples[:, [*members]].sum(axis=1, keepdims=True)
            for items, members in ((a, group.a), (b, group.b))
        )
        return _timed(a, b, before, after, noise)[0]
    if not group.b:
        return RowKind.REMOVED
    if not group.a:
        return RowKind.ADDED
    if len(group.a) == len(group.b) or _other_algorithm(a, b, group):
        return RowKind.REPLACED
    return RowKind.FUSED if len(group.a) > len(group.b) else RowKind.SPLIT


def _other_algorithm(a: WorkItems, b: WorkItems, group: WorkGroup) -> bool:
    """Whether cuDNN or MIOpen chose other kernels, more or fewer of them, for one op:
    nothing of the program was fused. One kernel whose parts another adds up is
    split."""
    ops = {*map(a.op_word, group.a)}, {*map(b.op_word, group.b)}
    stems = a.stems[group.a[0]], b.stems[group.b[0]]
    names = [a.names[i] for i in group.a], [b.names[j] for j in group.b]
    main = [
        sum(not role_of_kernel(name).adds_up_parts for name in side) for side in names
    ]
    one_op = len(ops[0]) == len(ops[1]) == 1
    other = len({*map(identity, names[0]), *map(identity, names[1])}) > 1
    return one_op and other and main != [1, 1] and all(map(_CHOSEN.search, stems))


def _timed(
    a: WorkItems, b: WorkItems, before: Int64s, after: Int64s, noise: Noise
) -> list[RowKind]:
    """Per column of samples of the same kernel: its time within noise or not. It is
    where the means of the usual steps, which are the figures of a row, say the opposite
    of the medians."""
    changed = beyond_noise(before, after, resolution(a.samples, b.samples), noise)
    faster = median(after) < median(before)
    usual_a, usual_b = np.isin(a.alike, a.usual), np.isin(b.alike, b.usual)
    if usual_a.any() and usual_b.any():
        by_means = mean(after[usual_b]) - mean(before[usual_a])
        changed &= np.where(faster, by_means < 0, by_means > 0)
    return [
        RowKind.SAME if not far else RowKind.FASTER if less else RowKind.SLOWER
        for far, less in zip(changed.tolist(), faster.tolist(), strict=True)
    ]


def _op(a: WorkItems, b: WorkItems, group: WorkGroup) -> str:
    """The ops of the side that has more of them, as `aten::gelu + aten::mul x2`."""
    items, members = (a, group.a) if len(group.a) >= len(group.b) else (b, group.b)
    if group.together and not any(items.op_word(item) for item in members):
        items, members = (b, group.b) if items is a else (a, group.a)
    if len(members) == 1:
        return items.op_names[members[0]]
    ops = {
        int(items.op[m]) if items.op_word(m) else -m - 1: items.op_names[m]
        for m in members
    }
    named = [
        f"{op} x{n}" if n > 1 else op for op, n in Counter(ops.values()).items() if op
    ]
    return " + ".join(named)


def _program_order(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]
) -> list[int]:
    """In the order of A's launches; what only B has comes after what precedes it on its
    lane."""
    rank_a, rank_b = _launch_ranks(a), _launch_ranks(b)
    firsts = [min((rank_a[i] for i in group.a), default=-1) for group in groups]
    known = sorted(
        (min(of.b), n) for of, n in zip(groups, firsts, strict=True) if of.a and of.b
    )
    keys = []
    for number, (group, first) in enumerate(zip(groups, firsts, strict=True)):
        if group.a:
            keys.append((first, -1, number))
        else:
            place = bisect_right(known, group.b[0], key=itemgetter(0)) - 1
            same_lane = place >= 0 and b.lane[known[place][0]] == b.lane[group.b[0]]
            keys.append(
                (known[place][1] if same_lane else -1, rank_b[group.b[0]], number)
            )
    return [number for _, _, number in sorted(keys)]


def _launch_ranks(items: WorkItems) -> list[int]:
    """The place of each item in the order of the calls that launched them."""
    trace = items.trace
    launch = trace.launch[items.row] if items.work.gpu else np.full(len(items), -1)
    called = np.where(launch >= 0, trace.start[launch], trace.start[items.row])
    return [*np.argsort(np.lexsort((trace.start[items.row], called))).tolist()]
