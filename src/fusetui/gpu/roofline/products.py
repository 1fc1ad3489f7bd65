"""What matrix products, convolutions and attention compute, by the conventions of
torch.utils.flop_counter: a multiplication and an addition for each product; a bias,
scaling and the softmax of attention are not counted.

A product counts 2 * M * N * K for each matrix of the batch.

A convolution counts 2 * batch * positions * (elements of the weight): a position is an
element of the output's image (of the input's if transposed), and every element of the
weight is used once at each. With groups the weight has C_in / groups channels, so the
formula still holds. Each of the two gradients is a convolution with as many products as
the forward one.

Attention has two products forward, Q K^T and P V, together 2 * B * H * Sq * Sk * (D +
Dv), and five backward, which recomputes Q K^T: 2 * B * H * Sq * Sk * (3 D + 2 Dv).
flop_counter counts causal attention in full; a causal kernel skips the upper half, so
half is counted here, as in the FlashAttention benchmarks.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from fusetui.gpu.roofline.inputs import Amount, Inputs, Shape, Tensor, total_bytes

# Positions of A, B and of a tensor that is added (None: there is none).
_OPERANDS: Final[dict[str, tuple[int, int, int | None]]] = {
    **dict.fromkeys(
        ("aten::mm", "aten::bmm", "aten::matmul", "aten::mv", "aten::_int_mm"),
        (0, 1, None),
    ),
    **dict.fromkeys(
        ("aten::addmm", "aten::_addmm_activation", "aten::addmv", "aten::baddbmm"),
        (1, 2, 0),
    ),
    "aten::linear": (0, 1, 2),
    "aten::_scaled_mm": (0, 1, 4),
}
_OUT_ARGUMENT: Final = {"aten::mm": 2, "aten::bmm": 2}
_BETA: Final = 3


def matmul(inputs: Inputs) -> Amount | None:
    """The product that an op of the matmul family computes; None for other ops or odd
    shapes."""
    if (places := _OPERANDS.get(inputs.op)) is None:
        return None
    a, b = inputs.tensor(places[0]), inputs.tensor(places[1])
    sizes = _sizes(inputs.op, a, b) if a and b else None
    if a is None or b is None or sizes is None:
        return None
    batch, m, n, k = sizes
    counted = a.dtype not in ("c64", "c128") and "Float4" not in "".join(inputs.types)
    return Amount(
        kind="matmul",
        shapes=(a.shape, b.shape),
        dtype=a.dtype,
        m=m,
        n=n,
        k=k,
        batch=batch,
        flop=2 * batch * m * n * k if counted else None,
        bytes=_product_bytes(inputs, a, b, (batch, m, n)) if counted else None,
    )


def _sizes(op: str, a: Tensor, b: Tensor) -> tuple[int, int, int, int] | None:
    """(batch, M, N, K), with the leading dimensions of A folded into M if B is one
    matrix."""
    left, right = a.shape, b.shape
    if op == "aten::linear":
        right = right[::-1]
    if op in ("aten::mv", "aten::addmv"):
        right = (*right, 1)
    if len(left) < 2 or len(right) < 2 or left[-1] != right[-2]:
        return None
    if len(right) == 2:
        return 1, math.prod(left[:-1]), right[1], left[-1]
    if left[:-2] != right[:-2]:
        return None
    return math.prod(left[:-2]), left[-2], right[-1], left[-1]


def _product_bytes(inputs: Inputs, a: Tensor, b: Tensor, out: Shape) -> int | None:
    one, other, _ = _OPERANDS[inputs.op]
    if out[0] > 1 and not inputs.strided(one, other):
        return None  # one matrix may be repeated for the whole batch
    added, found = (
        _added_bytes(inputs),
        total_bytes(a, b, Tensor(out, _out_type(inputs, a, b))),
    )
    return None if added is None or found is None else found + added


def _added_bytes(inputs: Inputs) -> int | None:
    """What is read beside A and B: a bias unless beta is 0, the scales of scaled
    products."""
    if (place := _OPERANDS[inputs.op][2]) is None:
        return 0
    added = inputs.tensor(place)
    optional = [added] if added else []
    if inputs.op == "aten::_scaled_mm":
        return total_bytes(inputs.tensor(2), inputs.tensor(3), *optional)
    if inputs.op == "aten::linear":
        return total_bytes(*optional)
    return 0 if inputs.value(_BETA) in ("0", "0.") else total_bytes(added)


def _out_type(inputs: Inputs, a: Tensor, b: Tensor) -> str | None:
    """The element type of the result; an argument may request another type than that of
    A."""
    if inputs.op == "aten::_int_mm":
        return "int32"
    # (A, B, scale_a, scale_b, bias, scale_result, out_dtype)
    if inputs.op == "aten::_scaled_mm":
        if inputs.tensor(2) is None or inputs.tensor(3) is None:
            return None  # releases before 2.5 have another order of arguments
        return a.dtype if inputs.value(6) == "" else inputs.numbered_type(6)
    if (place := _OUT_ARGUMENT.get(inputs.op)) is None or place >= len(inputs.dims):
        return a.dtype if a.dtype == b.dtype else None
    out = inputs.tensor(place)
    return out.dtype if out else inputs.numbered_type(place)


class _ConvPlaces(NamedTuple):  # of the arguments of a forward convolution
    stride: int
    padding: int
    dilation: int
    bias: int | None = 2
    transposed: int | None = None


_CONVS: Final = {
    **{f"aten::{op}": _ConvPlaces(3, 4, 5) for op in ("conv1d", "conv2d", "conv3d")},
    **{
        f"aten::{maker}_convolution_relu": _ConvPlaces(3, 4, 5)
        for maker in ("cudnn", "miopen")
    },
    "aten::convolution": _ConvPlaces(3, 4, 5, transposed=6),
    "aten::_convolution": _ConvPlaces(3, 4, 5, transposed=6),
    "aten::convolution_overrideable": _ConvPlaces(3, 4, 5, transposed=6),
    "aten::cudnn_convolution": _ConvPlaces(3, 2, 4, bias=None),
    "aten::miopen_convolution": _ConvPlaces(4, 3, 5),
    "aten::miopen_depthwise_convolution": _ConvPlaces(4, 3, 5),
    "aten::_conv_depthwise2d": _ConvPlaces(4, 5, 6, bias=3),
}
_TRANSPOSED, _MASK = 7, 10  # positions of arguments of aten::convolution_backward


def conv(inputs: Inputs, pass_: str | None) -> Amount | None:
    """The convolution that an op computes; `pass_` is the pass according to the
    kernel's name. In a backward op each kernel computes one gradient, which must be
    known."""
    if inputs.op in _CONVS:
        return _conv_forward(inputs, _CONVS[inputs.op])
    grad, x, weight = (inputs.tensor(place) for place in range(3))
    if inputs.op == "aten::cudnn_convolution_backward_input" and x and weight:
        return _conv_amount(weight, x, None, (x, weight))
    if inputs.op != "aten::convolution_backward" or not (grad and x and weight):
        return None
    mask = inputs.flags(_MASK) or ()
    wanted = [
        name for name, given in zip(("dgrad", "wgrad"), mask, strict=False) if given
    ]
    found = pass_ or (wanted[0] if len(wanted) == 1 else None)
    if found not in ("dgrad", "wgrad") or not _is_plain(inputs, grad, x, weight):
        return None
    moved = total_bytes(grad, x, weight)  # two of them are read, the third is written
    return _conv_amount(weight, grad, moved, (grad, x if found == "wgrad" else weight))


def _conv_forward(inputs: Inputs, places: _ConvPlaces) -> Amount | None:
    x, weight = inputs.tensor(0), inputs.tensor(1)
    if x is None or weight is None or len(x.shape) != len(weight.shape):
        return None
    if places.transposed is not None and inputs.flag(places.transposed) is not False:
        return None
    if (image := _image(inputs, x.shape, weight.shape, places)) is None:
        return None
    out = Tensor((x.shape[0], weight.shape[0], *image), x.dtype)
    bias = inputs.tensor(places.bias) if places.bias is not None else None
    moved = total_bytes(x, weight, out, *([bias] if bias else []))
    return _conv_amount(weight, out, moved, (x, weight))


def _image(
    inputs: Inputs, x: Shape, weight: Shape, places: _ConvPlaces
) -> Shape | None:
    """The output's image: floor((in + 2 padding - dilation (kernel - 1) - 1) / stride)
    + 1."""
    rank = len(x) - 2
    found = [inputs.numbers(place, rank) for place in places[:3]]
    known = [numbers for numbers in found if numbers is not None]
    if rank < 1 or len(known) < 3 or 0 in known[0]:
        return None
    sizes = zip(x[2:], weight[2:], *known, strict=True)
    image = tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes)
    return image if min(image) > 0 else None


def _is_plain(inputs: Inputs, grad: Tensor, x: Tensor, weight: Tensor) -> bool:
    """Whether it is not transposed: as recorded, or as far as the channels determine
    it."""
    ranks = {len(grad.shape), len(x.shape), len(weight.shape)}
    if len(ranks) > 1 or max(ranks) < 3:
        return False
    if (recorded := inputs.flag(_TRANSPOSED)) is not None:
        return not recorded
    return grad.shape[1] == weight.shape[0] != x.shape[1]


def _conv_amount(
    weight: Tensor, positions: Tensor, moved: int | None, shown: tuple[Tensor, Tensor]
) -> Amount | None:
    """The work of a convolution whose positions are those of the image of one
    tensor."""
    if len(positions.shape) < 3 or len(positions.shape) != len(weight.shape):
        return None
    points = positions.shape[0] * math.prod(positions.shape[2:])
    flop, shapes = (
        2 * points * math.prod(weight.shape),
        (shown[0].shape, shown[1].shape),
    )
    return Amount(
        kind="conv", shapes=shapes, dtype=shown[0].dtype, flop=flop, bytes=moved
    )


class _Sdpa(NamedTuple):  # positions of an op's arguments
    head_axis: int  # 1 in [B, H, S, D], 2 in [B, S, H, D]
    causal: int
    backward: bool = False
    none: tuple[int, ...] = ()  # arguments that would change the amount
    out: int = 4  # of a backward op
    mask_type: bool = False  # the causal argument is a number: 0 none, 1 and 2 causal


_ATTENTIONS: Final = {
    "aten::_scaled_dot_product_flash_attention": _Sdpa(1, 4),
    "aten::_scaled_dot_product_efficient_attention": _Sdpa(1, 6),
    "aten::_scaled_dot_product_cudnn_attention": _Sdpa(1, 6),
    "aten::_cudnn_attention_forward": _Sdpa(1, 10, none=(4, 5)),
    "aten::_flash_attention_forward": _Sdpa(2, 8, none=(3, 4, 11, 12, 13, 15)),
    "aten::_efficient_attention_forward": _Sdpa(
        2, 9, none=(4, 5, 12, 13), mask_type=True
    ),
    "aten::_scaled_dot_product_flash_attention_backward": _Sdpa(
        1, 11, True, none=(6, 7)
    ),
    "aten::_scaled_dot_product_efficient_attention_backward": _Sdpa(1, 11, True, out=5),
    "aten::_scaled_dot_product_cudnn_attention_backward": _Sdpa(
        1, 14, True, none=(9, 10)
    ),
    "aten::_cudnn_attention_backward": _Sdpa(1, 14, True, none=(9, 10)),
    "aten::_flash_attention_backward": _Sdpa(2, 11, True, none=(6, 7, 15, 16)),
    "aten::_efficient_attention_backward": _Sdpa(
        2, 14, True, none=(6, 7, 18), out=5, mask_type=True
    ),
}


def attention(inputs: Inputs, causal: bool | None) -> Amount | None:
    """The attention that an op computes; `causal` is what the kernel's name says. None
    for other ops, and for batches of sequences of different lengths, which are not
    recorded."""
    if (places := _ATTENTIONS.get(inputs.op)) is None:
        return None
    first = 1 if places.backward else 0
    known = [
        t
        for t in (inputs.tensor(first + n) for n in range(3))
        if t and len(t.shape) == 4
    ]
    given = (inputs.tensor(place) for place in places.none)
    if len(known) < 3 or any(
        tensor is not None and tensor.elements for tensor in given
    ):
        return None
    q, k, v = (tensor.shape for tensor in known)
    if places.head_axis == 2:
        q, k, v = ((n, heads, rows, depth) for n, rows, heads, depth in (q, k, v))
    same = q[0] == k[0] == v[0] and k[1:3] == v[1:3] and q[3] == k[3]
    # several heads of Q may share one of K and V
    if not same or k[1] == 0 or q[1] % k[1]:
        return None
    is_causal = _causal(inputs, places, causal)
    products = 3 * q[3] + 2 * v[3] if places.backward else q[3] + v[3]
    full = 2 * math.prod(q[:3]) * k[2] * products
    flop = (
        full
        if is_causal is False
        else full // 2
        if is_causal and q[2] == k[2]
        else None
    )
    moved, shapes = (
        _attention_bytes(inputs, places, known),
        tuple(t.shape for t in known),
    )
    return Amount(
        kind="attention", shapes=shapes, dtype=known[0].dtype, flop=flop, bytes=moved
    )


def _causal(inputs: Inputs, places: _Sdpa, named: bool | None) -> bool | None:
    """Whether it is causal, as recorded or as the kernel is named. None also for a
    window."""
    windows = [inputs.value(place) for place in places.none if place > 10]
    if any(window not in (None, "", "-1") for window in windows):
        return None
    if places.mask_type:
        number = inputs.value(places.causal)
        return {"0": False, "1": True, "2": True}.get(number) if number else named
    recorded = inputs.flag(places.causal)
    return named if recorded is None else recorded


def _attention_bytes(inputs: Inputs, places: _Sdpa, known: list[Tensor]) -> int | None:
    """Q, K and V read and the output written; backward also their gradients."""
    q, _, v = known
    first = 1 if places.backward else 0
    if not inputs.strided(first, first + 1, first + 2):
        return None  # heads of K and V may be repeated
    if not places.backward:
        return total_bytes(*known, Tensor((*q.shape[:3], v.shape[3]), q.dtype))
    given = (inputs.tensor(0), inputs.tensor(places.out))
    return total_bytes(*given, *known, *(Tensor(t.shape, t.dtype) for t in known))
