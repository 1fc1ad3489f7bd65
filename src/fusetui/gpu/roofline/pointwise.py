"""Elementwise ops, softmax and normalization, for which only bytes count.

An elementwise op reads each input once and writes the result once. The result has the
broadcast shape and the promoted type of the inputs, following PyTorch's type promotion
for tensors with dimensions. Zero-dimensional tensors are not counted: most are plain
numbers, which are passed with the launch.

Softmax and normalization read the input and write a result as large; backward they read
two such tensors and write one. An op that takes several kernels passes over its tensors
several times: each kernel counts with what its own pass moves at least, which its name
tells. Batch norm in training needs sums over all of a channel before it can write:
kernels that do both read their tensors twice, except those that keep a channel on the
chip (cuDNN's `singleread`). Rows of a softmax or a layer norm fit on the chip. Weights
and statistics are not counted: they are smaller by a dimension. Results have the type
of the input, or a wider one.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec

from fusetui.gpu.kernel_names.record import KernelName
from fusetui.gpu.roofline.inputs import Amount, Inputs, Shape, Tensor, total_bytes
from fusetui.text.patterns import lazy_pattern

# Ops by how many leading arguments may be tensors that are read. The first ones give a
# float for whole numbers, too.
_FLOAT_ONLY: Final = {
    "acos": 1,
    "asin": 1,
    "atan": 1,
    "cos": 1,
    "cosh": 1,
    "elu": 1,
    "erf": 1,
    "erfc": 1,
    "exp": 1,
    "exp2": 1,
    "expm1": 1,
    "gelu": 1,
    "hardsigmoid": 1,
    "hardswish": 1,
    "hardtanh": 1,
    "leaky_relu": 1,
    "log": 1,
    "log10": 1,
    "log1p": 1,
    "log2": 1,
    "mish": 1,
    "reciprocal": 1,
    "rsqrt": 1,
    "selu": 1,
    "sigmoid": 1,
    "silu": 1,
    "sin": 1,
    "sinh": 1,
    "softplus": 1,
    "sqrt": 1,
    "tan": 1,
    "tanh": 1,
    "div": 2,
    "gelu_backward": 2,
    "hardswish_backward": 2,
    "leaky_relu_backward": 2,
    "sigmoid_backward": 2,
    "silu_backward": 2,
    "softplus_backward": 2,
    "tanh_backward": 2,
    "addcdiv": 3,
}
_ANY_TYPE: Final = {
    "abs": 1,
    "ceil": 1,
    "clamp": 1,
    "clamp_max": 1,
    "clamp_min": 1,
    "floor": 1,
    "nan_to_num": 1,
    "neg": 1,
    "relu": 1,
    "round": 1,
    "sign": 1,
    "square": 1,
    "add": 2,
    "maximum": 2,
    "minimum": 2,
    "mul": 2,
    "pow": 2,
    "rsub": 2,
    "sub": 2,
    "threshold_backward": 2,
    "addcmul": 3,
    "lerp": 3,
}
_BOOLEAN: Final = {
    "isinf": 1,
    "isnan": 1,
    "logical_not": 1,
    "eq": 2,
    "ge": 2,
    "gt": 2,
    "le": 2,
    "logical_and": 2,
    "logical_or": 2,
    "logical_xor": 2,
    "lt": 2,
    "ne": 2,
}
_OPERAND_COUNTS: Final = {**_FLOAT_ONLY, **_ANY_TYPE, **_BOOLEAN}
_WRITING_OPS: Final = ("fill_", "zero_")
"""Ops that read no tensor."""

# by rank: of two types, the later is that of the result
_PROMOTION_ORDER: Final = (
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "fp16",
    "bf16",
    "fp32",
    "fp64",
)
_FLOATS: Final = ("fp16", "bf16", "fp32", "fp64")


def pointwise(inputs: Inputs, contiguous: bool) -> Amount | None:
    """Count the bytes that an elementwise op reads and writes.

    >>> from fusetui.gpu.roofline.inputs import inputs_of
    >>> args = {"Input Dims": [[8, 64], [8, 1]], "Input type": ["float"] * 2}
    >>> amount = pointwise(inputs_of("aten::add", args), contiguous=True)
    >>> amount.bytes  # reads 512 and 8 floats, and writes 512
    4128

    Args:
        inputs: The op with its recorded inputs.
        contiguous: Whether the kernel is known to read only tensors without gaps or
            repeats. If neither this nor the strides are known, an input may be an
            expanded tensor, whose elements are read more than once.

    Returns:
        The amount, with `bytes` of None if an input may be expanded. None for an
        unknown op, and for shapes that do not fit together.
    """
    amount = _count_pointwise(inputs)
    all_positions = range(len(inputs.dims))
    may_be_expanded = not contiguous and not inputs.strided(*all_positions)
    if amount is not None and may_be_expanded:
        return msgspec.structs.replace(amount, bytes=None)
    return amount


def _count_pointwise(inputs: Inputs) -> Amount | None:
    """Count the bytes of an elementwise op, assuming that no input is an expanded view.

    An op in place writes to its first operand, any other to a new tensor of the
    broadcast shape. Plain numbers count for nothing.

    Returns None for an unknown op, and for shapes that do not fit together.
    """
    if not inputs.op.startswith("aten::"):
        return None
    name = inputs.op.removeprefix("aten::")
    if name in _WRITING_OPS:
        return _make_amount([], inputs.tensor(0))
    if name == "copy_":
        return _count_copy(target=inputs.tensor(0), source=inputs.tensor(1))

    is_in_place = name.endswith("_")
    base_name = name.removesuffix("_")
    if base_name not in _OPERAND_COUNTS:
        return None

    # Plain numbers and zero-dimensional tensors are passed with the launch.
    operands = []
    for position in range(_OPERAND_COUNTS[base_name]):
        tensor = inputs.tensor(position)
        if tensor is not None and tensor.shape:
            operands.append(tensor)

    result_shape = broadcast([tensor.shape for tensor in operands])
    if result_shape is None:
        return None
    if not is_in_place:
        result_dtype = _derive_out_type(inputs, base_name, operands)
        return _make_amount(operands, Tensor(result_shape, result_dtype))

    # An op in place writes to its first operand, which is never broadcast.
    target = operands[0]
    if target.shape != result_shape:
        return None
    return _make_amount(operands, Tensor(target.shape, target.dtype))


def broadcast(shapes: list[Shape]) -> Shape | None:
    """Return the shape to which tensors are broadcast.

    >>> broadcast([(8, 1, 3), (5, 3)])
    (8, 5, 3)

    Returns:
        The common shape. None if the shapes do not fit together, and if none of them
        has a dimension.
    """
    rank = max(map(len, shapes), default=0)
    if rank == 0:
        return None

    # Missing leading dimensions count as 1.
    padded_shapes = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    broadcast_shape = []
    for sizes in zip(*padded_shapes, strict=True):
        # In each dimension, all sizes but 1 have to be equal.
        sizes_other_than_1 = set(sizes) - {1}
        if len(sizes_other_than_1) > 1:
            return None
        broadcast_shape.append(max(sizes_other_than_1, default=1))
    return tuple(broadcast_shape)


def promoted(types: list[str | None]) -> str | None:
    """Return the dtype of the result of an op on tensors of several dtypes.

    The rules are PyTorch's type promotion for tensors that have dimensions.

    >>> promoted(["bf16", "fp32"]), promoted(["int64", "fp16"]), promoted(["fp16", "bf16"])
    ('fp32', 'fp16', 'fp32')

    Returns:
        The promoted dtype. None if there are no types, if one of them is unknown, and
        for uint8 with int8, whose result (int16) is the type of neither.
    """
    if not types or not all(dtype in _PROMOTION_ORDER for dtype in types):
        return None

    # Neither of these two pairs is promoted to one of its own types.
    if "fp16" in types and "bf16" in types and "fp64" not in types:
        return "fp32"
    if "uint8" in types and "int8" in types:
        return None
    ranks = [_PROMOTION_ORDER.index(dtype) for dtype in types if dtype is not None]
    return _PROMOTION_ORDER[max(ranks)]


def _derive_out_type(
    inputs: Inputs, base_name: str, operands: list[Tensor]
) -> str | None:
    """Return the dtype of the result of an elementwise op.

    It is the dtype of the `out` tensor if the op was given one, else bool for
    comparisons, else the promoted dtype of the operands.

    Args:
        inputs: The op with its recorded inputs.
        base_name: The name of the op without namespace and trailing underscore.
        operands: The tensors that it reads.

    Returns:
        The dtype; None if it is not certain.
    """
    first_other_position = _OPERAND_COUNTS[base_name]
    for position in range(first_other_position, len(inputs.dims)):
        out = inputs.tensor(position)
        if out is not None and out.shape:
            return out.dtype

    if base_name in _BOOLEAN:
        return "bool"

    # An op on integers gives floats if it computes only in floats, or if one of its
    # plain numbers is a float. The trace does not say which kind a number is.
    dtype = promoted([tensor.dtype for tensor in operands])
    has_plain_number = len(inputs.dims) > len(operands)
    may_become_float = base_name in _FLOAT_ONLY or has_plain_number
    return None if may_become_float and dtype not in _FLOATS else dtype


def _count_copy(*, target: Tensor | None, source: Tensor | None) -> Amount | None:
    """Count the bytes of copying a tensor into another one.

    Returns None if the source cannot be broadcast to the shape of the target.
    """
    if target is None or source is None or not target.shape:
        return None
    if broadcast([target.shape, source.shape]) != target.shape:
        return None
    return _make_amount([source], target)


def _make_amount(operands: list[Tensor], written: Tensor | None) -> Amount | None:
    """Return the amount of an op that reads each operand once and writes one tensor.

    Returns None if the written tensor is unknown or has no dimensions.
    """
    if written is None or not written.shape:
        return None
    shown_tensors = operands or [written]
    return Amount(
        kind="elementwise",
        shapes=tuple(tensor.shape for tensor in shown_tensors),
        dtype=written.dtype,
        bytes=total_bytes(*operands, written),
    )


class _RowwiseOp(NamedTuple):
    """An op that works on rows: a softmax or a normalization."""

    read: int  # how many of its leading arguments are tensors that it reads
    kind: str  # the kind of work, as in Amount.kind


_ROWWISE_OPS: Final = {
    "aten::_softmax": _RowwiseOp(read=1, kind="softmax"),
    "aten::_softmax_backward_data": _RowwiseOp(read=2, kind="softmax"),
    "aten::_log_softmax": _RowwiseOp(read=1, kind="softmax"),
    "aten::_log_softmax_backward_data": _RowwiseOp(read=2, kind="softmax"),
    "aten::native_layer_norm": _RowwiseOp(read=1, kind="norm"),
    "aten::native_layer_norm_backward": _RowwiseOp(read=2, kind="norm"),
    "aten::native_group_norm": _RowwiseOp(read=1, kind="norm"),
    "aten::native_group_norm_backward": _RowwiseOp(read=2, kind="norm"),
    "aten::_fused_rms_norm": _RowwiseOp(read=1, kind="norm"),
    "aten::_fused_rms_norm_backward": _RowwiseOp(read=2, kind="norm"),
    "aten::native_batch_norm": _RowwiseOp(read=1, kind="norm"),
    "aten::native_batch_norm_backward": _RowwiseOp(read=2, kind="norm"),
    "aten::cudnn_batch_norm": _RowwiseOp(read=1, kind="norm"),
    "aten::cudnn_batch_norm_backward": _RowwiseOp(read=2, kind="norm"),
    "aten::miopen_batch_norm": _RowwiseOp(read=1, kind="norm"),
    "aten::miopen_batch_norm_backward": _RowwiseOp(read=2, kind="norm"),
}
_WRITING_KERNELS: Final = lazy_pattern(
    r"soft_?max|vectorized_layer_norm|LayerNormForward|layer_norm_grad_input|cuComputeGradInput"
    r"|batch_norm_(?:transform_input|backward_kernel|elementwise_backward)|cudnn\S*::bn_[bf]w"
    r"|BatchNorm(?:Fwd|Bwd)\w*Spatial(?:Norm|DX)?\Z",
    re.IGNORECASE,
)
"""Kernels that read everything and write the result."""

_TWICE_READING_KERNELS: Final = lazy_pattern(
    r"batch_norm_backward_kernel|bn_(?:fw_tr|bw)_1C11_kernel|BatchNorm(?:FwdTrain|Bwd)Spatial\Z"
)
"""Those that read everything once more before they write."""

_SUMMING_KERNELS: Final = lazy_pattern(
    r"batch_norm_(?:collect_statistics|backward_reduce)|RowwiseMoments|SpatialMeanVariance"
    r"|ComputeInternalGradients"
)
"""Kernels that read everything, for the sums over it."""

_WEIGHT_GRADIENT_KERNELS: Final = lazy_pattern(r"PartGradGammaBeta|GammaBetaBackward")
"""Kernels that do so for the gradients of the weights of a layer norm; those of a group
norm with such names read sums."""

_LAYER_NORM_BACKWARD: Final = (
    "aten::native_layer_norm_backward",
    "aten::_fused_rms_norm_backward",
)


def rowwise(inputs: Inputs, kernel: KernelName | None) -> Amount | None:
    """Count the bytes that one kernel of a softmax or a normalization moves.

    Such an op may take several kernels. The name of a kernel tells what it moves: some
    read everything and write a result as large, others write only sums.

    Args:
        inputs: The op with its recorded inputs.
        kernel: The decoded name of one of its kernels; None if it has none.

    Returns:
        The amount of this kernel alone. None for other ops, for kernels whose name does
        not tell what they read and write, and for inputs of different shapes.
    """
    op = _ROWWISE_OPS.get(inputs.op)
    if op is None or kernel is None or kernel.op != op.kind:
        return None

    tensors = []
    for position in range(op.read):
        tensor = inputs.tensor(position)
        if tensor is None or not tensor.shape:
            return None
        tensors.append(tensor)

    # A backward op reads the gradient first. The input of the forward pass comes last,
    # and determines the shape and the dtype of the result.
    forward_input = tensors[-1]
    if any(tensor.shape != forward_input.shape for tensor in tensors):
        return None

    writes_result = _WRITING_KERNELS.search(kernel.name) is not None
    reads_twice = _TWICE_READING_KERNELS.search(kernel.name) is not None
    if not writes_result and not _writes_only_sums(inputs.op, kernel.name):
        return None
    moved_tensors = list(tensors)
    if writes_result and reads_twice:
        moved_tensors += tensors
    if writes_result:
        moved_tensors.append(Tensor(forward_input.shape, forward_input.dtype))

    return Amount(
        kind=op.kind,
        shapes=tuple(tensor.shape for tensor in tensors),
        dtype=forward_input.dtype,
        bytes=total_bytes(*moved_tensors),
    )


def _writes_only_sums(op: str, kernel: str) -> bool:
    """Return whether a kernel of this name reads everything and writes only sums."""
    if _SUMMING_KERNELS.search(kernel):
        return True
    is_layer_norm = op in _LAYER_NORM_BACKWARD
    return is_layer_norm and _WEIGHT_GRADIENT_KERNELS.search(kernel) is not None
