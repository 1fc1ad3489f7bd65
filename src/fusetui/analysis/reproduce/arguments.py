"""Converts the recorded inputs of an op to its arguments.

`Input Dims`, `Input type`, `Input Strides` and `Concrete Inputs` are lists with one
entry for each argument of the op's schema (torch/csrc/profiler/collection.cpp). A list
of tensors has the type `TensorList` and a list of shapes; its element types are not
recorded, and of more than 30 tensors nothing is. `GenericList` is a list of tensors that
may be left out, or in older traces one of numbers, without its length. Whatever is
neither a tensor nor a number has the type "" and no value: None, a text, a device, a
generator.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from fusetui.analysis.reproduce.model import (
    Argument,
    NothingArgument,
    NumberArgument,
    NumbersArgument,
    RecordedInputs,
    Refusal,
    Remark,
    RemarkKind,
    ScalarTensorArgument,
    Shape,
    TensorArgument,
    TensorsArgument,
    UnrecordedListArgument,
)
from fusetui.gpu.dtypes import ELEMENT_BYTES
from fusetui.gpu.roofline.inputs import type_of
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.model.events import parsed

TORCH_DTYPES: Final = {
    "fp64": "float64",
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
    "fp8_e4m3fnuz": "float8_e4m3fnuz",
    "fp8_e5m2fnuz": "float8_e5m2fnuz",
    "e8m0": "float8_e8m0fnu",
    "c64": "complex64",
    "c128": "complex128",
    "int64": "int64",
    "int32": "int32",
    "int16": "int16",
    "int8": "int8",
    "uint8": "uint8",
    "uint16": "uint16",
    "uint32": "uint32",
    "uint64": "uint64",
    "bool": "bool",
}
"""torch's names of element types, by ours."""

QUANTIZED_BYTES: Final = {"quint8": 1, "qint8": 1, "qint32": 4}
"""Bytes of an element of a quantized tensor, by torch's name of its type."""

QUANTIZED_TYPE: Final = "c10::"
"""What the profiler prints before the name of a quantized type."""

DTYPE_BYTES: Final = {
    name: ELEMENT_BYTES[dtype] for dtype, name in TORCH_DTYPES.items()
} | QUANTIZED_BYTES
"""Bytes of an element, by torch's name of its type."""

ASSUMED_DTYPE: Final = "float32"

MAX_ARGUMENTS: Final = 256
MAX_DIMENSIONS: Final = 64  # torch itself allows no more
MAX_TENSORS_OF_LIST: Final = 4096
MAX_NUMBER_CHARS: Final = 40
MAX_ELEMENTS: Final = 2**48
"""Of a tensor: more would need a petabyte."""

NUMBER: Final = lazy_pattern(
    r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[-+]?[0-9]+)?|-?inf|-?nan|True|False",
    re.ASCII,
)
NUMBERS_IN_BRACKETS: Final = lazy_pattern(r"\[([^\[\]]*)\]")

WITH_PYTHON_NUMBERS: Final = frozenset(
    f"aten::{name}{in_place}"
    for name in ("add", "sub", "mul", "div", "floor_divide", "remainder", "rsub")
    for in_place in ("", "_")
)
"""Ops to which torch passes a Python number as a tensor without dimensions."""

PYTHON_NUMBER_DTYPES: Final = ("float64", "int64", "complex128")
"""The element types of such tensors."""


class RefusedError(Exception):
    """The call cannot be made again. `position` is that of the argument that is
    refused, -1 for none, and `type_name` its recorded type, if that is why."""

    def __init__(
        self, refusal: Refusal, position: int = -1, type_name: str = ""
    ) -> None:
        super().__init__(refusal.value)
        self.refusal = refusal
        self.position = position
        self.type_name = type_name


class ParsedInputs(NamedTuple):
    """The arguments of a call, and what a reader has to know about them."""

    arguments: tuple[Argument, ...]
    remarks: tuple[Remark, ...]
    recorded: RecordedInputs


class _Entry(NamedTuple):
    """What was recorded of one argument; `strides` and `value` are None where the trace
    has none of them."""

    dims: Any
    type: str
    strides: Any
    value: str | None


def parsed_inputs(op: str, texts: Sequence[bytes]) -> ParsedInputs:
    """The arguments of a call of an op. `texts`: the JSON of INPUTS (see
    gpu.roofline.many), b"" for what was not recorded. Raises RefusedError."""
    dims, types, strides, values = (parsed(text) for text in texts)
    entries = _entries(dims, types, strides, values)
    arguments: list[Argument] = []
    remarks: list[Remark] = []
    for position, entry in enumerate(entries):
        try:
            argument = _argument(entry)
        except RefusedError as error:
            type_name = entry.type if error.refusal is Refusal.DTYPE else ""
            raise RefusedError(error.refusal, position, type_name) from None
        arguments.append(argument)
        for kind in _remarks_of(argument, entry):
            remarks.append(Remark(kind, position))
    _mark_python_numbers(op, arguments, remarks)
    if not isinstance(values, list):
        remarks.append(Remark(RemarkKind.VALUES_UNKNOWN))
    if not isinstance(strides, list):
        remarks.append(Remark(RemarkKind.STRIDES))
    return ParsedInputs(
        arguments=tuple(arguments),
        remarks=tuple(remarks),
        recorded=_recorded(entries, has_strides=isinstance(strides, list)),
    )


