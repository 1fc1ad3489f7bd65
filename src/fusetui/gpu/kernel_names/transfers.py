"""Communication and copies: kernels of NCCL and RCCL, and the work of the copy engine.

`ncclDevKernel_AllReduce_Sum_bf16_RING_LL(...)` is documented by NVIDIA/nccl
src/device/generate.py and src/device/symmetric/generate.py. One kernel serves a whole
group of variants, so the operator, the algorithm and the protocol are the literal words
of the name, not what ran; SendRecv, gathers and broadcasts contain placeholders for the
operator and the type. Prefer the args of the event (`Collective name`, `dtype`) if
present. RCCL builds all its collectives into one kernel (ROCm/rccl
src/device/common.h); MSCCL's programs run in kernels of their own. Before 2.7, NCCL ran
the words together: ncclAllReduceRingLLKernel_sum_f32.

`Memcpy HtoD (Pageable -> Device)` and `Memset (Device)` are written by PyTorch's
profiler (pytorch/kineto libkineto/src/CuptiActivity.cpp): the direction, then the kinds
of memory.
"""

from __future__ import annotations

import re
from typing import Final

from fusetui.text.patterns import lazy_pattern

from .record import (
    KernelName,
    Meanings,
    Word,
    build,
    explain,
    explain_group,
    iterate_words,
    spaced,
    word_of_group,
)

_NAME = lazy_pattern(
    r"(?:void )?nccl(?P<sym>Symk)?(?:Dev)?Kernel_(?P<what>[A-Za-z]+)(?P<rest>(?:_[A-Za-z0-9]+)*)"
    r"(?:[(<]|$)"
)
_OLD_NAME = lazy_pattern(
    r"(?:void )?nccl(?P<what>AllReduce|AllGather|ReduceScatter|Reduce|Broadcast)"
    r"(?P<algo>Ring|Tree|CollNet)(?P<proto>LL128|LL|)Kernel_(?P<redop>[a-z]+)_(?P<type>[a-z]\w*)"
)
_RCCL = lazy_pattern(
    r"(?:void )?(?:rccl_main_kernel|rcclGenericKernel|mscclKernel)(?:_\w+)?(?=[(<]|$)"
)
_COLLECTIVES: Final = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "Reduce": "reduce",
    "Broadcast": "broadcast",
    "SendRecv": "send_recv",
    "AllToAll": "all_to_all",
    "AlltoAll": "all_to_all",
    "Gather": "gather",
    "Scatter": "scatter",
}
_REDUCING_COLLECTIVES: Final = ("all_reduce", "reduce_scatter", "reduce")
_FIELD_OF_WORD: Final = {
    "sum": "redop",
    "prod": "redop",
    "min": "redop",
    "max": "redop",
    "minmax": "redop",
    "avg": "redop",
    "premulsum": "redop",
    "sumpostdiv": "redop",
    "ll": "proto",
    "ll128": "proto",
    "simple": "proto",
    "ring": "algo",
    "tree": "algo",
    "collnet": "algo",
    "nvls": "algo",
    "pat": "algo",
}
_TYPES: Final = {
    "f16": "fp16",
    "half": "fp16",
    "f32": "fp32",
    "float": "fp32",
    "f64": "fp64",
    "double": "fp64",
    "bf16": "bf16",
    "b16": "bf16",
    "f8e4m3": "fp8_e4m3",
    "f8e5m2": "fp8_e5m2",
    "i8": "int8",
    "u8": "uint8",
    "i32": "int32",
    "u32": "uint32",
    "i64": "int64",
    "u64": "uint64",
}
_MEANINGS: Final = {
    "redop": "{}: how values are combined; one kernel may stand for several operators",
    "dtype": "type of the elements",
    "algo": "{}: ring may stand for any algorithm but tree",
    "proto": "{}: one kernel stands for all protocols",
}

_COPY = lazy_pattern(
    r"Memcpy (?P<direction>[A-Z]to[A-Z])(?: \((?P<source>\w{1,20}) -> (?P<target>\w{1,20})\))?"
)
_SET = lazy_pattern(r"Memset(?: \((?P<kind>\w{1,20})\))?")
_MEMORY: Final = {
    "Pageable": "ordinary host memory: the copy is slow and makes the host wait",
    "Pinned": "page-locked host memory: the copy can overlap other work",
    "Device": "GPU memory",
    "Host": "host memory",
    "Managed": "memory that moves between host and GPU on demand",
    "Unknown": "of unknown kind",
}


