"""Ops that ran on both sides: which of their repeated kernels correspond, what else is
theirs."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import groupby

from fusetui.analysis.diff.groups import Alignment, oriented
from fusetui.analysis.diff.items import WorkItems
from fusetui.analysis.diff.names import work_class
from fusetui.analysis.diff.sequences import Pair, closest, exact, is_feasible
from fusetui.gpu.kernel_roles import role_of_kernel
from fusetui.trace.model.op_names import is_compiler

_REDUCES = re.compile(
    r"(?:attention|attn|fmha|mla)\w*(?:reduce|combine|merge)", re.IGNORECASE
)

IN_PARTS = "the same kernel in several launches that add up to the one"
WHOLE_RUN = "a long run of one kernel, compared as a whole"
MAX_PIECES_OF_OP = 8
"""An op that launches more pieces of work (a graph, a foreach) is not treated as one
piece of work."""


def repeated(alignment: Alignment) -> None:
    """Where one kernel repeats, pairs those repetitions whose times are the most
    alike."""
    for key, first, last in _runs(alignment):
        beside = alignment.gaps[first : last + 1]
        of_a, of_b = (
            [item for gap in beside for item in gap[side] if items.exact[item] == key]
            for side, items in enumerate(alignment.items)
        )
        if bool(of_a) != bool(of_b):
            _choose(alignment, 0 if of_a else 1, first, last, of_a or of_b)


def in_parts(alignment: Alignment, side: int) -> None:
    """One launch of a kernel on the other side that is several of the same kernel here,
    under one op: if the times of all of them add up to that of the one."""
    mine, other = alignment.items[side], alignment.items[1 - side]
    open_of: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for gap in alignment.gaps:
        for item in gap[side]:
            open_of[_call_of(mine, item)].append(item)
    pairs_of: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for number, pair in enumerate(alignment.pairs if open_of else ()):
        if pair is not None and mine.exact[pair[side]] == other.exact[pair[1 - side]]:
            pairs_of[_call_of(mine, pair[side])].append(number)
    for call, parts in open_of.items():
        numbers = pairs_of[call]
        pair = alignment.pairs[numbers[0]] if len(numbers) == 1 else None
        if pair is None or len(parts) >= MAX_PIECES_OF_OP:
            continue
        one, several = pair[1 - side], [pair[side], *parts]
        if adds_up_to([mine.times[part] for part in several], other.times[one]):
            alignment.pairs[numbers[0]] = None
            alignment.close(side, set(parts), alignment.gaps)
            alignment.add(side, tuple(sorted(several)), one, IN_PARTS)


def adds_up_to(parts: list[int], whole: int) -> bool:
    """Whether the sum of several times (ns) is nearer to the whole than the longest of
    them is: else that one may be the whole, and the others are more."""
    return 2 * abs(sum(parts) - whole) <= abs(max(parts) - whole)


def _call_of(items: WorkItems, item: int) -> tuple[int, int]:
    """The row of its op, and its kernel; without an op, kernels in a row are of one
    call."""
    kernel, op = items.kernel_word(item), int(items.op[item])
    if op >= 0:
        return op, kernel
    first = item
    while (
        first > 0 and items.op[first - 1] < 0 and items.kernel_word(first - 1) == kernel
    ):
        first -= 1
    return -1 - first, kernel


def rest_of_ops(alignment: Alignment, side: int) -> None:
    """Groups what is open of an op whose other kernels are paired, or that is the same
    op in a gap.

    Open kernels on both sides become one group. Otherwise they join the pair of the op
    if that has two different kernels (one became two) or if they add up its parts.
    Covers both directions at once.
    """
    if side:
        return
    x, y = alignment.items
    open_of = [_open_by_op(alignment, n) for n in (0, 1)]
    if not any(open_of):
        return
    for number, a, b in _linked(alignment):
        of_a, of_b = open_of[0].pop(a, []), open_of[1].pop(b, [])
        if not (of_a or of_b) or max(len(of_a), len(of_b)) > MAX_PIECES_OF_OP:
            continue
        name = x.trace.name_of(a)
        if of_a and of_b:
            alignment.claim_both(of_a, of_b, f"the rest of {name}")
            continue
        pair = alignment.pairs[number] if number >= 0 else None
        if pair is None:
            continue
        left = [(x.names, pair[0], of_a), (y.names, pair[1], of_b)]
        if x.kernel_word(pair[0]) != y.kernel_word(pair[1]) or all(
            _adds_up(names[main], names[item])
            for names, main, found in left
            for item in found
        ):
            alignment.pairs[number] = None
            alignment.claim_both([pair[0], *of_a], [pair[1], *of_b], f"all of {name}")


def with_reduction(alignment: Alignment, side: int) -> None:
    """Where no op tells: the kernel that adds up the parts of a product or of
    attention, right after it, joins the pair that the main kernel is in."""
    items = alignment.items[side]
    for number, pair in enumerate(alignment.pairs):
        following = alignment.gaps[number + 1][side]
        if pair is None or not following or following[0] != pair[side] + 1:
            continue
        main, after = items.names[pair[side]], items.names[following[0]]
        if not items.op_word(following[0]) and _adds_up(main, after):
            alignment.pairs[number] = None
            of_a, of_b = [pair[0]], [pair[1]]
            (of_b if side else of_a).append(following[0])
            alignment.claim_both(of_a, of_b, "with the kernel that adds up its parts")


@cache
def _adds_up(main: str, after: str) -> bool:
    """The reduction of split-K after a product or convolution, or a named one after
    attention."""
    kind = work_class("", main)
    if kind in ("gemm", "conv"):
        return role_of_kernel(after).adds_up_parts
    return kind == "attention" and _REDUCES.search(after) is not None


def _runs(alignment: Alignment) -> Iterator[tuple[int, int, int]]:
    """Ranges of pairs of one kernel under one op, after its key, with something open
    beside."""
    a, b = alignment.items
    keys = [
        int(a.exact[pair[0]]) if pair and a.exact[pair[0]] == b.exact[pair[1]] else None
        for pair in alignment.pairs
    ]
    first = 0
    for key, run in groupby(keys):
        last = first + len([*run])
        if key is not None and any(map(any, alignment.gaps[first : last + 1])):
            yield key, first, last
        first = last


def _choose(
    alignment: Alignment, side: int, first: int, last: int, more: list[int]
) -> None:
    """Pairs the shorter side of a run with the longer one again, in order, by the
    closest times; if that would take too long, the run is compared as a whole."""
    pairs = [pair for pair in alignment.pairs[first:last] if pair is not None]
    few = [pair[1 - side] for pair in pairs]
    many = sorted([pair[side] for pair in pairs] + more)
    if not is_feasible(len(few), len(many)):
        alignment.pairs[first:last] = [None] * (last - first)
        alignment.claim_both(*oriented(side, many, few), WHOLE_RUN, together=True)
        return
    times = alignment.items[side].times, alignment.items[1 - side].times
    chosen = closest([times[1][i] for i in few], [times[0][j] for j in many])
    partners = [many[n] for n in chosen]
    if partners == [pair[side] for pair in pairs]:
        return
    for number, one, other in zip(range(first, last), few, partners, strict=True):
        alignment.pairs[number] = oriented(side, other, one)
    alignment.close(side, set(more), alignment.gaps[first : last + 1])
    for item in sorted(set(many) - set(partners)):
        here = alignment.gaps[first + bisect_left(partners, item)][side]
        here.append(item)
        here.sort()


def _open_by_op(alignment: Alignment, side: int) -> dict[int, list[int]]:
    """Open items by the row of their innermost op; what torch.compile inserts counts as
    no op."""
    items = alignment.items[side]
    found: defaultdict[int, list[int]] = defaultdict(list)
    for gap in alignment.gaps:
        for item in gap[side]:
            op = int(items.op[item])
            if op >= 0 and items.work.gpu and not is_compiler(items.op_names[item]):
                found[op].append(item)
    return found


def _linked(alignment: Alignment) -> Iterator[tuple[int, int, int]]:
    """The rows of ops that are one: with a pair (its number) between them, or in a gap
    (-1)."""
    a, b = alignment.items
    for number, pair in enumerate(alignment.pairs):
        if pair is not None and a.op_word(pair[0]) and _one_op(alignment, pair):
            yield number, int(a.op[pair[0]]), int(b.op[pair[1]])
    for gap in alignment.gaps:
        if gap[0] and gap[1]:
            (ops_a, words_a), (ops_b, words_b) = _ops(a, gap[0]), _ops(b, gap[1])
            for i, j in exact(words_a, words_b):
                yield -1, ops_a[i], ops_b[j]


def _one_op(alignment: Alignment, pair: Pair) -> bool:
    """Under one name, or those of two vendors (`cudnn_convolution`,
    `miopen_convolution`)."""
    a, b = alignment.items
    if a.op_word(pair[0]) == b.op_word(pair[1]):
        return True
    kinds = work_class(a.op_names[pair[0]], ""), work_class(b.op_names[pair[1]], "")
    return kinds[0] == kinds[1] != "" and b.op_word(pair[1]) > 0


def _ops(items: WorkItems, members: list[int]) -> tuple[list[int], list[int]]:
    """The rows of the ops that items come from, each once, and the numbers of their
    names."""
    words = {
        int(items.op[item]): word for item in members if (word := items.op_word(item))
    }
    return list(words), list(words.values())
