"""AMD's libraries: Tensile and hipBLASLt, MIOpen, Composable Kernel.

Documented by ROCm/Tensile Tensile/SolutionStructs.py and
docs/src/reference/nomenclature.rst, ROCm/hipBLASLt
tensilelite/Tensile/SolutionStructs.py, ROCm/MIOpen
PerformanceConfigAsmImplicitGemmGTC::ToKernelName and the struct pages of
ROCm/composable_kernel.

    Cijk_A{ilk|lik}_B{ljk|jlk}_{types}_{flags}..._MT{M}x{N}x{K}_MI{...}_..._ISA{target}_...
    igemm_{fwd|bwd|wrw}_{gtcx|gtcx2|gtcx3}_{layout}_{type}_bx{}_ex{}_bt{M}x{N}x{K}_wt{wave
    tile}_...

Names of Composable Kernel are often left mangled: `_ZN2ck16tensor_operation6device...`.
The place of the tile among the template arguments differs by struct and release, so it
is found by its arithmetic: ten integers BlockSize, M, N, K, AK1, BK1, MPerXdl, NPerXdl,
MXdlPerWave, NXdlPerWave in a row, with BlockSize = 64 * M / (MPerXdl * MXdlPerWave) * N
/ (NPerXdl * NXdlPerWave).
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from fusetui.text.patterns import lazy_pattern

from .cxx import Signature, signature
from .record import (
    MAX_SHORT,
    KernelName,
    Meanings,
    Part,
    build,
    explain,
    explain_group,
    fields_of,
    gemm_label,
    iterate_words,
)
from .vocabulary import explain_layout, get_gfx_fields

_TENSILE = lazy_pattern(
    r"(?:Custom_)?Cijk_A(?P<a>ilk|lik)C?_B(?P<b>ljk|jlk)C?_(?P<types>[A-Z0-9]+)"
    r"(?:_(?P<more>[A-Z0-9]+))?"
)
_SEARCHED: Final = {
    "tile": lazy_pattern(
        r"_MT(?P<tile_m>\d{1,4})x(?P<tile_n>\d{1,4})x(?P<tile_k>\d{1,4})(?=_|$)"
    ),
    "mma": lazy_pattern(
        r"_MI(?P<m>\d{1,6})x(?P<n>\d{1,6})x(?:(?P<k>\d{1,6})x)?(?P<blocks>\d{1,6})(?=_|$)"
    ),
    "target": lazy_pattern(r"_(?:ISA|gfx)(?P<gfx>[0-9a-f]+)(?=_|$)"),
    "split": lazy_pattern(r"_GSU(?P<split>\d{1,4})(?=_|$)"),
    "stream": lazy_pattern(r"_SK(?P<stream>\d{1,6})(?=_|$)"),
    "bias": lazy_pattern(r"_(?P<bias>Bias)(?=_)"),
    "waves": lazy_pattern(r"_(?:MIWT|WG)(\d{1,6}_\d{1,6})"),
    "wave_tile": lazy_pattern(r"_MIWT(?P<wave_tile>\d{1,6}_\d{1,6})(?=_|$)"),
    "group": lazy_pattern(r"_WG(?P<group>\d{1,6}_\d{1,6}_\d{1,6})(?=_|$)"),
    "reduction": lazy_pattern(r"_GSUA(?P<reduction>MBSK|MB|SB)(?=_|$)"),
    "global_read": lazy_pattern(r"_PGR(?P<global_read>\d{1,6})(?=_|$)"),
    "local_read": lazy_pattern(r"_PLR(?P<local_read>\d{1,6})(?=_|$)"),
}
_FLAGS = lazy_pattern(r"(?:_(?:BH?|Bias|HAS?|AS?|S|SAB|SAV|UserArgs)(?=_|$))*")
_USES_BETA: Final = "B: uses beta, so C may be read"
_FLAG_WORDS: Final = {
    "B": _USES_BETA,
    "BH": "B: uses beta, so C may be read; H: adds up in high precision",
    "A": "can apply an activation when it stores",
    "HA": "can apply an activation when it stores",
    "AS": "can apply an activation when it stores, in fp32 (S)",
    "HAS": "can apply an activation when it stores, in fp32 (S)",
    "S": "S: the type of the activation, fp32",
    "SAB": "can scale A and B",
    "SAV": "can scale by a vector in place of alpha",
    "UserArgs": "the arguments are passed by pointer",
}
"""Words between the types and the tile."""
_LETTERS: Final = {
    "S": "fp32",
    "D": "fp64",
    "C": "c64",
    "Z": "c128",
    "H": "fp16",
    "B": "bf16",
    "I": "int32",
    "I8": "int8",
    "F8": "fp8_e4m3",
    "B8": "fp8_e5m2",
    "F8N": "fp8_e4m3fnuz",
    "B8N": "fp8_e5m2fnuz",
}
_LETTER = lazy_pattern("F8N|B8N|F8|B8|I8|[SDCZHBI]")

_IGEMM = lazy_pattern(
    r"igemm_(?P<pass>fwd|bwd|wrw)_(?P<target>gtcx?[23]?)_(?P<layout>n[a-z0-9]+)_(?P<dtype_a>[a-z0-9]+)"
    r"_bx\d{1,6}_ex\d{1,6}_bt(?P<tile_m>\d{1,4})x(?P<tile_n>\d{1,4})x(?P<tile_k>\d{1,4})"
    r"_wt(?P<wave>\d{1,6}x\d{1,6}x\d{1,6})(?P<rest>\w*)"
)
_IGEMM_PASSES: Final = {"fwd": "fprop", "bwd": "dgrad", "wrw": "wgrad"}
_IGEMM_TARGETS: Final = {"gtcx": "908", "gtcx2": "90a"}
_MEANINGS: Final = {
    "pass": "{}: fwd forward, bwd gradient of the data, wrw gradient of the weight",
    "target": "{}: gtcx gfx908, gtcx2 gfx90a, gtcx3 any later one",
    "layout": "the tensors are stored as {}",
    "dtype_a": "type of the operands: {}",
    "tile_m": "output tile of one workgroup: {} rows",
    "tile_n": "output tile of one workgroup: {} columns",
    "wave": "tile of one wave: {}",
    "m": "matrix instruction: M is {}",
    "n": "matrix instruction: N is {}",
    "k": "matrix instruction: K is {}",
    "blocks": "matrix instruction: number of blocks {}",
    "wave_tile": "matrix instructions of a wave, along M and N: {}",
    "group": "shape of a workgroup: {}",
    "global_read": "reads from memory {} steps ahead",
    "local_read": "reads from local memory {} steps ahead",
    "gfx": "built for gfx{}; 000 is any device",
    "split": "K is split {} ways (1: not split)",
    "stream": "stream-K mode {} (0: off)",
    "bias": "can add a bias when it stores; plain matrix products run it too",
}


_REDUCTIONS: Final = {
    "MB": "through several buffers, by a kernel that follows",
    "MBSK": "through several buffers, by the same kernel",
    "SB": "in one buffer",
}
_TENSILE_MEANINGS: Meanings = {
    **_MEANINGS,
    "reduction": lambda text: (
        f"how the parts of a split K are added up: {_REDUCTIONS[text]}"
    ),
}


class _MiopenKernel(NamedTuple):
    """What a kernel of MIOpen does, as far as the beginning of its name says it."""

    op: str | None = None  # None: a helper
    pass_: str | None = None
    algo: str | None = None


_MIOPEN: Final = {
    "MIOpenBatchNormFwd": _MiopenKernel("norm", pass_="fwd"),
    "MIOpenBatchNormBwd": _MiopenKernel("norm", pass_="bwd"),
    "miopenSp3AsmConv": _MiopenKernel("conv", algo="winograd"),
    "naive_conv_": _MiopenKernel("conv"),
    "batched_transpose_": _MiopenKernel("copy"),
    "transpose_NCHW": _MiopenKernel("copy"),
    "transpose_CNHW": _MiopenKernel("copy"),
    "mloPoolingG": _MiopenKernel("pool", pass_="fwd"),
    "mloPooling": _MiopenKernel("pool"),
    "MIOpenConv": _MiopenKernel("conv"),
    "MIOpen": _MiopenKernel(),
    "miopen": _MiopenKernel(),
    "Im2d2Col": _MiopenKernel(),
    "Im3d2Col": _MiopenKernel(),
    "Col2Im": _MiopenKernel(),
    "SubTensorOp": _MiopenKernel(),
    "OpTensor": _MiopenKernel(),
}
"""Other kernels of MIOpen by how their names begin; the first that fits counts."""

_MANGLED_RUN = lazy_pattern(r"(?:L[ij]\d{1,6}E){10,40}")
_PLAIN_RUN = lazy_pattern(r"(?:\b\d{1,6}u?, ){9,39}\d{1,6}\b")
_DIGITS = lazy_pattern(r"\d{1,6}")
_CLASS = lazy_pattern(r"NS_(\d{1,3})")
_CK_PASSES: Final = {
    "conv_fwd": "fprop",
    "bwd_data": "dgrad",
    "bwd_weight": "wgrad",
}
"""Passes of a convolution, by words in the base name."""

_CK_MEANINGS: Final = (
    "threads of a workgroup: {}",
    "output tile: {} rows",
    "output tile: {} columns",
    "each step takes {} of K",
    "elements of K that are loaded together from A: {}",
    "elements of K that are loaded together from B: {}",
    "matrix instruction: M is {}",
    "matrix instruction: N is {}",
    "matrix instructions of a wave along M: {}",
    "matrix instructions of a wave along N: {}",
)
"""The ten integers of a tile."""

_IGEMM_TYPES: Final = {
    "fp32": "fp32",
    "fp16": "fp16",
    "bf16": "bf16",
    "int8": "int8",
}

_TILE_INTEGERS: Final = 10

_XDL_SIZES: Final = (4, 16, 32, 64)
"""M or N of a matrix instruction."""

_WAVE_THREADS: Final = 64


class _Integer(NamedTuple):
    """An integer of a name: name[start:end]."""

    start: int
    end: int
    value: int


class _CkTile(NamedTuple):
    """The ten integers by which Composable Kernel describes a tile, in their order."""

    block_threads: int
    m: int
    n: int
    k: int
    k_loaded_of_a: int
    k_loaded_of_b: int
    m_of_instruction: int
    n_of_instruction: int
    instructions_along_m: int  # of one wave
    instructions_along_n: int


def decode_tensile(name: str) -> KernelName | None:
    """Decode the name of a matrix product of Tensile or hipBLASLt.

    Such a name begins like `Cijk_Alik_Bljk_BBS_BH_`, and its options follow:
    `MT256x192x64` is the tile. Returns None for a kernel of another library.
    """
    match = _TENSILE.match(name)
    if match is None:
        return _decode_tensile_helper(name)

    options = {}
    for key, pattern in _SEARCHED.items():
        options[key] = pattern.search(name, match.end("types"))

    # The order of the index letters says whether an operand is transposed.
    letter_a = "n" if match["a"] == "ilk" else "t"
    letter_b = "n" if match["b"] == "ljk" else "t"
    layout = letter_a + letter_b
    fields = {"op": "gemm", "layout": layout, **_read_tensile_fields(match, options)}

    waves = options["waves"]
    waves_word = f"w{waves[1]}" if waves else None
    stream_k_word = "stream-k" if fields["stream_k"] else None
    short = gemm_label("gemm", fields, waves_word, stream_k_word)

    layout_start = match.start("a") - len("A")
    layout_part: Part = (layout_start, match.end("b"), explain_layout(layout))
    parts = [layout_part, *_explain_types(match), *_explain_flags(match)]
    for option in options.values():
        if option is not None:
            parts += explain(option, _TENSILE_MEANINGS)

    return build(name, "tensile", short, parts, **fields)


def _decode_tensile_helper(name: str) -> KernelName | None:
    """Decode the name of a small kernel that Tensile runs next to a matrix product.

    Returns None for a kernel of another library.
    """
    if not name.startswith("Cijk_"):
        return None

    adds_up_partial_sums = "_PostGSU" in name
    if not adds_up_partial_sums:
        return build(name, "tensile", name[:MAX_SHORT])
    short = f"splitk-reduce {name.removeprefix('Cijk_')}"
    return build(name, "tensile", short, op="reduction", role="splitk_reduce")


def _read_tensile_fields(
    match: re.Match[str], options: dict[str, re.Match[str] | None]
) -> dict[str, Any]:
    """Determine the fields of a Tensile kernel, except for its layout.

    Args:
        match: The match of `_TENSILE`.
        options: The matches of `_SEARCHED` in the rest of the name, by their keys.
    """
    fields: dict[str, Any] = {
        **_make_type_fields(_read_tensile_types(match["types"], match["more"] or "")),
        "epilogue": "bias" if options["bias"] else None,
        "split_k": None,
        "stream_k": None,
    }

    if options["tile"]:
        fields |= fields_of(options["tile"])

    if options["target"]:
        fields |= get_gfx_fields(options["target"]["gfx"])

    mma = options["mma"]
    if mma and mma["k"]:  # the form of Tensile
        fields["mma"] = f"{mma['m']}x{mma['n']}x{mma['k']}"
    elif mma:  # that of hipBLASLt
        fields["mma_mn"] = f"{mma['m']}x{mma['n']}"

    split = options["split"]
    if split and int(split["split"]) > 1:
        fields["split_k"] = int(split["split"])
    stream = options["stream"]
    if stream and int(stream["stream"]) > 0:
        fields["stream_k"] = True
    return fields


_UNSETTLED_TYPES: Final = "types of A and B, of the result and of the sums"


class _TensileTypes(NamedTuple):
    """The letters of the element types of a matrix product."""

    a: str
    b: str
    out: str
    sums: str
    # A group of letters for A and B is followed by one for the result and the sums.
    is_in_two_groups: bool = False


def _read_tensile_types(types: str, next_word: str) -> _TensileTypes | None:
    """Read the letters of the element types of a matrix product.

    Three letters in the first word are A and B, result and sums: `BBS`. One letter and
    the flag for beta, `SB` or `S_B`, is the type of all. In the newer form the first
    word has A and B (two letters if they differ), the next one result and sums:
    `B_BS`.

    Args:
        types: The first word behind the layouts.
        next_word: The word behind it; "" if there is none.

    Returns:
        The letters; None if the words do not settle the types.
    """
    if not _is_letters(types):
        return None

    letters = _LETTER.findall(types)
    next_letters = _LETTER.findall(next_word)

    is_type_and_beta = len(letters) == 2 and letters[1] == "B"
    is_type_before_beta = len(letters) == 1 and next_word == "B"
    if is_type_and_beta or is_type_before_beta:
        only_type = letters[0]
        return _TensileTypes(a=only_type, b=only_type, out=only_type, sums=only_type)

    if len(letters) == 3:
        a_and_b, out, sums = letters
        return _TensileTypes(a=a_and_b, b=a_and_b, out=out, sums=sums)

    if len(letters) < 3 and len(next_letters) == 2 and _is_letters(next_word):
        out, sums = next_letters
        a = letters[0]
        b = letters[-1]  # the same one, if A and B have one letter
        return _TensileTypes(a=a, b=b, out=out, sums=sums, is_in_two_groups=True)

    return None


def _make_type_fields(types: _TensileTypes | None) -> dict[str, str]:
    """Return the fields of the element types of a matrix product.

    Returns:
        `dtype_a`, `dtype_b`, `dtype_out` and `dtype_acc`; empty if the types are not
        known.
    """
    if types is None:
        return {}

    return {
        "dtype_a": _LETTERS[types.a],
        "dtype_b": _LETTERS[types.b],
        "dtype_out": _LETTERS[types.out],
        "dtype_acc": _LETTERS[types.sums],
    }


def _explain_types(match: re.Match[str]) -> list[Part]:
    """Explain the letters that name element types.

    They are one group, or two if the result and the sums have a group of their own.
    Letters that do not settle the types are explained as such.
    """
    types = _read_tensile_types(match["types"], match["more"] or "")
    second_meaning = None
    if types is None:
        first_meaning = _UNSETTLED_TYPES
        if _has_second_group(match):
            second_meaning = _UNSETTLED_TYPES
    else:
        operands = _describe_operand_types(types)
        sums = _LETTERS[types.sums]
        result_and_sums = f"the result is {_LETTERS[types.out]}, the sums {sums}"
        has_beta = len(_LETTER.findall(match["types"])) == 2
        if types.is_in_two_groups:
            first_meaning = operands
            second_meaning = result_and_sums
        elif has_beta:
            first_meaning = f"{operands}, {result_and_sums}; {_USES_BETA}"
        else:
            first_meaning = f"{operands}, {result_and_sums}"

    parts = [explain_group(match, "types", f"{match['types']}: {first_meaning}")]
    if second_meaning is not None:
        parts.append(explain_group(match, "more", f"{match['more']}: {second_meaning}"))
    return parts


def _describe_operand_types(types: _TensileTypes) -> str:
    """Describe the types of A and B in words."""
    if types.a == types.b:
        return f"A and B are {_LETTERS[types.a]}"
    return f"A is {_LETTERS[types.a]}, B {_LETTERS[types.b]}"


def _has_second_group(match: re.Match[str]) -> bool:
    """Return whether the word behind the first group of type letters names types too.

    In `B_BS` the second group is `BS`. The word may also be a flag of the kernel, or be
    missing.
    """
    next_word = match["more"]
    if next_word is None or next_word in _FLAG_WORDS:
        return False
    return _is_letters(next_word)


def _is_letters(group: str) -> bool:
    """Return whether a word is made of letters of types alone, such as `BBS`."""
    return "".join(_LETTER.findall(group)) == group


def _explain_flags(match: re.Match[str]) -> list[Part]:
    """Explain the flags that follow the types, up to the first word that is no flag."""
    last_group_of_types = "more" if _has_second_group(match) else "types"
    flags = _FLAGS.match(match.string, match.end(last_group_of_types))
    if flags is None:
        return []

    parts = []
    for word in iterate_words(match.string, flags.start(), flags.end()):
        if word.text in _FLAG_WORDS:
            parts.append((word.start, word.end, _FLAG_WORDS[word.text]))
    return parts


def decode_miopen(name: str) -> KernelName | None:
    """Decode the name of a kernel of MIOpen.

    A convolution is named like `igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32_wt...`.
    Returns None for a kernel of another library.

    >>> decode_miopen("MIOpenBatchNormBwdSpatial").short
    'BatchNormBwdSpatial'
    """
    if name.startswith("igemm_"):
        return _decode_igemm(name)

    for prefix, kernel in _MIOPEN.items():
        if name.startswith(prefix):
            function, *_ = name.split("(", maxsplit=1)
            return build(
                name,
                "miopen",
                short=function.removeprefix("MIOpen"),
                parts=[(0, len(prefix), f"MIOpen: {kernel.op or 'a helper'}")],
                op=kernel.op,
                pass_=kernel.pass_,
                algo=kernel.algo,
            )
    return None


def _decode_igemm(name: str) -> KernelName | None:
    """Decode a convolution of MIOpen that runs as an implicit matrix product.

    Returns None for a name of another scheme.
    """
    match = _IGEMM.fullmatch(name)
    if match is None:
        return None

    pass_ = _IGEMM_PASSES[match["pass"]]
    fields = {
        "op": "conv",
        "pass_": pass_,
        **fields_of(match, _IGEMM_TYPES.get),
        **get_gfx_fields(_IGEMM_TARGETS.get(match["target"])),
    }

    is_split = match["rest"].endswith("_gkgs")  # K is split over workgroups
    short = gemm_label(pass_, fields, f"w{match['wave']}", "gkgs" if is_split else None)
    return build(name, "miopen", short, explain(match, _MEANINGS), **fields)


def decode_ck(name: str) -> KernelName | None:
    """Decode the name of a kernel of Composable Kernel.

    Such a name begins like `void ck::kernel_moe_gemm<ck::GridwiseMoeGemm<`. Returns
    None for a kernel of another library.
    """
    sign = signature(name)
    if sign is None or not sign.scope.startswith(("ck::", "ck_tile::")):
        return None

    fields = _classify_ck_kernel(name, sign)
    parts = [sign.explain_base("a kernel of Composable Kernel")]
    label = fields.get("pass_") or fields["op"] or "ck"
    instruction = None

    # The gradient of the weight has another order of the integers.
    is_product = fields["op"] in ("gemm", "conv")
    integers = []
    if is_product and fields.get("pass_") != "wgrad":
        integers = _find_tile(name)
    if integers:
        tile = _CkTile._make(integer.value for integer in integers)
        fields["tile_m"] = tile.m
        fields["tile_n"] = tile.n
        fields["tile_k"] = tile.k
        fields["mma_mn"] = f"{tile.m_of_instruction}x{tile.n_of_instruction}"
        instruction = f"mi{fields['mma_mn']}"
        for integer, meaning in zip(integers, _CK_MEANINGS, strict=True):
            parts.append((integer.start, integer.end, meaning.format(integer.value)))

    short = gemm_label(label, fields, instruction, _shorten_ck_name(name, sign))
    return build(name, "ck", short, parts, **fields)


def _shorten_ck_name(name: str, sign: Signature) -> str:
    """Return what the short text calls a kernel of Composable Kernel.

    It is the base name without the words that all such names share. ck_tile runs every
    class through one function, `kentry`. The name of the class then follows in the
    mangled name, behind its length in digits, and is returned instead.
    """
    class_length = None
    if sign.base == "kentry":
        class_length = _CLASS.search(name, sign.end, sign.end + 30)
    if class_length is None:
        return sign.base.removeprefix("kernel_").replace("grouped_conv_", "")

    class_start = class_length.end()
    shown_characters = min(int(class_length[1]), _MAX_CLASS_CHARACTERS)
    return name[class_start : class_start + shown_characters]


_MAX_CLASS_CHARACTERS: Final = 40


def _classify_ck_kernel(name: str, sign: Signature) -> dict[str, Any]:
    """Determine what a kernel of Composable Kernel does.

    Returns:
        The field `op`, which is None for a helper. A convolution also has `pass_`,
        which is None if the name does not say it.
    """
    base = sign.base
    after_base = name[sign.end : sign.end + 120]
    if sign.scope.startswith("ck_tile::"):
        if "MoeSorting" in f"{base} {after_base}":
            return {"op": "moe"}
        if "Fmha" in after_base:
            return {"op": "attention"}
        is_norm = re.search("norm2d(?:Fwd|Bwd)", after_base) is not None
        return {"op": "norm" if is_norm else None}

    for word, pass_ in _CK_PASSES.items():
        if word in base:
            return {"op": "conv", "pass_": pass_}
    if "conv" in base:
        return {"op": "conv", "pass_": None}
    return {"op": "gemm" if "gemm" in base else None}


def _find_tile(name: str) -> list[_Integer]:
    """Find the ten consecutive integers of a name that describe a tile.

    They are recognized by the arithmetic of a tile; see `_is_tile`.

    Returns:
        The integers in the order of `_CK_MEANINGS`. Empty if there are none, or
        several such tiles that differ.
    """
    run_pattern = _MANGLED_RUN if name.startswith("_Z") else _PLAIN_RUN

    # A demangled name repeats its types in the parameters, so the same values may come
    # twice. Hence the tiles are kept by their values.
    integers_of_tile: dict[_CkTile, list[_Integer]] = {}
    for run in run_pattern.finditer(name):
        integers = _find_integers(name, run.start(), run.end())
        windows = len(integers) - _TILE_INTEGERS + 1
        for first in range(windows):
            window = integers[first : first + _TILE_INTEGERS]
            candidate = _CkTile._make(integer.value for integer in window)
            if _is_tile(candidate):
                integers_of_tile.setdefault(candidate, window)

    is_unique = len(integers_of_tile) == 1
    return next(iter(integers_of_tile.values())) if is_unique else []


def _find_integers(name: str, start: int, end: int) -> list[_Integer]:
    """Return the integers in `name[start:end]`."""
    integers = []
    for digits in _DIGITS.finditer(name, start, end):
        integer = _Integer(digits.start(), digits.end(), value=int(digits[0]))
        integers.append(integer)
    return integers


def _is_tile(tile: _CkTile) -> bool:
    """Return whether ten integers satisfy the arithmetic of a tile.

    The waves that the tile is divided into must be those of a block: a tile of 256 x
    128 with waves of 64 x 64 takes 8 waves, so a block of 512 threads.
    """
    if 0 in tile:
        return False
    if tile.m_of_instruction not in _XDL_SIZES:
        return False
    if tile.n_of_instruction not in _XDL_SIZES:
        return False

    wave_rows = tile.m_of_instruction * tile.instructions_along_m
    wave_columns = tile.n_of_instruction * tile.instructions_along_n
    if tile.m % wave_rows != 0 or tile.n % wave_columns != 0:
        return False

    waves = (tile.m // wave_rows) * (tile.n // wave_columns)
    return tile.block_threads == waves * _WAVE_THREADS
