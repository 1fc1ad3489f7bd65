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
from typing import Final

import msgspec

from fusetui.gpu.kernel_names.record import KernelName
from fusetui.gpu.roofline.inputs import Amount, Inputs, Shape, Tensor, total_bytes
from fusetui.text.patterns import late


def _words(text: str, tensors: int) -> dict[str, int]:
    return dict.fromkeys(text.split(), tensors)


# Ops by how many leading arguments may be tensors that are read.
_FLOAT_ONLY: Final = {  # whole numbers would give a float
    **_words(
        "acos asin atan cos cosh erf erfc exp exp2 expm1 gelu hardswish log log10 log1p",
        1,
    ),
    **_words(
        "log2 mish reciprocal rsqrt selu sigmoid silu sin sinh softplus sqrt tan tanh",
        1,
    ),
    **_words("elu hardsigmoid hardtanh leaky_relu", 1),
    **_words(
        "div gelu_backward hardswish_backward leaky_relu_backward sigmoid_backward", 2
    ),
    **_words("silu_backward softplus_backward tanh_backward", 2),
    **_words("addcdiv", 3),
}
_ANY: Final = {
    **_words(
        "abs ceil clamp clamp_max clamp_min floor nan_to_num neg relu round sign square",
        1,
    ),
    **_words("add maximum minimum mul pow rsub sub threshold_backward", 2),
    **_words("addcmul lerp", 3),
}
_BOOLEAN: Final = {
    **_words("isinf isnan logical_not", 1),
    **_words("eq ge gt le logical_and logical_or logical_xor lt ne", 2),
}
_TENSORS: Final = {**_FLOAT_ONLY, **_ANY, **_BOOLEAN}
_WRITES_ONLY: Final = ("fill", "zero")

