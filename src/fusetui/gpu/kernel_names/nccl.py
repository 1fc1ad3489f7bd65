"""NCCL and RCCL kernels: `ncclDevKernel_AllReduce_Sum_bf16_RING_LL(...)`.

Documented by NVIDIA/nccl src/device/generate.py and src/device/symmetric/generate.py. One kernel
serves a whole group of variants, so the operator, the algorithm and the protocol are the literal
words of the name, not what ran; SendRecv, gathers and broadcasts contain placeholders for the
operator and the type. Prefer the args of the event (`Collective name`, `dtype`) if present.
"""

from __future__ import annotations

import re
from typing import Any, Final

from fusetui.gpu.kernel_names.record import KernelName, Part, build, tokens

_NAME = re.compile(
    r"(?:void )?nccl(?P<sym>Symk)?(?:Dev)?Kernel_(?P<what>[A-Za-z]+)(?P<rest>(?:_[A-Za-z0-9]+)*)"
    r"(?:[(<]|$)"
)
# NCCL before 2.7 ran the words together: ncclAllReduceRingLLKernel_sum_f32.
_OLD_NAME = re.compile(
    r"(?:void )?nccl(?P<what>AllReduce|AllGather|ReduceScatter|Reduce|Broadcast)"
    r"(?P<algo>Ring|Tree|CollNet)(?P<proto>LL128|LL|)Kernel_(?P<redop>[a-z]+)_(?P<type>[a-z]\w*)"
)
# RCCL builds all its collectives into one kernel: ROCm/rccl src/device/common.h; MSCCL's programs
# run in kernels of their own.
_RCCL = re.compile(
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
_REDUCING: Final = ("all_reduce", "reduce_scatter", "reduce")
_REDOPS: Final = frozenset(
    {"sum", "prod", "min", "max", "minmax", "avg", "premulsum", "sumpostdiv"}
)
_ALGORITHMS: Final = frozenset({"ring", "tree", "collnet", "nvls", "pat"})
_PROTOCOLS: Final = frozenset({"ll", "ll128", "simple"})
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
_FIELD_MEANINGS: Final = {
    "redop": "{}: how values are combined; one kernel may stand for several operators",
    "dtype": "type of the elements",
    "algo": "{}: ring may stand for any algorithm but tree",
    "proto": "{}: one kernel stands for all protocols",
}


def decode(name: str) -> KernelName | None:
    """The record of a communication kernel of NCCL or RCCL."""
    if "ccl" not in name[:9]:
        return None
    if rccl := _RCCL.match(name):
        return _record(name, None, {}, [(*rccl.span(), "can be any collective")], None, "rccl")
    match = _NAME.match(name)
    if match is None:
        return _decode_old(name)
    collective = _COLLECTIVES.get(match["what"])
    fields, parts = _read_words(name, match, collective)
    parts.append((*match.span("what"), _what_text(match["what"], collective)))
    return _record(name, collective, fields, parts, "symmetric" if match["sym"] else None)


def _read_words(
    name: str, match: re.Match[str], collective: str | None
) -> tuple[dict[str, str], list[Part]]:
    fields: dict[str, str] = {}
    parts: list[Part] = []
    for start, end, word in tokens(name, *match.span("rest")):
        key, value = _classify(word)
        if key and _settled(key, collective, bool(match["sym"])):
            fields[key] = value
            parts.append((start, end, _FIELD_MEANINGS[key].format(value)))
    return fields, parts


def _classify(word: str) -> tuple[str, str]:
    lowered = word.lower()
    if lowered in _REDOPS:
        return "redop", lowered
    if lowered in _PROTOCOLS:
        return "proto", lowered
    if lowered in _ALGORITHMS:
        return "algo", lowered
    dtype = _TYPES.get(word.removesuffix("_t"))
    return ("dtype", dtype) if dtype else ("", "")


def _settled(key: str, collective: str | None, symmetric: bool) -> bool:
    """Only a reduction has an operator and a type; symmetric kernels have schemes of their own."""
    if key in ("redop", "dtype"):
        return collective in _REDUCING
    return not symmetric


def _decode_old(name: str) -> KernelName | None:
    match = _OLD_NAME.match(name)
    if match is None:
        return None
    collective = _COLLECTIVES[match["what"]]
    fields = {"algo": match["algo"].lower(), "proto": match["proto"].lower() or "simple"}
    parts: list[Part] = [(*match.span("what"), _what_text(match["what"], collective))]
    for group, key in (("redop", "redop"), ("type", "dtype")):
        known, value = _classify(match[group])
        if known == key and collective in _REDUCING:
            fields[key] = value
            parts.append((*match.span(group), _FIELD_MEANINGS[key].format(value)))
    return _record(name, collective, fields, parts, None)


def _what_text(word: str, collective: str | None) -> str:
    return f"the collective: {collective}" if collective else "can be any collective"


def _record(
    name: str,
    collective: str | None,
    fields: dict[str, Any],
    parts: list[Part],
    more: str | None,
    library: str = "nccl",
) -> KernelName:
    words = (library, collective or "any", fields.get("dtype"), fields.get("algo"), more)
    short = " ".join(word for word in words if word)
    return build(name, "nccl", short, parts, op="comm", collective=collective, **fields)
