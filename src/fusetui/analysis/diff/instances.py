"""Ops that ran on both sides: which of their repeated kernels correspond, what else is
theirs."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from typing import NamedTuple

from fusetui.analysis.diff.groups import Alignment, as_a_and_b
from fusetui.analysis.diff.items import WorkItems
from fusetui.analysis.diff.names import work_class
from fusetui.analysis.diff.sequences import Pair, closest, is_feasible, longest_common
from fusetui.gpu.kernel_roles import role_of_kernel
from fusetui.trace.model.op_names import is_compiler

_ATTENTION_REDUCTION = re.compile(
    r"(?:attention|attn|fmha|mla)\w*(?:reduce|combine|merge)", re.IGNORECASE
)

IN_PARTS = "the same kernel in several launches that add up to the one"
WHOLE_RUN = "a long run of one kernel, compared as a whole"

MAX_PIECES_OF_OP = 8
"""An op that launches more pieces of work (a graph, a foreach) is not treated as one
piece of work."""


def repeated(alignment: Alignment) -> None:
    """Pairs the repetitions of a kernel anew where one side has more of them: those
    whose times are the most alike (`_pair_closest`). Nothing changes where both sides
    have open ones."""
    for run in _runs(alignment):
        open_a = _open_with_key(alignment, 0, run)
        open_b = _open_with_key(alignment, 1, run)
        if open_a and not open_b:
            _pair_closest(alignment, 0, run, open_a)
        elif open_b and not open_a:
            _pair_closest(alignment, 1, run, open_b)


class _Call(NamedTuple):
    """One kernel under one call of an op. Without an op, kernels in a row count as
    those of one call."""

    op: int  # the row of the call; without an op -1 minus the first item in the row
    kernel: int  # its number


def in_parts(alignment: Alignment, side: int) -> None:
    """Groups the launches of one kernel under one call of an op on this side with the
    single launch that one of them is paired with, if their times add up to that of the
    single one (`adds_up_to`)."""
    open_by_call = _open_by_call(alignment, side)
    if not open_by_call:
        return
    pairs_by_call = _pairs_by_call(alignment, side)
    for call, open_parts in open_by_call.items():
        numbers = pairs_by_call.get(call, [])
        if len(numbers) == 1 and len(open_parts) < MAX_PIECES_OF_OP:
            _group_parts(alignment, side, open_parts, numbers[0])


def _open_by_call(alignment: Alignment, side: int) -> dict[_Call, list[int]]:
    """The open items of a side by the call that launched them."""
    items = alignment.items[side]
    open_by_call: defaultdict[_Call, list[int]] = defaultdict(list)
    for gap in alignment.gaps:
        for item in gap[side]:
            open_by_call[_call_of(items, item)].append(item)
    return open_by_call


def _pairs_by_call(alignment: Alignment, side: int) -> dict[_Call, list[int]]:
    """The numbers of the pairs of one kernel under one op, by the call on this side."""
    mine = alignment.items[side]
    other = alignment.items[1 - side]
    pairs_by_call: defaultdict[_Call, list[int]] = defaultdict(list)
    for number, pair in enumerate(alignment.pairs):
        if (
            pair is not None
            and mine.exact_keys[pair[side]] == other.exact_keys[pair[1 - side]]
        ):
            pairs_by_call[_call_of(mine, pair[side])].append(number)
    return pairs_by_call


def _group_parts(
    alignment: Alignment, side: int, open_parts: list[int], number: int
) -> None:
    """Groups these open items of a side, together with the item of the pair of this
    number, with the other item of the pair, if their times add up to its time."""
    pair = alignment.pairs[number]
    if pair is None:
        return
    whole = pair[1 - side]
    parts = [pair[side], *open_parts]
    parts_ns = [alignment.items[side].compared_times[part] for part in parts]
    whole_ns = alignment.items[1 - side].compared_times[whole]
    if adds_up_to(parts_ns, whole_ns):
        alignment.pairs[number] = None
        alignment.close(side, set(open_parts), alignment.gaps)
        alignment.add(side, tuple(sorted(parts)), whole, IN_PARTS)


def adds_up_to(parts: list[int], whole: int) -> bool:
    """Whether the sum of several times (ns) is at most half as far from the whole as
    the longest of them is: else that one may be the whole, and the others are more.

    >>> adds_up_to([60, 50], 100), adds_up_to([90, 40], 100)
    (True, False)
    """
    return 2 * abs(sum(parts) - whole) <= abs(max(parts) - whole)


def _call_of(items: WorkItems, item: int) -> _Call:
    """The kernel of an item under its call of an op; see `_Call`."""
    kernel = items.kernel_id(item)
    op = int(items.op[item])
    if op >= 0:
        return _Call(op=op, kernel=kernel)
    first = item
    while first > 0:
        before = first - 1
        if items.op[before] >= 0 or items.kernel_id(before) != kernel:
            break
        first = before
    return _Call(op=-1 - first, kernel=kernel)


def rest_of_ops(alignment: Alignment, side: int) -> None:
    """Groups the open items of two calls of an op that are one call (`_links`).

    Open items on both sides become one group. Those on one side join the pair between
    the two calls if that has two different kernels (one became two) or if they add up
    its parts.
    """
    if side == 1:
        return  # both directions were covered with the first side
    open_a = _open_by_op(alignment, 0)
    open_b = _open_by_op(alignment, 1)
    if not open_a and not open_b:
        return
    for link in _links(alignment):
        # each call once: with the first pair that links it
        rest_a = open_a.pop(link.op_a, [])
        rest_b = open_b.pop(link.op_b, [])
        if not rest_a and not rest_b:
            continue
        if max(len(rest_a), len(rest_b)) > MAX_PIECES_OF_OP:
            continue
        name = alignment.items[0].trace.name_of(link.op_a)
        if rest_a and rest_b:
            alignment.claim_both(rest_a, rest_b, f"the rest of {name}")
        elif link.pair is not None:
            _join_pair(alignment, link.pair, rest_a, rest_b, f"all of {name}")


def _join_pair(
    alignment: Alignment, number: int, rest_a: list[int], rest_b: list[int], why: str
) -> None:
    """Groups the pair of this number with the rest of its ops, open items of one side,
    if the pair is of two different kernels or the rest adds up its parts."""
    pair = alignment.pairs[number]
    if pair is None:
        return
    a, b = alignment.items
    item_a, item_b = pair
    is_other_kernel = a.kernel_id(item_a) != b.kernel_id(item_b)
    rest_a_adds_up = _all_add_up(a, item_a, rest_a)
    rest_b_adds_up = _all_add_up(b, item_b, rest_b)
    if is_other_kernel or (rest_a_adds_up and rest_b_adds_up):
        alignment.pairs[number] = None
        alignment.claim_both([item_a, *rest_a], [item_b, *rest_b], why)


def with_reduction(alignment: Alignment, side: int) -> None:
    """Groups the pair of a product or of attention with the open item of `side` right
    after it, if that has no op and adds up the parts of the main kernel."""
    items = alignment.items[side]
    for number, pair in enumerate(alignment.pairs):
        following = alignment.gaps[number + 1][side]
        if pair is None or not following:
            continue
        main = pair[side]
        after = following[0]
        if after != main + 1 or items.op_id(after):
            continue
        if _adds_up(items.names[main], items.names[after]):
            alignment.pairs[number] = None
            of_a, of_b = as_a_and_b(side, [main, after], [pair[1 - side]])
            why = "with the kernel that adds up its parts"
            alignment.claim_both(of_a, of_b, why)


def _all_add_up(items: WorkItems, main: int, rest: Sequence[int]) -> bool:
    """Whether each of the rest adds up the parts of the main kernel; so it is if there
    is no rest."""
    return all(_adds_up(items.names[main], items.names[item]) for item in rest)


@cache
def _adds_up(main: str, after: str) -> bool:
    """Whether the kernel `after` adds up the parts of the kernel `main`: the reduction
    of split-K after a product or convolution, or a kernel that is named as a reduction
    of attention after attention."""
    kind = work_class("", main)
    if kind in ("gemm", "conv"):
        return role_of_kernel(after).adds_up_parts
    return kind == "attention" and _ATTENTION_REDUCTION.search(after) is not None


class _Run(NamedTuple):
    """Pairs in a row that are one kernel under one op on both sides: those with the
    numbers from `first` up to, but without, `last`."""

    key: int  # its exact key
    first: int
    last: int


def _runs(alignment: Alignment) -> Iterator[_Run]:
    """The runs of pairs with an open item in a gap beside or between them."""
    first = 0
    for key, run in groupby(_keys_of_pairs(alignment)):
        last = first + len([*run])
        gaps = alignment.gaps[first : last + 1]
        if key is not None and any(gap[0] or gap[1] for gap in gaps):
            yield _Run(key=key, first=first, last=last)
        first = last


def _keys_of_pairs(alignment: Alignment) -> list[int | None]:
    """The exact key of each pair that is one kernel under one op on both sides, None
    for others."""
    a, b = alignment.items
    keys: list[int | None] = []
    for pair in alignment.pairs:
        if pair is not None and a.exact_keys[pair[0]] == b.exact_keys[pair[1]]:
            keys.append(int(a.exact_keys[pair[0]]))
        else:
            keys.append(None)
    return keys


def _open_with_key(alignment: Alignment, side: int, run: _Run) -> list[int]:
    """The open items of a side, in the gaps beside and between the pairs of a run, that
    are the kernel of the run under the same op."""
    exact = alignment.items[side].exact_keys
    open_items = []
    for gap in alignment.gaps[run.first : run.last + 1]:
        open_items += [item for item in gap[side] if exact[item] == run.key]
    return open_items


def _pair_closest(
    alignment: Alignment, side: int, run: _Run, open_items: list[int]
) -> None:
    """Pairs a run of a kernel anew, in order, by the closest times; if that would take
    too long, all of it becomes one group. `side` is the one that has more of the kernel:
    its items of the pairs and `open_items`. Of these, what has no partner then is open
    in the gap where it belongs."""
    few = []
    partners_before = []
    for pair in alignment.pairs[run.first : run.last]:
        if pair is not None:
            few.append(pair[1 - side])
            partners_before.append(pair[side])
    many = sorted(partners_before + open_items)
    if not is_feasible(len(few), len(many)):
        alignment.pairs[run.first : run.last] = [None] * (run.last - run.first)
        of_a, of_b = as_a_and_b(side, many, few)
        alignment.claim_both(of_a, of_b, WHOLE_RUN, together=True)
        return
    features_few = alignment.items[1 - side].features[few]
    features_many = alignment.items[side].features[many]
    partners = [many[n] for n in closest(features_few, features_many)]
    if partners == partners_before:
        return
    for n, number in enumerate(range(run.first, run.last)):
        alignment.pairs[number] = as_a_and_b(side, partners[n], few[n])
    alignment.close(side, set(open_items), alignment.gaps[run.first : run.last + 1])
    without_partner = sorted(set(many) - set(partners))
    _open_again(alignment, side, run, partners, without_partner)


def _open_again(
    alignment: Alignment, side: int, run: _Run, partners: list[int], items: list[int]
) -> None:
    """Adds items of a side to the open ones of the gaps of a run, each where it belongs
    between the `partners`, the items of that side in the pairs of the run, ascending."""
    gaps = alignment.gaps[run.first : run.last + 1]
    for item in items:
        partners_before = bisect_left(partners, item)
        open_of_gap = gaps[partners_before][side]  # gap n of the run: before its pair n
        open_of_gap.append(item)
        open_of_gap.sort()


def _open_by_op(alignment: Alignment, side: int) -> dict[int, list[int]]:
    """{row of an op: the open items of a side that it is the innermost op of}. What
    torch.compile inserts counts as no op. Empty without a GPU, where each item is an op
    itself."""
    items = alignment.items[side]
    open_by_op: defaultdict[int, list[int]] = defaultdict(list)
    if not items.work.gpu:
        return open_by_op
    for gap in alignment.gaps:
        for item in gap[side]:
            op = int(items.op[item])
            if op >= 0 and not is_compiler(items.op_names[item]):
                open_by_op[op].append(item)
    return open_by_op


class _Link(NamedTuple):
    """A call of an op in A and one in B that are the same call."""

    op_a: int  # its row in the trace of A
    op_b: int
    pair: int | None  # the number of a pair of their items; None of calls in a gap


def _links(alignment: Alignment) -> Iterator[_Link]:
    """The calls of one op that a pair of items links, then those in the same gap, in
    order. A call may be in several links."""
    a, b = alignment.items
    for number, pair in enumerate(alignment.pairs):
        if pair is None or not a.op_id(pair[0]):
            continue
        if _is_of_one_op(alignment, pair):
            op_a = int(a.op[pair[0]])
            op_b = int(b.op[pair[1]])
            yield _Link(op_a=op_a, op_b=op_b, pair=number)
    for gap in alignment.gaps:
        if gap[0] and gap[1]:
            yield from _links_in_gap(alignment, gap[0], gap[1])


def _links_in_gap(
    alignment: Alignment, open_a: list[int], open_b: list[int]
) -> Iterator[_Link]:
    """The calls of the open items of a gap that are of one op, in order: a longest
    common subsequence of their names."""
    a, b = alignment.items
    number_of_op_a = _numbers_by_op(a, open_a)
    number_of_op_b = _numbers_by_op(b, open_b)
    ops_a = list(number_of_op_a)
    ops_b = list(number_of_op_b)
    names_a = list(number_of_op_a.values())
    names_b = list(number_of_op_b.values())
    for i, j in longest_common(names_a, names_b):
        yield _Link(op_a=ops_a[i], op_b=ops_b[j], pair=None)


def _is_of_one_op(alignment: Alignment, pair: Pair) -> bool:
    """Whether both items of a pair are under an op of one name, or under ops of one
    kind of work as two vendors name it (`cudnn_convolution`, `miopen_convolution`)."""
    a, b = alignment.items
    if a.op_id(pair[0]) == b.op_id(pair[1]):
        return True
    kind_a = work_class(a.op_names[pair[0]], "")
    kind_b = work_class(b.op_names[pair[1]], "")
    return kind_a != "" and kind_a == kind_b and b.op_id(pair[1]) > 0


def _numbers_by_op(items: WorkItems, members: list[int]) -> dict[int, int]:
    """{row of an op: the number of its name}, of the ops that some items come from."""
    number_of_op = {}
    for item in members:
        number = items.op_id(item)
        if number:
            number_of_op[int(items.op[item])] = number
    return number_of_op
