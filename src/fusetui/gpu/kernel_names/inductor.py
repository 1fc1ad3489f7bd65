"""TorchInductor's kernels: `triton_poi_fused__unsafe_view_gelu_mul_0`, `cpp_fused_gelu_mul_0`.

Documented by pytorch/pytorch torch/_inductor/codegen/triton.py and codegen/cpp.py (define_kernel),
utils.py (get_fused_kernel_name) and wrapper_benchmark.py (the kernel categories):

    triton_{category}_fused[_{operators}]_{number}      [graph_{n}_]cpp_fused[_{operators}]_{number}

The number counts the kernels of one graph and changes from run to run. The operators are the
sorted, distinct names, joined with underscores. They contain underscores themselves, so the list is
split with the help of ATen's operators, longest first; words that no operator explains belong to a
custom operator, which must end where the order goes on ascending.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from fusetui.gpu.kernel_names.record import MAX_SHORT, KernelName, Part, build
from fusetui.trace.model.aten_ops import ATEN_OPS

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


_MAX_CUSTOM: Final = 64
_MAX_TEXT: Final = 600

_FIRST_WORD = re.compile("_*[a-z0-9]+")


def _by_first_word() -> dict[str, tuple[str, ...]]:
    """Operators that begin with the same word, the longest first."""
    found: dict[str, list[str]] = {}
    for op in ATEN_OPS:
        word = _FIRST_WORD.match(op)
        found.setdefault(word[0] if word else op, []).append(op)
    return {word: tuple(sorted(ops, key=len, reverse=True)) for word, ops in found.items()}


_BY_FIRST_WORD: Final = _by_first_word()

_Cost = tuple[int, int, int, int]
"""Cost of a split: custom operators, those that begin with a known one, their letters,
operators."""


@lru_cache(maxsize=4096)
def split_ops(text: str) -> tuple[str, ...]:
    """The operators of a joined list, in the alphabetical order of the name.

    Empty for a text that is too long and contains custom operators.

    >>> split_ops("_unsafe_view_gelu_mul")
    ('_unsafe_view', 'gelu', 'mul')
    """
    return _greedy(text) or (_best(text) if len(text) <= _MAX_TEXT else ())


def _ends(text: str, start: int) -> list[int]:
    """Where an operator that begins at `start` may end: before an underscore or at the end."""
    limit = min(len(text), start + _MAX_CUSTOM)
    ends = [at for at in range(start + 1, limit) if text[at] == "_" and at + 1 < len(text)]
    return [*ends, len(text)] if limit == len(text) else ends


def _greedy(text: str) -> tuple[str, ...]:
    """The split into longest known operators, or nothing if it fails or is not ascending."""
    ops: list[str] = []
    at, size = 0, len(text)
    while at < size:
        op = _longest(text, at)
        if op is None or (ops and op <= ops[-1]):
            return ()
        ops.append(op)
        at += len(op) + 1
    return tuple(ops)


def _longest(text: str, start: int) -> str | None:
    """The longest operator in the text at `start`, up to an underscore or the end."""
    word = _FIRST_WORD.match(text, start)
    for op in _BY_FIRST_WORD.get(word[0], ()) if word else ():
        end = start + len(op)
        if text.startswith(op, start) and (end == len(text) or text[end] == "_"):
            return op
    return None


def _best(text: str) -> tuple[str, ...]:
    """The ascending split with the fewest custom operators and the fewest letters in them.

    Works from the end: best[start][op] is the cheapest split of text[start:] that begins with op.
    """
    best: dict[int, list[tuple[_Cost, tuple[str, ...]]]] = {len(text) + 1: [((0, 0, 0, 0), ())]}
    for start in range(len(text) - 1, -1, -1):
        if start and text[start - 1] != "_":
            continue
        splits = [
            found
            for end in _ends(text, start)
            if (found := _extend(text[start:end], best.get(end + 1, []))) is not None
        ]
        best[start] = sorted(splits)
    return best[0][0][1] if best.get(0) else (text,)


def _extend(
    op: str, rests: list[tuple[_Cost, tuple[str, ...]]]
) -> tuple[_Cost, tuple[str, ...]] | None:
    """`op` before the cheapest rest that begins with a later name."""
    for (custom, odd, letters, count), ops in rests:
        if ops and op >= ops[0]:
            continue
        if op in ATEN_OPS:
            return (custom, odd, letters, count + 1), (op, *ops)
        # A custom operator begins with the name of its library, hardly with another operator.
        odd += op.partition("_")[0] in ATEN_OPS
        return (custom + 1, odd, letters + len(op), count + 1), (op, *ops)
    return None