def decode_nccl(name: str) -> KernelName | None:
    """Decode the name of a kernel of NCCL, RCCL or MSCCL.

    Returns None for any other name.

    >>> decode_nccl("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)").short
    'nccl all_reduce fp32 ring'
    """
    any_collective = _RCCL.match(name)
    if any_collective:
        parts = [explain_group(any_collective, 0, "can be any collective")]
        return build(name, "nccl", "rccl any", parts, op="comm")

    match = _NAME.match(name)
    if match:
        words = list(iterate_words(name, match.start("rest"), match.end("rest")))
        is_symmetric = match["sym"] is not None
        return _build_collective_record(match, words, is_symmetric=is_symmetric)

    # Older releases run the algorithm and the protocol together with the collective.
    old_match = _OLD_NAME.match(name)
    if old_match is None:
        return None
    return _build_collective_record(
        old_match,
        [word_of_group(old_match, "redop"), word_of_group(old_match, "type")],
        is_symmetric=False,
        algo=old_match["algo"].lower(),
        proto=old_match["proto"].lower() or "simple",
    )


def _build_collective_record(
    match: re.Match[str],
    words: list[Word],
    *,
    is_symmetric: bool,
    **known_fields: str,
) -> KernelName:
    """Build the record of the kernel of a collective.

    Args:
        match: The match of a pattern for such names; its group `what` is the
            collective, such as `AllReduce`.
        words: The words behind the collective, such as `Sum`, `bf16`, `RING` and `LL`.
        is_symmetric: Whether it is a symmetric kernel. Its algorithms have a scheme
            of their own, which is not decoded.
        known_fields: Fields besides those that the words determine.
    """
    collective = _COLLECTIVES.get(match["what"])
    meaning = f"the collective: {collective}" if collective else "can be any collective"
    parts = [explain_group(match, "what", meaning)]
    fields = dict(known_fields)
    for word in words:
        field = _find_field_of_word(word.text)
        # Only a collective that reduces has an operation and a type.
        if field in ("redop", "dtype"):
            is_meaningful = collective in _REDUCING_COLLECTIVES
        else:
            is_meaningful = not is_symmetric
        if field is None or not is_meaningful:
            continue

        value = _parse_type(word.text) if field == "dtype" else word.text.lower()
        fields[field] = value
        parts.append((word.start, word.end, _MEANINGS[field].format(value)))

    short = spaced(
        "nccl",
        collective or "any",
        fields.get("dtype"),
        fields.get("algo"),
        "symmetric" if is_symmetric else None,
    )
    name = match.string
    return build(name, "nccl", short, parts, op="comm", collective=collective, **fields)


def _find_field_of_word(word: str) -> str | None:
    """Return the field that a word of a collective's name determines.

    It is `redop` for `Sum`, `algo` for `RING`, `proto` for `LL`, and `dtype` for
    `bf16`. Returns None for any other word.
    """
    if word.lower() in _FIELD_OF_WORD:
        return _FIELD_OF_WORD[word.lower()]
    return "dtype" if _parse_type(word) else None


def _parse_type(word: str) -> str:
    """Return our name of an element type: `fp32` for `float`; "" for no type."""
    return _TYPES.get(word.removesuffix("_t"), "")


def decode_copy(name: str) -> KernelName | None:
    """Decode the name of a copy or a fill by the copy engine.

    A copy is named like `Memcpy HtoD (Pageable -> Device)`. Returns None for any other
    name.

    >>> decode_copy("Memcpy HtoD (Pageable -> Device)").short
    'memcpy HtoD Pageable->Device'
    """
    fill = _SET.fullmatch(name)
    if fill:
        return _build_fill_record(name, fill)

    copy = _COPY.fullmatch(name)
    if copy is None:
        return None

    parts = explain(
        copy,
        {
            "direction": "{}: D is the GPU (device), H the host",
            "source": lambda memory: f"from {_describe_memory(memory)}",
            "target": lambda memory: f"to {_describe_memory(memory)}",
        },
    )
    direction = copy["direction"]
    memories = f"{copy['source']}->{copy['target']}" if copy["source"] else None
    short = spaced("memcpy", direction, memories)
    return build(name, "memcpy", short, parts, op="memcpy", direction=direction)


def _describe_memory(kind: str) -> str:
    """Describe a kind of memory in words; an unknown kind is returned as it is."""
    return _MEMORY.get(kind, kind)


def _build_fill_record(name: str, fill: re.Match[str]) -> KernelName:
    """Build the record of a fill such as `Memset (Device)`.

    The kind of memory is missing in some names.
    """
    meanings: Meanings = {"kind": lambda memory: f"fills {_describe_memory(memory)}"}
    parts = explain(fill, meanings)
    return build(name, "memset", spaced("memset", fill["kind"]), parts, op="memset")
