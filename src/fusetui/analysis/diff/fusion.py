"""Finds the ops whose work a fused kernel does, from the name of the kernel.

A compiler lists the ops that it fused in the name of a kernel, as in
`triton_poi_fused_gelu_mul_3`. Names of hand-written kernels imply ops, as `swiglu`
does. `FusedOps` has the ops that a name lists or implies. The rule `group_by_name`
groups such a kernel with the items of the other side that are these ops.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set
from functools import cache
from typing import Final, NamedTuple

import msgspec

from fusetui.analysis.diff.groups import MAX_GAPS_TO_FUSED_OP, Alignment
from fusetui.analysis.diff.names import classify_work
from fusetui.gpu.kernel_roles import role_of_kernel
from fusetui.trace.model.op_names import METADATA, is_metadata, words

Claims = dict[int, list[int]]
"""{fused item: the items of the other side whose work it may do}."""

WORK_APART = ("gemm", "conv", "conv backward", "attention", "comm")
"""Work that a pointwise or reduction kernel never does, whatever its name lists."""

MAX_DIVIDED_ITEMS = 64
"""Gaps with more unpaired items than this are divided among fused kernels greedily."""

MAX_NAMED_ITEMS = 64
"""This many unpaired items of a gap are looked at where the ops around a hand-written
kernel tell what the words of its name mean."""


class _FusedItem(msgspec.Struct, frozen=True):
    """An unpaired item whose name says which ops it may do the work of."""

    item: int
    gap_index: int  # of the gap in which it is unpaired
    fused_ops: FusedOps


def group_by_name(alignment: Alignment, side: int) -> None:
    """Group kernels with the fused kernel of the other trace that lists their ops.

    Only unpaired items count: kernels and copies without a counterpart so far. Those
    between the same two pairs as the fused kernel come first. Ops that it still lacks
    are searched nearby. A kernel is grouped only if enough of its ops are found, one of
    its core among them.

    Args:
        alignment: Two lanes (streams), one of A and one of B, and what is paired so
            far.
        side: The trace with the several kernels, 0 for A or 1 for B; the fused kernels
            are in the other one.
    """
    all_fused_items: list[_FusedItem] = []
    claims: Claims = {}
    for gap_index, gap in enumerate(alignment.gaps):
        fused_items = _find_fused_items(alignment, side, gap_index)
        unpaired_items = gap.unpaired(side)
        claims |= _divide_among_kernels(alignment, side, unpaired_items, fused_items)
        all_fused_items += fused_items

    claimed_items: set[int] = set()  # by any kernel
    for items in claims.values():
        claimed_items.update(items)
    for fused in all_fused_items:
        nearby = _find_missing_ops_nearby(
            alignment, side, fused, claims[fused.item], claimed_items
        )
        claims[fused.item] += nearby
        claimed_items.update(nearby)

    for fused in all_fused_items:
        _group_if_enough(alignment, side, fused, claims[fused.item])


def _group_if_enough(
    alignment: Alignment, side: int, fused: _FusedItem, claimed: list[int]
) -> None:
    """Group a fused kernel with the items whose work it may do, if they are enough.

    They have to be as many as the name of the kernel asks for. One of them has to be an
    op of its core, which are the ops that it cannot do without.

    Args:
        alignment: Two lanes (streams), one of A and one of B, and what is paired so
            far.
        side: The trace of the claimed items: 0 for A, 1 for B.
        fused: The fused kernel.
        claimed: Items without a counterpart whose work it may do.
    """
    fused_ops = fused.fused_ops
    has_core = False
    readable_names = set()
    for item in claimed:
        listed_names = alignment.known_as(side, item) & fused_ops.names
        readable_names.add(_choose_most_readable(listed_names))
        if listed_names & fused_ops.core:
            has_core = True

    if len(claimed) >= fused_ops.min_kernels and has_core:
        why = fused_ops.describe(readable_names)
        alignment.group_with_one(
            side,
            own_items=claimed,
            other_item=fused.item,
            gap_index=fused.gap_index,
            why=why,
        )


def _choose_most_readable(names: Iterable[str]) -> str:
    """Choose the alias of an op that has no underscore in front, then the shortest."""
    return min(names, key=lambda name: (name.startswith("_"), len(name), name))


def _find_fused_items(
    alignment: Alignment, side: int, gap_index: int
) -> list[_FusedItem]:
    """Find the unpaired kernels between two pairs whose names say what they fuse.

    The name of the kernel says it, or else the name of its op. The last resort is words
    in the name of a hand-written kernel that are ops of unpaired items nearby.

    Args:
        alignment: Two lanes (streams), one of A and one of B, and what is paired so
            far.
        side: The trace whose ops the kernels may do the work of: 0 for A, 1 for B.
        gap_index: The index of the gap between two pairs.
    """
    other_side = 1 - side
    other = alignment.items[other_side]
    fused_items = []
    for item in alignment.gaps[gap_index].unpaired(other_side):
        if not other.computes[item]:
            continue
        name = other.names[item]
        fused_ops = find_fused_ops(name) or find_fused_ops(other.op_names[item])
        if fused_ops is None and not is_library_kernel(name):
            nearby_ops = _collect_ops_near(alignment, side, gap_index)
            fused_ops = find_fused_ops_by_words(name, nearby_ops)
        if fused_ops is not None:
            fused_item = _FusedItem(item=item, gap_index=gap_index, fused_ops=fused_ops)
            fused_items.append(fused_item)
    return fused_items


def _collect_ops_near(alignment: Alignment, side: int, gap_index: int) -> set[str]:
    """Return the ops of the unpaired items of a trace in a gap and in the gaps near it.

    A gap is what lies between two pairs of an alignment. Of each gap, the first
    MAX_NAMED_ITEMS items count. The names of ops have no namespaces.
    """
    stems = alignment.items[side].stems
    ops: set[str] = set()
    for gap in alignment.list_gaps_near(gap_index):
        for item in gap.unpaired(side)[:MAX_NAMED_ITEMS]:
            ops.add(stems[item])
    return ops


Covers = list[list[frozenset[str]]]
"""`covers[kernel][item]`: the ops on the list of a fused kernel that an unpaired item
may be (see `_find_covered_ops`); both are positions within a gap."""


def _divide_among_kernels(
    alignment: Alignment,
    side: int,
    unpaired_items: list[int],
    fused_items: list[_FusedItem],
) -> Claims:
    """Divide the unpaired items of a gap among the fused kernels in it.

    A gap is what lies between two pairs of an alignment. Each kernel gets one range of
    the items, in order, and claims those of the range that its name lists. The division
    that explains the most is chosen. With more than MAX_DIVIDED_ITEMS items the
    division is greedy, to save time.

    Args:
        alignment: Two lanes (streams), one of A and one of B, and what is paired so
            far.
        side: The trace of the items: 0 for A, 1 for B.
        unpaired_items: The unpaired items of that trace in the gap.
        fused_items: The fused kernels of the other trace in the gap.

    Returns:
        The claimed items of each fused kernel; {} without fused kernels.
    """
    if not fused_items:
        return {}

    covers: Covers = []
    for fused in fused_items:
        covered_by_kernel = []
        for item in unpaired_items:
            covered = _find_covered_ops(alignment, side, item, fused.fused_ops)
            covered_by_kernel.append(covered)
        covers.append(covered_by_kernel)

    if len(unpaired_items) <= MAX_DIVIDED_ITEMS and len(fused_items) > 1:
        cuts = _find_best_cuts(covers)
    else:
        cuts = _find_greedy_cuts(covers)

    claims: Claims = {}
    for kernel_index, fused in enumerate(fused_items):
        items = []
        for position in range(cuts[kernel_index], cuts[kernel_index + 1]):
            if covers[kernel_index][position]:
                items.append(unpaired_items[position])
        claims[fused.item] = items
    return claims


class _Division(NamedTuple):
    """A division of the first items of a gap among the first kernels."""

    worth: int  # how much it explains
    cuts: list[int]  # where the range of each kernel begins, then the end of the last


def _find_best_cuts(covers: Covers) -> list[int]:
    """Return the cuts that divide items among fused kernels to explain the most.

    This is dynamic programming over the last cut. Each kernel gets one range of the
    items.

        >>> add, mul, other = frozenset({"add"}), frozenset({"mul"}), frozenset()
        >>> _find_best_cuts([[add, add, other], [other, other, mul]])  # 2 kernels, 3 items
        [0, 2, 3]

    Args:
        covers: covers[kernel][item] is the ops listed by the kernel that the item may
            be.

    Returns:
        Where the range of each kernel begins, then the end of the last.
    """
    size = len(covers[0])
    # best[n]: the best division of the first n items among the kernels so far.
    best = []
    for end in range(size + 1):
        worth = _rate_range(covers[0][:end])
        best.append(_Division(worth=worth, cuts=[0, end]))
    for covered_by_kernel in covers[1:]:
        best = [
            _find_best_division(best, covered_by_kernel, end) for end in range(size + 1)
        ]
    return best[-1].cuts


def _find_best_division(
    before: Sequence[_Division], covered_by_kernel: list[frozenset[str]], end: int
) -> _Division:
    """Return the best division of the first items when one more kernel is added.

    Of equal divisions, the one with the earliest last cut is chosen.

    Args:
        before: before[n] is the best division of the first n items among the kernels so
            far.
        covered_by_kernel: For each item, the ops on the list of the added kernel that
            it may be.
        end: How many items are divided.
    """
    divisions = []
    for cut in range(end + 1):
        worth = before[cut].worth + _rate_range(covered_by_kernel[cut:end])
        divisions.append(_Division(worth=worth, cuts=[*before[cut].cuts, end]))
    return max(divisions, key=lambda division: division.worth)


def _rate_range(covered_ops: list[frozenset[str]]) -> int:
    """Return how much a kernel explains of a range of items.

    There is one point for each item that may be an op on its list, and one point for
    each op that any of them may be.

    >>> _rate_range([frozenset({"add"}), frozenset({"add", "mul"}), frozenset()])
    4

    Args:
        covered_ops: For each item of the range, the listed ops that it may be.
    """
    covered_items = sum(1 for ops in covered_ops if ops)
    distinct_ops = frozenset().union(*covered_ops)
    return covered_items + len(distinct_ops)


def _find_greedy_cuts(covers: Covers) -> list[int]:
    """Return cuts where each kernel takes all items up to the first of a later one.

    That is the first item that the kernel does not list, but a later kernel does.

        >>> add, mul, other = frozenset({"add"}), frozenset({"mul"}), frozenset()
        >>> _find_greedy_cuts([[add, other, other], [other, other, mul]])
        [0, 2, 3]

    Args:
        covers: covers[kernel][item] is the ops listed by the kernel that the item may
            be.

    Returns:
        Where the range of each kernel begins, then the end of the last.
    """
    size = len(covers[0])
    cuts = [0]
    for kernel_index, covered_by_kernel in enumerate(covers):
        later_kernels = covers[kernel_index + 1 :]
        end = cuts[-1]
        while end < size:
            is_of_later = any(covered[end] for covered in later_kernels)
            if not covered_by_kernel[end] and is_of_later:
                break
            end += 1
        cuts.append(end)
    return cuts


def _find_covered_ops(
    alignment: Alignment, side: int, item: int, fused_ops: FusedOps
) -> frozenset[str]:
    """Return which of the ops that a fused kernel lists an item may be.

    There are none for copies and fills. There are none for products, convolutions and
    attention (WORK_APART) either, unless the fused kernel may do that.

    Args:
        alignment: Two lanes (streams), one of A and one of B, and what is paired so
            far.
        side: The trace of the item: 0 for A, 1 for B.
        item: The index of the item.
        fused_ops: The ops whose work the fused kernel may do.
    """
    items = alignment.items[side]
    if not items.computes[item]:
        return frozenset()
    if not fused_ops.may_multiply:
        work = classify_work(items.op_names[item], items.names[item])
        if work in WORK_APART:
            return frozenset()
    return alignment.known_as(side, item) & fused_ops.names


def _find_missing_ops_nearby(
    alignment: Alignment,
    side: int,
    fused: _FusedItem,
    claimed: list[int],
    claimed_items: set[int],
) -> list[int]:
    """Find unpaired items near a fused kernel for the ops that it still lacks.

    The core are the ops that the kernel cannot do without. For each of them, the
    nearest unpaired item that may be it is taken, those before the kernel first. A
    kernel of attention lacks no ops: its name lists none, and the ops of its core are
    alternatives.

    Args:
        alignment: Two lanes (streams), one of A and one of B, and what is paired so
            far.
        side: The trace of the unpaired items: 0 for A, 1 for B.
        fused: The fused kernel.
        claimed: The items whose work it does, as far as known.
        claimed_items: The items that any kernel claims; they are left out.
    """
    fused_ops = fused.fused_ops
    if fused_ops.may_multiply and not fused_ops.is_listed:
        return []

    missing_ops = set(fused_ops.core)
    for item in claimed:
        missing_ops -= _find_covered_ops(alignment, side, item, fused_ops)

    nearby: list[int] = []
    for item in _list_nearest_unpaired_items(alignment, side, fused.gap_index):
        if item in claimed_items:
            continue
        covered = _find_covered_ops(alignment, side, item, fused_ops) & missing_ops
        if covered:
            nearby.append(item)
            missing_ops -= covered
    return nearby


def _list_nearest_unpaired_items(
    alignment: Alignment, side: int, gap_index: int
) -> list[int]:
    """List the unpaired items of a trace in the gaps around a gap.

    A gap is what lies between two pairs of an alignment. Items of the
    MAX_GAPS_TO_FUSED_OP gaps before it come first, backward from the gap. Those in as
    many gaps after it follow.
    """
    first = max(0, gap_index - MAX_GAPS_TO_FUSED_OP)
    stop = gap_index + MAX_GAPS_TO_FUSED_OP + 1
    items: list[int] = []
    for gap_before in reversed(alignment.gaps[first:gap_index]):
        items += reversed(gap_before.unpaired(side))
    for gap_after in alignment.gaps[gap_index + 1 : stop]:
        items += gap_after.unpaired(side)
    return items


_ATTENTION: Final = "mm addmm bmm baddbmm matmul softmax _softmax _safe_softmax"


class FusedOps(msgspec.Struct, frozen=True):
    """The ops whose work a kernel may do, by its name."""

    names: frozenset[str]  # without namespaces
    core: frozenset[str]  # at least one of these ops must be among what it does
    min_kernels: int  # with fewer kernels of these ops, the name is no evidence
    may_multiply: bool  # whether it may do the work of matrix products
    is_listed: bool  # whether the name lists the ops; else its words imply them

    def describe(self, ops: Iterable[str]) -> str:
        """Write the evidence for a match: `the fused kernel's name lists gelu and mul`.

        It says `implies` for names whose words only imply the ops. `ops` has at least
        one name.
        """
        *all_but_last, last = sorted(ops)
        names = f"{', '.join(all_but_last)} and {last}" if all_but_last else last
        verb = "lists" if self.is_listed else "implies"
        return f"the fused kernel's name {verb} {names}"


_AROUND: Final = "mul div add sub where masked_fill copy native_dropout dropout tril"
_LAYER_NORM: Final = "native_layer_norm layer_norm rsqrt var_mean"
_OPS_BY_PATTERN: Final = (
    (r"geglu|gelu_(and|tanh_and)_mul|gelu_mul", "gelu", "mul"),
    (r"swiglu|silu_(and_)?mul", "silu", "mul"),
    (r"flash|fmha|attention|attn|sdpa", _ATTENTION, _AROUND),
    (r"rms_?norm", "rsqrt pow mean", "add mul copy _to_copy"),
    (r"layer_?norm", _LAYER_NORM, "add sub mul native_dropout"),
    (r"rope|rotary", "mul cat neg", "add sub stack copy cos sin"),
    (r"cross_?entropy", "_log_softmax nll_loss_forward nll_loss", ""),
    (
        r"fused_?adam|multi_tensor",
        "addcdiv addcmul lerp sqrt",
        "mul add div sub maximum",
    ),
)
"""Patterns of names of hand-written kernels, and the ops that such kernels are known to
fuse: first the ops of which one must be among them, then others."""

_COMPOUNDS: Final = tuple(
    (
        re.compile(pattern, re.IGNORECASE),
        FusedOps(
            names=words(f"{core} {others}"),
            core=words(core),
            min_kernels=2,
            may_multiply=core == _ATTENTION,
            is_listed=False,
        ),
    )
    for pattern, core, others in _OPS_BY_PATTERN
)

_ATEN: Final = re.compile(
    r"at::native|at_cuda|at::cuda|^aten::|Cijk_|gemm", re.IGNORECASE
)
_WORD: Final = re.compile(r"[a-z0-9]+")


@cache
def is_library_kernel(kernel: str) -> bool:
    """Return whether a kernel is one of PyTorch or a GEMM.

    The names of such kernels do not list what they fuse.
    """
    return _ATEN.search(kernel) is not None


@cache
def find_fused_ops(kernel: str) -> FusedOps | None:
    """Return which ops a kernel may do the work of, by its name alone.

    These are the ops that a compiler's kernel lists, or those of _OPS_BY_PATTERN.

    Args:
        kernel: The name of a kernel, or of a CPU op in its place.

    Returns:
        None for most kernels.
    """
    decoded = role_of_kernel(kernel).decoded
    if decoded is not None and decoded.fused_ops:
        names = frozenset(op.rstrip("_") or op for op in decoded.fused_ops)
        return FusedOps(
            names=names,
            core=names - METADATA or names,  # ops of metadata launch nothing
            min_kernels=1,
            may_multiply=decoded.kernel_category == "template",
            is_listed=True,
        )
    if is_library_kernel(kernel):
        return None
    for pattern, compound in _COMPOUNDS:
        if pattern.search(kernel):
            return compound
    return None


def find_fused_ops_by_words(kernel: str, stems: Set[str]) -> FusedOps | None:
    """Return which ops a hand-written kernel has as words in its name.

    Ops that only change metadata do not count.

    >>> fused_ops = find_fused_ops_by_words("scale_mask_softmax<float>", {"softmax", "mask"})
    >>> sorted(fused_ops.names)
    ['mask', 'softmax']

    Args:
        kernel: The name of a kernel.
        stems: The names of the ops to look for, without namespaces.

    Returns:
        None if the name has fewer than two of these ops.
    """
    before_template, _, _ = kernel.lower().partition("<")
    base_name, _, _ = before_template.partition("(")
    # With underscores around each word, an op is found only as whole words.
    text = f"_{'_'.join(_WORD.findall(base_name))}_"
    named_ops = set()
    for op in stems:
        word = op.strip("_").lower()
        if f"_{word}_" in text and not is_metadata(op):
            named_ops.add(op)
    if len(named_ops) < 2:  # a single word may be chance
        return None
    names = frozenset(named_ops)
    return FusedOps(
        names=names, core=names, min_kernels=2, may_multiply=False, is_listed=True
    )
