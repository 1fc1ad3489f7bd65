"""AMD's Composable Kernel, often left mangled: `_ZN2ck16tensor_operation6device...`.

Documented by ROCm/composable_kernel's struct pages. The place of the tile among the template
arguments differs by struct and release, so it is found by its arithmetic: ten integers BlockSize,
M, N, K, AK1, BK1, MPerXdl, NPerXdl, MXdlPerWave, NXdlPerWave in a row, with
BlockSize = 64 * M / (MPerXdl * MXdlPerWave) * N / (NPerXdl * NXdlPerWave).
"""

from __future__ import annotations

import re
from typing import Any

from fusetui.gpu.kernel_names.cxx import Signature, signature
from fusetui.gpu.kernel_names.record import KernelName, Part, build, gemm_label

_MANGLED_RUN = re.compile(r"(?:L[ij]\d{1,6}E){10,40}")
_PLAIN_RUN = re.compile(r"(?:\b\d{1,6}u?, ){9,39}\d{1,6}\b")
_NORM = re.compile(r"norm2d(?:Fwd|Bwd)")
_CLASS = re.compile(r"NS_(\d{1,3})")
_INTEGER = re.compile(r"\d{1,6}")
_PASSES = (("conv_fwd", "fprop"), ("bwd_data", "dgrad"), ("bwd_weight", "wgrad"))

Place = tuple[int, int, int]


def decode(name: str) -> KernelName | None:
    """The record of a kernel of Composable Kernel or of its successor ck_tile."""
    sign = signature(name)
    if sign is None or not sign.scope.startswith(("ck::", "ck_tile::")):
        return None
    fields = _operation(name, sign)
    parts: list[Part] = [(sign.start, sign.end, "a kernel of Composable Kernel")]
    if fields["op"] in ("gemm", "conv") and fields.get("pass_") != "wgrad":
        sizes = _find_tile(name)
        if sizes:
            fields |= _tile_fields([value for _, _, value in sizes])
            parts += _tile_parts(sizes)
    word = fields.get("pass_") or fields["op"] or "ck"
    tail = _tail(name, sign)
    short = gemm_label(word, fields, f"mi{fields['mma_mn']}" if "mma_mn" in fields else None, tail)
    return build(name, "ck", short, parts, **fields)


def _tail(name: str, sign: Signature) -> str:
    """The name of the kernel; ck_tile runs every class through one function, kentry."""
    found = _CLASS.search(name, sign.end, sign.end + 30) if sign.base == "kentry" else None
    if found is not None:
        return name[found.end() : found.end() + min(int(found[1]), 40)]
    return sign.base.removeprefix("kernel_").replace("grouped_conv_", "")


def _operation(name: str, sign: Signature) -> dict[str, Any]:
    base = sign.base
    if sign.scope.startswith("ck_tile::"):
        head = name[sign.end : sign.end + 120]
        if "MoeSorting" in head or "MoeSorting" in base:
            return {"op": "moe"}
        return {"op": "attention" if "Fmha" in head else "norm" if _NORM.search(head) else None}
    direction = next((way for piece, way in _PASSES if piece in base), None)
    if "conv" in base or direction:
        return {"op": "conv", "pass_": direction}
    return {"op": "gemm" if "gemm" in base else None}


def _find_tile(name: str) -> list[Place]:
    """The only ten consecutive integers that satisfy the arithmetic, or nothing."""
    pattern = _MANGLED_RUN if name.startswith("_Z") else _PLAIN_RUN
    hits = []
    for run in pattern.finditer(name):
        numbers = [
            (found.start(), found.end(), int(found[0]))
            for found in _INTEGER.finditer(name, run.start(), run.end())
        ]
        for at in range(len(numbers) - 9):
            window = numbers[at : at + 10]
            if _is_tile([value for _, _, value in window]):
                hits.append(window)
    # A demangled name repeats its types in the parameters, so the same values may come twice.
    distinct = {tuple(value for _, _, value in window) for window in hits}
    return hits[0] if len(distinct) == 1 else []


def _is_tile(values: list[int]) -> bool:
    block, m, n, _, _, _, m_xdl, n_xdl, m_wave, n_wave = values
    rows, columns = m_xdl * m_wave, n_xdl * n_wave
    if 0 in values or m_xdl not in (4, 16, 32, 64) or n_xdl not in (4, 16, 32, 64):
        return False
    return m % rows == 0 and n % columns == 0 and block == 64 * (m // rows) * (n // columns)


def _tile_fields(values: list[int]) -> dict[str, Any]:
    return {
        "tile_m": values[1],
        "tile_n": values[2],
        "tile_k": values[3],
        "mma_mn": f"{values[6]}x{values[7]}",
    }


def _tile_parts(places: list[Place]) -> list[Part]:
    meanings = (
        "threads of a workgroup: {}",
        "output tile: {} rows",
        "output tile: {} columns",
        "each step takes {} of K",
    )
    return [
        (start, end, text.format(value))
        for (start, end, value), text in zip(places, meanings, strict=False)
    ]
