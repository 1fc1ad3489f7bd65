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
"""Nanoseconds in a second."""

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


_PROFILER_TYPES: Final = {
    **{
        spelling.lower() if spelling.startswith("c10::") else spelling: dtype
        for spelling, dtype in CXX.items()
    },
    "long int": "int64",
    "short int": "int16",
    "c10::float8_e8m0fnu": "e8m0",
}
"""Our names of the types of c10::ScalarType as the profiler prints them; names of c10
in lower case."""

_FLAGS: Final = {"True": True, "False": False, "1": True, "0": False}
_MAX_INTEGER: Final = 2**63 - 1
"""Elements of a tensor, and any integer among the inputs."""

# c10/core/ScalarType.h: the number that a dtype argument is recorded as.
_NUMBERED_TYPES: Final = {
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
        if self.strides is None or len(self.strides) != len(self.shape):
            return math.prod(self.shape)
        elements = 1
        for size, stride in zip(self.shape, self.strides, strict=True):
            if stride or size == 0:
                elements *= size
        return elements

    @property
    def bytes(self) -> int | None:
        """Of its distinct elements; None for an unknown type."""
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
        if shape is None:
            return None
        dtype = type_of(self.types[place]) if place < len(self.types) else None
        if shape == () and dtype is None:  # a plain number
            return None
        strides = self.strides[place] if place < len(self.strides) else None
        return Tensor(shape, dtype, strides)

    def strided(self, *places: int) -> bool:
        """Whether the strides of all tensors at these positions were recorded; if not,
        one may be expanded. Positions without a tensor do not count."""
        for place in places:
            is_recorded = place < len(self.strides) and self.strides[place] is not None
            if not is_recorded and self.tensor(place) is not None:
                return False
        return True

    def value(self, place: int) -> str | None:
        """A plain value as recorded; None if values were not recorded, "" for None."""
        return self.values[place] if place < len(self.values) else None

    def numbers(self, place: int, length: int) -> Shape | None:
        """A list of `length` integers such as `[1, 1]`; a single number stands for all
        of them. None for anything else."""
        text = self.value(place) or ""
        if not (text.startswith("[") and text.endswith("]")):
            return None
        try:
            numbers = tuple(int(part) for part in text[1:-1].split(","))
        except ValueError:
            return None
        if len(numbers) == 1:
            numbers *= length
        if len(numbers) != length:
            return None
        if any(abs(number) > _MAX_INTEGER for number in numbers):
            return None
        return numbers

    def flag(self, place: int) -> bool | None:
        """A recorded True or False; None for anything else."""
        return _FLAGS.get(self.value(place) or "")

    def flags(self, place: int) -> tuple[bool, ...] | None:
        """A recorded list of booleans, such as an output mask; None for anything
        else."""
        words = (self.value(place) or "").strip("[]").split(", ")
        if not all(word in _FLAGS for word in words):
            return None
        return tuple(_FLAGS[word] for word in words)

    def numbered_type(self, place: int) -> str | None:
        """The element type that a dtype argument has by its number; None if it is not
        in our table."""
        return _NUMBERED_TYPES.get(self.value(place) or "")


def type_of(text: str) -> str | None:
    """Our name of an element type; None for scalars (`Scalar`, `Int`, `Double`)."""
    return _PROFILER_TYPES.get(text.lower() if text.startswith("c10::") else text)


def inputs_of(op: str, args: dict[str, Any]) -> Inputs | None:
    """The inputs recorded in the args of an op; None without shapes."""
    dims = args.get("Input Dims")
    if not isinstance(dims, list) or not dims:
        return None
    return Inputs(
        op=op,
        dims=tuple(_shape(entry) for entry in dims),
        types=_words(args.get("Input type")),
        strides=tuple(_shape(entry) for entry in _list(args.get("Input Strides"))),
        values=_words(args.get("Concrete Inputs")),
    )


def total_bytes(*tensors: Tensor | None) -> int | None:
    """The bytes of all tensors together; None if one of them is unknown."""
    total = 0
    for tensor in tensors:
        size = None if tensor is None else tensor.bytes
        if size is None:
            return None
        total += size
    return total


def _shape(entry: object) -> Shape | None:
    """A recorded list of sizes; None for anything else."""
    if not isinstance(entry, list):
        return None
    elements = 1
    for size in entry:
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            return None
        elements *= max(size, 1)
    return tuple(entry) if elements <= _MAX_INTEGER else None


def _words(entries: object) -> tuple[str, ...]:
    """A recorded list of texts, with "" in place of an entry that is no text; () for
    anything but a list."""
    return tuple(entry if isinstance(entry, str) else "" for entry in _list(entries))


def _list(value: object) -> list[Any]:
    """The value if it is a list, else []."""
    return value if isinstance(value, list) else []
