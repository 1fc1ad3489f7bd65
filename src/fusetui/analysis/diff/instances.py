"""Rules for kernels that one side launches more often under the same op.

They decide which of several equal kernels correspond, which launches add up to one
launch of the other side, and what else belongs to an op that ran on both sides.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from typing import NamedTuple

from fusetui.analysis.diff.groups import Alignment, Gap, order_as_a_and_b
from fusetui.analysis.diff.items import NO_OP, WorkItems
from fusetui.analysis.diff.names import classify_work
from fusetui.analysis.diff.sequences import (
    Pair,
    can_choose_closest_partners,
    choose_closest_partners,
    pair_longest_common,
)
from fusetui.gpu.kernel_roles import role_of_kernel
from fusetui.trace.model.op_names import is_compiler

_ATTENTION_REDUCTION = re.compile(
    r"(?:attention|attn|fmha|mla)\w*(?:reduce|combine|merge)", re.IGNORECASE
)

IN_PARTS = "the same kernel, split into several launches"
WHOLE_RUN = "a long run of one kernel, compared as a whole"

MAX_KERNELS_OF_OP = 8
"""An op that launches more kernels (a graph, a foreach) is not treated as one piece of
work."""


def pair_repetitions(alignment: Alignment) -> None:
    """Pair the repetitions of a kernel anew where A or B has more of them.

    The alignment pairs the first repetitions. This rule pairs those whose times are the
    most alike. Nothing changes where both traces have repetitions without a
    counterpart.
    """
    for run in _find_runs_of_one_kernel(alignment):
        unpaired_a = _find_unpaired_items_of_run(alignment, 0, run)
        unpaired_b = _find_unpaired_items_of_run(alignment, 1, run)
        if unpaired_a and not unpaired_b:
            _pair_by_closest_times(alignment, 0, run, unpaired_a)
        elif unpaired_b and not unpaired_a:
            _pair_by_closest_times(alignment, 1, run, unpaired_b)


class _KernelOfCall(NamedTuple):
    """One kernel under one call of an op.

    Equal kernels in a row that no op launched count as those of one call.
    """

    op: int | None  # the row of the call of the op; None without an op
    first_item: int | None  # without an op, the first of the equal kernels; else None
    kernel_id: int


def group_launches_in_parts(alignment: Alignment, side: int) -> None:
    """Group several launches of a kernel under one call of an op with a single launch.

    One of the launches is already paired with the single launch of the other trace. The
    others are grouped with it if all their times add up to that of the single launch.

    Args:
        alignment: Two lanes (streams), one of A and one of B, and what is paired so
            far.
        side: The trace with several launches: 0 for A, 1 for B.
    """
    unpaired_items_by_call = _group_unpaired_items_by_call(alignment, side)
    if not unpaired_items_by_call:
        return
    pairs_by_call = _index_pairs_by_call(alignment, side)
    for call, unpaired_items in unpaired_items_by_call.items():
        pair_indices = pairs_by_call.get(call, [])
        if len(pair_indices) == 1 and len(unpaired_items) < MAX_KERNELS_OF_OP:
            _group_parts(alignment, side, unpaired_items, pair_indices[0])


def _group_unpaired_items_by_call(
    alignment: Alignment, side: int
) -> dict[_KernelOfCall, list[int]]:
    """Return the unpaired items of a trace by their kernel and their call."""
    items = alignment.items[side]
    unpaired_items_by_call: defaultdict[_KernelOfCall, list[int]] = defaultdict(list)
    for gap in alignment.gaps:
        for item in gap.unpaired(side):
            call = _identify_kernel_of_call(items, item)
            unpaired_items_by_call[call].append(item)
    return unpaired_items_by_call


def _index_pairs_by_call(
    alignment: Alignment, side: int
) -> dict[_KernelOfCall, list[int]]:
    """Return the pairs whose two items are the same kernel under the same op.

    Args:
        alignment: Two lanes (streams), one of A and one of B, and what is paired so
            far.
        side: The trace by whose calls the pairs are grouped: 0 for A, 1 for B.

    Returns:
        {kernel under a call: the indices of its pairs}.
    """
    own = alignment.items[side]
    other = alignment.items[1 - side]
    pairs_by_call: defaultdict[_KernelOfCall, list[int]] = defaultdict(list)
    for pair_index, pair in enumerate(alignment.pairs):
        if pair is None:
            continue
        own_item = pair[side]
        other_item = pair[1 - side]
        if own.exact_keys[own_item] == other.exact_keys[other_item]:
            call = _identify_kernel_of_call(own, own_item)
            pairs_by_call[call].append(pair_index)
    return pairs_by_call


def _group_parts(
    alignment: Alignment, side: int, unpaired_items: list[int], pair_index: int
) -> None:
    """Group a pair of launches with further launches, if their times add up.

    The launches of one trace have to take as long together as the single launch of the
    other trace: launches of 60 and 50 us stand for one of 100 us.

    Args:
        alignment: Two lanes (streams), one of A and one of B, and what is paired so
            far.
        side: The trace of the further launches: 0 for A, 1 for B.
        unpaired_items: Items of one call that have no counterpart.
        pair_index: The index of a pair whose item of this trace is of the same call.
    """
    pair = alignment.pairs[pair_index]
    if pair is None:
        return
    whole = pair[1 - side]
    parts = [pair[side], *unpaired_items]
    parts_ns = [alignment.items[side].compared_times[part] for part in parts]
    whole_ns = alignment.items[1 - side].compared_times[whole]
    if adds_up_to(parts_ns, whole_ns):
        alignment.pairs[pair_index] = None
        alignment.remove_from_gaps(side, set(unpaired_items), alignment.gaps)
        alignment.add_group(
            side, own_items=tuple(sorted(parts)), other_item=whole, why=IN_PARTS
        )


def adds_up_to(parts: list[int], whole: int) -> bool:
    """Return whether several times (ns) are the parts of one time.

    Their sum has to be at most half as far from the whole as the longest of them is.
    Else the longest one may be the whole, and the others are additional work.

    >>> adds_up_to([60, 50], 100), adds_up_to([90, 40], 100)
    (True, False)
    """
    return 2 * abs(sum(parts) - whole) <= abs(max(parts) - whole)


def _identify_kernel_of_call(items: WorkItems, item: int) -> _KernelOfCall:
    """Return the kernel of an item, together with the call of the op that launched it.

    Equal kernels in a row without an op count as those of one call. That call is named
    by the first of them.
    """
    kernel_id = items.kernel_id(item)
    if items.has_op(item):
        return _KernelOfCall(
            op=int(items.op[item]), first_item=None, kernel_id=kernel_id
        )

    first = item
    while first > 0:
        previous = first - 1
        if items.has_op(previous) or items.kernel_id(previous) != kernel_id:
            break
        first = previous
    return _KernelOfCall(op=None, first_item=first, kernel_id=kernel_id)


def group_rest_of_ops(alignment: Alignment) -> None:
    """Group the remaining kernels of calls that are the same in A and B.

    Unpaired kernels of both become one group. Unpaired kernels of one trace join the
    pair that links the two calls in two cases: the pair has two different kernels, so
    one became several, or they add up the parts of its kernel.
    """
    unpaired_a = _group_unpaired_items_by_op(alignment, 0)
    unpaired_b = _group_unpaired_items_by_op(alignment, 1)
    if not unpaired_a and not unpaired_b:
        return
    for link in _find_linked_calls(alignment):
        # Each call is handled once, with the first pair that links it.
        rest_a = unpaired_a.pop(link.op_a, [])
        rest_b = unpaired_b.pop(link.op_b, [])
        if not rest_a and not rest_b:
            continue
        if max(len(rest_a), len(rest_b)) > MAX_KERNELS_OF_OP:
            continue
        name = alignment.items[0].trace.name_of(link.op_a)
        if rest_a and rest_b:
            alignment.group_items(rest_a, rest_b, f"the remaining kernels of {name}")
        elif link.pair_index is not None:
            why = f"all kernels of {name}"
            _extend_pair(alignment, link.pair_index, rest_a, rest_b, why)


def _extend_pair(
    alignment: Alignment,
    pair_index: int,
    rest_a: list[int],
    rest_b: list[int],
    why: str,
) -> None:
    """Group a pair with the unpaired kernels of the same call, if they belong together.

    They do if the pair is of two different kernels, or if the unpaired ones add up the
    parts of its kernel.

    Args:
        alignment: Two lanes (streams), one of A and one of B, and what is paired so
            far.
        pair_index: The index of the pair.
        rest_a: The unpaired kernels of A of the same call.
        rest_b: Those of B of the same call; one of the two lists is empty.
        why: The evidence, for the reader.
    """
    pair = alignment.pairs[pair_index]
    if pair is None:
        return
    a, b = alignment.items
    item_a, item_b = pair
    is_other_kernel = a.kernel_id(item_a) != b.kernel_id(item_b)
    rest_a_adds_up = _do_all_combine_parts(a, item_a, rest_a)
    rest_b_adds_up = _do_all_combine_parts(b, item_b, rest_b)
    if is_other_kernel or (rest_a_adds_up and rest_b_adds_up):
        alignment.pairs[pair_index] = None
        alignment.group_items([item_a, *rest_a], [item_b, *rest_b], why)


def group_with_reduction(alignment: Alignment, side: int) -> None:
    """Group a product or attention with the next kernel, if that adds up its parts.

    The next kernel has to have no counterpart and no op, and to follow immediately.

    Args:
        alignment: Two lanes (streams), one of A and one of B, and what is paired so
            far.
        side: The trace of the kernel that adds up: 0 for A, 1 for B.
    """
    items = alignment.items[side]
    for pair_index, pair in enumerate(alignment.pairs):
        unpaired_after = alignment.gaps[pair_index + 1].unpaired(side)
        if pair is None or not unpaired_after:
            continue
        main = pair[side]
        following = unpaired_after[0]
        if following != main + 1 or items.op_id(following) != NO_OP:
            continue
        if _combines_parts(items.names[main], items.names[following]):
            alignment.pairs[pair_index] = None
            of_a, of_b = order_as_a_and_b(side, [main, following], [pair[1 - side]])
            why = "plus the kernel that combines its partial results"
            alignment.group_items(of_a, of_b, why)


def _do_all_combine_parts(items: WorkItems, main: int, rest: Sequence[int]) -> bool:
    """Return whether all other items add up the parts of the main kernel.

    Returns True if there are no other items.
    """
    return all(_combines_parts(items.names[main], items.names[item]) for item in rest)


@cache
def _combines_parts(main: str, following: str) -> bool:
    """Return whether a kernel adds up the partial results of the main kernel before it.

    That is the reduction of split-K after a product or convolution, or, after
    attention, a kernel whose name says that it reduces attention.

    Args:
        main: The name of the main kernel.
        following: The name of the kernel after it.
    """
    kind = classify_work("", main)
    if kind in ("gemm", "conv"):
        return role_of_kernel(following).adds_up_parts
    return kind == "attention" and _ATTENTION_REDUCTION.search(following) is not None


class _PairRun(NamedTuple):
    """Consecutive pairs that are one kernel under one op on both sides."""

    exact_key: int
    first: int  # the index of the first pair
    stop: int  # the index after that of the last pair

    @property
    def gaps(self) -> slice:
        """The gaps before, between and after its pairs."""
        return slice(self.first, self.stop + 1)

    @property
    def pairs(self) -> slice:
        """The pairs themselves."""
        return slice(self.first, self.stop)


def _find_runs_of_one_kernel(alignment: Alignment) -> Iterator[_PairRun]:
    """Yield the runs of consecutive pairs that are one kernel under one op in A and B.

    Runs without an unpaired item between their pairs or beside them are left out: there
    is nothing to decide about them.
    """
    first = 0
    for exact_key, equal_keys in groupby(_collect_keys_of_pairs(alignment)):
        stop = first + len(list(equal_keys))
        if exact_key is not None:  # None: pairs of two different kernels or ops
            run = _PairRun(exact_key=exact_key, first=first, stop=stop)
            has_unpaired_items = any(gap.a or gap.b for gap in alignment.gaps[run.gaps])
            if has_unpaired_items:
                yield run
        first = stop


def _collect_keys_of_pairs(alignment: Alignment) -> list[int | None]:
    """Return a key for each pair that is one kernel under one op in A and B.

    The key is None for other pairs.
    """
    a, b = alignment.items
    keys: list[int | None] = []
    for pair in alignment.pairs:
        if pair is None:
            keys.append(None)
            continue
        item_a, item_b = pair
        is_equal = a.exact_keys[item_a] == b.exact_keys[item_b]
        keys.append(int(a.exact_keys[item_a]) if is_equal else None)
    return keys


def _find_unpaired_items_of_run(
    alignment: Alignment, side: int, run: _PairRun
) -> list[int]:
    """Return the unpaired items in a run of pairs that are its kernel.

    Args:
        alignment: Two lanes (streams), one of A and one of B, and what is paired so
            far.
        side: The trace of the items: 0 for A, 1 for B.
        run: Consecutive pairs of one kernel.
    """
    exact_keys = alignment.items[side].exact_keys
    unpaired_items = []
    for gap in alignment.gaps[run.gaps]:
        for item in gap.unpaired(side):
            if exact_keys[item] == run.exact_key:
                unpaired_items.append(item)
    return unpaired_items


def _pair_by_closest_times(
    alignment: Alignment, side: int, run: _PairRun, unpaired_items: list[int]
) -> None:
    """Pair the repetitions of a kernel anew, in order, by the closest times.

    Items that have no partner then are added to the gap between pairs where they
    belong. If pairing would take too long, all repetitions become one group.

    Args:
        alignment: Two lanes (streams), one of A and one of B, and what is paired so
            far.
        side: The trace that has more of the kernel: 0 for A, 1 for B.
        run: Consecutive pairs of the kernel.
        unpaired_items: The items of that trace that are the same kernel and have no
            counterpart.
    """
    other_side = 1 - side
    other_items = []
    partners_before = []
    for pair in alignment.pairs[run.pairs]:
        if pair is not None:
            other_items.append(pair[other_side])
            partners_before.append(pair[side])
    candidates = sorted(partners_before + unpaired_items)

    is_fast = can_choose_closest_partners(
        shorter_length=len(other_items), longer_length=len(candidates)
    )
    if not is_fast:
        for pair_index in range(run.first, run.stop):
            alignment.pairs[pair_index] = None
        of_a, of_b = order_as_a_and_b(side, candidates, other_items)
        alignment.group_items(of_a, of_b, WHOLE_RUN, matched_as_whole=True)
        return

    other_features = alignment.items[other_side].features[other_items]
    candidate_features = alignment.items[side].features[candidates]
    positions = choose_closest_partners(other_features, candidate_features)
    partners = [candidates[position] for position in positions]
    if partners == partners_before:
        return

    alignment.pairs[run.pairs] = [
        order_as_a_and_b(side, partner, other_item)
        for partner, other_item in zip(partners, other_items, strict=True)
    ]
    gaps_of_run = alignment.gaps[run.gaps]
    alignment.remove_from_gaps(side, set(unpaired_items), gaps_of_run)
    without_partner = sorted(set(candidates) - set(partners))
    _return_to_gaps(alignment, side, run, partners, without_partner)


def _return_to_gaps(
    alignment: Alignment,
    side: int,
    run: _PairRun,
    partners: list[int],
    items: list[int],
) -> None:
    """Put items that lost their partner into the gaps where they belong.

    Args:
        alignment: Two lanes (streams), one of A and one of B, and what is paired so
            far.
        side: The trace of the items: 0 for A, 1 for B.
        run: Consecutive pairs of one kernel.
        partners: The items of that trace in these pairs, ascending.
        items: The items without a partner.
    """
    gaps = alignment.gaps[run.gaps]
    for item in items:
        # An item that n partners precede is in gap n of the run, before its pair n.
        partners_before = bisect_left(partners, item)
        insort(gaps[partners_before].unpaired(side), item)


def _group_unpaired_items_by_op(
    alignment: Alignment, side: int
) -> dict[int, list[int]]:
    """Return the unpaired items of a trace by the row of their innermost op.

    What torch.compile inserts counts as no op. Without a GPU the result is empty:
    there, each item is an op itself.
    """
    items = alignment.items[side]
    unpaired_items_by_op: defaultdict[int, list[int]] = defaultdict(list)
    if not items.work.gpu:
        return unpaired_items_by_op
    for gap in alignment.gaps:
        for item in gap.unpaired(side):
            if items.has_op(item) and not is_compiler(items.op_names[item]):
                unpaired_items_by_op[int(items.op[item])].append(item)
    return unpaired_items_by_op


class _LinkedCalls(NamedTuple):
    """A call of an op in A and one in B that are the same call."""

    op_a: int  # its row in the trace of A
    op_b: int
    pair_index: int | None  # the index of a pair of their items; None if in one gap


def _find_linked_calls(alignment: Alignment) -> Iterator[_LinkedCalls]:
    """Yield the calls of an op in A and in B that are the same call.

    First come those whose kernels are paired with each other, then those whose unpaired
    kernels lie between the same two pairs. A call may be in several links.
    """
    a, b = alignment.items
    for pair_index, pair in enumerate(alignment.pairs):
        if pair is None:
            continue
        item_a, item_b = pair
        if a.op_id(item_a) != NO_OP and _is_of_one_op(alignment, pair):
            yield _LinkedCalls(
                op_a=int(a.op[item_a]),
                op_b=int(b.op[item_b]),
                pair_index=pair_index,
            )
    for gap in alignment.gaps:
        if gap.a and gap.b:
            yield from _link_calls_in_gap(alignment, gap)


def _link_calls_in_gap(alignment: Alignment, gap: Gap) -> Iterator[_LinkedCalls]:
    """Yield the calls of one op in A and B whose unpaired kernels are in one gap.

    A gap lies between two pairs. The calls are linked in order: they are a longest
    common subsequence of the names of the ops.
    """
    a, b = alignment.items
    id_of_op_a = _map_ops_to_ids(a, gap.a)
    id_of_op_b = _map_ops_to_ids(b, gap.b)
    ops_a = list(id_of_op_a)
    ops_b = list(id_of_op_b)
    ids_a = list(id_of_op_a.values())
    ids_b = list(id_of_op_b.values())
    for i, j in pair_longest_common(ids_a, ids_b):
        yield _LinkedCalls(op_a=ops_a[i], op_b=ops_b[j], pair_index=None)


def _is_of_one_op(alignment: Alignment, pair: Pair) -> bool:
    """Return whether both items of a pair are of the same op.

    The op of two vendors may have two names, as `cudnn_convolution` and
    `miopen_convolution`. These are the same op if they are of one kind of work.
    """
    a, b = alignment.items
    item_a, item_b = pair
    if a.op_id(item_a) == b.op_id(item_b):
        return True
    kind_a = classify_work(a.op_names[item_a], "")
    kind_b = classify_work(b.op_names[item_b], "")
    return kind_a != "" and kind_a == kind_b and b.op_id(item_b) != NO_OP


def _map_ops_to_ids(items: WorkItems, members: list[int]) -> dict[int, int]:
    """Return {row of an op: the id of its name} for the ops of some items."""
    id_of_op = {}
    for item in members:
        op_id = items.op_id(item)
        if op_id != NO_OP:
            id_of_op[int(items.op[item])] = op_id
    return id_of_op
