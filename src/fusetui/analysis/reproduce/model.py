"""The records of a reproducible call of an op: its arguments, its work, and its
duration.

Nothing here is Python code: arguments are numbers, names of types and shapes that were
checked when they were read.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

Shape = tuple[int, ...]


class CallKind(StrEnum):
    """How a call can be made again."""

    OP = "op"  # an op of torch, by its name
    BACKWARD = "backward"  # a node of autograd, by the forward op that created it
    COLLECTIVE = "collective"  # of torch.distributed
    COMPILED = "compiled"  # a kernel whose code is not part of torch
    NONE = "none"  # not at all: see Refusal


class Refusal(StrEnum):
    """Why a call cannot be made again."""

    NO_OP = "no_op"  # no recorded op launched the kernel
    NO_INPUTS = "no_inputs"  # shapes were not recorded
    NO_NAME = "no_name"  # the name is no name of an op
    NO_FORWARD = "no_forward"  # the forward op of a backward node is not known
    DAMAGED = "damaged"  # the recorded lists are not those of one call
    LONG_LIST = "long_list"  # torch leaves out the tensors of lists longer than 30
    LAYOUT = "layout"  # a sparse or other tensor without strides
    DTYPE = "dtype"  # an element type of which no script makes tensors
    TOO_LARGE = "too_large"  # the inputs need more memory than any device has
    NOT_AN_OP = "not_an_op"  # an annotation or a step of a runtime


class Filling(StrEnum):
    """What the elements of a tensor are."""

    NORMAL = "normal"
    POSITIVE = "positive"
    INTEGERS = "integers"
    FLAGS = "flags"
    OFFSETS = "offsets"  # ascending, from 0 to `below`
    QUANTIZED = "quantized"  # with a scale that is not recorded


class TensorArgument(msgspec.Struct, frozen=True, kw_only=True, tag="tensor"):
    """A tensor. `dtype` is torch's name without `torch.`; `strides` is None where they
    were not recorded."""

    shape: Shape
    dtype: str
    strides: Shape | None = None
    filling: Filling = Filling.NORMAL
    below: int | None = None
    """Integers are below it; None if their bound is not known."""
    storage: int | None = None
    """Elements of its storage, where that must be larger than its strides show."""
    device: str = ""
    """`cpu` or `pinned` for a tensor in the memory of the machine while the call runs
    on a device."""
    needs_grad: bool = False
    dtype_is_assumed: bool = False


class NumberArgument(msgspec.Struct, frozen=True, tag="number"):
    """A number or a truth value, as it was recorded: `0.5`, `True`, `-inf`."""

    text: str


class NumbersArgument(msgspec.Struct, frozen=True, tag="numbers"):
    """A list of numbers or of truth values."""

    texts: tuple[str, ...]


class ScalarTensorArgument(msgspec.Struct, frozen=True, tag="scalar_tensor"):
    """A tensor without dimensions that torch makes of a Python number: its type does
    not decide that of the result."""

    dtype: str


class NothingArgument(msgspec.Struct, frozen=True, tag="nothing"):
    """None, or something of which nothing was recorded: a text, a generator, a
    device."""


class DeviceArgument(msgspec.Struct, frozen=True, tag="device"):
    """A device, known by what the call copied."""

    name: str


class TensorsArgument(msgspec.Struct, frozen=True, tag="tensors"):
    """A list of tensors; None stands for one that is left out."""

    tensors: tuple[TensorArgument | None, ...]


class UnrecordedListArgument(msgspec.Struct, frozen=True, tag="unrecorded_list"):
    """A list of tensors of which nothing was recorded: it is longer than 30, or
    empty."""


Argument = (
    TensorArgument
    | NumberArgument
    | NumbersArgument
    | ScalarTensorArgument
    | NothingArgument
    | DeviceArgument
    | TensorsArgument
    | UnrecordedListArgument
)


class RemarkKind(StrEnum):
    """What a reader of the script has to know about an argument."""

    NOTHING = "nothing"  # None stands for what was not recorded
    LIST_DTYPE = "list_dtype"  # the element type of a list of tensors is assumed
    BOUND = "bound"  # the bound of integers is not known
    STRIDES = "strides"  # strides were not recorded: contiguous
    SCALAR_TENSOR = "scalar_tensor"  # taken for a Python number
    INDICES = "indices"  # a list of indices, known by the ops inside the call
    MACHINE = "machine"  # a tensor in the memory of the machine, by what was copied
    EXPANDED = "expanded"  # stride 0: elements are repeated
    LONG_LIST = "long_list"  # a list, known by the ops inside the call
    QUANTIZED = "quantized"  # the scale is not recorded
    GRADIENTS = "gradients"  # which inputs needed gradients is not recorded
    VALUES_UNKNOWN = "values_unknown"  # plain values were not recorded at all


class Remark(msgspec.Struct, frozen=True):
    """A remark about an argument; `position` counts from 0, -1 for the whole call."""

    kind: RemarkKind
    position: int = -1


class RecordedInputs(msgspec.Struct, frozen=True):
    """The lists of the trace, for a comparison: one entry for each argument. The dims
    of a list of tensors are a tuple of shapes; `strides` is None if they were not
    recorded."""

    dims: tuple[object, ...] = ()
    types: tuple[str, ...] = ()
    strides: tuple[object, ...] | None = None


class InnerOp(msgspec.Struct, frozen=True):
    """An op that ran inside a call. `parent` is the index of the op directly around it
    in the same list, -1 for the call itself."""

    name: str
    dims: tuple[object, ...]
    parent: int = -1


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """The work of one call, as far as its inputs tell, and the least time (ns) that the
    recorded device attains for it."""

    flop: int | None = None
    bytes: int | None = None
    attainable_ns: float | None = None


class CollectiveFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What record_param_comms says; elements are those of one rank."""

    name: str
    dtype: str
    in_elements: int
    out_elements: int
    ranks: int


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One distinct call: all calls of the trace with the same op and inputs. Times are
    in ns: of the GPU work inside it if there is any, else of the CPU."""

    kind: CallKind
    op: str
    row: int  # of the call with the median time
    count: int = 1
    total_ns: int = 0
    own_ns: int = 0  # of `total_ns`, without ops inside
    median_ns: int = 0
    on_gpu: bool = False
    device: str = ""  # the name of the GPU
    arguments: tuple[Argument, ...] = ()
    recorded: RecordedInputs = RecordedInputs()
    node: str = ""  # of autograd
    node_recorded: RecordedInputs = RecordedInputs()
    gradients: tuple[TensorArgument, ...] = ()
    inner: tuple[InnerOp, ...] = ()
    kernels: tuple[str, ...] = ()
    cost: Cost = Cost()
    collective: CollectiveFacts | None = None
    remarks: tuple[Remark, ...] = ()
    input_bytes: int = 0
    refusal: Refusal | None = None
    refused_position: int = -1  # of the argument that is refused, from 0 on; -1: none
    refused_type: str = ""  # its type as recorded, if that is why
