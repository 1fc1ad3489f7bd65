"""Attention: two products forward, five backward, half of each if causal.

Forward: Q K^T and P V, together 2 * B * H * Sq * Sk * (D + Dv) operations. Backward recomputes Q
K^T and four gradient products: 2 * B * H * Sq * Sk * (3 D + 2 Dv). Both are the conventions of
torch.utils.flop_counter, which counts causal attention in full; a causal kernel skips the upper
half, so half is counted here, as in the FlashAttention benchmarks. Softmax is not counted.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from fusetui.gpu.roofline.inputs import Inputs, Tensor, total_bytes
from fusetui.gpu.roofline.model import Amount, Shape


class _Places(NamedTuple):
    """The positions of an op's arguments; the head axis is 1 in [B, H, S, D] and 2 in [B, S, H,
    D]."""

    head_axis: int
    causal: int
    backward: bool = False
    none: tuple[int, ...] = ()  # arguments that would change the amount
    out: int = 4  # of a backward op
    mask_type: bool = False  # the causal argument is a number: 0 none, 1 and 2 causal


_OPS: Final = {
    "aten::_scaled_dot_product_flash_attention": _Places(1, 4),
    "aten::_scaled_dot_product_efficient_attention": _Places(1, 6),
    "aten::_scaled_dot_product_cudnn_attention": _Places(1, 6),
    "aten::_cudnn_attention_forward": _Places(1, 10, none=(4, 5)),
    "aten::_flash_attention_forward": _Places(2, 8, none=(3, 4, 11, 12, 13, 15)),
    "aten::_efficient_attention_forward": _Places(2, 9, none=(4, 5, 12, 13), mask_type=True),
    "aten::_scaled_dot_product_flash_attention_backward": _Places(1, 11, True, none=(6, 7)),
    "aten::_scaled_dot_product_efficient_attention_backward": _Places(1, 11, True, out=5),
    "aten::_scaled_dot_product_cudnn_attention_backward": _Places(1, 14, True, none=(9, 10)),
    "aten::_cudnn_attention_backward": _Places(1, 14, True, none=(9, 10)),
    "aten::_flash_attention_backward": _Places(2, 11, True, none=(6, 7, 15, 16)),
    "aten::_efficient_attention_backward": _Places(
        2, 14, True, none=(6, 7, 18), out=5, mask_type=True
    ),
}


def attention(inputs: Inputs, causal: bool | None) -> Amount | None:
    """The attention that an op computes; `causal` is what the kernel's name says.

    None for other ops, and for batches of sequences of different lengths, which are not recorded.
    """
    places = _OPS.get(inputs.op)
    if places is None:
        return None
    first = 1 if places.backward else 0
    tensors = [inputs.tensor(first + n) for n in range(3)]
    known = [tensor for tensor in tensors if tensor is not None]
    if len(known) < 3 or any(len(tensor.shape) != 4 for tensor in known):
        return None
    given = [inputs.tensor(place) for place in places.none]
    if any(tensor is not None and tensor.elements for tensor in given):
        return None
    shapes = tuple(_heads_first(tensor.shape, places.head_axis) for tensor in known)
    if not _fit(*shapes):
        return None
    return Amount(
        kind="attention",
        shapes=tuple(tensor.shape for tensor in known),
        dtype=known[0].dtype,
        flop=_flop(shapes, places.backward, _causal(inputs, places, causal)),
        bytes=_bytes(inputs, places, known),
    )


def _heads_first(shape: Shape, head_axis: int) -> Shape:
    return shape if head_axis == 1 else (shape[0], shape[2], shape[1], shape[3])


def _fit(q: Shape, k: Shape, v: Shape) -> bool:
    """Whether the shapes [B, H, S, D] fit; several heads of Q may share one of K and V."""
    same = q[0] == k[0] == v[0] and k[1:3] == v[1:3] and q[3] == k[3]
    return same and k[1] > 0 and q[1] % k[1] == 0


def _causal(inputs: Inputs, places: _Places, named: bool | None) -> bool | None:
    """Whether it is causal, as recorded or as the kernel is named. None also for a window."""
    windows = [inputs.value(place) for place in places.none if place > 10]
    if any(window not in (None, "", "-1") for window in windows):
        return None
    if places.mask_type:
        number = inputs.value(places.causal)
        return {"0": False, "1": True, "2": True}.get(number) if number else named
    recorded = inputs.flag(places.causal)
    return named if recorded is None else recorded


def _flop(shapes: tuple[Shape, ...], backward: bool, causal: bool | None) -> int | None:
    (batch, heads, rows, depth), key, value = shapes
    if causal is None or (causal and rows != key[2]):
        return None
    products = 3 * depth + 2 * value[3] if backward else depth + value[3]
    full = 2 * batch * heads * rows * key[2] * products
    return full // 2 if causal else full


def _bytes(inputs: Inputs, places: _Places, known: list[Tensor]) -> int | None:
    """Q, K and V read and the output written; backward also their gradients."""
    q, _, v = known
    first = 1 if places.backward else 0
    if not inputs.strided(first, first + 1, first + 2):
        return None  # heads of K and V may be repeated
    out = Tensor((*q.shape[:3], v.shape[3]), q.dtype)
    if not places.backward:
        return total_bytes(*known, out)
    given = total_bytes(inputs.tensor(0), inputs.tensor(places.out), *known)
    written = total_bytes(*(Tensor(t.shape, t.dtype) for t in known))
    return None if given is None or written is None else given + written
