"""Kernels of no known family whose names say what they do, and ROCm's copy and fill kernels.

Only whole words of a C++ function's name count: rope_kernel, qknorm, all_reduce. Anything else
stays unknown.
"""

from __future__ import annotations

import re
from typing import Final

from fusetui.gpu.kernel_names.cxx import signature
from fusetui.gpu.kernel_names.record import KernelName, build

_RUNTIME = re.compile(r"__amd_rocclr_(fill|copy)Buffer\w*")
_OPERATIONS: Final = tuple(
    (re.compile(pattern), op)
    for pattern, op in (
        (r"(?:^|_)all_?reduce(?:_|$)", "comm"),
        (r"rope_kernel|rotary_embedding_kernel", "rope"),
        (r"(?:^|_)(?:rms_?norm|layer_?norm|group_?norm|qk_?norm)(?:_|$)", "norm"),
        (
            r"_group_quant_|(?:^|_)(?:fp8|int8|8bit)_quant|(?:^|_)quant(?:ize)?_(?:fp8|int8|8bit)",
            "quant",
        ),
        (r"^moe_sum_kernel$|(?:^|_)moe_(?:sorting|align_block_size)", "moe"),
    )
)


def decode(name: str) -> KernelName | None:
    """The record of a kernel whose words determine the operation."""
    match = _RUNTIME.fullmatch(name)
    if match is not None:
        op = match[1]
        parts = [(*match.span(1), f"{op}: a job of the runtime, done by a kernel")]
        return build(name, "other", f"{op} buffer (rocclr)", parts, op=op)
    sign = signature(name)
    if sign is None or sign.mangled or sign.scope not in ("", "(anonymous namespace)::"):
        return None
    op = next((op for pattern, op in _OPERATIONS if pattern.search(sign.base)), None)
    if op is None or not ("(" in name or op == "moe"):
        return None
    return build(name, "other", sign.base, [(sign.start, sign.end, f"its name says {op}")], op=op)
