"""Element types as each naming scheme writes them, in our vocabulary (docs/kernel-names.md)."""

from __future__ import annotations

from typing import Final

# NVIDIA/cutlass python/cutlass_library/library.py, DataTypeNames. `f8` and `f4` fix only the width.
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

# C++ spellings in demangled names.
CXX: Final = {
    "double": "fp64",
    "float": "fp32",
    "c10::Half": "fp16",
    "at::Half": "fp16",
    "__half": "fp16",
    "half": "fp16",
    "_Float16": "fp16",
    "cutlass::half_t": "fp16",
    "c10::BFloat16": "bf16",
    "at::BFloat16": "bf16",
    "__nv_bfloat16": "bf16",
    "__hip_bfloat16": "bf16",
    "hip_bfloat16": "bf16",
    "std::bfloat16_t": "bf16",
    "cutlass::bfloat16_t": "bf16",
    "cutlass::tfloat32_t": "tf32",
    "cutlass::float_e4m3_t": "fp8_e4m3",
    "cutlass::float_e5m2_t": "fp8_e5m2",
    "__nv_fp8_e4m3": "fp8_e4m3",
    "__nv_fp8_e5m2": "fp8_e5m2",
    "c10::Float8_e4m3fn": "fp8_e4m3",
    "c10::Float8_e5m2": "fp8_e5m2",
    "c10::Float8_e4m3fnuz": "fp8_e4m3fnuz",
    "c10::Float8_e5m2fnuz": "fp8_e5m2fnuz",
    "c10::complex<float>": "c64",
    "c10::complex<double>": "c128",
    "bool": "bool",
    "signed char": "int8",
    "unsigned char": "uint8",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "long long": "int64",
    "unsigned short": "uint16",
    "unsigned int": "uint32",
    "unsigned long": "uint64",
    "unsigned long long": "uint64",
}

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

LAYOUT_MEANINGS: Final = {
    "n": "as stored",
    "t": "transposed",
    "c": "conjugated and transposed",
    "h": "conjugated and transposed",
}


def cxx_type(text: str) -> str | None:
    """Our name of a C++ type, or None for one that is not an element type.

    >>> cxx_type("c10::BFloat16"), cxx_type("std::vector<int>")
    ('bf16', None)
    """
    return CXX.get(text.removesuffix(" const").removeprefix("const "))


def layout_meaning(letters: str) -> str:
    """What the letters of A and B mean, with a hint about nn.Linear where it helps."""
    if letters == "tn":
        return "tn: A is read transposed, B as stored: the weight of nn.Linear needs no copy"
    first, second = (LAYOUT_MEANINGS[letter] for letter in letters[:2])
    return f"{letters}: A is read {first}, B {second}"


def accumulator_meaning(letters: str) -> str:
    """What the BLAS letter before an instruction or `gemm` means.

    >>> accumulator_meaning("s")
    's: the sums are kept in fp32'
    """
    trick = ", with three real products for a complex one" if letters[0] == "g" else ""
    return f"{letters}: the sums are kept in {ACCUMULATORS[letters]}{trick}"


def mma_meaning(digits: str) -> str:
    """What the digits of a tensor-core instruction mean: 16816 is 16x8x16."""
    shape = MMA_SHAPES.get(digits)
    return f"one tensor-core instruction multiplies {shape or digits} (M x N x K)"
