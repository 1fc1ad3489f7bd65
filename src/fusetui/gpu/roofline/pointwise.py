"""Elementwise ops, softmax and normalization: only bytes are counted.

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
_WRITES_ONLY: Final = ("fill", "zero")

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
    """What an elementwise op reads and writes; None for an unknown op or odd shapes.
    `contiguous`: the kernel reads only tensors without gaps or repeats. If neither that
    nor strides are known, an input may be expanded, and `bytes` is None."""
    amount = _pointwise_amount(inputs)
    if amount is None or contiguous or inputs.strided(*range(len(inputs.dims))):
        return amount
    return msgspec.structs.replace(amount, bytes=None)


def _pointwise_amount(inputs: Inputs) -> Amount | None:
    """What an elementwise op reads and writes, if none of its tensors is expanded; None
    for an unknown op or odd shapes."""
    if not inputs.op.startswith("aten::"):
        return None
    name = inputs.op.removeprefix("aten::")
    is_in_place = name.endswith("_")
    stem = name.removesuffix("_")
    if is_in_place and stem in _WRITES_ONLY:
        return _amount([], inputs.tensor(0))
    if is_in_place and stem == "copy":
        return _copy(inputs.tensor(0), inputs.tensor(1))
    if stem not in _OPERAND_COUNTS:
        return None
    operands = []
    for place in range(_OPERAND_COUNTS[stem]):
        tensor = inputs.tensor(place)
        if tensor is not None and tensor.shape:
            operands.append(tensor)
    shape = broadcast([tensor.shape for tensor in operands])
    if shape is None:
        return None
    if not is_in_place:
        return _amount(operands, Tensor(shape, _out_type(inputs, stem, operands)))
    if operands[0].shape != shape:
        return None
    return _amount(operands, Tensor(shape, operands[0].dtype))


def broadcast(shapes: list[Shape]) -> Shape | None:
    """The common shape; None for none at all or shapes that do not fit.

    >>> broadcast([(8, 1, 3), (5, 3)])
    (8, 5, 3)
    """
    rank = max(map(len, shapes), default=0)
    if rank == 0:
        return None
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    common = []
    for sizes in zip(*padded, strict=True):
        above_one = set(sizes) - {1}
        if len(above_one) > 1:
            return None
        common.append(above_one.pop() if above_one else 1)
    return tuple(common)


def promoted(types: list[str | None]) -> str | None:
    """The type of a result of tensors with dimensions; None when one is unknown.

    >>> promoted(["bf16", "fp32"]), promoted(["int64", "fp16"]), promoted(["fp16", "bf16"])
    ('fp32', 'fp16', 'fp32')
    """
    known = {dtype for dtype in types if dtype in _PROMOTION_ORDER}
    if not types or known != set(types):
        return None
    if known >= {"fp16", "bf16"} and "fp64" not in known:
        return "fp32"
    if "uint8" in known and "int8" in known:
        return None
    return max(known, key=_PROMOTION_ORDER.index)


def _out_type(inputs: Inputs, stem: str, operands: list[Tensor]) -> str | None:
    """The type of the result of an elementwise op (`stem`: its name without namespace
    and underscore): that of the tensor that it is given to write to, else the promoted
    type of its operands, or bool. None if that is not certain."""
    for place in range(_OPERAND_COUNTS[stem], len(inputs.dims)):
        out = inputs.tensor(place)
        if out is not None and out.shape:
            return out.dtype
    if stem in _BOOLEAN:
        return "bool"
    dtype = promoted([tensor.dtype for tensor in operands])
    # A plain number, which may be a float, might determine the type of a result of
    # whole numbers.
    has_number = len(inputs.dims) > len(operands)
    if dtype not in _FLOATS and (stem in _FLOAT_ONLY or has_number):
        return None
    return dtype


def _copy(target: Tensor | None, source: Tensor | None) -> Amount | None:
    """The work of copying a tensor into another one, whose shape the source is broadcast
    to; None for shapes that do not fit."""
    if target is None or source is None or not target.shape:
        return None
    if broadcast([target.shape, source.shape]) != target.shape:
        return None
    return _amount([source], target)


def _amount(operands: list[Tensor], written: Tensor | None) -> Amount | None:
    """The work of an elementwise op that reads these tensors once and writes one; None
    if that one is not known or has no dimensions."""
    if written is None or not written.shape:
        return None
    return Amount(
        kind="elementwise",
        shapes=tuple(tensor.shape for tensor in operands) or (written.shape,),
        dtype=written.dtype,
        bytes=total_bytes(*operands, written),
    )


class _RowwiseOp(NamedTuple):
    """An op of the softmax or of a normalization."""

    read: int  # how many of the first tensors are read
    kind: str  # of work


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
    """What one kernel of a softmax or a normalization moves in its own pass; None for
    other ops, for kernels whose name does not tell what they read and write, and for
    tensors of different shapes."""
    op = _ROWWISE_OPS.get(inputs.op)
    if op is None or kernel is None or kernel.op != op.kind:
        return None
    tensors = []
    for place in range(op.read):
        tensor = inputs.tensor(place)
        if tensor is None or not tensor.shape:
            return None
        tensors.append(tensor)
    forward_input = tensors[-1]
    if any(tensor.shape != forward_input.shape for tensor in tensors):
        return None
    if _WRITING_KERNELS.search(kernel.name):
        passes = 2 if _TWICE_READING_KERNELS.search(kernel.name) else 1
        result = Tensor(forward_input.shape, forward_input.dtype)
        moved = total_bytes(*tensors * passes, result)
    elif _only_sums(inputs.op, kernel.name):
        moved = total_bytes(*tensors)
    else:
        return None
    return Amount(
        kind=op.kind,
        shapes=tuple(tensor.shape for tensor in tensors),
        dtype=forward_input.dtype,
        bytes=moved,
    )


def _only_sums(op: str, kernel: str) -> bool:
    """Whether a kernel of this name reads everything and writes only sums."""
    if _SUMMING_KERNELS.search(kernel):
        return True
    is_layer_norm = op in _LAYER_NORM_BACKWARD
    return is_layer_norm and _WEIGHT_GRADIENT_KERNELS.search(kernel) is not None
