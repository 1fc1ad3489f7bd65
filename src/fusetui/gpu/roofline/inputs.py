"""What an op computes, as a record, and its recorded inputs: shapes, element types,
strides and plain values.

`Input Dims`, `Input type`, `Input Strides` and `Concrete Inputs` are lists of equal
length. Both a zero-dimensional tensor and a plain number have the dims []; their types
distinguish them.
"""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from fusetui.gpu.dtypes import ELEMENT_BYTES
from fusetui.gpu.kernel_names.vocabulary import CXX

NS = 1_000_000_000

Shape = tuple[int, ...]


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """What one op computes, judging only by its recorded inputs. `flop` counts
    floating-point operations, `bytes` the minimum traffic: every input read once and
    every output written once. `dtype` is the element type of what is multiplied or
    moved. Whatever depends on an unknown input is None. The output of a matmul is
    [batch, m, n], each element a sum of k products."""

    kind: str  # matmul, conv, attention, elementwise, softmax or norm
    shapes: tuple[Shape, ...]
    dtype: str | None = None
    m: int | None = None
    n: int | None = None
    k: int | None = None
    batch: int | None = None
    flop: int | None = None
    bytes: int | None = None


_TYPES: Final = {
    **{
        word.lower() if word.startswith("c10::") else word: dtype
        for word, dtype in CXX.items()
    },
    **{"long int": "int64", "short int": "int16", "c10::float8_e8m0fnu": "e8m0"},
}
"""c10::ScalarType as the profiler prints it, in our vocabulary."""
_FLAGS: Final = {"True": True, "False": False, "1": True, "0": False}
_MOST: Final = 2**63 - 1  # elements of a tensor, and any integer among the inputs

# c10/core/ScalarType.h: the number that a dtype argument is recorded as.
_NUMBERED: Final = {
    "5": "fp16",
    "6": "fp32",
    "7": "fp64",
    "15": "bf16",
    "23": "fp8_e5m2",
    "24": "fp8_e4m3",
    "25": "fp8_e5m2fnuz",
    "26": "fp8_e4m3fnuz",
}


class Tensor(msgspec.Struct, frozen=True):
    """One tensor: `dtype` is None for a type not in our table, `strides` if not
    recorded."""

    shape: Shape
    dtype: str | None
    strides: Shape | None = None

    @property
    def elements(self) -> int:
        """The number of distinct elements: a dimension of stride 0 repeats the same
        ones. Without strides every element counts; see `Inputs.strided`."""
        strides = self.strides or ()
        if len(strides) != len(self.shape):
            return math.prod(self.shape)
        return math.prod(
            n for n, step in zip(self.shape, strides, strict=True) if step or not n
        )

    @property
    def bytes(self) -> int | None:
        return None if self.dtype is None else self.elements * ELEMENT_BYTES[self.dtype]


class Inputs(msgspec.Struct, frozen=True):
    """The inputs of one op by position. A missing position is not an error."""

    op: str
    dims: tuple[Shape | None, ...]
    types: tuple[str, ...]
    strides: tuple[Shape | None, ...]
    values: tuple[str, ...]

    def tensor(self, place: int) -> Tensor | None:
        """The tensor at a position, None for anything else."""
        shape = self.dims[place] if place < len(self.dims) else None
        kind = self.types[place] if place < len(self.types) else ""
        if shape is None or (not shape and type_of(kind) is None):
            return None
        strides = self.strides[place] if place < len(self.strides) else None
        return Tensor(shape, type_of(kind), strides)

    def strided(self, *places: int) -> bool:
        """Whether the strides of these tensors were recorded; if not, one may be
        expanded."""
        return all(
            place < len(self.strides) and self.strides[place] is not None
            for place in places
            if self.tensor(place) is not None
        )

    def value(self, place: int) -> str | None:
        """A plain value as recorded; None if values were not recorded, "" for None."""
        return self.values[place] if place < len(self.values) else None

    def numbers(self, place: int, length: int) -> Shape | None:
        """A list of integers such as `[1, 1]`; a single number stands for all of
        them."""
        text = self.value(place) or ""
        if not (text.startswith("[") and text.endswith("]")):
            return None
        try:
            found = tuple(int(part) for part in text[1:-1].split(","))
        except ValueError:
            return None
        found = found * length if len(found) == 1 else found
        fits = len(found) == length and all(abs(number) <= _MOST for number in found)
        return found if fits else None

    def flag(self, place: int) -> bool | None:
        """A recorded True or False."""
        return _FLAGS.get(self.value(place) or "")

    def flags(self, place: int) -> tuple[bool, ...] | None:
        """A recorded list of booleans, such as an output mask."""
        words = (self.value(place) or "").strip("[]").split(", ")
        return (
            tuple(_FLAGS[w] for w in words) if all(w in _FLAGS for w in words) else None
        )

    def numbered_type(self, place: int) -> str | None:
        """The element type that a dtype argument names."""
        return _NUMBERED.get(self.value(place) or "")


def type_of(text: str) -> str | None:
    """Our name of an element type; None for scalars (`Scalar`, `Int`, `Double`)."""
    return _TYPES.get(text.lower() if text.startswith("c10::") else text)


def inputs_of(op: str, args: dict[str, Any]) -> Inputs | None:
    """The inputs recorded in the args of an op; None without shapes."""
    dims = args.get("Input Dims")
    if not isinstance(dims, list) or not dims:
        return None
    types, values = _words(args.get("Input type")), _words(args.get("Concrete Inputs"))
    strides = tuple(map(_shape, _list(args.get("Input Strides"))))
    return Inputs(op, tuple(map(_shape, dims)), types, strides, values)


def total_bytes(*tensors: Tensor | None) -> int | None:
    """The bytes of all tensors together; None if one of them is unknown."""
    sizes = [None if tensor is None else tensor.bytes for tensor in tensors]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def _shape(entry: object) -> Shape | None:
    if not isinstance(entry, list):
        return None
    whole = [
        n for n in entry if isinstance(n, int) and not isinstance(n, bool) and n >= 0
    ]
    if len(whole) < len(entry) or math.prod(max(n, 1) for n in whole) > _MOST:
        return None
    return tuple(whole)


def _words(entries: object) -> tuple[str, ...]:
    return tuple(e if isinstance(e, str) else "" for e in _list(entries))


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
