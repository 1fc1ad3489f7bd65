"""Finds groups beyond equal names: by epilogues, by counts, by the op around, by
position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Final

from fusetui.analysis.diff.align import Lanes
from fusetui.analysis.diff.fusion import by_name
from fusetui.analysis.diff.groups import (
    Alignment,
    WorkGroup,
    numel,
    oriented,
    pairs_of,
    with_matches,
)
from fusetui.analysis.diff.instances import (
    MANY,
    in_parts,
    repeated,
    rest_of_ops,
    with_reduction,
)
from fusetui.analysis.diff.items import WorkItems
from fusetui.analysis.diff.model import ELSEWHERE
from fusetui.analysis.diff.names import work_class
from fusetui.analysis.diff.sequences import is_like
from fusetui.gpu.kernel_names import decode
from fusetui.gpu.kernel_roles import role_of_kernel
from fusetui.trace.model.grouping import by_key
from fusetui.trace.model.op_names import stem

Rule = Callable[[Alignment, int], None]

SURE = 3  # from this many pieces of one op against one, no shapes are required
# of the elements of several pieces: a tensor of so many is that of their work in one
LIKE = 0.75
# pieces of one op are counted only where they are 1 / CROWDED of all pieces there
CROWDED = 4
FEW = 16  # position alone does not match one kernel with more open pieces than this


def group(a: WorkItems, b: WorkItems, lanes: Lanes) -> list[WorkGroup]:
    """Every item of two lanes in exactly one group."""
    alignment = Alignment(a, b, lanes)
    repeated(alignment)
    for rule in RULES:
        rule(alignment, 0)
        rule(alignment, 1)
    return alignment.finish()


def by_epilogue(alignment: Alignment, side: int) -> None:
    """A GEMM whose epilogue names the op that followed it on the other side."""
    mine, other = alignment.items[side], alignment.items[1 - side]
    for number, pair in enumerate(alignment.pairs):
        following = alignment.gaps[number + 1][side]
        if pair is None or not following:
            continue
        known = decode(mine.names[pair[side]]), decode(other.names[pair[1 - side]])
        own, others = (((of and of.epilogue) or "").lower().split("_") for of in known)
        found = stem(mine.op_names[following[0]])
        if found and found in {*others} - {*own} and mine.computes[following[0]]:
            alignment.pairs[number] = None
            many = (pair[side], following.pop(0))
            alignment.add(
                side, many, pair[1 - side], f"the GEMM's epilogue names {found}"
            )


def by_count(alignment: Alignment, side: int) -> None:
    """One op many times on this side, once on the other, between pieces that are as
    many on both.

    Accepted if the one tensor is as large as the many together or, where shapes were
    not recorded, from three pieces on if it takes longer than each; and only where
    there is little other work.
    """
    words = alignment.items[0].words, alignment.items[1].words
    for first, last in _regions(alignment, words):
        gaps = alignment.gaps[first:last]
        if not any(gap[side] for gap in gaps):
            continue
        inner = [pair for pair in alignment.pairs[first : last - 1] if pair is not None]
        here = [
            [*(pair[n] for pair in inner), *(item for gap in gaps for item in gap[n])]
            for n in (0, 1)
        ]
        mine, others = (by_key(here[n], words[n].__getitem__) for n in (side, 1 - side))
        least = len(here[side]) / CROWDED
        for word, many in mine.items():
            ones, several = others.get(word, []), len(many) > 1 and len(many) >= least
            if len(ones) == 1 and several and _adds_up(alignment, side, many, ones[0]):
                _take(alignment, side, sorted(many), ones[0], (first, last))


def by_outer_op(alignment: Alignment, side: int) -> None:
    """Open pieces of both sides under the same op of the program, one against one or
    several."""
    for number, gap in enumerate(alignment.gaps):
        if not (gap[0] and gap[1]):
            continue
        mine, others = (_by_outer(alignment, n, gap[n]) for n in (side, 1 - side))
        for key, many in mine.items():
            ones = others.get(key, [])
            why = f"both under {key[0]}"
            if len(ones) == 1:
                alignment.claim(side, many, ones[0], number, why)
            elif ones and not side and max(len(ones), len(many)) <= MANY:
                x, y = alignment.items  # one to one, else all of them together
                each = [role_of_kernel(x.names[i]).part for i in many] == [
                    role_of_kernel(y.names[j]).part for j in ones
                ]
                for of in zip(many, ones, strict=True) if each else ():
                    alignment.claim_both(of[:1], of[1:], why)
                if not each:
                    alignment.claim_both(many, ones, why)


def by_position(alignment: Alignment, side: int) -> None:
    """One kernel in the place of open pieces, unless their ops are known and differ."""
    for number, gap in enumerate(alignment.gaps):
        many = [item for item in gap[side] if alignment.items[side].computes[item]]
        ones = [one for one in gap[1 - side] if alignment.items[1 - side].computes[one]]
        if (
            len(ones) == 1
            and 0 < len(many) <= FEW
            and _may_be(alignment, side, many, ones[0])
        ):
            alignment.claim(
                side,
                many,
                ones[0],
                number,
                "by position only: between the same neighbors",
            )


RULES: Final[Sequence[Rule]] = (
    in_parts,
    by_epilogue,
    by_name,
    by_count,
    rest_of_ops,
    with_reduction,
    by_outer_op,
    by_position,
)


def moved(a: WorkItems, b: WorkItems, groups: list[WorkGroup]) -> list[WorkGroup]:
    """Pairs what is left open on both sides and is the same kernel under the same op,
    if it takes about as long, allowing for how much faster one side is at other such
    kernels. Not where the op is no evidence: a kernel alone may be anywhere."""
    open_b = (
        group_.b[0]
        for group_ in groups
        if not group_.a and not b.by_kernel[group_.b[0]]
    )
    places = by_key(open_b, lambda item: int(b.exact[item]))
    pairs = pairs_of(groups).T.tolist()
    alike = [(i, j) for i, j in pairs if a.exact[i] == b.exact[j] and a.times[i]]
    factor = median(b.times[j] / a.times[i] for i, j in alike) if alike else 1.0
    found = []
    for i in (group_.a[0] for group_ in groups if not group_.b):
        if waiting := places.get(int(a.exact[i])):
            time = a.times[i] * factor
            nearest = min(waiting, key=lambda item: abs(b.times[item] - time))
            if is_like(b.times[nearest], time):
                found.append(WorkGroup((i,), (nearest,), ELSEWHERE))
                waiting.remove(nearest)
    return with_matches(groups, found)


def _regions(
    alignment: Alignment, words: tuple[list[int], list[int]]
) -> Iterator[tuple[int, int]]:
    """Ranges of gaps, divided at pairs whose ops occur equally often on both sides."""
    counts = [Counter(words[n][item] for item in alignment.ranges[n]) for n in (0, 1)]
    first = 0
    for number, pair in enumerate(alignment.pairs):
        if pair is not None:
            a, b = words[0][pair[0]], words[1][pair[1]]
            if counts[0][a] == counts[1][a] and counts[0][b] == counts[1][b]:
                yield first, number + 1
                first = number + 1
    yield first, len(alignment.gaps)


def _adds_up(alignment: Alignment, side: int, many: list[int], one: int) -> bool:
    """Whether the one is more than any of the many: else it may be one, the others
    gone."""
    mine, other = alignment.items[side], alignment.items[1 - side]
    whole = numel(other, one)
    parts = [found for item in many[:FEW] if (found := numel(mine, item)) is not None]
    if whole is None or len(parts) < min(FEW, len(many)):
        time, longest = other.times[one], max(mine.times[item] for item in many)
        return len(many) >= SURE and time > longest and not is_like(time, longest)
    total = sum(parts) * len(many) // len(parts)
    return whole > max(parts) and whole >= LIKE * total


def _take(
    alignment: Alignment, side: int, many: list[int], one: int, gaps: tuple[int, int]
) -> None:
    """Frees the pairs of these items and groups them; a partner of another op becomes
    open."""
    wanted = oriented(side, set(many), {one})
    for number in range(gaps[0], gaps[1] - 1):
        pair = alignment.pairs[number]
        if pair is not None and (pair[0] in wanted[0] or pair[1] in wanted[1]):
            alignment.pairs[number] = None
            for n in (0, 1):
                if pair[n] not in wanted[n]:
                    alignment.gaps[number][n].append(pair[n])
    for n in (0, 1):
        alignment.close(n, wanted[n], alignment.gaps[slice(*gaps)])
    op = alignment.items[side].op_names[many[0]] or "the same kernel"
    alignment.add(side, tuple(many), one, f"{op} {len(many)} times and once")


def _by_outer(
    alignment: Alignment, side: int, open_items: list[int]
) -> dict[tuple[str, int], list[int]]:
    """Open compute items by (name of the outermost op, its index among ops of that
    name)."""
    items = alignment.items[side]
    seen: Counter[str] = Counter()
    found: dict[tuple[str, int], list[int]] = {}
    compute = [n for n in open_items if items.outer[n] >= 0 and items.computes[n]]
    for row, members in by_key(compute, items.outer.__getitem__).items():
        name = items.trace.name_of(row)
        found[name, seen[name]] = members
        seen[name] += 1
    return found


def _may_be(alignment: Alignment, side: int, many: list[int], one: int) -> bool:
    """Whether nothing contradicts a match.

    Several match one only if their ops are known and that of the one is not, as for a
    kernel launched by the user's own code. One matches one if an op is unknown or both
    are of the same kind.
    """
    mine, other = alignment.items[side], alignment.items[1 - side]
    op = other.op_names[one]
    ops = {mine.op_names[item] for item in many}
    kinds = {work_class(mine.op_names[item], mine.names[item]) for item in many}
    kind = work_class(op, other.names[one])
    if len(many) > 1:
        return not op and "" not in ops
    if kind or kinds != {""}:
        return kinds == {kind}
    return not op or ops == {""} or {stem(name) for name in ops} == {stem(op)}
