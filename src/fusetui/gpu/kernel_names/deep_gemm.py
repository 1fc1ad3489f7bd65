"""DeepGEMM, DeepSeek's fp8 matrix products: `void deep_gemm::sm90_fp8_gemm_1d2d_impl<...>(...)`.

Documented by deepseek-ai/DeepGEMM deep_gemm/include/deep_gemm/impls/. The places of the template
arguments change between releases: they are read only where the first argument has the type and the
list the length of a known form, and otherwise left open.

    sm90_fp8_gemm_1d2d_impl<major, M, N, K, groups, BM, BN, BK, swizzle x3, stages, ...>
    sm90_bf16_gemm_impl<majA, majB, M, N, K, groups, BM, BN, BK, swizzle x3, stages, ...>
    sm90_tf32_hc_prenorm_gemm_impl<N, K, BM, BN, BK, splits, swizzle, stages, threads x2>
    sm100_fp8_fp4_gemm_1d1d_impl<majA, majB, granA, granB, M, N, K, BM, BN, BK, groups,
        swizzle x3, stages, ...>
    fp8_gemm_kernel<N, K, BM, BN, BK, ..., stages, ...>
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from fusetui.gpu.kernel_names.cxx import Span, signature, split_args
from fusetui.gpu.kernel_names.record import KernelName, Part, build, gemm_label
from fusetui.gpu.kernel_names.vocabulary import from_capability


class _Form(NamedTuple):
    """Positions of the tile and the stages, form of the first argument, minimum list length."""

    first: re.Pattern[str]
    tile: int
    stages: int
    least: int
    dtype: str | None


_MAJOR: Final = re.compile(r"\(cute::UMMA::Major\)\d")
_NUMBER: Final = re.compile(r"\d{1,6}u?")
_FORMS: Final = {
    "sm90_fp8_gemm_1d2d_impl": _Form(_MAJOR, 5, 11, 18, "fp8_e4m3"),
    "sm100_fp8_fp4_gemm_1d1d_impl": _Form(_MAJOR, 7, 14, 18, None),
    "fp8_gemm_kernel": _Form(_NUMBER, 2, 8, 13, "fp8_e4m3"),
    "sm90_bf16_gemm_impl": _Form(_MAJOR, 6, 12, 20, "bf16"),
    "sm90_tf32_hc_prenorm_gemm_impl": _Form(_NUMBER, 2, 7, 10, None),
    "sm100_tf32_hc_prenorm_gemm_impl": _Form(_NUMBER, 2, 7, 10, None),
}
_CAPABILITY: Final = re.compile(r"sm(\d{2,3})_")


def decode(name: str) -> KernelName | None:
    """The record of a DeepGEMM kernel."""
    sign = signature(name)
    if sign is None or not sign.scope.startswith("deep_gemm::"):
        return None
    spans = split_args(name, sign.args)[0] if sign.args > 0 else []
    capability = _CAPABILITY.match(sign.base)
    fields: dict[str, Any] = {
        "op": "gemm" if "gemm" in sign.base else None,
        **from_capability(capability[1] if capability else None),
    }
    what = "a matrix product" if fields["op"] else "a kernel"
    parts: list[Part] = [(sign.start, sign.end, f"{what} of DeepGEMM")]
    form = _FORMS.get(sign.base)
    if form is not None and _fits(name, spans, form):
        fields |= _tile_fields(name, spans, form)
        parts += _tile_parts(spans, form)
        if form.dtype:
            fields |= {"dtype_a": form.dtype, "dtype_b": form.dtype}
            fields |= {"dtype_acc": "fp32"} if capability else {}
    tail = sign.base.removesuffix("_impl").removesuffix("_kernel")
    short = gemm_label("gemm", fields, tail) if fields["op"] else f"deep_gemm {tail}"
    return build(name, "deep-gemm", short, parts, **fields)


def _fits(name: str, spans: list[Span], form: _Form) -> bool:
    if len(spans) < form.least or not form.first.fullmatch(name, *spans[0]):
        return False
    needed = (*range(form.tile, form.tile + 3), form.stages)
    return all(_NUMBER.fullmatch(name, *spans[place]) for place in needed)


def _number(name: str, span: Span) -> int | None:
    value = int(name[slice(*span)].rstrip("u")[:6])
    return value or None


def _tile_fields(name: str, spans: list[Span], form: _Form) -> dict[str, int | None]:
    m, n, k = (_number(name, spans[form.tile + place]) for place in range(3))
    return {"tile_m": m, "tile_n": n, "tile_k": k, "stages": _number(name, spans[form.stages])}


def _tile_parts(spans: list[Span], form: _Form) -> list[Part]:
    meanings = ("output tile: rows", "output tile: columns", "each step takes this much of K")
    parts = [(*spans[form.tile + place], text) for place, text in enumerate(meanings)]
    return [*parts, (*spans[form.stages], "pipeline stages in flight")]
