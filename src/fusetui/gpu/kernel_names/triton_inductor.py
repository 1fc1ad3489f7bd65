"""TorchInductor's kernels: `triton_poi_fused__unsafe_view_gelu_mul_0`, `cpp_fused_gelu_mul_0`.

Documented by pytorch/pytorch torch/_inductor/codegen/triton.py and codegen/cpp.py (define_kernel),
utils.py (get_fused_kernel_name) and wrapper_benchmark.py (the kernel categories):

    triton_{category}_fused[_{operators}]_{number}      [graph_{n}_]cpp_fused[_{operators}]_{number}

The number counts the kernels of one graph and changes from run to run.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from fusetui.gpu.kernel_names.fused_ops import split_ops
from fusetui.gpu.kernel_names.record import MAX_SHORT, KernelName, Part, build

_TRITON = re.compile(
    r"triton_(?P<category>[a-z]{3})_fused(?:_(?P<ops>\w*?))?_(?P<number>\d{1,9})"
    r"(?:_(?P<signature>\d{1,9}d[\dcde]*))?"
)
_TEMPLATES: Final = (
    (re.compile(r"flex_(?:attention|decoding)\w*"), "attention"),
    (re.compile(r"\w*convolution\w*"), "conv"),
    (re.compile(r"(?:add|b|badd)?(?:add)?mm|\w*_(?:grouped_)?mm|mm_plus_mm"), "gemm"),
)
"""The operator that a template computes; whatever else is in its name is fused to it."""
_UNNAMED = re.compile(r"triton_(?:_\d[\dcde]*)?|triton_mm(?:_\d{1,9})?")
_CPP = re.compile(
    r"(?:graph_(?P<graph>\d{1,9})_)?(?P<category>cpp)_fused(?:_(?P<ops>\w*?))?_(?P<number>\d{1,9})"
)
_CATEGORIES: Final = {
    "poi": ("pointwise", "pointwise: each output depends on one place of the inputs"),
    "red": ("reduction", "a reduction that loops over its row; pointwise work may be fused in"),
    "per": ("persistent_reduction", "a reduction whose row fits one block"),
    "tem": ("template", "a template: matrix product or flex attention, with what is fused to it"),
    "for": ("foreach", "foreach: many small tensors in one launch"),
    "spl": ("split_scan", "a scan that is split over blocks"),
    "unk": (None, "of unknown category"),
    "cpp": ("cpp", "compiled C++ for the CPU"),
}


def decode(name: str) -> KernelName | None:
    """The record of a kernel that Inductor generated in Triton, or in C++ for the CPU."""
    if name.startswith("triton_"):
        return _decode_triton(name)
    if "cpp_fused" in name[:40]:
        match = _CPP.fullmatch(name)
        return _record(name, "inductor-cpp", match) if match else None
    return None


def _decode_triton(name: str) -> KernelName | None:
    match = _TRITON.fullmatch(name)
    if match is not None and match["category"] in _CATEGORIES:
        return _record(name, "inductor-triton", match)
    if _UNNAMED.fullmatch(name) is None:
        return None
    part = (0, len("triton_"), "a kernel of Inductor; unique_kernel_names was off")
    op = "gemm" if name.startswith("triton_mm") else None
    return build(name, "inductor-triton", name[:MAX_SHORT], [part], op=op)


def _record(name: str, family: str, match: re.Match[str]) -> KernelName:
    category, text = _CATEGORIES[match["category"]]
    ops = (split_ops(match["ops"]) or None) if match["ops"] else None
    parts: list[Part] = [(*match.span("category"), text)]
    parts += _op_parts(match.start("ops"), ops or ())
    parts.append((*match.span("number"), "counts the kernels of one graph; differs between runs"))
    return build(
        name,
        family,
        _short(match["category"], ops, match["number"]),
        parts,
        op=_operation(category, ops or ()),
        kernel_category=category,
        fused_ops=ops,
    )


def _operation(category: str | None, ops: tuple[str, ...]) -> str | None:
    """Pointwise kernels and templates do what the category says; a reduction may do more."""
    if category == "template":
        found = (op for pattern, op in _TEMPLATES if any(map(pattern.fullmatch, ops)))
        return next(found, None)
    return "elementwise" if category == "pointwise" else None


@lru_cache(maxsize=4096)
def _op_parts(start: int, ops: tuple[str, ...]) -> tuple[Part, ...]:
    parts = []
    for op in ops:
        parts.append((start, start + len(op), f"operator {op[:80]}; the list is alphabetical"))
        start += len(op) + 1
    return tuple(parts)


def _short(category: str, ops: tuple[str, ...] | None, number: str) -> str:
    """`gelu*mul (fused)`: operators that only rename a tensor are dropped first if space is
    short."""
    tail = f"({category} {number})" if category != "poi" else f"(fused {number})"
    if not ops:
        return f"inductor {tail}"
    words = [op for op in ops if op not in _VIEWS] or list(ops)
    shown = "*".join(words)
    room = MAX_SHORT - len(tail) - 1
    if len(shown) > room:
        shown = shown[: room - 2] + ".."
    return f"{shown} {tail}"


_VIEWS: Final = frozenset(
    {"_unsafe_view", "alias", "as_strided", "detach", "expand", "permute", "reshape", "select"}
    | {"slice", "split", "split_with_sizes", "squeeze", "t", "transpose", "unbind", "unsqueeze"}
    | {"view"}
)
