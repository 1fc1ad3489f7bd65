"""Kernels of Intel GPUs: ATen's in at::native::xpu and oneDNN's gemm_kernel and gen_conv.

The former follow pytorch's torch-xpu-ops; no public trace of a real device was found to check them.
"""

from __future__ import annotations

import re

from fusetui.gpu.kernel_names.cxx import signature
from fusetui.gpu.kernel_names.record import KernelName, build

_FUNCTOR = re.compile(r"at::native::xpu::(\w+Functor\w*)")


def decode(name: str) -> KernelName | None:
    """The record of a kernel of an Intel GPU."""
    if name == "gemm_kernel" or name.startswith("gen_conv"):
        return build(name, "xpu", f"onednn {name[:40]}", [(0, len(name), "a kernel of oneDNN")])
    sign = signature(name)
    if sign is None or not sign.scope.startswith("at::native::xpu::"):
        return None
    functor = _FUNCTOR.search(name, sign.end, sign.end + 200)
    op = "elementwise" if "ElementwiseKernel" in sign.base else None
    parts = [(sign.start, sign.end, "a kernel of ATen for Intel GPUs")]
    return build(name, "xpu", functor[1] if functor else sign.base, parts, op=op)
