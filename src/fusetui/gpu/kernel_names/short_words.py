"""Explains the words of the short text of a kernel, such as `x4`, `s5` or `nocast`.

The parts of a record explain the characters of the full name; this explains what lists
show in its place. docs/kernel-names.md has the same words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from fusetui.text.figures import plural
from fusetui.text.patterns import lazy_pattern

from .record import DecodedName, tile_words
from .vocabulary import explain_layout

_FIXED: Final = {
    "nocast": "inputs are read without converting their type",
    "cast": "inputs are converted to another type while they are read",
    "unrolled": "each thread takes several elements, with one load for each",
    "strided": "the tensors are not contiguous",
    "scalar": "one of the operands is a number",
    "foreach": "one launch works on a list of tensors",
    "fwd": "forward pass",
    "bwd": "backward pass",
    "fprop": "forward convolution",
    "dgrad": "gradient of the input of a convolution",
    "wgrad": "gradient of the weight of a convolution",
    "causal": "with a full causal mask",
    "local": "attention limited to a window",
    "splitK": "K is split over blocks, whose sums are added up afterwards",
    "stream-k": "K is split over blocks so that all of them get equal work",
    "2cta": "two blocks work on one tile together",
    "2sm": "two blocks work on one tile together",
    "volta": "built for the Volta generation",
    "maxwell": "built for the Maxwell generation",
    "(fused": "ops that Inductor fused; the number tells kernels of a file apart",
    "(red": "a reduction by Inductor; the number tells kernels of a file apart",
    "(per": "a reduction by Inductor that reads its input once; then its number",
    "(tem": "a template of Inductor; the number tells kernels of a file apart",
    "ring": "not a tree: usually a ring, in which each rank passes data on to the next",
    "tree": "data goes up and down a tree of ranks",
    "optimized": "steps through memory with precomputed offsets",
    "analytic": "computes each address, for any convolution",
    "gen": "attention for the generation phase: a few new tokens for each sequence",
    "cute": "written in CuTe, CUTLASS's language in Python",
    "ogs": "gathers its input rows and scatters its output rows, for experts",
    "Rmsnorm2dFwd": "the forward pass of an RMS norm over the rows of a matrix",
}
"""The words that mean the same in every short text."""

_TYPE: Final = r"(?:(?:mx|nv)?[bt]?fp?|u?int|mxint|c)\d{1,3}(?:_e\dm\d)?|bool|bf16"
_MAX_TYPES: Final = 8
_CUT: Final = "..."  # at the end of a short text that was cut
_MEANINGS_OF_TYPES: Final = {
    "c64": "complex: two fp32 values",
    "c128": "complex: two fp64 values",
    "mx": "elements that share a scale, 32 each",
    "nvfp4": "floats of 4 bits that share a scale, 16 each",
}
"""Of types whose names do not say what they are, by how a name begins."""
_VARIANTS_OF_CUDNN: Final = (
    "xregs",
    "small",
    "medium",
    "large",
    "interior",
    "stridedB",
)
"""Words in names of cuDNN's hand-tuned convolutions, whose meanings are not public."""
_LAST_NUMBERS: Final = {
    "cunn_SoftMaxForward": "elements that a thread loads at once",
    "vectorized_gather": "bytes that a thread copies at once",
}
"""What the number at the end of a short text is, by the word that it begins with."""


class _Pattern(NamedTuple):
    """A form of words, and what such a word means in the short text of a kernel."""

    form: re.Pattern[str]
    meaning: Callable[[re.Match[str], DecodedName], str]


def _explain_sizes(match: re.Match[str], kernel: DecodedName) -> str:
    """Explain sizes with an `x`: a tile, a cluster, or the work of a block."""
    word = match[0]
    tile = tile_words(kernel.tile_m, kernel.tile_n, kernel.tile_k) or ""
    is_tile = word == tile or tile.startswith(f"{word}x")  # K may be left out
    if is_tile:
        return "tile of one block: rows x columns of the result, then the slice of K"
    if word == kernel.cluster:
        return "blocks of a cluster"
    if kernel.family == "aten-reduce":
        return (
            "the most threads of a block x outputs of each thread, then the values that it "
            "reads before it combines them"
        )
    if kernel.family == "aten-elementwise":
        return "threads of a block x elements of each thread"
    return ""


def _explain_loaded_elements(match: re.Match[str], kernel: DecodedName) -> str:
    """Explain `x4`: how many elements a thread loads at once."""
    return f"a thread loads {match[1]} elements at once" if kernel.vec else ""


def _explain_waves(match: re.Match[str], kernel: DecodedName) -> str:
    """Explain `w4_1` of Tensile: a wave's share of a tile, else the work group."""
    along_m, along_n = match[1], match[2]
    if f"_MIWT{along_m}_{along_n}" in kernel.name:
        return f"matrix instructions of a wave: {along_m} along M, {along_n} along N"
    return f"threads of a work group: {along_m} x {along_n}"


