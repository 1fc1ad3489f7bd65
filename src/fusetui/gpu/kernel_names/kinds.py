"""Kinds of kernels and of CPU ops that compute: what can be counted and guessed."""

from __future__ import annotations

import re
from functools import cache

from fusetui.gpu.kernel_names import decode
from fusetui.trace.model.categories import Role
from fusetui.trace.model.collectives import is_collective

_WORDS = """
    attention comm conv copy elementwise embedding fill foreach gemm gemv index kernels loss
    memcpy memset moe norm optimizer pointwise pool quant reduction rng rope scan softmax sort
    triton unknown upsample
"""
KINDS = frozenset(_WORDS.split())
"""What can be counted; `kernels` is all of them."""

LONGEST_OP = 1000
"""No op has such a long name, and the patterns are not made for it."""

_ALSO = {"elementwise": "pointwise", "persistent_reduction": "reduction"}
_CPU_KINDS = {
    "gemm": r"mm|addmm|bmm|baddbmm|matmul|linear|_addmm_activation|\w*_linear\w*|einsum|dot",
    "gemv": r"mv|addmv",
    "conv": r"\w*conv(?:olution)?\w*",
    "copy": r"copy_|clone|cat|stack|constant_pad_nd|_to_copy",
    "fill": r"fill_|zero_|zeros\w*|ones\w*|full\w*",
    "norm": r"\w*(?:layer|batch|group|rms)_norm\w*",
    "softmax": r"_?(?:log_)?softmax\w*|_softmax_backward_data",
    "reduction": r"sum|mean|amax|amin|max|min|prod|var|std|norm|var_mean|logsumexp|argmax|any|all",
    "embedding": r"embedding\w*",
    "index": r"_?index\w*|gather|scatter\w*|masked_fill_?|take\w*",
    "attention": r"_?scaled_dot_product\w*|_flash_attention\w*",
    "rng": r"normal_|uniform_|bernoulli_|random_|native_dropout",
    "sort": r"sort|topk|argsort",
}
_CPU_PATTERNS = [(kind, re.compile(rf"(?:{ops})\Z")) for kind, ops in _CPU_KINDS.items()]
_FUSED = re.compile(r"(?:graph_\d+_)?cpp_fused_(\w*)\Z")
_REDUCES = re.compile(r"(?:_|\b)(?:sum|mean|norm|softmax|max|min|amax|amin|var|prod)(?:_|\b)")


@cache
def kinds_of(role: Role, name: str) -> frozenset[str]:
    """Everything that a GPU event or a CPU op counts as; only kernels and ops count as
    `kernels`."""
    if role is Role.MEMCPY:
        return frozenset({"memcpy"})
    return frozenset({"memset"}) if role is Role.MEMSET else kinds(name) | {"kernels"}


def kinds(name: str) -> frozenset[str]:
    """Everything that a GPU kernel or a CPU op of this name counts as."""
    if name.startswith("aten::") or _FUSED.match(name):
        return frozenset({_cpu_kind(name) if len(name) <= LONGEST_OP else "unknown"})
    decoded = decode(name)
    if decoded is None:
        return frozenset({"comm" if is_collective(name) else "unknown"})
    op = decoded.op or ("comm" if is_collective(name) else None)
    words = {op, decoded.kernel_category, decoded.family} - {None}
    return frozenset(str(word) for word in words | {_ALSO[w] for w in words if w in _ALSO})


def _cpu_kind(name: str) -> str:
    """The kind of an ATen op or of a fused C++ kernel; pointwise if it is nothing else."""
    if fused := _FUSED.match(name):
        return "reduction" if _REDUCES.search(fused[1]) else "pointwise"
    op = name.removeprefix("aten::")
    spelled = (op, op.rstrip("_"))  # an in-place twin is of the same kind
    found = (kind for kind, ops in _CPU_PATTERNS if any(map(ops.match, spelled)))
    return next(found, "pointwise")
