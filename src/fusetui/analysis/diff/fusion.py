"""Finds the ops whose work a fused kernel does: by its name, then by what surrounds
it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set
from functools import cache
from typing import Final, NamedTuple

import msgspec

from fusetui.analysis.diff.groups import MAX_GAPS_TO_FUSED_OP, Alignment
from fusetui.analysis.diff.names import work_class
from fusetui.gpu.kernel_roles import role_of_kernel
from fusetui.trace.model.op_names import METADATA, is_metadata, words

Claims = dict[int, list[int]]
"""{fused item: the items of the other side whose work it does}."""

WORK_APART = ("gemm", "conv", "conv backward", "attention", "comm")
"""Work that a pointwise or reduction kernel never does, whatever its name lists."""

MAX_DIVIDED_ITEMS = 64
"""Gaps with more open items than this are divided among fused kernels greedily."""

MAX_NAMED_ITEMS = 64
"""So many open items of a gap may give a hand-written kernel its name by their ops."""


class _FusedItem(msgspec.Struct, frozen=True):
    """An open item whose name says what it collects."""

    item: int
    gap: int  # the number of its gap
    collector: Collector


def by_name(alignment: Alignment, side: int) -> None:
    """Groups open items of `side` with the kernel of the other side whose name lists
    their ops: those in its own gap and, for ops that it lacks then, in gaps near it.

    A kernel must have as many of them as its collector asks for, and one op of its
    core.
    """
    all_fused: list[_FusedItem] = []
    claims: Claims = {}
    taken: set[int] = set()
    for gap in range(len(alignment.gaps)):
        fused_items = _fused_items(alignment, side, gap)
        divided = _divide(alignment, side, alignment.gaps[gap][side], fused_items)
        for items in divided.values():
            taken.update(items)
        claims |= divided
        all_fused += fused_items
    for fused in all_fused:
        nearby = _missing_nearby(alignment, side, fused, claims[fused.item], taken)
        claims[fused.item] += nearby
        taken.update(nearby)
    for fused in all_fused:
        _claim(alignment, side, fused, claims[fused.item])


def _claim(
    alignment: Alignment, side: int, fused: _FusedItem, claimed: list[int]
) -> None:
    """Groups a fused kernel with the items that it may do the work of, if these are as
    many as its name asks for, and one of them is of its core."""
    collector = fused.collector
    listed_ops = []  # of each item, the names under which the kernel lists it
    for item in claimed:
        listed_ops.append(alignment.known_as(side, item) & collector.ops)
    has_core = any(ops & collector.core for ops in listed_ops)
    if len(claimed) >= collector.min_pieces and has_core:
        why = collector.says({_most_readable(ops) for ops in listed_ops})
        alignment.claim(side, claimed, fused.item, fused.gap, why)


def _most_readable(names: Iterable[str]) -> str:
    """Of the aliases of an op the one without an underscore, then the shortest."""
    return min(names, key=lambda name: (name.startswith("_"), len(name), name))


def _fused_items(alignment: Alignment, side: int, gap: int) -> list[_FusedItem]:
    """The open items of the other side in a gap whose names say what they collect: the
    names of their kernels, else of their ops, else the words of a hand-written kernel
    that are ops of open items near it."""
    other = alignment.items[1 - side]
    fused_items = []
    for item in alignment.gaps[gap][1 - side]:
        if not other.computes[item]:
            continue
        name = other.names[item]
        collector = collector_of(name) or collector_of(other.op_names[item])
        if collector is None and not is_library(name):
            nearby_ops = _stems_near(alignment, side, gap)
            collector = collector_by_words(name, nearby_ops)
        if collector is not None:
            fused_items.append(_FusedItem(item=item, gap=gap, collector=collector))
    return fused_items


def _stems_near(alignment: Alignment, side: int, gap: int) -> set[str]:
    """The stems of the ops of open items of a side in a gap and in those near it, of
    MAX_NAMED_ITEMS in each."""
    stems = alignment.items[side].stems
    names: set[str] = set()
    for near in alignment.gaps_near(gap):
        names.update(stems[item] for item in near[side][:MAX_NAMED_ITEMS])
    return names


Covers = list[list[frozenset[str]]]
"""`covers[kernel][item]`: the ops on the list of a fused kernel that an open item may
be (see `_covers`); both are counted within a gap."""


def _divide(
    alignment: Alignment, side: int, many: list[int], fused_items: list[_FusedItem]
) -> Claims:
    """The open items of a gap that each of its fused kernels may do the work of: {fused
    item: these items}; {} without fused kernels.

    The open items are divided in order, so that each kernel has one range of them, and
    of that range the items on its list. Of all divisions the one that explains the most
    (`_worth`), or a greedy one of more than MAX_DIVIDED_ITEMS. `many`: the open items
    of `side` in the gap; `fused_items`: the fused kernels of the other side in it.
    """
    if not fused_items:
        return {}
    covers: Covers = []
    for fused in fused_items:
        of_kernel = [_covers(alignment, side, item, fused.collector) for item in many]
        covers.append(of_kernel)
    if len(many) <= MAX_DIVIDED_ITEMS and len(fused_items) > 1:
        cuts = _best_cuts(covers)
    else:
        cuts = _greedy_cuts(covers)
    claims: Claims = {}
    for number, fused in enumerate(fused_items):
        items = []
        for place in range(cuts[number], cuts[number + 1]):
            if covers[number][place]:
                items.append(many[place])
        claims[fused.item] = items
    return claims


class _Division(NamedTuple):
    """A division of the first items among the first kernels."""

    worth: int
    cuts: list[int]  # where the range of each kernel begins; then the end of the last


def _best_cuts(covers: Covers) -> list[int]:
    """The cuts (`_Division.cuts`) of the division that explains the most, by dynamic
    programming over the last cut."""
    size = len(covers[0])
    # for each number of items, their best division among the kernels so far
    best = []
    for end in range(size + 1):
        best.append(_Division(worth=_worth(covers[0][:end]), cuts=[0, end]))
    for names in covers[1:]:
        best = [_best_division(best, names, end) for end in range(size + 1)]
    return best[-1].cuts


def _best_division(
    before: Sequence[_Division], names: list[frozenset[str]], end: int
) -> _Division:
    """The best division of the first `end` items among the kernels so far and one more,
    whose ops each item may be are `names`; of equals the one with the earliest last
    cut. `before[n]`: the best division of the first n items among the kernels so
    far."""
    divisions = []
    for cut in range(end + 1):
        worth = before[cut].worth + _worth(names[cut:end])
        divisions.append(_Division(worth=worth, cuts=[*before[cut].cuts, end]))
    return max(divisions, key=lambda division: division.worth)


def _worth(names: list[frozenset[str]]) -> int:
    """How much a kernel explains of a range of items: one point for each item that may
    be an op on its list, and one for each op that any of them may be."""
    items = sum(1 for of_item in names if of_item)
    return items + len(frozenset().union(*names))


def _greedy_cuts(covers: Covers) -> list[int]:
    """The cuts (`_Division.cuts`) where each fused kernel takes all items up to the
    first that it does not name, but a later kernel does."""
    size = len(covers[0])
    cuts = [0]
    for number, names in enumerate(covers):
        later = covers[number + 1 :]
        end = cuts[-1]
        while end < size:
            if not names[end] and any(of_kernel[end] for of_kernel in later):
                break
            end += 1
        cuts.append(end)
    return cuts


def _covers(
    alignment: Alignment, side: int, item: int, collector: Collector
) -> frozenset[str]:
    """The ops on a collector's list that an item of `side` may be. Empty for copies and
    sets, and for WORK_APART unless the collector may do that."""
    items = alignment.items[side]
    if not items.computes[item]:
        return frozenset()
    if not collector.gemms:
        work = work_class(items.op_names[item], items.names[item])
        if work in WORK_APART:
            return frozenset()
    return alignment.known_as(side, item) & collector.ops


def _missing_nearby(
    alignment: Alignment,
    side: int,
    fused: _FusedItem,
    claimed: list[int],
    taken: set[int],
) -> list[int]:
    """For each op of a fused kernel's core that none of its `claimed` items may be, the
    nearest open item that may, in the gaps before its own, then after it. Items that are
    `taken` are left out. Empty for a kernel of attention, whose name lists no ops: its
    core are alternatives."""
    collector = fused.collector
    if collector.gemms and not collector.listed:
        return []
    missing = set(collector.core)
    for item in claimed:
        missing -= _covers(alignment, side, item, collector)
    nearby = []
    for item in _open_nearest_first(alignment, side, fused.gap):
        if item in taken:
            continue
        listed = _covers(alignment, side, item, collector) & missing
        if listed:
            nearby.append(item)
            missing -= listed
    return nearby


def _open_nearest_first(alignment: Alignment, side: int, gap: int) -> list[int]:
    """The open items of a side in the MAX_GAPS_TO_FUSED_OP gaps before a gap, from it
    back, then those in as many gaps after it."""
    first = max(0, gap - MAX_GAPS_TO_FUSED_OP)
    stop = gap + MAX_GAPS_TO_FUSED_OP + 1
    items: list[int] = []
    for before in reversed(alignment.gaps[first:gap]):
        items += reversed(before[side])
    for after in alignment.gaps[gap + 1 : stop]:
        items += after[side]
    return items


_ATTENTION: Final = "mm addmm bmm baddbmm matmul softmax _softmax _safe_softmax"


class Collector(msgspec.Struct, frozen=True):
    """The ops whose work a kernel may do, by its name."""

    ops: frozenset[str]
    core: frozenset[str]  # of these, at least one must be among what it does
    min_pieces: int  # with fewer pieces of these ops, the name is no evidence
    gemms: bool  # whether it may do the work of matrix products
    listed: bool  # whether the name lists the ops, or its words imply them

    def says(self, ops: Iterable[str]) -> str:
        """`its name lists gelu and mul`: the evidence for a match with these ops."""
        *first, last = sorted(ops)
        names = f"{', '.join(first)} and {last}" if first else last
        return f"its name {'lists' if self.listed else 'stands for'} {names}"


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
fuse: those of which one must be among them, and others."""