def _explain_types(role: str) -> Callable[[re.Match[str], DecodedName], str]:
    """Return a function that explains a word of types. `role` says what the types are
    of; a type whose name does not say what it is gets a meaning of its own."""

    def explained(match: re.Match[str], kernel: DecodedName) -> str:
        notes = []
        for name in dict.fromkeys(match[0].replace("->", "*").split("*")):
            for beginning, meaning in _MEANINGS_OF_TYPES.items():
                if name.startswith(beginning):
                    notes.append(f"{name}: {meaning}")
        return "; ".join([role, *notes])

    return explained


def _explain_operand_layouts(match: re.Match[str], kernel: DecodedName) -> str:
    """Explain `NNT` of triton_kernels: how the result and the operands are stored."""
    if "matmul_ogs" not in kernel.name:
        return ""
    return "layouts of the result, A and B: N as stored, T transposed"


def _explain_last_number(match: re.Match[str], kernel: DecodedName) -> str:
    """Explain a number alone at the end of a short text; "" if it is not known."""
    first_word, *_, last_word = kernel.short.split()
    return _LAST_NUMBERS.get(first_word, "") if match[0] == last_word else ""


_PATTERNS: Final = (
    _Pattern(lazy_pattern(r"[NT]{3}"), _explain_operand_layouts),
    _Pattern(lazy_pattern(r"\d{1,6}"), _explain_last_number),
    _Pattern(
        lazy_pattern(r"s(\d{1,3})"),
        lambda match, kernel: (
            f"{plural(int(match[1]), 'pipeline stage')}: slices of K in flight"
        ),
    ),
    _Pattern(lazy_pattern(r"x(\d{1,3})"), _explain_loaded_elements),
    _Pattern(
        lazy_pattern(r"w(\d{1,6})_(\d{1,6})"),
        _explain_waves,
    ),
    _Pattern(
        lazy_pattern(r"a(\d{1,3})"),
        lambda match, kernel: (
            f"operands are aligned to {plural(int(match[1]), 'element')}"
        ),
    ),
    _Pattern(
        lazy_pattern(r"d(\d{1,4})"),
        lambda match, kernel: f"heads of {match[1]} elements",
    ),
    _Pattern(
        lazy_pattern(r"(?:sm\d{2,3}[af]?|gfx\w{3,5})"),
        lambda match, kernel: "the target that it was built for",
    ),
    _Pattern(
        lazy_pattern(r"\d{1,6}(?:x\d{1,6}){1,3}(?:\.\d{1,6})?"),
        _explain_sizes,
    ),
    _Pattern(
        lazy_pattern(r"\d{1,4}B"),
        lambda match, kernel: "bytes of an element, whose type does not matter",
    ),
    _Pattern(
        lazy_pattern(rf"\((?:{_TYPE})\)"),
        lambda match, kernel: "the type of the arithmetic",
    ),
    _Pattern(
        lazy_pattern(rf"->(?:{_TYPE})"),
        lambda match, kernel: "the type of the result",
    ),
    _Pattern(
        lazy_pattern(rf"(?:{_TYPE})(?:\*(?:{_TYPE})){{0,{_MAX_TYPES}}}->(?:{_TYPE})"),
        _explain_types("types of the operands -> type of the result"),
    ),
    _Pattern(
        lazy_pattern(rf"(?:{_TYPE})(?:\*(?:{_TYPE})){{1,{_MAX_TYPES}}}"),
        _explain_types("types of the operands"),
    ),
    _Pattern(
        lazy_pattern(rf"(?:{_TYPE})"),
        _explain_types("the type of the elements"),
    ),
    _Pattern(
        lazy_pattern(
            r"(?=.{2,})(?:[yn]{1,16}|-?\d{1,6}(?=\.))(?:\.(?:[yn]{1,16}|-?\d{1,6}))*"
        ),
        lambda match, kernel: "template arguments: numbers, y for true, n for false",
    ),
)


def short_words(kernel: DecodedName) -> Iterator[tuple[str, str]]:
    """Yield words of the short text of a kernel, in order, each with its meaning.

    Words whose meaning is not known, such as names of functions, are left out.

    >>> from fusetui.gpu.kernel_names import decoded
    >>> [*short_words(decoded("volta_sgemm_128x64_tn"))][-1]
    ('volta', 'built for the Volta generation')
    """
    distinct_words = dict.fromkeys(kernel.short.split())  # in their order
    for word in distinct_words:
        meaning = _explain_short_word(word, kernel)
        if meaning:
            yield word, meaning


def _explain_short_word(word: str, kernel: DecodedName) -> str:
    """Return the meaning of a word of a short text; "" if it is not known."""
    if word == kernel.layout:
        are_blas_letters = set(word) <= set("ntch")
        if not are_blas_letters:
            return "the order of the dimensions of a tensor"
        return explain_layout(word).removeprefix(f"{word}: ")
    if word == kernel.epilogue:
        return "what it can do to a tile before it stores it"
    if word in _FIXED:
        return _FIXED[word]
    shown_word = word.removesuffix(_CUT)
    if kernel.family == "cudnn" and shown_word in _VARIANTS_OF_CUDNN:
        return "a variant of cuDNN's kernel; its meaning is not documented"
    for pattern in _PATTERNS:
        match = pattern.form.fullmatch(shown_word)
        if match:
            return pattern.meaning(match, kernel)
    return ""