def bytes_of(tensor: TensorArgument) -> int:
    """The bytes of the storage that a tensor needs."""
    return storage_elements(tensor) * DTYPE_BYTES[tensor.dtype]


def storage_elements(tensor: TensorArgument) -> int:
    """How many elements the storage of a tensor needs for its shape and strides."""
    if 0 in tensor.shape:
        needed = 0
    elif tensor.strides is None:
        needed = _product(tensor.shape)
    else:
        needed = 1
        for size, stride in zip(tensor.shape, tensor.strides, strict=True):
            needed += (size - 1) * stride
    return max(needed, tensor.storage or 0)


def tensors_of(arguments: Sequence[Argument]) -> list[TensorArgument]:
    """All tensors among arguments, those of lists too, in order."""
    tensors: list[TensorArgument] = []
    for argument in arguments:
        if isinstance(argument, TensorArgument):
            tensors.append(argument)
        elif isinstance(argument, TensorsArgument):
            tensors += [tensor for tensor in argument.tensors if tensor is not None]
    return tensors


def whole_number(argument: Argument | None) -> int | None:
    """The integer that an argument is; None for anything else."""
    if not isinstance(argument, NumberArgument):
        return None
    try:
        return int(argument.text)
    except ValueError:
        return None


def whole_numbers(argument: Argument | None) -> tuple[int, ...] | None:
    """The integers of a list; None for anything else."""
    if not isinstance(argument, NumbersArgument):
        return None
    try:
        return tuple(int(text) for text in argument.texts)
    except ValueError:
        return None


def _entries(dims: Any, types: Any, strides: Any, values: Any) -> list[_Entry]:
    """One entry for each argument. Raises RefusedError if shapes were not recorded, or
    if the lists differ in length."""
    if not isinstance(dims, list):
        raise RefusedError(Refusal.NO_INPUTS)
    count = len(dims)
    if count > MAX_ARGUMENTS:
        raise RefusedError(Refusal.DAMAGED)
    for entries in (types, strides, values):
        if isinstance(entries, list) and len(entries) != count:
            raise RefusedError(Refusal.DAMAGED)
    if not isinstance(types, list) or not all(isinstance(name, str) for name in types):
        raise RefusedError(Refusal.DAMAGED)
    strides_of_each = strides if isinstance(strides, list) else [None] * count
    values_of_each = values if isinstance(values, list) else [None] * count
    entries_of_call = []
    for entry in zip(dims, types, strides_of_each, values_of_each, strict=True):
        dims_of_entry, type_of_entry, strides_of_entry, value = entry
        text = value if isinstance(value, str) else None
        entries_of_call.append(
            _Entry(dims_of_entry, type_of_entry, strides_of_entry, text)
        )
    return entries_of_call


def _argument(entry: _Entry) -> Argument:
    """Raises RefusedError."""
    if entry.type == "TensorList" or (entry.type == "GenericList" and entry.dims):
        return _tensors(entry)
    if type_of(entry.type) is not None or _quantized_type(entry.type):
        return _tensor(entry)
    if _is_shape_with_sizes(entry.dims):
        # a tensor, and not one of the element types that have a name here
        raise RefusedError(Refusal.DTYPE)
    return _plain(entry.value or "")


def _plain(text: str) -> Argument:
    """A number, a list of them, or nothing."""
    if len(text) <= MAX_NUMBER_CHARS and NUMBER.fullmatch(text):
        return NumberArgument(text)
    in_brackets = NUMBERS_IN_BRACKETS.fullmatch(text)
    if in_brackets is None:
        return NothingArgument()
    inner = in_brackets[1].strip()
    numbers = tuple(number.strip() for number in inner.split(",")) if inner else ()
    for number in numbers:
        if len(number) > MAX_NUMBER_CHARS or not NUMBER.fullmatch(number):
            return NothingArgument()
    return NumbersArgument(numbers)


def _tensor(entry: _Entry) -> TensorArgument:
    """Raises RefusedError for sizes that no tensor has, and for one without strides in
    a trace that has them: a sparse tensor, for instance."""
    quantized = _quantized_type(entry.type)
    if quantized:
        return _tensor_of(quantized, entry.dims, entry.strides)
    dtype = TORCH_DTYPES.get(type_of(entry.type) or "")
    if dtype is None:
        raise RefusedError(Refusal.DTYPE)
    return _tensor_of(dtype, entry.dims, entry.strides)


