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

import math
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
from fusetui.gpu.roofline.inputs import dtype_of_profiler_type
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
MAX_LIST_DEPTH: Final = 3  # of recorded dims: those of the tensors of a list have 2
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


def parse_recorded_inputs(op: str, texts: Sequence[bytes]) -> ParsedInputs:
    """Convert the recorded inputs of a call of an op to its arguments.

    Args:
        op: The name of the op.
        texts: The JSON texts of the four recorded lists: dims, types, strides and
            values. An empty text stands for a list that was not recorded.

    Raises:
        RefusedError: The call cannot be made again from what was recorded. The
            error names the argument that is the reason; its position is -1 if no
            single one is, as when no inputs were recorded.
    """
    dims_text, types_text, strides_text, values_text = texts
    strides = parsed(strides_text)
    values = parsed(values_text)
    has_strides = isinstance(strides, list)
    has_values = isinstance(values, list)
    entries = _split_by_argument(parsed(dims_text), parsed(types_text), strides, values)

    arguments: list[Argument] = []
    remarks: list[Remark] = []
    for position, entry in enumerate(entries):
        try:
            argument = _convert_argument(entry)
        except RefusedError as error:
            type_name = entry.type if error.refusal is Refusal.DTYPE else ""
            raise RefusedError(error.refusal, position, type_name) from None

        arguments.append(argument)
        for kind in _kinds_of_remarks(argument, entry):
            remarks.append(Remark(kind, position))

    python_number = _find_python_number(op, arguments)
    if python_number is not None:
        arguments[1] = python_number
        remarks.append(Remark(RemarkKind.SCALAR_TENSOR, position=1))
    if not has_values:
        remarks.append(Remark(RemarkKind.VALUES_UNKNOWN))
    if not has_strides:
        remarks.append(Remark(RemarkKind.STRIDES))

    return ParsedInputs(
        arguments=tuple(arguments),
        remarks=tuple(remarks),
        recorded=_freeze_recorded_inputs(entries, has_strides=has_strides),
    )


def storage_bytes(tensor: TensorArgument) -> int:
    """Return how many bytes the storage of a tensor needs for its shape, strides and
    element type."""
    return count_storage_elements(tensor) * DTYPE_BYTES[tensor.dtype]


def count_storage_elements(tensor: TensorArgument) -> int:
    """Return how many elements the storage of a tensor needs for its shape and strides.

    E.g. a tensor of the shape (2, 3) with the strides (8, 1) needs 1 + 1 x 8 + 2 x 1 =
    11 elements. An empty tensor needs 0. A larger size that is already known for its
    storage is kept.
    """
    if 0 in tensor.shape:
        needed_elements = 0
    elif tensor.strides is None:
        needed_elements = math.prod(tensor.shape)
    else:
        needed_elements = 1  # the first one
        for size, stride in zip(tensor.shape, tensor.strides, strict=True):
            needed_elements += (size - 1) * stride

    known_elements = tensor.storage or 0
    return max(needed_elements, known_elements)


def collect_tensors(arguments: Sequence[Argument]) -> list[TensorArgument]:
    """Return all tensors among some arguments in their order, including the tensors in
    lists. Entries of a list that were left out are skipped."""
    tensors: list[TensorArgument] = []
    for argument in arguments:
        if isinstance(argument, TensorArgument):
            tensors.append(argument)
        elif isinstance(argument, TensorsArgument):
            tensors += [tensor for tensor in argument.tensors if tensor is not None]
    return tensors


def integer_of_argument(argument: Argument | None) -> int | None:
    """Return the integer that an argument is. Returns None for any other argument, such
    as a list, a tensor or the number `0.5`."""
    if not isinstance(argument, NumberArgument):
        return None
    try:
        return int(argument.text)
    except ValueError:
        return None


def integers_of_argument(argument: Argument | None) -> tuple[int, ...] | None:
    """Return the integers of an argument that is a list of them. Returns None for any
    other argument, or if one of the numbers is no integer."""
    if not isinstance(argument, NumbersArgument):
        return None
    try:
        return tuple(int(text) for text in argument.texts)
    except ValueError:
        return None


def _split_by_argument(
    dims: Any, types: Any, strides: Any, values: Any
) -> list[_Entry]:
    """Turn the four recorded lists of a call into one entry for each argument.

    Args:
        dims: The recorded shapes, as they were parsed from JSON.
        types: The recorded types.
        strides: The recorded strides; anything but a list counts as not recorded.
        values: The recorded values of numbers, likewise.

    Raises:
        RefusedError: Shapes were not recorded, the lists differ in length, or
            there are more than MAX_ARGUMENTS (256).
    """
    if not isinstance(dims, list):
        raise RefusedError(Refusal.NO_INPUTS)
    argument_count = len(dims)
    if argument_count > MAX_ARGUMENTS:
        raise RefusedError(Refusal.DAMAGED)
    if not isinstance(types, list) or not all(isinstance(name, str) for name in types):
        raise RefusedError(Refusal.DAMAGED)

    nothing = [None] * argument_count
    all_strides = strides if isinstance(strides, list) else nothing
    all_values = values if isinstance(values, list) else nothing
    for recorded_list in (types, all_strides, all_values):
        if len(recorded_list) != argument_count:
            raise RefusedError(Refusal.DAMAGED)

    entries = []
    for position in range(argument_count):
        value = all_values[position]
        entry = _Entry(
            dims=dims[position],
            type=types[position],
            strides=all_strides[position],
            value=value if isinstance(value, str) else None,
        )
        entries.append(entry)
    return entries


