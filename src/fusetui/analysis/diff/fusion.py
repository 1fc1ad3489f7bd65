"""Finds the ops whose work a fused kernel does: by its name, then by what surrounds
it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from functools import cache
from typing import Final

import msgspec

from fusetui.analysis.diff.groups import MAX_GAPS_TO_FUSED_OP, Alignment
from fusetui.analysis.diff.names import work_class
from fusetui.gpu.kernel_names import decode
from fusetui.trace.model.op_names import METADATA, is_metadata, words

Claims = dict[int, list[int]]  # the fused item -> the items whose work it does

APART = ("gemm", "conv", "conv backward", "attention", "comm")
"""Work that a pointwise or reduction kernel never does, whatever its name lists."""

# gaps with more open items than this are divided among fused kernels greedily
_WIDE = 64


def by_name(alignment: Alignment, side: int) -> None:
    """Items of `side` that a kernel of the other side names, in its own gap and then
    near it."""
    found: dict[int, tuple[int, Collector]] = {}
    claims: Claims = {}
    taken: set[int] = set()
    for gap in range(len(alignment.gaps)):
        here = _collectors(alignment, side, gap)
        found |= {one: (gap, kind) for one, kind in here}
        divided = _divide(alignment, side, alignment.gaps[gap][side], here)
        taken.update(item for items in divided.values() for item in items)
        claims |= divided
    for one, (gap, kind) in found.items():
        near = _reach(alignment, side, gap, kind, claims[one], taken)
        claims[one] += near
        taken.update(near)
    for one, (gap, kind) in found.items():
        known = [alignment.known_as(side, item) & kind.ops for item in claims[one]]
        if len(known) >= kind.least and any(names & kind.core for names in known):
            # of the aliases of each item the one that reads best
            best = {
                min(names, key=lambda n: (n.startswith("_"), len(n), n))
                for names in known
            }
            alignment.claim(side, claims[one], one, gap, kind.says(best))


def _collectors(
    alignment: Alignment, side: int, gap: int
) -> list[tuple[int, Collector]]:
    """The open items of the other side in a gap whose names say what they collect."""
    other = alignment.items[1 - side]
    found = []
    for one in alignment.gaps[gap][1 - side]:
        if other.computes[one]:
            kind = collector(other.names[one]) or collector(other.op_names[one])
            if kind is None and not is_library(other.names[one]):
                near = alignment.gaps_near(gap)
                stems, items = (
                    alignment.items[side].stems,
                    (pair[side][:_WIDE] for pair in near),
                )
                kind = words_of(
                    other.names[one], {stems[n] for some in items for n in some}
                )
            if kind is not None:
                found.append((one, kind))
    return found


def _divide(
    alignment: Alignment, side: int, many: list[int], ones: list[tuple[int, Collector]]
) -> Claims:
    """Divides the open items of a gap among its fused kernels, in order: each gets one
    stretch. Of all divisions, the one that explains the most."""
    covers = [
        [_covers(alignment, side, item, kind) for item in many] for _, kind in ones
    ]
    cuts = [0] * (len(ones) + 1)
    if many and ones:
        cuts = (
            _cuts(covers) if len(many) <= _WIDE and len(ones) > 1 else _greedy(covers)
        )
    return {
        one: [many[n] for n in range(first, last) if names[n]]
        for (one, _), names, first, last in zip(
            ones, covers, cuts, cuts[1:], strict=False
        )
    }


def _cuts(covers: list[list[frozenset[str]]]) -> list[int]:
    """The cuts that explain the most, by dynamic programming over the last cut."""
    size = len(covers[0])
    best = [(_worth(covers[0][:end]), [0, end]) for end in range(size + 1)]
    for names in covers[1:]:
        best = [
            max(
                (
                    (worth + _worth(names[cut:end]), [*cuts, end])
                    for cut, (worth, cuts) in choices
                ),
                key=lambda choice: choice[0],
            )
            for end in range(size + 1)
            if (choices := list(enumerate(best[: end + 1])))
        ]
    return best[-1][1]


def _worth(names: list[frozenset[str]]) -> int:
    """One point for each item, and one for each op named."""
    return sum(map(bool, names)) + len(frozenset().union(*names))


def _greedy(covers: list[list[frozenset[str]]]) -> list[int]:
    """Each fused kernel takes all items up to the first that only a later kernel
    names."""
    size = len(covers[0])
    cuts = [0]
    for number, names in enumerate(covers):
        later = covers[number + 1 :]
        rest = range(cuts[-1], size)
        ends = (n for n in rest if not names[n] and any(kernel[n] for kernel in later))
        cuts.append(next(ends, size))
    return cuts


def _covers(
    alignment: Alignment, side: int, item: int, kind: Collector
) -> frozenset[str]:
    """The ops on a collector's list that this item may be; none if it is no part of the
    fusion."""
    items = alignment.items[side]
    apart = (
        not kind.gemms and work_class(items.op_names[item], items.names[item]) in APART
    )
    if apart or not items.computes[item]:
        return frozenset()
    return alignment.known_as(side, item) & kind.ops


def _reach(
    alignment: Alignment,
    side: int,
    gap: int,
    kind: Collector,
    claimed: list[int],
    taken: set[int],
) -> list[int]:
    """For each missing op on the list, the nearest open item in the gaps before, then
    after."""
    named = [_covers(alignment, side, item, kind) for item in claimed]
    missing = (
        set() if kind.gemms and not kind.listed else set(kind.core).difference(*named)
    )
    before = alignment.gaps[max(0, gap - MAX_GAPS_TO_FUSED_OP) : gap][::-1]
    items = [item for near in before for item in reversed(near[side])]
    items += [
        item
        for near in alignment.gaps[gap + 1 : gap + MAX_GAPS_TO_FUSED_OP + 1]
        for item in near[side]
    ]
    found: list[int] = []
    for item in items:
        names = (
            _covers(alignment, side, item, kind) & missing
            if item not in taken
            else frozenset()
        )
        if names:
            found.append(item)
            missing -= names
    return found


_ATTENTION: Final = "mm addmm bmm baddbmm matmul softmax _softmax _safe_softmax"


class Collector(msgspec.Struct, frozen=True):
    """The ops whose work a kernel may do; at least one of `core` must be among them."""

    ops: frozenset[str]
    core: frozenset[str]
    least: int  # how many pieces must be found for the name to be evidence
    gemms: bool  # whether it may do the work of matrix products
    listed: bool  # whether the name lists the ops, or its words imply them

    def says(self, found: Iterable[str]) -> str:
        """The evidence in words."""
        words = sorted(found)
        joined = " and ".join(
            [", ".join(words[:-1]), words[-1]] if len(words) > 1 else words
        )
        return f"its name {'lists' if self.listed else 'stands for'} {joined}"


_AROUND: Final = "mul div add sub where masked_fill copy native_dropout dropout tril"
_LAYER_NORM: Final = "native_layer_norm layer_norm rsqrt var_mean"
_COMPOUNDS: Final = tuple(
    (
        re.compile(pattern, re.IGNORECASE),
        Collector(
            words(f"{core} {others}"), words(core), 2, core == _ATTENTION, listed=False
        ),
    )
    for pattern, core, others in (
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
)
"""Words in names of hand-written kernels, and the ops that such kernels are known to
fuse."""

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
def collector(kernel: str) -> Collector | None:
    """What a kernel (or a CPU op in its place) collects according to its name; None for
    most."""
    known = decode(kernel)
    if known is not None and known.fused_ops:
        ops = frozenset(op.rstrip("_") or op for op in known.fused_ops)
        template = known.kernel_category == "template"
        return Collector(ops, ops - METADATA or ops, 1, template, listed=True)
    if is_library(kernel):
        return None
    return next(
        (found for pattern, found in _COMPOUNDS if pattern.search(kernel)), None
    )


def words_of(kernel: str, stems: Set[str]) -> Collector | None:
    """The collector of a hand-written kernel named after at least two of these ops,
    else None."""
    words = _WORD.findall(kernel.lower().partition("<")[0].partition("(")[0])
    text = f"_{'_'.join(words)}_"
    named = (s for s in stems if f"_{s.strip('_').lower()}_" in text)
    found = frozenset(s for s in named if not is_metadata(s))
    return (
        Collector(found, found, 2, gemms=False, listed=True) if len(found) > 1 else None
    )
