"""Kernels whose names say that they do the work of several ops."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Final

import msgspec

from fusetui.analysis.diff.names import decoded
from fusetui.trace.model.op_names import METADATA, is_metadata

_MATMULS: Final = ("mm", "addmm", "bmm", "baddbmm", "matmul")
_SOFTMAX: Final = ("softmax", "_softmax", "_safe_softmax")


class Collector(msgspec.Struct, frozen=True):
    """The ops whose work a kernel may do; at least one of `core` must be among them."""

    ops: frozenset[str]
    core: frozenset[str]
    least: int  # how many pieces must be found for the name to be evidence
    gemms: bool  # whether it may do the work of matrix products
    listed: bool  # whether the name lists the ops, or its words imply them

    def says(self, found: Iterable[str]) -> str:
        """The evidence in words."""
        words = sorted(set(found) & self.ops)
        joined = " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
        return f"its name {'lists' if self.listed else 'stands for'} {joined}"


def _compound(core: str, others: str = "", least: int = 2, gemms: bool = False) -> Collector:
    words = frozenset(core.split())
    return Collector(words | frozenset(others.split()), words, least, gemms, listed=False)


_COMPOUNDS: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), collector)
    for pattern, collector in (
        (r"geglu|gelu_(and|tanh_and)_mul|gelu_mul", _compound("gelu", "mul")),
        (r"swiglu|silu_(and_)?mul", _compound("silu", "mul")),
        (
            r"flash|fmha|attention|attn|sdpa",
            _compound(
                " ".join((*_MATMULS, *_SOFTMAX)),
                "mul div add sub where masked_fill copy native_dropout dropout tril",
                gemms=True,
            ),
        ),
        (r"rms_?norm", _compound("rsqrt pow mean", "add mul copy _to_copy")),
        (
            r"layer_?norm",
            _compound("native_layer_norm layer_norm rsqrt var_mean", "add sub mul native_dropout"),
        ),
        (r"rope|rotary", _compound("mul cat neg", "add sub stack copy cos sin")),
        (r"cross_?entropy", _compound("_log_softmax nll_loss_forward nll_loss")),
        (
            r"fused_?adam|multi_tensor",
            _compound("addcdiv addcmul lerp sqrt", "mul add div sub maximum"),
        ),
    )
)
"""Words in names of hand-written kernels, and the ops that such kernels are known to fuse."""

_ATEN: Final = re.compile(r"at::native|at_cuda|at::cuda|^aten::|Cijk_|gemm", re.IGNORECASE)
_WORD: Final = re.compile(r"[a-z0-9]+")


@cache
def is_library(kernel: str) -> bool:
    """Whether it is a kernel of PyTorch itself or a GEMM: their names do not list what they
    fuse."""
    return _ATEN.search(kernel) is not None


@cache
def collector(kernel: str) -> Collector | None:
    """What a kernel (or a CPU op in its place) collects according to its name; None for most."""
    known = decoded(kernel)
    if known is not None and known.fused_ops:
        ops = frozenset(op.rstrip("_") or op for op in known.fused_ops)
        template = known.kernel_category == "template"
        return Collector(ops, ops - METADATA or ops, 1, template, listed=True)
    if is_library(kernel):
        return None
    return next((found for pattern, found in _COMPOUNDS if pattern.search(kernel)), None)


def words_of(kernel: str, stems: frozenset[str]) -> Collector | None:
    """The collector of a hand-written kernel named after at least two of these ops, else None."""
    words = _WORD.findall(kernel.lower().partition("<")[0].partition("(")[0])
    text = f"_{'_'.join(words)}_"
    found = frozenset(
        s for s in stems if not is_metadata(s) and f"_{s.strip('_').lower()}_" in text
    )
    return Collector(found, found, 2, gemms=False, listed=True) if len(found) > 1 else None