_COMPOUNDS: Final = tuple(
    (
        re.compile(pattern, re.IGNORECASE),
        Collector(
            ops=words(f"{core} {others}"),
            core=words(core),
            min_pieces=2,
            gemms=core == _ATTENTION,
            listed=False,
        ),
    )
    for pattern, core, others in _OPS_BY_PATTERN
)

_ATEN: Final = re.compile(
    r"at::native|at_cuda|at::cuda|^aten::|Cijk_|gemm", re.IGNORECASE
)
_WORD: Final = re.compile(r"[a-z0-9]+")


@cache
def is_library(kernel: str) -> bool:
    """Whether it is a kernel of PyTorch or a GEMM: their names do not list what they
    fuse."""
    return _ATEN.search(kernel) is not None


@cache
def collector_of(kernel: str) -> Collector | None:
    """What a kernel (or a CPU op in its place) collects according to its name: the ops
    that a compiler's kernel lists, or those of _OPS_BY_PATTERN. None for most
    kernels."""
    decoded = role_of_kernel(kernel).decoded
    if decoded is not None and decoded.fused_ops:
        ops = frozenset(op.rstrip("_") or op for op in decoded.fused_ops)
        return Collector(
            ops=ops,
            core=ops - METADATA or ops,
            min_pieces=1,
            gemms=decoded.kernel_category == "template",
            listed=True,
        )
    if is_library(kernel):
        return None
    for pattern, compound in _COMPOUNDS:
        if pattern.search(kernel):
            return compound
    return None


def collector_by_words(kernel: str, stems: Set[str]) -> Collector | None:
    """The collector of a hand-written kernel whose name has at least two of these ops
    as words (`scale_mask_softmax` of `mask`, `softmax`); None if it has not. Ops that
    only change metadata do not count."""
    base_name = kernel.lower().partition("<")[0].partition("(")[0]
    text = f"_{'_'.join(_WORD.findall(base_name))}_"
    named = set()
    for op in stems:
        word = op.strip("_").lower()
        if f"_{word}_" in text and not is_metadata(op):
            named.add(op)
    if len(named) < 2:
        return None
    ops = frozenset(named)
    return Collector(ops=ops, core=ops, min_pieces=2, gemms=False, listed=True)
