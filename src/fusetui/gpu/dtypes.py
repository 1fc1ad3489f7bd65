"""Element types of tensors: their size, and the names that torch and NCCL print for
them."""

from __future__ import annotations

from typing import Final

ELEMENT_BYTES: Final = {
    "c128": 16,
    "c64": 8,
    "c32": 4,
    "fp64": 8,
    "fp32": 4,
    "tf32": 4,
    "fp16": 2,
    "bf16": 2,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "fp8_e4m3fnuz": 1,
    "fp8_e5m2fnuz": 1,
    "e8m0": 1,
    "int64": 8,
    "uint64": 8,
    "int32": 4,
    "uint32": 4,
    "int16": 2,
    "uint16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
"""Bytes of one element, by our name of its type."""

C10_CLASSES: Final = {
    "Half": "fp16",
    "BFloat16": "bf16",
    "Float8_e4m3fn": "fp8_e4m3",
    "Float8_e5m2": "fp8_e5m2",
    "Float8_e4m3fnuz": "fp8_e4m3fnuz",
    "Float8_e5m2fnuz": "fp8_e5m2fnuz",
}
"""Our names of the classes of element types in the namespace c10."""

CXX_TYPES: Final = {
    "double": "fp64",
    "float": "fp32",
    "bool": "bool",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "signed char": "int8",
    "unsigned char": "uint8",
}
"""Our names of the types of C++ itself, as compilers spell them."""

SCALAR_TYPES: Final = {
    **CXX_TYPES,
    **{name.lower(): dtype for name, dtype in C10_CLASSES.items()},
    "complexdouble": "c128",
    "complexfloat": "c64",
    "complexhalf": "c32",
    "float8_e8m0fnu": "e8m0",
    "long int": "int64",
    "int64": "int64",
    "uint64": "uint64",
    "uint32": "uint32",
    "short int": "int16",
    "uint16": "uint16",
    "char": "int8",
    "byte": "uint8",
}
"""Our names of the types of c10/core/ScalarType.h, by its names or C++ spellings in
lower case."""

SCALAR_TYPE_OF_NCCL: Final = {
    "ncclFloat16": "Half",
    "ncclFloat32": "Float",
    "ncclFloat64": "Double",
    "ncclBfloat16": "BFloat16",
    "ncclFloat8e4m3": "Float8_e4m3fn",
    "ncclFloat8e5m2": "Float8_e5m2",
    "ncclInt8": "Char",
    "ncclUint8": "Byte",
    "ncclInt32": "Int",
    "ncclUint32": "UInt32",
    "ncclInt64": "Long",
    "ncclUint64": "UInt64",
}
"""torch's names of the types of nccl.h."""


def scalar_bytes(name: str) -> int:
    """Return how many bytes an element of a type has, by the name that torch prints.

    E.g. 4 for `Float` and 2 for `c10::Half`. Case does not matter. Returns 0 for an
    unknown name.
    """
    dtype = SCALAR_TYPES.get(name.lower().removeprefix("c10::"))
    return 0 if dtype is None else ELEMENT_BYTES[dtype]