_RANK: Final = (
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
    amount = _amount_of(inputs)
    if amount is None or contiguous or inputs.strided(*range(len(inputs.dims))):
        return amount
    return msgspec.structs.replace(amount, bytes=None)


def _amount_of(inputs: Inputs) -> Amount | None:
    stem = inputs.op.removeprefix("aten::")
    if stem == inputs.op:
        return None
    in_place = stem.endswith("_")
    stem = stem.removesuffix("_")
    if in_place and stem in _WRITES_ONLY:
        return _amount([], inputs.tensor(0))
    if in_place and stem == "copy":
        return _copy(inputs.tensor(0), inputs.tensor(1))
    if stem not in _TENSORS:
        return None
    read = [
        t
        for n in range(_TENSORS[stem])
        if (t := inputs.tensor(n)) is not None and t.shape
    ]
    if (shape := broadcast([tensor.shape for tensor in read])) is None:
        return None
    written = Tensor(
        shape, read[0].dtype if in_place else _out_type(inputs, stem, read)
    )
    return _amount(read, written) if not in_place or read[0].shape == shape else None


def broadcast(shapes: list[Shape]) -> Shape | None:
    """The common shape; None for none at all or shapes that do not fit.

    >>> broadcast([(8, 1, 3), (5, 3)])
    (8, 5, 3)
    """
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    sizes = [set(column) - {1} for column in zip(*padded, strict=True)]
    if not rank or any(len(size) > 1 for size in sizes):
        return None
    return tuple(size.pop() if size else 1 for size in sizes)


def promoted(types: list[str | None]) -> str | None:
    """The type of a result of tensors with dimensions; None when one is unknown.

    >>> promoted(["bf16", "fp32"]), promoted(["int64", "fp16"]), promoted(["fp16", "bf16"])
    ('fp32', 'fp16', 'fp32')
    """
    if not types or any(kind not in _RANK for kind in types):
        return None
    kinds = {kind for kind in types if kind is not None}
    if kinds >= {"fp16", "bf16"} and "fp64" not in kinds:
        return "fp32"
    if "uint8" in kinds and "int8" in kinds:
        return None
    return max(kinds, key=_RANK.index)


def _out_type(inputs: Inputs, stem: str, read: list[Tensor]) -> str | None:
    """The type of a new result, or of the given tensor that it is written to."""
    for place in range(_TENSORS[stem], len(inputs.dims)):
        out = inputs.tensor(place)
        if out is not None and out.shape:
            return out.dtype
    if stem in _BOOLEAN:
        return "bool"
    found = promoted([tensor.dtype for tensor in read])
    # A plain number, which may be a float, might determine the type of a result of
    # whole numbers.
    is_open = stem in _FLOAT_ONLY or len(inputs.dims) > len(read)
    return None if found not in _FLOATS and is_open else found


def _copy(target: Tensor | None, source: Tensor | None) -> Amount | None:
    if target is None or source is None or not target.shape:
        return None
    same = broadcast([target.shape, source.shape]) == target.shape
    return _amount([source], target) if same else None


def _amount(read: list[Tensor], written: Tensor | None) -> Amount | None:
    if written is None or not written.shape:
        return None
    known = total_bytes(*read, written)
    shapes = tuple(tensor.shape for tensor in read) or (written.shape,)
    return Amount(kind="elementwise", shapes=shapes, dtype=written.dtype, bytes=known)


_SOFTMAX: Final = ("aten::_softmax", "aten::_log_softmax")
_NORMS: Final = (
    *("aten::native_layer_norm", "aten::native_group_norm", "aten::_fused_rms_norm"),
    *("aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm"),
)
_READ: Final = {  # how many of the first tensors are read, and the kind of work
    **dict.fromkeys(_SOFTMAX, (1, "softmax")),
    **{f"{op}_backward_data": (2, "softmax") for op in _SOFTMAX},
    **dict.fromkeys(_NORMS, (1, "norm")),
    **{f"{op}_backward": (2, "norm") for op in _NORMS},
}
_WRITES: Final = late(
    r"soft_?max|vectorized_layer_norm|LayerNormForward|layer_norm_grad_input|cuComputeGradInput"
    r"|batch_norm_(?:transform_input|backward_kernel|elementwise_backward)|cudnn\S*::bn_[bf]w"
    r"|BatchNorm(?:Fwd|Bwd)\w*Spatial(?:Norm|DX)?\Z",
    re.IGNORECASE,
)
"""Kernels that read everything and write the result."""
_TWICE: Final = late(
    r"batch_norm_backward_kernel|bn_(?:fw_tr|bw)_1C11_kernel|BatchNorm(?:FwdTrain|Bwd)Spatial\Z"
)
"""Those that read everything once more before they write."""
_READS: Final = late(
    r"batch_norm_(?:collect_statistics|backward_reduce)|RowwiseMoments|SpatialMeanVariance"
    r"|ComputeInternalGradients"
)
"""Kernels that read everything, for the sums over it."""
_WEIGHTS: Final = late(r"PartGradGammaBeta|GammaBetaBackward")
"""Kernels that do so for the gradients of the weights of a layer norm; those of a group
norm with such names read sums."""
_LAYER: Final = ("aten::native_layer_norm_backward", "aten::_fused_rms_norm_backward")


def rowwise(inputs: Inputs, kernel: KernelName | None) -> Amount | None:
    """What one kernel of a softmax or a normalization moves; None for other ops and
    kernels."""
    if inputs.op not in _READ or kernel is None:
        return None
    number, kind = _READ[inputs.op]
    tensors = [inputs.tensor(place) for place in range(number)]
    known = [tensor for tensor in tensors if tensor is not None and tensor.shape]
    if (
        kernel.op != kind
        or len(known) < number
        or len({tensor.shape for tensor in known}) > 1
    ):
        return None
    like = known[-1]  # the input of the forward op
    if _WRITES.search(kernel.name):
        passes = 2 if _TWICE.search(kernel.name) else 1
        moved = total_bytes(*known * passes, Tensor(like.shape, like.dtype))
    elif _READS.search(kernel.name) or (
        inputs.op in _LAYER and _WEIGHTS.search(kernel.name) is not None
    ):
        moved = total_bytes(*known)
    else:
        return None
    shapes = tuple(tensor.shape for tensor in known)
    return Amount(kind=kind, shapes=shapes, dtype=like.dtype, bytes=moved)