def _convert_argument(entry: _Entry) -> Argument:
    """Convert what was recorded of one argument to a tensor, a list of tensors, or a
    number.

    What is none of these, such as None, a text or a device, becomes a NothingArgument.

    Raises:
        RefusedError: The argument is a tensor that cannot be made again.
    """
    # A GenericList without shapes is a list of numbers.
    is_generic_list_of_tensors = entry.type == "GenericList" and bool(entry.dims)
    if entry.type == "TensorList" or is_generic_list_of_tensors:
        return _convert_tensor_list(entry)

    has_known_type = dtype_of_profiler_type(entry.type) is not None
    if has_known_type or _quantized_type(entry.type):
        return _convert_tensor(entry)

    # Whatever else has sizes is a tensor of an element type without a name here.
    if _has_any_size(entry.dims):
        raise RefusedError(Refusal.DTYPE)
    return _parse_numbers(entry.value or "")


def _parse_numbers(text: str) -> Argument:
    """Parse the recorded value of an argument that is no tensor: a number or a list of
    numbers.

    E.g. `0.5` and `True` are numbers, and `[1, 2]` is a list. Any other text becomes a
    NothingArgument. So does one with a number of more than MAX_NUMBER_CHARS characters.
    """
    if _is_number(text):
        return NumberArgument(text)

    in_brackets = NUMBERS_IN_BRACKETS.fullmatch(text)
    if in_brackets is None:
        return NothingArgument()

    inner = in_brackets[1].strip()
    if not inner:
        return NumbersArgument(())
    numbers = tuple(number.strip() for number in inner.split(","))
    if not all(_is_number(number) for number in numbers):
        return NothingArgument()
    return NumbersArgument(numbers)


def _is_number(text: str) -> bool:
    """Return whether a text is a number or a truth value, such as `-0.5` or `True`, of
    at most MAX_NUMBER_CHARS characters."""
    return len(text) <= MAX_NUMBER_CHARS and NUMBER.fullmatch(text) is not None


def _convert_tensor(entry: _Entry) -> TensorArgument:
    """Convert what was recorded of a tensor: its element type, its shape and its
    strides.

    Raises:
        RefusedError: No tensor has such sizes or such an element type, or the
            tensor has no strides in a trace that records them. The latter is so
            for a sparse tensor.
    """
    profiler_dtype = dtype_of_profiler_type(entry.type) or ""
    dtype = _quantized_type(entry.type) or TORCH_DTYPES.get(profiler_dtype)
    if dtype is None:
        raise RefusedError(Refusal.DTYPE)
    return _make_tensor(dtype, entry.dims, entry.strides)


def _quantized_type(recorded: str) -> str:
    """Return the name that torch gives a recorded quantized type: `quint8` for
    `c10::quint8`. Returns "" for any other type."""
    name = recorded.removeprefix(QUANTIZED_TYPE)
    return name if name in QUANTIZED_BYTES else ""


def _make_tensor(dtype: str, dims: Any, strides: Any) -> TensorArgument:
    """Make a tensor of an element type from recorded dims and strides, after checking
    them.

    Args:
        dtype: The element type, by the name that torch gives it.
        dims: The recorded sizes, which may be damaged.
        strides: The recorded strides; None if the trace has no strides.

    Raises:
        RefusedError: The sizes are no list of numbers, there is not one stride
            for each size, or the tensor has more than MAX_ELEMENTS elements.
    """
    shape = _parse_sizes(dims)
    if shape is None:
        raise RefusedError(Refusal.DAMAGED)

    # Sizes of 0 are left out: an empty tensor with a huge size is refused too.
    if math.prod(size for size in shape if size) > MAX_ELEMENTS:
        raise RefusedError(Refusal.TOO_LARGE)
    if strides is None:
        return TensorArgument(shape=shape, dtype=dtype)

    parsed_strides = _parse_sizes(strides)
    if parsed_strides is None or len(parsed_strides) != len(shape):
        raise RefusedError(Refusal.LAYOUT)

    # Large strides need a large storage for few elements.
    tensor = TensorArgument(shape=shape, dtype=dtype, strides=parsed_strides)
    if count_storage_elements(tensor) > MAX_ELEMENTS:
        raise RefusedError(Refusal.TOO_LARGE)
    return tensor


