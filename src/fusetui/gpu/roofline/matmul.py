"""Matrix products: 2 * M * N * K operations for each matrix of the batch.

The convention of torch.utils.flop_counter for mm, addmm, bmm and baddbmm: one multiplication and
one addition for each product; adding a bias and scaling are not counted.
"""

from __future__ import annotations

import math
from typing import Final

from fusetui.gpu.roofline.inputs import Inputs, Tensor, total_bytes
from fusetui.gpu.roofline.model import Amount

# Positions of A, B and of a tensor that is added (None: there is none).
_OPERANDS: Final[dict[str, tuple[int, int, int | None]]] = {
    "aten::mm": (0, 1, None),
    "aten::bmm": (0, 1, None),
    "aten::matmul": (0, 1, None),
    "aten::mv": (0, 1, None),
    "aten::_int_mm": (0, 1, None),
    "aten::linear": (0, 1, 2),
    "aten::addmm": (1, 2, 0),
    "aten::_addmm_activation": (1, 2, 0),
    "aten::addmv": (1, 2, 0),
    "aten::baddbmm": (1, 2, 0),
    "aten::_scaled_mm": (0, 1, 4),
}
_OUT_ARGUMENT: Final = {"aten::mm": 2, "aten::bmm": 2}
_BETA: Final = 3


def matmul(inputs: Inputs) -> Amount | None:
    """The product that an op of the matmul family computes; None for other ops or odd shapes."""
    places = _OPERANDS.get(inputs.op)
    if places is None:
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
        bytes=_bytes(inputs, a, b, (batch, m, n)) if counted else None,
    )


def _sizes(op: str, a: Tensor, b: Tensor) -> tuple[int, int, int, int] | None:
    """(batch, M, N, K), with the leading dimensions of A folded into M if B is one matrix."""
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


def _bytes(inputs: Inputs, a: Tensor, b: Tensor, out: tuple[int, int, int]) -> int | None:
    if out[0] > 1 and not inputs.strided(*_places(inputs)):
        return None  # one matrix may be repeated for the whole batch
    read = total_bytes(a, b)
    added = _added_bytes(inputs)
    written = total_bytes(Tensor(out, _out_type(inputs, a, b)))
    if read is None or added is None or written is None:
        return None
    return read + added + written


def _places(inputs: Inputs) -> tuple[int, int]:
    first, second, _ = _OPERANDS[inputs.op]
    return first, second


def _added_bytes(inputs: Inputs) -> int | None:
    """What is read in addition to A and B: a bias unless beta is 0, the scales of scaled
    products."""
    place = _OPERANDS[inputs.op][2]
    if place is None:
        return 0
    if inputs.op == "aten::_scaled_mm":
        bias = inputs.tensor(4)
        return total_bytes(inputs.tensor(2), inputs.tensor(3), *([bias] if bias else []))
    if inputs.op == "aten::linear":
        bias = inputs.tensor(2)
        return total_bytes(bias) if bias else 0
    return 0 if inputs.value(_BETA) in ("0", "0.") else total_bytes(inputs.tensor(place))


def _out_type(inputs: Inputs, a: Tensor, b: Tensor) -> str | None:
    """The element type of the result; an argument may request another type than that of A."""
    if inputs.op == "aten::_int_mm":
        return "int32"
    if inputs.op == "aten::_scaled_mm":
        return _scaled_type(inputs, a)
    place = _OUT_ARGUMENT.get(inputs.op)
    if place is None or place >= len(inputs.dims):
        return a.dtype if a.dtype == b.dtype else None
    out = inputs.tensor(place)
    return out.dtype if out else inputs.numbered_type(place)


def _scaled_type(inputs: Inputs, a: Tensor) -> str | None:
    """The result type of _scaled_mm(A, B, scale_a, scale_b, bias, scale_result, out_dtype, ...)."""
    if inputs.tensor(2) is None or inputs.tensor(3) is None:
        return None  # releases before 2.5 have another order of arguments
    return a.dtype if inputs.value(6) == "" else inputs.numbered_type(6)
