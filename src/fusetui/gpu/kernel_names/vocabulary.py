"""Maps element types, layouts such as `tn`, GPU generations and tensor-core shapes from
each naming scheme to our vocabulary (docs/kernel-names.md).

Sources: NVIDIA/cutlass python/cutlass_library/library.py (DataTypeNames), the CUDA C++
programming guide (compute capabilities), the LLVM AMDGPU user guide (gfx). A generation
is the target that a kernel was built for; the device that ran it may be a later one.
"""

from __future__ import annotations

import re
from typing import Final

from fusetui.gpu.dtypes import C10_CLASSES, CXX_TYPES

# `f8` and `f4` fix only the width.
CUTLASS: Final = {
    "f64": "fp64",
    "f32": "fp32",
    "tf32": "tf32",
    "f16": "fp16",
    "bf16": "bf16",
    "e4m3": "fp8_e4m3",
    "e5m2": "fp8_e5m2",
    "f8": "fp8",
    "e3m2": "fp6_e3m2",
    "e2m3": "fp6_e2m3",
    "f6": "fp6",
    "e2m1": "fp4_e2m1",
    "f4": "fp4",
    "s4": "int4",
    "u4": "uint4",
    "s8": "int8",
    "u8": "uint8",
    "s16": "int16",
    "s32": "int32",
    "b1": "bool",
}

# cuBLAS and xmma write integers with i and the cuBLAS words fp16, int8.
CUBLAS_WORDS: Final = {
    "fp64": "fp64",
    "fp32": "fp32",
    "tf32": "tf32",
    "fp16": "fp16",
    "bf16": "bf16",
    "int8": "int8",
    "int32": "int32",
}

# BLAS letters of the accumulator; g marks the three-multiply complex algorithms.
ACCUMULATORS: Final = {
    "s": "fp32",
    "h": "fp16",
    "d": "fp64",
    "i": "int32",
    "c": "c64",
    "z": "c128",
    "gc": "c64",
    "gz": "c128",
}

_CUTLASS_CXX_TYPES: Final = {
    "half_t": "fp16",
    "bfloat16_t": "bf16",
    "tfloat32_t": "tf32",
    "float_e4m3_t": "fp8_e4m3",
    "float_e5m2_t": "fp8_e5m2",
    "float_e3m2_t": "fp6_e3m2",
    "float_e2m3_t": "fp6_e2m3",
    "float_e2m1_t": "fp4_e2m1",
    "mx_float8_t<cutlass::float_e4m3_t>": "mxfp8_e4m3",
    "mx_float8_t<cutlass::float_e5m2_t>": "mxfp8_e5m2",
    "mx_float4_t<cutlass::float_e2m1_t>": "mxfp4_e2m1",
    "nv_float4_t<cutlass::float_e2m1_t>": "nvfp4_e2m1",
}
"""Types of include/cutlass/numeric_types.h and float_subbyte.h; those of blocks that
share a scale have the type of an element as their argument."""

CXX: Final = {
    **CXX_TYPES,
    "at::Half": "fp16",
    "__half": "fp16",
    "half": "fp16",
    "_Float16": "fp16",
    "at::BFloat16": "bf16",
    "__nv_bfloat16": "bf16",
    "__hip_bfloat16": "bf16",
    "hip_bfloat16": "bf16",
    "std::bfloat16_t": "bf16",
    "__nv_fp8_e4m3": "fp8_e4m3",
    "__nv_fp8_e5m2": "fp8_e5m2",
    "__nv_fp8_e8m0": "e8m0",
    "__nv_fp4_e2m1": "fp4_e2m1",
    "c10::Float8_e8m0fnu": "e8m0",
    "c10::Float4_e2m1fn_x2": "fp4_e2m1",
    **{f"c10::{name}": dtype for name, dtype in C10_CLASSES.items()},
    "c10::complex<float>": "c64",
    "c10::complex<double>": "c128",
    **{f"cutlass::{name}": dtype for name, dtype in _CUTLASS_CXX_TYPES.items()},
    "long long": "int64",
    "unsigned short": "uint16",
    "unsigned int": "uint32",
    "unsigned long": "uint64",
    "unsigned long long": "uint64",
}
"""C++ spellings of element types in demangled names."""

CXX_TYPE: Final = "|".join(
    re.escape(name) for name in sorted(CXX, key=len, reverse=True)
)
"""A pattern for any of them, the longest first."""

# Digits of a tensor-core instruction written without separators. M, N, K run together.
MMA_SHAPES: Final = {
    "884": "8x8x4",
    "8816": "8x8x16",
    "8832": "8x8x32",
    "1684": "16x8x4",
    "1688": "16x8x8",
    "16816": "16x8x16",
    "16832": "16x8x32",
    "16864": "16x8x64",
    "161616": "16x16x16",
    "32816": "32x8x16",
    "83216": "8x32x16",
}