def _convert_tensor_list(entry: _Entry) -> TensorsArgument | UnrecordedListArgument:
    """Convert what was recorded of a list of tensors.

    Their element types are not recorded, so ASSUMED_DTYPE (float32) is taken. torch
    records no shapes of lists with more than 30 tensors. For these, and for empty
    lists, the result is an UnrecordedListArgument.

    Raises:
        RefusedError: There is not one list of strides for each tensor, the list
            is too long, or a tensor cannot be made.
    """
    if not isinstance(entry.dims, list) or not entry.dims:
        return UnrecordedListArgument()

    tensor_count = len(entry.dims)
    if tensor_count > MAX_TENSORS_OF_LIST:
        raise RefusedError(Refusal.DAMAGED)

    # Each tensor has a list of strides, or none of them in a trace without strides.
    all_strides = entry.strides
    if all_strides is None:
        all_strides = [None] * tensor_count
    if not isinstance(all_strides, list) or len(all_strides) != tensor_count:
        raise RefusedError(Refusal.DAMAGED)

    tensors = [
        _make_tensor(ASSUMED_DTYPE, dims, strides)
        for dims, strides in zip(entry.dims, all_strides, strict=True)
    ]
    return TensorsArgument(tuple(tensors))


def _kinds_of_remarks(argument: Argument, entry: _Entry) -> list[RemarkKind]:
    """Return what a reader of the reproduced call has to know about one argument.

    E.g. that its value was not recorded, that element types are assumed, or that its
    memory is expanded. The result is empty for an argument that was recorded
    completely.

    Args:
        argument: The argument after its conversion.
        entry: What was recorded of it.
    """
    if isinstance(argument, NothingArgument) and entry.value is not None:
        return [RemarkKind.NOTHING]
    if isinstance(argument, TensorsArgument):
        return [RemarkKind.LIST_DTYPE]
    if isinstance(argument, TensorArgument):
        if argument.dtype in QUANTIZED_BYTES:
            return [RemarkKind.QUANTIZED]
        if _is_expanded(argument):
            return [RemarkKind.EXPANDED]
    return []


def _is_expanded(tensor: TensorArgument) -> bool:
    """Return whether a tensor repeats elements, which is so if a dimension of more than
    one element has the stride 0. Returns False if strides were not recorded."""
    if tensor.strides is None:
        return False
    return any(
        size > 1 and stride == 0
        for size, stride in zip(tensor.shape, tensor.strides, strict=True)
    )


def _find_python_number(
    op: str, arguments: Sequence[Argument]
) -> ScalarTensorArgument | None:
    """Return the Python number that the second argument of a call is, as in `x + 1`.

    torch passes the number to some ops as a tensor without dimensions. It is recognized
    by its element type. Returns None for any other second argument.
    """
    if op not in WITH_PYTHON_NUMBERS or len(arguments) < 2:
        return None

    first = arguments[0]
    second = arguments[1]
    if not isinstance(first, TensorArgument) or not isinstance(second, TensorArgument):
        return None

    has_dimensions = len(first.shape) > 0
    has_no_dimensions = len(second.shape) == 0
    is_number_type = second.dtype in PYTHON_NUMBER_DTYPES
    if has_dimensions and has_no_dimensions and is_number_type:
        return ScalarTensorArgument(second.dtype)
    return None


def _freeze_recorded_inputs(
    entries: Sequence[_Entry], has_strides: bool
) -> RecordedInputs:
    """Return the recorded lists of a call as nested tuples, for comparison with another
    call.

    Args:
        entries: What was recorded of each argument. It was checked before.
        has_strides: Whether the trace has strides. If not, the strides are None.
    """
    strides = None
    if has_strides:
        strides = tuple(_freeze_nested_lists(entry.strides) for entry in entries)
    return RecordedInputs(
        dims=tuple(_freeze_nested_lists(entry.dims) for entry in entries),
        types=tuple(entry.type for entry in entries),
        strides=strides,
    )


def freeze_dims(dims: object) -> tuple[object, ...]:
    """Return recorded dims as nested tuples of integers: [[2, 3], []] becomes ((2, 3),
    ()). Returns () for anything that is no list."""
    frozen = _freeze_nested_lists(dims)
    return frozen if isinstance(frozen, tuple) else ()


def _freeze_nested_lists(value: object, depth: int = 0) -> object:
    """Turn lists of integers, nested up to three levels deep, into tuples. Anything
    that is neither a list nor an integer becomes 0.

    `depth` is how many lists are around the value.
    """
    if isinstance(value, list) and depth < MAX_LIST_DEPTH:
        return tuple(_freeze_nested_lists(inner, depth + 1) for inner in value)
    is_integer = type(value) is int  # not a bool
    return value if is_integer else 0


def _has_any_size(dims: object) -> bool:
    """Return whether recorded dims are a list with at least one entry, as those of a
    tensor with dimensions are."""
    return isinstance(dims, list) and bool(dims)


def _parse_sizes(value: object) -> Shape | None:
    """Return a recorded list of sizes or strides as a tuple. Returns None if it is no
    list, is too long, or has an entry that is no integer of at least 0."""
    if not isinstance(value, list) or len(value) > MAX_DIMENSIONS:
        return None
    for size in value:
        if type(size) is not int or size < 0:
            return None
    return tuple(value)
