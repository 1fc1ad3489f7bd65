"""The kind of work of an event, from its name: communication, copy, gemm, attention,
...

The one definition: the app, `why`, the diff, the ranks and `check` all ask it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from fusetui.text.patterns import MAX_SEARCHED_CHARS
from fusetui.trace.model.categories import Role

if TYPE_CHECKING:
    from fusetui.gpu.kernel_names import KernelName

# what can be counted; `kernels` is all of them
KINDS: Final = frozenset(
    {
        "attention",
        "comm",
        "conv",
        "copy",
        "elementwise",
        "embedding",
        "fill",
        "foreach",
        "gemm",
        "gemv",
        "index",
        "kernels",
        "loss",
        "memcpy",
        "memset",
        "moe",
        "norm",
        "optimizer",
        "pointwise",
        "pool",
        "quant",
        "reduction",
        "rng",
        "rope",
        "scan",
        "softmax",
        "sort",
        "triton",
        "unknown",
        "upsample",
    }
)

MAX_NAMES_KEPT: Final = 1 << 16
"""Names whose kinds are remembered. A trace may have a million of them, and a server
reads many traces; looking at a forgotten name again takes microseconds."""

MAX_OP_CHARACTERS: Final = 1000
"""No op has a longer name, and the patterns are not made for one."""

_COMMUNICATION_LIBRARIES: Final = (
    r"(?i)nccl|rccl|msccl|nvshmem|rocshmem|(?<![a-z])(?:one)?ccl(?:_|::)|multimem_|userbuffers"
    r"|cross_device_reduce|allreduce_fusion|deep_ep::|dpsk::ep::|quickreduce::|mori::|pplx::"
)
"""NCCL, RCCL, MSCCL++, NVSHMEM, ROC_SHMEM, oneCCL, symmetric memory of PyTorch, user
buffers of Transformer Engine, the custom all-reduce of vLLM, SGLang, AITER and
TensorRT-LLM, DeepEP, QuickReduce, MORI and pplx."""

_COLLECTIVE_WORDS: Final = (
    r"(?<![A-Za-z])(?i:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all)(?![a-z])"
    r"|AllReduce|AllGather|ReduceScatter|All[Tt]oAll"
)
"""Words in names of kernels of any other library that communicate."""

_COMPUTES: Final = (
    r"(?i)\A(?:triton_[a-z]{2,4}_fused_|Cijk_)|gemm|matmul|get_dispatch_layout"
)
"""Inductor names a kernel after all ops whose results it reads; a matrix product that
sends its own result is still a product."""

_BETWEEN_DEVICES: Final = r"(?i)PtoP|peer"
"""Copies from one device to another, which count as communication."""

_WORDS_OF_KINDS: Final = {
    "norm": r"(?i)rms_?norm|layer_?norm",
    "rope": r"(?i)rope_|rotary",
    "attention": r"(?i)attention|attn|fmha|flash_(?:fwd|bwd)",
}
"""Words in the names of kernels that no decoder recognizes, by the kind that they
imply."""

_OPS_OF_KINDS: Final = {
    "gemm": r"mm|addmm|bmm|baddbmm|addbmm|matmul|linear|_addmm_activation|\w*_linear\w*|\w*_mm"
    r"|einsum|dot",
    "gemv": r"mv|addmv",
    "conv": r"\w*conv(?:olution)?\w*",
    "copy": r"copy_|clone|cat|stack|constant_pad_nd|_to_copy",
    "fill": r"fill_|zero_|zeros\w*|ones\w*|full\w*",
    "norm": r"\w*(?:layer|batch|group|rms)_norm\w*",
    "softmax": r"_?(?:log_)?softmax\w*|_softmax_backward_data",
    "reduction": r"sum|mean|amax|amin|max|min|prod|var|std|norm|var_mean|logsumexp|argmax|any|all",
    "embedding": r"embedding\w*",
    "index": r"_?index\w*|gather|scatter\w*|masked_fill_?|take\w*",
    "attention": r"_?scaled_dot_product\w*|_(?:flash|efficient)_att(?:entio)?n_\w+",
    "rng": r"normal_|uniform_|bernoulli_|random_|native_dropout",
    "sort": r"sort|topk|argsort",
}
"""Ops of ATen by the kind of their work; any other is pointwise."""

_OTHER_NAMES_OF_KINDS: Final = {
    "elementwise": "pointwise",
    "persistent_reduction": "reduction",
}
"""Kinds and Inductor's categories that are counted under a second word, too."""

_LEGEND_KINDS: Final = {
    "attention": "attention",
    "comm": "comm",
    "conv": "gemm",
    "copy": "copy",
    "elementwise": "pointwise",
    "fill": "copy",
    "gemm": "gemm",
    "gemv": "gemm",
    "loss": "reduction",
    "memcpy": "copy",
    "memset": "copy",
    "norm": "reduction",
    "reduction": "reduction",
    "softmax": "reduction",
}
"""The kind that the legend of the timeline shows for each kind of work: as few as there
are colors."""

_FUSED: Final = "fused"
_OTHER: Final = "other"

LEGEND_ONLY_KINDS: Final = ("pointwise", "comm", _FUSED, _OTHER)
"""Words of the legend that are no op of a kernel name: `family:` and a bare word find
the kind, too."""

SEARCHED_KINDS: Final = (KINDS - {"kernels"}) | {_FUSED, _OTHER}
"""What `kind:` accepts about the work of a GPU event, in the search, in `--where` and
in `whatif`."""

_FUSED_CPP: Final = r"(?:graph_\d+_)?cpp_fused_(\w*)"
"""A kernel of Inductor for the CPU, with the ops that are fused in it."""