_LAYOUT_LETTERS: Final = {
    "n": "as stored",
    "t": "transposed",
    "c": "conjugated and transposed",
    "h": "conjugated and transposed",
}
_NVIDIA_GENERATIONS: Final = {
    "30": "Kepler",
    "35": "Kepler",
    "37": "Kepler",
    "50": "Maxwell",
    "52": "Maxwell",
    "53": "Maxwell",
    "60": "Pascal",
    "61": "Pascal",
    "62": "Pascal",
    "70": "Volta",
    "72": "Volta",
    "75": "Turing",
    "80": "Ampere",
    "86": "Ampere",
    "87": "Ampere",
    "89": "Ada",
    "90": "Hopper",
    "100": "Blackwell",
    "101": "Blackwell",
    "103": "Blackwell",
    "110": "Blackwell",
    "120": "Blackwell",
    "121": "Blackwell",
}
"""Generations by the digits of their compute capabilities."""

_AMD_GENERATIONS: Final = {
    "908": "CDNA1",
    "90a": "CDNA2",
    "940": "CDNA3",
    "941": "CDNA3",
    "942": "CDNA3",
    "950": "CDNA4",
    "1030": "RDNA2",
    "1031": "RDNA2",
    "1032": "RDNA2",
    "1100": "RDNA3",
    "1101": "RDNA3",
    "1102": "RDNA3",
    "1200": "RDNA4",
    "1201": "RDNA4",
}
"""Generations by what follows `gfx` in their targets."""

# The words of cuBLAS and cuDNN. Those of libcublasLt 12.8 hold code for one capability
# only when the word is ampere or turing; volta covers sm_70 and sm_75, maxwell sm_50 to
# sm_61.
GENERATION: Final = "kepler|maxwell|pascal|volta|turing|ampere|hopper"
_ONE_TARGET: Final = {"turing": "sm75", "ampere": "sm80"}


def from_capability(capability: str | None) -> dict[str, str]:
    """Return the fields `arch` and `arch_name` of a compute capability.

    "100a" and "100f" lose their letter. Returns no fields for an unknown capability.

    >>> from_capability("90")
    {'arch': 'sm90', 'arch_name': 'Hopper'}
    """
    # A letter stands for features of one chip (a) or one family (f) of chips.
    digits = (capability or "").rstrip("af")
    if digits not in _NVIDIA_GENERATIONS:
        return {}
    return {"arch": f"sm{digits}", "arch_name": _NVIDIA_GENERATIONS[digits]}


def get_generation_fields(word: str) -> dict[str, str]:
    """Return the fields that follow from the name of an NVIDIA generation, such as
    `ampere`.

    `arch_name` is always there: `Ampere`. `arch`, such as `sm90`, is there only if the
    generation has a single compute capability.
    """
    fields = {"arch_name": word.capitalize()}
    if word in _ONE_TARGET:
        fields["arch"] = _ONE_TARGET[word]
    return fields


def get_gfx_fields(code: str | None) -> dict[str, str]:
    """Return the fields `arch` and `arch_name` of an AMD target such as `90a`.

    `000` means any device. It and unknown targets have no fields.
    """
    if code not in _AMD_GENERATIONS:
        return {}
    return {"arch": f"gfx{code}", "arch_name": _AMD_GENERATIONS[code]}


def cxx_type(text: str | None) -> str | None:
    """Return our name of a C++ type; None for one that is no type of an element.

    >>> cxx_type("c10::BFloat16"), cxx_type("std::vector<int>")
    ('bf16', None)
    """
    without_const = (text or "").removesuffix(" const").removeprefix("const ")
    return CXX.get(without_const)


def explain_layout(letters: str) -> str:
    """Explain the two letters that say how a matrix product reads its operands A and B.

    Each letter stands for the layout of one operand: `n` and `t` for as stored and
    transposed, for example. For `tn` a hint about the weight of nn.Linear is added.
    """
    if letters == "tn":
        return "tn: A is read transposed, B as stored: the weight of nn.Linear needs no copy"
    layout_of_a = _LAYOUT_LETTERS[letters[0]]
    layout_of_b = _LAYOUT_LETTERS[letters[1]]
    return f"{letters}: A is read {layout_of_a}, B {layout_of_b}"


def accumulator_meaning(letters: str) -> str:
    """Explain the BLAS letter before an instruction or before `gemm`.

    >>> accumulator_meaning("s")
    's: the sums are kept in fp32'
    """
    meaning = f"{letters}: the sums are kept in {ACCUMULATORS[letters]}"
    if letters.startswith("g"):
        meaning += ", with three real products for a complex one"

    return meaning


def explain_mma(digits: str) -> str:
    """Explain the digits of a tensor-core instruction: 16816 is 16x8x16."""
    shape = MMA_SHAPES.get(digits)
    return f"one tensor-core instruction multiplies {shape or digits} (M x N x K)"
