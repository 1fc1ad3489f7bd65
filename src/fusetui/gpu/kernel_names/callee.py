"""A short text for a C++ function: its base name and the distinctive template arguments."""

from __future__ import annotations

from typing import Final

from fusetui.gpu.kernel_names.cxx import Signature, split_args
from fusetui.gpu.kernel_names.dtypes import cxx_type

_COMPLEX: Final = {"float2": "c64", "double2": "c128", "__half2": "2xfp16"}
_FLAGS: Final = {"true": "y", "false": "n", "(bool)1": "y", "(bool)0": "n"}
_MAX_ARGUMENTS: Final = 16


def callee_text(name: str, sign: Signature, base: str | None = None) -> str:
    """Base name, element types, then numbers and flags (y, n) of the template argument list.

    >>> from fusetui.gpu.kernel_names.cxx import signature
    >>> name = "void gemv2T_kernel_val<int, float, float, 128, 16, false>(int)"
    >>> callee_text(name, signature(name), "gemv2T")
    'gemv2T fp32 128.16.n'
    """
    word = sign.base if base is None else base
    if sign.args < 0 or sign.mangled:
        return word
    spans, _ = split_args(name, sign.args, limit=_MAX_ARGUMENTS)
    types: list[str] = []
    numbers: list[str] = []
    for start, end in spans:
        _sort_argument(name[start:end], types, numbers)
    return " ".join(text for text in (word, _merged(types), ".".join(numbers)) if text)


def _sort_argument(text: str, types: list[str], numbers: list[str]) -> None:
    bare = text.rstrip("ul").removeprefix("(int)")
    if text in _FLAGS:
        if numbers and numbers[-1][-1] in "yn":
            numbers[-1] += _FLAGS[text]
        else:
            numbers.append(_FLAGS[text])
    elif bare.lstrip("-").isdigit() and len(bare) < 8:
        numbers.append(bare)
    elif "OpaqueType<" in text:
        types.append(text.partition("OpaqueType<")[2].rstrip("> u")[:4] + "B")
    else:
        dtype = _COMPLEX.get(text) or cxx_type(text)
        if dtype and dtype not in ("int32", "uint32", "uint64"):
            types.append(dtype)


def _merged(types: list[str]) -> str:
    """`fp16` if all types are equal, else all of them: `fp16*fp16*fp32`."""
    return types[0] if len(set(types)) == 1 else "*".join(types[:4])