def _quantized_type(recorded: str) -> str:
    """torch's name of a recorded quantized type; "" for any other."""
    name = recorded.removeprefix(QUANTIZED_TYPE)
    return name if name in QUANTIZED_BYTES else ""


def _tensor_of(dtype: str, dims: Any, strides: Any) -> TensorArgument:
    """Raises RefusedError."""
    shape = _sizes(dims)
    if shape is None:
        raise RefusedError(Refusal.DAMAGED)
    if _product([max(size, 1) for size in shape]) > MAX_ELEMENTS:
        raise RefusedError(Refusal.TOO_LARGE)
    if strides is None:
        return TensorArgument(shape=shape, dtype=dtype)
    strides_of_shape = _sizes(strides)
    if strides_of_shape is None or len(strides_of_shape) != len(shape):
        raise RefusedError(Refusal.LAYOUT)
    tensor = TensorArgument(shape=shape, dtype=dtype, strides=strides_of_shape)
    if storage_elements(tensor) > MAX_ELEMENTS:
        raise RefusedError(Refusal.TOO_LARGE)
    return tensor


def _tensors(entry: _Entry) -> TensorsArgument | UnrecordedListArgument:
    """A list of tensors, whose element types are assumed, if it was short enough to be
    recorded. Raises RefusedError."""
    if not isinstance(entry.dims, list) or not entry.dims:
        return UnrecordedListArgument()
    if len(entry.dims) > MAX_TENSORS_OF_LIST:
        raise RefusedError(Refusal.DAMAGED)
    strides = entry.strides
    if strides is not None and (
        not isinstance(strides, list) or len(strides) != len(entry.dims)
    ):
        raise RefusedError(Refusal.DAMAGED)
    tensors = []
    for number, dims in enumerate(entry.dims):
        strides_of_tensor = None if strides is None else strides[number]
        tensors.append(_tensor_of(ASSUMED_DTYPE, dims, strides_of_tensor))
    return TensorsArgument(tuple(tensors))


def _remarks_of(argument: Argument, entry: _Entry) -> list[RemarkKind]:
    """What has to be said about an argument, as far as it shows it."""
    if isinstance(argument, NothingArgument):
        return [RemarkKind.NOTHING] if entry.value is not None else []
    if isinstance(argument, TensorsArgument):
        return [RemarkKind.LIST_DTYPE]
    if isinstance(argument, TensorArgument) and argument.dtype in QUANTIZED_BYTES:
        return [RemarkKind.QUANTIZED]
    if isinstance(argument, TensorArgument) and _is_expanded(argument):
        return [RemarkKind.EXPANDED]
    return []


def _is_expanded(tensor: TensorArgument) -> bool:
    """Whether its strides repeat elements."""
    if tensor.strides is None:
        return False
    return any(
        size > 1 and stride == 0
        for size, stride in zip(tensor.shape, tensor.strides, strict=True)
    )


def _mark_python_numbers(
    op: str, arguments: list[Argument], remarks: list[Remark]
) -> None:
    """Replaces tensors without dimensions by numbers of Python, where torch makes such
    tensors of them; changes both lists in place."""
    if op not in WITH_PYTHON_NUMBERS or len(arguments) < 2:
        return
    first, second = arguments[:2]
    if not isinstance(first, TensorArgument) or not isinstance(second, TensorArgument):
        return
    if first.shape and not second.shape and second.dtype in PYTHON_NUMBER_DTYPES:
        arguments[1] = ScalarTensorArgument(second.dtype)
        remarks.append(Remark(RemarkKind.SCALAR_TENSOR, 1))


def _recorded(entries: Sequence[_Entry], has_strides: bool) -> RecordedInputs:
    """The lists as they were recorded, of which every part was checked before."""
    strides = None
    if has_strides:
        strides = tuple(_frozen(entry.strides) for entry in entries)
    return RecordedInputs(
        dims=tuple(_frozen(entry.dims) for entry in entries),
        types=tuple(entry.type for entry in entries),
        strides=strides,
    )


def frozen_dims(dims: object) -> tuple[object, ...]:
    """Recorded dims as tuples of integers, nested as they are in the file; () for
    anything else."""
    frozen = _frozen(dims)
    return frozen if isinstance(frozen, tuple) else ()


def _frozen(value: object, depth: int = 0) -> object:
    """Lists of lists of integers as tuples; 0 stands for what is no integer."""
    if isinstance(value, list) and depth < 3:
        return tuple(_frozen(inner, depth + 1) for inner in value)
    return value if type(value) is int else 0


def _is_shape_with_sizes(dims: object) -> bool:
    return isinstance(dims, list) and bool(dims)


def _sizes(value: object) -> Shape | None:
    """A recorded list of sizes or strides; None for anything else."""
    if not isinstance(value, list) or len(value) > MAX_DIMENSIONS:
        return None
    for size in value:
        if type(size) is not int or size < 0:
            return None
    return tuple(value)


def _product(sizes: Sequence[int]) -> int:
    product = 1
    for size in sizes:
        product *= size
    return product
