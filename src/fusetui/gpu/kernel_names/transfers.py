"""Communication and copies: kernels of NCCL and RCCL, and what the copy engine does.

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

from typing import Final

from fusetui.text.patterns import late

from .record import KernelName, build, explain, spaced, tokens

_NAME = late(
    r"(?:void )?nccl(?P<sym>Symk)?(?:Dev)?Kernel_(?P<what>[A-Za-z]+)(?P<rest>(?:_[A-Za-z0-9]+)*)"
    r"(?:[(<]|$)"
)
_OLD_NAME = late(
    r"(?:void )?nccl(?P<what>AllReduce|AllGather|ReduceScatter|Reduce|Broadcast)"
    r"(?P<algo>Ring|Tree|CollNet)(?P<proto>LL128|LL|)Kernel_(?P<redop>[a-z]+)_(?P<type>[a-z]\w*)"
)
_RCCL = late(
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
_WORDS: Final = {
    **dict.fromkeys(
        (
            "sum",
            "prod",
            "min",
            "max",
            "minmax",
            "avg",
            "premulsum",
            "sumpostdiv",
        ),
        "redop",
    ),
    **dict.fromkeys(
        (
            "ll",
            "ll128",
            "simple",
        ),
        "proto",
    ),
    **dict.fromkeys(
        (
            "ring",
            "tree",
            "collnet",
            "nvls",
            "pat",
        ),
        "algo",
    ),
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

_COPY = late(
    r"Memcpy (?P<direction>[A-Z]to[A-Z])(?: \((?P<source>\w{1,20}) -> (?P<target>\w{1,20})\))?"
)
_SET = late(r"Memset(?: \((?P<kind>\w{1,20})\))?")
_MEMORY: Final = {
    "Pageable": "ordinary host memory: the copy is slow and makes the host wait",
    "Pinned": "page-locked host memory: the copy can overlap other work",
    "Device": "GPU memory",
    "Host": "host memory",
    "Managed": "memory that moves between host and GPU on demand",
    "Unknown": "of unknown kind",
}


def decode_nccl(name: str) -> KernelName | None:
    if rccl := _RCCL.match(name):
        parts = [(*rccl.span(), "can be any collective")]
        return build(name, "nccl", "rccl any", parts, op="comm")
    if (match := _NAME.match(name) or _OLD_NAME.match(name)) is None:
        return None
    collective = _COLLECTIVES.get(match["what"])
    what = f"the collective: {collective}" if collective else "can be any collective"
    parts = [(*match.span("what"), what)]
    fields: dict[str, str] = {}
    symmetric = match.re.pattern == _NAME.pattern and match["sym"] is not None
    if match.re.pattern == _OLD_NAME.pattern:
        fields = {
            "algo": match["algo"].lower(),
            "proto": match["proto"].lower() or "simple",
        }
        words = [(*match.span(group), match[group]) for group in ("redop", "type")]
    else:
        words = list(tokens(name, *match.span("rest")))
    for start, end, word in words:
        value, dtype = word.lower(), _TYPES.get(word.removesuffix("_t"))
        key = _WORDS.get(value) or ("dtype" if dtype else None)
        # Only a reduction has an operator and a type; symmetric kernels have schemes of
        # their own.
        reduces = key in ("redop", "dtype")
        if key and (collective in _REDUCING if reduces else not symmetric):
            fields[key] = dtype if key == "dtype" and dtype else value
            parts.append((start, end, _MEANINGS[key].format(fields[key])))
    shown = (
        fields.get("dtype"),
        fields.get("algo"),
        "symmetric" if symmetric else None,
    )
    short = spaced("nccl", collective or "any", *shown)
    return build(name, "nccl", short, parts, op="comm", collective=collective, **fields)


def decode_copy(name: str) -> KernelName | None:
    if fill := _SET.fullmatch(name):
        kind = fill["kind"]
        parts = (
            [(*fill.span("kind"), f"fills {_MEMORY.get(kind, kind)}")] if kind else []
        )
        return build(name, "memset", spaced("memset", kind), parts, op="memset")
    if (match := _COPY.fullmatch(name)) is None:
        return None
    source, target, direction = match["source"], match["target"], match["direction"]
    parts = explain(match, {"direction": "{}: D is the GPU (device), H the host"})
    for group, word in (("source", "from"), ("target", "to")):
        if match[group]:
            parts.append(
                (
                    *match.span(group),
                    f"{word} {_MEMORY.get(match[group], match[group])}",
                )
            )
    short = spaced("memcpy", direction, f"{source}->{target}" if source else None)
    return build(name, "memcpy", short, parts, op="memcpy", direction=direction)
