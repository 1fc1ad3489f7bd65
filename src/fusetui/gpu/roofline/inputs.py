"""The work of an op as a record, and its recorded inputs: shapes, element types,
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
    """The arithmetic and the memory traffic of one op, judged by its recorded inputs.

    Whatever depends on an unknown input is None. The output of a matmul has the shape
    [batch, m, n], and each of its elements is a sum of k products.
    """

    kind: str  # matmul, conv, attention, elementwise, softmax or norm
    shapes: tuple[Shape, ...]
    dtype: str | None = None  # of the elements that are multiplied or moved
    m: int | None = None
    n: int | None = None
    k: int | None = None
    batch: int | None = None
    flop: int | None = None  # floating-point operations
    bytes: int | None = None  # least traffic: each input read once, each output written


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
    """The shape, dtype and strides of a tensor, as far as the trace records them."""

    shape: Shape
    dtype: str | None  # None for a type that is not in our table
    strides: Shape | None = None  # None if they were not recorded

    @property
    def elements(self) -> int:
        """How many distinct elements the tensor has.

        A dimension of stride 0 repeats the same elements, so it counts once. Without
        strides every element counts; see `Inputs.strided`.
        """
        if self.strides is None or len(self.strides) != len(self.shape):
            return math.prod(self.shape)

        elements = 1
        for size, stride in zip(self.shape, self.strides, strict=True):
            if size == 0:
                return 0
            if stride != 0:
                elements *= size
        return elements

    @property
    def bytes(self) -> int | None:
        """How many bytes its distinct elements take; None for an unknown dtype."""
        if self.dtype is None:
            return None
        return self.elements * ELEMENT_BYTES[self.dtype]


class Inputs(msgspec.Struct, frozen=True):
    """The recorded inputs of one call of an op, by position.

    A position beyond the end of a list was not recorded; asking for it is no error.
    """

    op: str
    dims: tuple[Shape | None, ...]
    types: tuple[str, ...]
    strides: tuple[Shape | None, ...]
    values: tuple[str, ...]

    def tensor(self, position: int) -> Tensor | None:
        """Return the tensor at a position; None if there is anything else."""
        shape = self.dims[position] if position < len(self.dims) else None
        strides = self.strides[position] if position < len(self.strides) else None
        type_name = self.types[position] if position < len(self.types) else ""
        if shape is None:
            return None

        dtype = dtype_of_profiler_type(type_name)
        if shape == () and dtype is None:
            return None  # a plain number, such as the 2 of x + 2
        return Tensor(shape, dtype, strides)

    def strided(self, *positions: int) -> bool:
        """Return whether the strides of all tensors at these positions were recorded.

        Without strides, a tensor may be an expanded view, which repeats the same
        elements. Positions without a tensor do not matter.
        """
        for position in positions:
            tensor = self.tensor(position)
            if tensor is not None and tensor.strides is None:
                return False
        return True

    def value(self, position: int) -> str | None:
        """Return the plain value at a position, as text.

        Returns:
            The text as recorded, "" for Python's None; None if it was not recorded.
        """
        return self.values[position] if position < len(self.values) else None

    def numbers(self, position: int, length: int) -> Shape | None:
        """Return the list of integers at a position, such as the `[1, 1]` of a padding.

        Args:
            position: The position.
            length: How many integers there must be. A single one is repeated.

        Returns:
            The integers; None if there is anything else, or a number beyond 64 bits.
        """
        text = self.value(position) or ""
        if not (text.startswith("[") and text.endswith("]")):
            return None

        parts = text.removeprefix("[").removesuffix("]").split(",")
        try:
            numbers = tuple(int(part) for part in parts)
        except ValueError:
            return None
        if any(abs(number) > _MAX_INTEGER for number in numbers):
            return None

        if len(numbers) == 1:  # PyTorch takes [1] for the [1, 1] of two dimensions
            return numbers * length
        return numbers if len(numbers) == length else None

    def flag(self, position: int) -> bool | None:
        """Return the True or False at a position; None if there is anything else."""
        return _FLAGS.get(self.value(position) or "")

    def flags(self, position: int) -> tuple[bool, ...] | None:
        """Return the list of booleans at a position, such as an output mask.

        Returns None if there is anything else.
        """
        text = self.value(position) or ""
        flags = []
        for word in text.strip("[]").split(", "):
            if word not in _FLAGS:
                return None
            flags.append(_FLAGS[word])
        return tuple(flags)

    def numbered_type(self, position: int) -> str | None:
        """Return the dtype that was passed as an argument, recorded by its number.

        Returns None if the number is not in our table.
        """
        return _NUMBERED_TYPES.get(self.value(position) or "")


def dtype_of_profiler_type(text: str) -> str | None:
    """Return our name of an element type: `bf16` for `c10::BFloat16`.

    Returns None for the types of plain values (`Scalar`, `Int`, `Double`).
    """
    return _PROFILER_TYPES.get(text.lower() if text.startswith("c10::") else text)


def inputs_of(op: str, args: dict[str, Any]) -> Inputs | None:
    """Read the inputs of an op from the args of its slice.

    Returns None if no shapes were recorded.

    >>> args = {"Input Dims": [[8, 16], [16, 32]], "Input type": ["float"] * 2}
    >>> inputs = inputs_of("aten::mm", args)
    >>> inputs.dims, inputs.types
    (((8, 16), (16, 32)), ('float', 'float'))
    """
    dims = _list_or_empty(args.get("Input Dims"))
    strides = _list_or_empty(args.get("Input Strides"))
    types = _list_or_empty(args.get("Input type"))
    values = _list_or_empty(args.get("Concrete Inputs"))
    if not dims:
        return None
    return Inputs(
        op=op,
        dims=tuple(_parse_shape(entry) for entry in dims),
        types=tuple(_text_or_empty(entry) for entry in types),
        strides=tuple(_parse_shape(entry) for entry in strides),
        values=tuple(_text_or_empty(entry) for entry in values),
    )


def total_bytes(*tensors: Tensor | None) -> int | None:
    """Add up the bytes of some tensors; None if the size of one is unknown.

    >>> total_bytes(Tensor((8, 64), "fp32"), Tensor((64,), "fp32"))
    2304
    """
    total = 0
    for tensor in tensors:
        if tensor is None or tensor.bytes is None:
            return None
        total += tensor.bytes
    return total


def _parse_shape(entry: object) -> Shape | None:
    """Return a recorded list of sizes; None for anything else, and for absurd sizes.

    >>> _parse_shape([8, 64]), _parse_shape("float"), _parse_shape([-1])
    ((8, 64), None, None)
    """
    if not isinstance(entry, list):
        return None

    elements = 1
    for size in entry:
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            return None
        elements *= max(size, 1)
    return tuple(entry) if elements <= _MAX_INTEGER else None


def _text_or_empty(value: object) -> str:
    """Return the value if it is a text, else ""."""
    return value if isinstance(value, str) else ""


def _list_or_empty(value: object) -> list[Any]:
    """Return the value if it is a list, else an empty list."""
    return value if isinstance(value, list) else []
