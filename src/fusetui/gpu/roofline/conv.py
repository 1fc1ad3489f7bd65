"""Convolutions: 2 * batch * positions * (elements of the weight) operations.

The convention of torch.utils.flop_counter: a position is an element of the output's image (of the
input's if transposed), and every element of the weight is used once at each. With groups the weight
has C_in / groups channels, so the formula still holds. Each of the two gradients is a convolution
with as many products as the forward one.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from fusetui.gpu.roofline.inputs import Inputs, Tensor, total_bytes
from fusetui.gpu.roofline.model import Amount, Shape


class _Places(NamedTuple):
    """Positions of the arguments of a forward convolution; None if there is no such argument."""

    stride: int
    padding: int
    dilation: int
    bias: int | None = 2
    transposed: int | None = None


_FORWARD: Final = {
    "aten::convolution": _Places(3, 4, 5, transposed=6),
    "aten::_convolution": _Places(3, 4, 5, transposed=6),
    "aten::convolution_overrideable": _Places(3, 4, 5, transposed=6),
    "aten::conv1d": _Places(3, 4, 5),
    "aten::conv2d": _Places(3, 4, 5),
    "aten::conv3d": _Places(3, 4, 5),
    "aten::cudnn_convolution": _Places(3, 2, 4, bias=None),
    "aten::cudnn_convolution_relu": _Places(3, 4, 5),
    "aten::miopen_convolution": _Places(4, 3, 5),
    "aten::miopen_convolution_relu": _Places(3, 4, 5),
    "aten::miopen_depthwise_convolution": _Places(4, 3, 5),
    "aten::_conv_depthwise2d": _Places(4, 5, 6, bias=3),
}
_BACKWARD: Final = "aten::convolution_backward"
_TRANSPOSED, _MASK = 7, 10  # positions of arguments of it
_OLD_BACKWARD: Final = ("aten::cudnn_convolution_backward_input",)


def conv(inputs: Inputs, pass_: str | None) -> Amount | None:
    """The convolution that an op computes; `pass_` is the pass according to the kernel's name.

    In a backward op each kernel computes one gradient, which must be known.
    """
    if inputs.op in _FORWARD:
        return _forward(inputs, _FORWARD[inputs.op])
    if inputs.op == _BACKWARD:
        return _backward(inputs, pass_ or _only_gradient(inputs))
    if inputs.op in _OLD_BACKWARD:
        return _amount(inputs.tensor(1), inputs.tensor(2), inputs.tensor(1), None)
    return None


def _forward(inputs: Inputs, places: _Places) -> Amount | None:
    x, weight = inputs.tensor(0), inputs.tensor(1)
    if x is None or weight is None or len(x.shape) != len(weight.shape):
        return None
    if places.transposed is not None and inputs.flag(places.transposed) is not False:
        return None
    image = _image(inputs, x.shape, weight.shape, places)
    if image is None:
        return None
    out = Tensor((x.shape[0], weight.shape[0], *image), x.dtype)
    bias = inputs.tensor(places.bias) if places.bias is not None else None
    moved = total_bytes(x, weight, out, *([bias] if bias else []))
    return _amount(x, weight, out, moved)


def _image(inputs: Inputs, x: Shape, weight: Shape, places: _Places) -> Shape | None:
    """The output's image: floor((in + 2 padding - dilation (kernel - 1) - 1) / stride) + 1."""
    rank = len(x) - 2
    found = [inputs.numbers(place, rank) for place in places[:3]]
    known = [numbers for numbers in found if numbers is not None]
    if rank < 1 or len(known) < 3 or 0 in known[0]:
        return None
    sizes = zip(x[2:], weight[2:], *known, strict=True)
    image = tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes)
    return image if min(image) > 0 else None


def _backward(inputs: Inputs, pass_: str | None) -> Amount | None:
    grad, x, weight = (inputs.tensor(place) for place in range(3))
    if grad is None or x is None or weight is None or not _is_plain(inputs, grad, x, weight):
        return None
    moved = total_bytes(grad, x, weight)  # two of them are read, the third is written
    if pass_ == "dgrad":
        return _amount(grad, weight, grad, moved)
    return _amount(grad, weight, grad, moved, (grad.shape, x.shape)) if pass_ == "wgrad" else None


def _is_plain(inputs: Inputs, grad: Tensor, x: Tensor, weight: Tensor) -> bool:
    """Whether it is not transposed: as recorded, or as far as the channels determine it."""
    ranks = {len(grad.shape), len(x.shape), len(weight.shape)}
    if len(ranks) > 1 or max(ranks) < 3:
        return False
    recorded = inputs.flag(_TRANSPOSED)
    if recorded is not None:
        return not recorded
    return grad.shape[1] == weight.shape[0] != x.shape[1]


def _only_gradient(inputs: Inputs) -> str | None:
    """The requested gradient, if it is only one of those of the input and the weight."""
    mask = inputs.flags(_MASK) or ()
    wanted = [name for name, given in zip(("dgrad", "wgrad"), mask, strict=False) if given]
    return wanted[0] if len(wanted) == 1 else None


def _amount(
    x: Tensor | None,
    weight: Tensor | None,
    positions: Tensor | None,
    moved: int | None,
    shapes: tuple[Shape, ...] | None = None,
) -> Amount | None:
    """The work of a convolution whose positions are those of the image of one tensor."""
    if x is None or weight is None or positions is None:
        return None
    if len(positions.shape) < 3 or len(positions.shape) != len(weight.shape):
        return None
    points = positions.shape[0] * math.prod(positions.shape[2:])
    return Amount(
        kind="conv",
        shapes=shapes or (x.shape, weight.shape),
        dtype=x.dtype,
        flop=2 * points * math.prod(weight.shape),
        bytes=moved,
    )
