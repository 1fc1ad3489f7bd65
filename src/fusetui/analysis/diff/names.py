"""Compares names of ops and kernels.

It knows what of a name stays the same from run to run, which kind of work two kernels
can be paired by, and how to say the difference of two names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Final

from fusetui.gpu.kernel_names.record import KernelName, tile_words
from fusetui.gpu.kernel_roles import role_of_kernel
from fusetui.gpu.kinds import kind_of_op
from fusetui.text.cutting import clip
from fusetui.text.printable import printable
from fusetui.trace.model.op_names import stem, words

_COUNTER = re.compile(r"_\d+(?:_\d+d[\dcde]*)?\Z")
_NUMBERED = re.compile(r"triton_|(?:graph_\d+_)?cpp_fused")
_GRAPH_NUMBER = re.compile(r"\Agraph_\d+_")
_COMPILED_REGION = re.compile(r"\A(Torch-Compiled Region).*", re.DOTALL)
_COMPILED_GRAPH_CALL = re.compile(r"\A## Call CompiledFxGraph .*", re.DOTALL)

_KINDS_TO_PAIR_BY: Final = words(
    "gemm conv attention norm softmax comm moe rope quant embedding"
)
"""Kinds of work by which two kernels can be paired; other kinds are too diverse."""

_ACTIVATION = re.compile(r"act_and_mul|silu_and_mul|gelu_and_mul", re.IGNORECASE)


@cache
def remove_run_numbers(name: str) -> str:
    """Return the name of a kernel without what changes from run to run.

    A compiler numbers its kernels, so the same program gets other numbers when it is
    compiled or profiled again.

    >>> remove_run_numbers("triton_poi_fused_gelu_mul_3")
    'triton_poi_fused_gelu_mul'
    """
    name = name.removesuffix(".kd")
    if not _NUMBERED.match(name):
        return name
    return _GRAPH_NUMBER.sub("", _COUNTER.sub("", name))


@cache
def make_dispatch_label(name: str) -> str:
    """Return the name of a CPU slice without numbers and hashes of torch.compile.

    >>> make_dispatch_label("Torch-Compiled Region: 0/1")
    'Torch-Compiled Region'
    """
    name = _COMPILED_REGION.sub(r"\1", name)
    return _COMPILED_GRAPH_CALL.sub("## Call CompiledFxGraph ##", name)


@cache
def classify_work(op: str, kernel: str) -> str:
    """Return the kind of work of a kernel, if two kernels can be paired by it.

    The op says the kind for products, convolutions and attention forward; otherwise the
    kernel does.

    Args:
        op: The name of the op that launched the kernel; "" if unknown.
        kernel: The name of the kernel; "" if unknown.

    Returns:
        `gemm`, for example; "" where the kind says too little.

    >>> classify_work("aten::convolution_backward", "")
    'conv backward'
    >>> classify_work("aten::add", "")
    ''
    """
    kind_by_kernel = _pairable_kind(role_of_kernel(kernel).kind)
    if _does_other_work_than_op(kernel, kind_by_kernel):
        return ""

    op_name = stem(op)  # without its namespace
    kind_by_op = _pairable_kind(kind_of_op(op_name))
    is_backward = "backward" in op_name
    if kind_by_op == "conv":
        return "conv backward" if is_backward else "conv"
    if kind_by_op == "gemm":
        return "gemm"
    if kind_by_op == "attention" and not is_backward:
        return "attention"
    if kind_by_kernel:
        return kind_by_kernel
    return "act_and_mul" if _ACTIVATION.search(kernel) else ""


def _does_other_work_than_op(kernel: str, kind: str) -> bool:
    """Return whether a kernel is known to do something else than its op is named for.

    So the kind of the op must not be taken for that of the kernel. That is so of a
    kernel that helps the main one (such as the reduction of split-K after a product),
    of a fused kernel, and of one whose name is decoded to a kind such as elementwise.

    Args:
        kernel: The name of the kernel.
        kind: The kind of work by which two such kernels can be paired, such as `gemm`;
            "" for none.
    """
    role = role_of_kernel(kernel)
    if role.decoded is None:
        return False
    only_helps = role.part == "helper" and role.is_helper
    is_fused = bool(role.decoded.fused_ops)
    is_other_kind = role.decoded.op is not None and not kind
    return only_helps or is_fused or is_other_kind


def _pairable_kind(kind: str | None) -> str:
    """Return the kind if two kernels can be paired by it, else "".

    A product of a matrix and a vector, `gemv`, counts as a `gemm`.
    """
    if kind == "gemv":
        return "gemm"
    return kind if kind in _KINDS_TO_PAIR_BY else ""


def count_shared_start(a: Sequence[str], b: Sequence[str]) -> int:
    """Return the length of the common prefix of two sequences.

    >>> count_shared_start("abcd", "abxd")
    2
    """
    shorter_length = min(len(a), len(b))
    for index in range(shorter_length):
        if a[index] != b[index]:
            return index
    return shorter_length


_LABEL_OF_FIELD: Final = {
    "layout": "layout",
    "arch": "",
    "dtype_a": "",
    "dtype_b": "B in",
    "dtype_acc": "sums in",
    "dtype_out": "out",
    "dtype": "",
    "math": "math",
    "stages": "stages",
    "mma": "MMA",
    "mma_mn": "MMA",
    "align": "align",
    "cluster": "cluster",
    "split_k": "split-K",
    "stream_k": "stream-K",
    "role": "role",
    "epilogue": "epilogue",
    "pass_": "pass",
    "head_dim": "head dim",
    "causal": "causal",
    "functor": "",
    "vec": "vector",
    "kernel_category": "",
    "collective": "",
    "redop": "",
    "algo": "",
    "proto": "",
    "direction": "",
}
"""Fields of a decoded name and what to call them; "" where the values speak for
themselves."""

_WORD = re.compile(r"\w+|\W")  # or one character between words
_MAX_DIFFERENCES = 5  # that are shown
_MAX_NAME_CELLS = 40  # of a name that is shown


@cache
def describe_differences(a: str, b: str) -> str:
    """Say how the names of two kernels differ.

    It is `tile 128x128 -> 128x256, layout nn -> tn` where both names are decoded and
    differ in what they decode to. Else it is `old -> new` with their short names or, if
    these are equal, with the words of the full names that differ.
    """
    decoded_a = role_of_kernel(a).decoded
    decoded_b = role_of_kernel(b).decoded
    before = printable(decoded_a.short if decoded_a else a)
    after = printable(decoded_b.short if decoded_b else b)
    if decoded_a is None or decoded_b is None:
        # A name that is not decoded may be long.
        before = clip(before, _MAX_NAME_CELLS)
        after = clip(after, _MAX_NAME_CELLS)
    else:
        texts = _list_decoded_differences(decoded_a, decoded_b)
        if texts:
            return ", ".join(texts[:_MAX_DIFFERENCES])

    if before != after:
        return f"{before} -> {after}"
    return _describe_differing_words(a, b)


def _list_decoded_differences(a: KernelName, b: KernelName) -> list[str]:
    """List the differences of two decoded names, each as `label before -> after`.

    Library, op and tile come first, then the fields of _LABEL_OF_FIELD in its order. A
    field that one of the names does not determine is no difference.
    """
    labeled_values = [
        ("", a.family, b.family),
        ("", a.op, b.op),
        ("tile", _format_tile(a), _format_tile(b)),
    ]
    for field, label in _LABEL_OF_FIELD.items():
        labeled_values.append((label, getattr(a, field), getattr(b, field)))

    texts: list[str] = []
    for label, before, after in labeled_values:
        if before is None or after is None or before == after:
            continue
        change = f"{printable(str(before))} -> {printable(str(after))}"
        texts.append(f"{label} {change}" if label else change)

    # `B in fp32 -> bf16` adds nothing to the same change of the first operand, which is
    # written as `fp32 -> bf16`.
    repetitions = {f"B in {text}" for text in texts}
    distinct_texts = dict.fromkeys(texts)
    return [text for text in distinct_texts if text not in repetitions]


def _format_tile(name: KernelName) -> str | None:
    """Return the tile as `128x128x32`; None if the name does not tell it."""
    return tile_words(name.tile_m, name.tile_n, name.tile_k)


def _describe_differing_words(a: str, b: str) -> str:
    """Say which words of two names differ, as `in its name: 32 -> 64`.

    These are the words between the common beginning and the common end of both names;
    `nothing` stands for none.

    >>> _describe_differing_words("void my<float, 32>()", "void my<float, 64>()")
    'in its name: 32 -> 64'
    """
    words_a = _WORD.findall(a)
    words_b = _WORD.findall(b)
    common_at_start = count_shared_start(words_a, words_b)
    rest_a = words_a[common_at_start:]
    rest_b = words_b[common_at_start:]
    common_at_end = count_shared_start(rest_a[::-1], rest_b[::-1])

    before = "".join(rest_a[: len(rest_a) - common_at_end])
    after = "".join(rest_b[: len(rest_b) - common_at_end])
    if max(len(before), len(after)) > _MAX_NAME_CELLS:
        return "same decoded parts, different full names"
    before = printable(before) or "nothing"
    after = printable(after) or "nothing"
    return f"in its name: {before} -> {after}"
