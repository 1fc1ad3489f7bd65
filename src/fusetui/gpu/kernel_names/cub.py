"""CUB and ROCm's rocPRIM: sorts, scans and reductions behind many operators.

The base name says the algorithm: NVIDIA/cccl cub/cub/device/ (DeviceRadixSort, DeviceScan, ...) and
ROCm/rocPRIM, whose trampoline_kernel<...> names a config selector instead.
"""

from __future__ import annotations

import re
from typing import Final

from fusetui.gpu.kernel_names.cxx import SCOPE, signature
from fusetui.gpu.kernel_names.record import KernelName, build
from fusetui.gpu.kernel_names.vocabulary import CXX, cxx_type

_OPERATIONS: Final = (
    ("RadixSort", "sort"),
    ("MergeSort", "sort"),
    ("SegmentedSort", "sort"),
    ("Scan", "scan"),
    ("Reduce", "reduction"),
    ("radix_sort", "sort"),
    ("merge_sort", "sort"),
    ("segmented_sort", "sort"),
    ("block_sort", "sort"),
    ("scan", "scan"),
    ("reduce", "reduction"),
)
_SELECTOR = re.compile(rf"{SCOPE}(?:wrapped_)?(?P<what>\w+?)_config(?:_selector)?<")
_TYPE = re.compile(r"\b(?:" + "|".join(re.escape(word) for word in CXX) + r")(?=[,>*])")


def decode(name: str) -> KernelName | None:
    """The record of a kernel of CUB, hipCUB or rocPRIM."""
    sign = signature(name)
    if sign is None or not _is_cub(sign.scope):
        return None
    word, span = sign.base, (sign.start, sign.end)
    if word == "trampoline_kernel":
        match = _SELECTOR.search(name, sign.end, sign.end + 400)
        if match is not None:
            word, span = match["what"], match.span("what")
    op = next((op for piece, op in _OPERATIONS if piece in word), None)
    text = f"the algorithm: {op}" if op else "the algorithm"
    short = f"{word.removeprefix('Device').removesuffix('Kernel')} {_types(name, span[1])}".rstrip()
    return build(name, "cub", f"cub {short}", [(*span, text)], op=op)


def _is_cub(scope: str) -> bool:
    return "cub::" in scope or scope.startswith(("rocprim::", "hipcub::"))


def _types(name: str, start: int) -> str:
    found = (cxx_type(word) for word in _TYPE.findall(name[start : start + 160]))
    return "*".join(dict.fromkeys(word for word in found if word and word != "bool"))
