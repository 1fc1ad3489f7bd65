"""ATen reductions: `void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, ...> >`.

Documented by pytorch/pytorch aten/src/ATen/native/cuda/Reduce.cuh:
reduce_kernel<max_threads, output_vec, ReduceOp<scalar, ops, index, out, vt0[, input_vec]> >.
"""

from __future__ import annotations

import re
from typing import Any

from fusetui.gpu.kernel_names.aten_elementwise import operation_word
from fusetui.gpu.kernel_names.cxx import SCOPE, Span, base_of, split_args
from fusetui.gpu.kernel_names.record import KernelName, Part, build, dtype_words
from fusetui.gpu.kernel_names.vocabulary import cxx_type

_KERNEL = re.compile(
    r"(?:void )?at::native::(?P<kernel>reduce_kernel)<(?:\(\w+\))?(?P<threads>\d{1,6}), "
    rf"(?:\(\w+\))?(?P<vec>\d{{1,6}}), {SCOPE}(?P<reduce>ReduceOp)<"
)
_WRAPPED = re.compile(rf"{SCOPE}func_wrapper_t<[\w:]+(?: char| int| long)?(?:<\w+>)?, ")
_POINTER = re.compile(r"&(?=[\w(])")


def decode(name: str) -> KernelName | None:
    """The record of a reduction kernel of ATen."""
    match = _KERNEL.match(name)
    if match is None:
        return None
    args, _ = split_args(name, match.end(), limit=8)
    fields: dict[str, Any] = {"op": "reduction", **_types(name, args)}
    word = operation_word((fields.get("functor") or "reduce").removesuffix("Ops"))
    dtype = dtype_words(fields.get("dtype_a"), None, fields.get("dtype_out"))
    vt = name[slice(*args[4])] if len(args) > 4 else ""
    launch = f"{match['threads']}x{match['vec']}{'.' + vt if vt.isdigit() else ''}"
    short = f"reduce {word} {dtype or ''} {launch}"
    return build(name, "aten-reduce", " ".join(short.split()), _parts(match, args), **fields)


def _types(name: str, args: list[Span]) -> dict[str, str | None]:
    if len(args) < 4:
        return {}
    text = [name[start:end] for start, end in args[:4]]
    return {
        "dtype_a": cxx_type(text[0]),
        "dtype_out": cxx_type(text[3]),
        "functor": _functor(text[1]),
    }


def _functor(text: str) -> str | None:
    """The operator: a struct, or what func_wrapper_t wraps (a struct, a lambda, an address)."""
    wrapped = _WRAPPED.match(text)
    start = wrapped.end() if wrapped else 0
    if text.startswith("__nv_hdl_wrapper", start):
        pointer = _POINTER.search(text, start)
        if pointer is None:
            return None
        start = pointer.end()
    return base_of(text, start)


def _parts(match: re.Match[str], args: list[Span]) -> list[Part]:
    parts = [
        (*match.span("kernel"), "a reduction of ATen"),
        (*match.span("threads"), f"at most {match['threads']} threads in a block"),
        (*match.span("vec"), f"{match['vec']} outputs for each thread"),
    ]
    meanings = ("type of the input", "how values are combined", "type of an index", "type stored")
    return parts + [(*span, text) for span, text in zip(args, meanings, strict=False)]
