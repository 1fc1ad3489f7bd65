"""CUTLASS 3.x kernels as raw C++: `void cutlass::device_kernel<...>`.

Documented by NVIDIA/cutlass include/cutlass/gemm/dispatch_policy.hpp (stages, cluster shape,
schedule) and, for vLLM's wrappers, vllm-project/vllm csrc/quantization/w8a8/cutlass/c3x/:
cutlass_3x_gemm<In, Out, Epilogue, TileShape, ClusterShape, ...> and
cutlass_3x_gemm_fp8_blockwise<Out, gM, gN, gK, TileShape, ClusterShape, ...>.
"""

from __future__ import annotations

import re
from typing import Any

from fusetui.gpu.kernel_names.cxx import cute_tuple
from fusetui.gpu.kernel_names.record import KernelName, build, explain, gemm_label
from fusetui.gpu.kernel_names.vocabulary import CXX, cxx_type, from_capability

_TYPE = "|".join(re.escape(name) for name in sorted(CXX, key=len, reverse=True))
_TILE = cute_tuple("m", "n", "k")
_CLUSTER = cute_tuple("x", "y", "z")
_VLLM = re.compile(
    rf"vllm::cutlass_3x_gemm\w*<(?P<a>{_TYPE}), (?P<out>{_TYPE}), [\w:]+, {_TILE}, {_CLUSTER}"
)
_VLLM_BLOCKWISE = re.compile(
    rf"vllm::cutlass_3x_gemm\w*<(?P<out>{_TYPE}), (?:\d{{1,6}}, ){{3}}{_TILE}, {_CLUSTER}"
)
_MAINLOOP = re.compile(
    rf"MainloopSm(?P<cc>\d{{2,3}})\w*<(?:\(int\))?(?P<stages>\d{{1,3}}), (?:\d{{1,6}}, )*{_CLUSTER}"
    rf"[^>]*(?:>[^>]*)?>, {_TILE}"
)
_ATTENTION = re.compile(r"[Ff]mha|FMHA|[Aa]ttention|Mla[A-Z]")
_GEMM = re.compile(r"machete::Machete|GemmUniversal|GemmKernel|gemm::kernel::|grouped_gemm")
LONGEST_TARGET = 40
_MEANINGS = {
    "a": "type of A and B",
    "out": "type of the result",
    "cc": "built for compute capability {}",
    "stages": "pipeline stages in flight: {}",
    "m": "output tile: {} rows",
    "n": "output tile: {} columns",
    "k": "each step takes {} of K",
    "x": "cluster of {} blocks along M",
    "y": "cluster of {} blocks along N",
}


def decode(name: str) -> KernelName | None:
    """The record of a cutlass::device_kernel that multiplies matrices."""
    if not name.startswith(("void cutlass::device_kernel<", "cutlass::device_kernel<")):
        return None
    head = name[:3000]
    match = _VLLM.search(head) or _VLLM_BLOCKWISE.search(head) or _MAINLOOP.search(head)
    if match is None:
        return _decode_open(name, head)
    fields = _fields(match)
    words = (fields["cluster"], "blockwise" if "blockwise" in head else None)
    short = gemm_label("gemm", fields, *words)
    present = {group: text for group, text in _MEANINGS.items() if group in match.groupdict()}
    return build(name, "cutlass3", short, explain(match, present), **fields)


def _decode_open(name: str, head: str) -> KernelName | None:
    attention = _ATTENTION.search(head) is not None
    op = "attention" if attention else "gemm" if _GEMM.search(head) else None
    target = head.partition("<")[2].partition(">")[0].partition("<")[0]
    return build(name, "cutlass3", f"{op or 'cutlass'} {_inner(target)}", [], op=op)


def _inner(target: str) -> str:
    """As many of the innermost names of a scope as 40 characters hold, at least one.

    >>> _inner("a::some_long_namespace::another_namespace::Kernel")
    'another_namespace::Kernel'
    """
    found, *outer = reversed(target.split("::"))
    for scope in outer:
        if len(scope) + 2 + len(found) > LONGEST_TARGET:
            break
        found = f"{scope}::{found}"
    return found


def _fields(match: re.Match[str]) -> dict[str, Any]:
    groups = match.groupdict()
    operand = cxx_type(groups.get("a") or "")
    return {
        "op": "gemm",
        **from_capability(groups.get("cc")),
        "dtype_a": operand,
        "dtype_b": operand,
        "dtype_out": cxx_type(groups.get("out") or ""),
        "stages": int(groups["stages"]) if groups.get("stages") else None,
        "cluster": f"{match['x']}x{match['y']}x{match['z']}",
        "tile_m": int(match["m"]),
        "tile_n": int(match["n"]),
        "tile_k": int(match["k"]),
    }
