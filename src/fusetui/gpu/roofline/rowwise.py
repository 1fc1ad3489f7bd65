"""Softmax and normalization: only bytes are counted, as for pointwise work.

Forward reads the input and writes a result as large; backward reads two such tensors and writes
one. An op that takes several kernels passes over its tensors several times: each kernel counts with
what its own pass moves at least, which its name tells. Batch norm in training needs sums over all
of a channel before it can write: kernels that do both read their tensors twice, except those that
keep a channel on the chip (cuDNN's `singleread`). Rows of a softmax or a layer norm fit on the
chip. Weights and statistics are not counted: they are smaller by a dimension. Results have the type
of the input, or a wider one.
"""

from __future__ import annotations

import re
from typing import Final

from fusetui.gpu.kernel_names.record import KernelName
from fusetui.gpu.roofline.inputs import Inputs, Tensor, total_bytes
from fusetui.gpu.roofline.model import Amount

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
_WRITES: Final = re.compile(
    r"soft_?max|vectorized_layer_norm|LayerNormForward|layer_norm_grad_input|cuComputeGradInput"
    r"|batch_norm_(?:transform_input|backward_kernel|elementwise_backward)|cudnn\S*::bn_[bf]w"
    r"|BatchNorm(?:Fwd|Bwd)\w*Spatial(?:Norm|DX)?\Z",
    re.IGNORECASE,
)
"""Kernels that read everything and write the result."""
_TWICE: Final = re.compile(
    r"batch_norm_backward_kernel|bn_(?:fw_tr|bw)_1C11_kernel|BatchNorm(?:FwdTrain|Bwd)Spatial\Z"
)
"""Those that read everything once more before they write."""
_READS: Final = re.compile(
    r"batch_norm_(?:collect_statistics|backward_reduce)|RowwiseMoments|SpatialMeanVariance"
    r"|ComputeInternalGradients"
)
"""Kernels that read everything, for the sums over it."""
_WEIGHTS: Final = re.compile(r"PartGradGammaBeta|GammaBetaBackward")
"""Kernels that do so for the gradients of the weights of a layer norm; those of a group norm with
such names read sums."""
_LAYER: Final = ("aten::native_layer_norm_backward", "aten::_fused_rms_norm_backward")


def rowwise(inputs: Inputs, kernel: KernelName | None) -> Amount | None:
    """What one kernel of a softmax or a normalization moves; None for other ops and kernels."""
    if inputs.op not in _READ or kernel is None:
        return None
    number, kind = _READ[inputs.op]
    tensors = [inputs.tensor(place) for place in range(number)]
    known = [tensor for tensor in tensors if tensor is not None and tensor.shape]
    if kernel.op != kind or len(known) < number or len({tensor.shape for tensor in known}) > 1:
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