_REDUCING_OPS: Final = (
    r"(?:_|\b)(?:sum|mean|norm|softmax|max|min|amax|amin|var|prod)(?:_|\b)"
)


@lru_cache(maxsize=MAX_NAMES_KEPT)
def is_collective(name: str) -> bool:
    """Return whether a kernel with this name communicates with other devices.

    >>> is_collective("ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    True
    """
    head = name[:MAX_SEARCHED_CHARS]
    communicates = (
        re.search(_COMMUNICATION_LIBRARIES, head) is not None
        or re.search(_COLLECTIVE_WORDS, head) is not None
    )
    return communicates and re.search(_COMPUTES, head) is None


@lru_cache(maxsize=MAX_NAMES_KEPT)
def is_between_devices(name: str) -> bool:
    """Return whether a copy with this name goes from one device to another."""
    return re.search(_BETWEEN_DEVICES, name[:MAX_SEARCHED_CHARS]) is not None


@lru_cache(maxsize=MAX_NAMES_KEPT)
def kind_of_kernel(name: str) -> str | None:
    """Return the kind of work of a kernel with this name.

    Returns None if the name does not tell, and if it tells of several kinds at once.

    >>> kind_of_kernel("ampere_sgemm_128x64_tn"), kind_of_kernel("my_kernel")
    ('gemm', None)
    """
    if is_collective(name):
        return "comm"

    decoded = _decode_name(name)
    if decoded is not None and decoded.op:
        return decoded.op
    if decoded is not None and decoded.fused_ops:
        return None  # several kinds at once

    head = name[:MAX_SEARCHED_CHARS]
    for kind, words in _WORDS_OF_KINDS.items():
        if re.search(words, head):
            return kind
    return None


@lru_cache(maxsize=MAX_NAMES_KEPT)
def kind_of_op(op: str) -> str | None:
    """Return the kind of work of an op; None for a pointwise one.

    >>> kind_of_op("mm"), kind_of_op("my_op")
    ('gemm', None)

    Args:
        op: The name of the op without its namespace.
    """
    if len(op) > MAX_OP_CHARACTERS:
        return None

    op_out_of_place = op.rstrip("_")  # add for add_, which is of the same kind
    for kind, ops in _OPS_OF_KINDS.items():
        if re.fullmatch(ops, op) or re.fullmatch(ops, op_out_of_place):
            return kind
    return None


@lru_cache(maxsize=MAX_NAMES_KEPT)
def kinds_of(role: Role, name: str) -> frozenset[str]:
    """Return all kinds that an event counts as; kernels and ops also as `kernels`.

    Args:
        role: The role of the event, a GPU event or a CPU op.
        name: Its name.
    """
    if role is Role.MEMCPY:
        return frozenset({"memcpy"})
    if role is Role.MEMSET:
        return frozenset({"memset"})
    return kinds(name) | {"kernels"}


def kinds(name: str) -> frozenset[str]:
    """Return all kinds that a GPU kernel or a CPU op with this name counts as.

    A kernel counts as the kind of its work (see KINDS), as the family of its name and
    as Inductor's category. An op of ATen without another kind is `pointwise`. A name
    that says nothing is `unknown`.

    >>> sorted(kinds("aten::mm")), sorted(kinds("my_kernel"))
    (['gemm'], ['unknown'])
    """
    fused_cpp = re.fullmatch(_FUSED_CPP, name)
    if fused_cpp:
        fused_ops = fused_cpp[1]
        has_reduction = re.search(_REDUCING_OPS, fused_ops) is not None
        return frozenset({"reduction" if has_reduction else "pointwise"})

    if name.startswith("aten::"):
        if len(name) > MAX_OP_CHARACTERS:
            return frozenset({"unknown"})
        kind = kind_of_op(name.removeprefix("aten::"))
        return frozenset({kind or "pointwise"})

    decoded = _decode_name(name)
    category = decoded.kernel_category if decoded else None
    family = decoded.family if decoded else None
    kinds_of_name = {
        kind for kind in (kind_of_kernel(name), category, family) if kind is not None
    }
    for kind, other_name in _OTHER_NAMES_OF_KINDS.items():
        if kind in kinds_of_name:
            kinds_of_name.add(other_name)
    return frozenset(kinds_of_name or {"unknown"})


@lru_cache(maxsize=MAX_NAMES_KEPT)
def legend_kind(name: str) -> str:
    """Return the kind that the legend of the timeline shows for a kernel.

    It is `fused` for a kernel that Inductor fused, and `other` where the legend has no
    word of its own.

    >>> legend_kind("ampere_sgemm_128x64_tn"), legend_kind("my_kernel")
    ('gemm', 'other')
    """
    decoded = _decode_name(name)
    if decoded is not None and decoded.fused_ops:
        return _FUSED
    kind = kind_of_kernel(name) or ""
    return _LEGEND_KINDS.get(kind, _OTHER)


@lru_cache(maxsize=MAX_NAMES_KEPT)
def searched_kinds(name: str) -> frozenset[str]:
    """Return all words by which `kind:` finds a kernel with this name.

    These are the kinds that `check` counts it as, and its word in the legend.
    """
    return (kinds(name) | {legend_kind(name)}) & SEARCHED_KINDS


def _decode_name(name: str) -> KernelName | None:
    """Decode the name of a kernel; None if no naming scheme is recognized.

    The decoder is imported only when it is needed, as many commands need none.
    """
    from fusetui.gpu.kernel_names import decode  # a summary needs no decoder

    return decode(name)
