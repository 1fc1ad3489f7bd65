"""The FLOP of matrix products, convolutions and attention, counted as in
torch.utils.flop_counter: one multiplication and one addition per product, without bias,
scaling and softmax.

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

import msgspec

from fusetui.gpu.roofline.inputs import Amount, Inputs, Shape, Tensor, total_bytes


class _Operands(NamedTuple):
    """Where the tensors of an op of the matmul family stand among its arguments."""

    a: int
    b: int
    added: int | None  # the tensor that is added to the product; None if there is none


_OPERANDS: Final = {
    "aten::mm": _Operands(a=0, b=1, added=None),
    "aten::bmm": _Operands(a=0, b=1, added=None),
    "aten::matmul": _Operands(a=0, b=1, added=None),
    "aten::mv": _Operands(a=0, b=1, added=None),
    "aten::_int_mm": _Operands(a=0, b=1, added=None),
    "aten::addmm": _Operands(a=1, b=2, added=0),
    "aten::_addmm_activation": _Operands(a=1, b=2, added=0),
    "aten::addmv": _Operands(a=1, b=2, added=0),
    "aten::baddbmm": _Operands(a=1, b=2, added=0),
    "aten::linear": _Operands(a=0, b=1, added=2),
    "aten::_scaled_mm": _Operands(a=0, b=1, added=4),
}
_OUT_ARGUMENT: Final = {"aten::mm": 2, "aten::bmm": 2}
"""The position of a tensor or type for the result, where an op may have one."""

_OPS_WITH_OPTIONAL_BIAS: Final = ("aten::linear", "aten::_scaled_mm")

_BETA: Final = 3
"""The position of the factor of the tensor that is added."""

# of the arguments of aten::_scaled_mm: (A, B, scale_a, scale_b, bias, scale_result,
# out_dtype)
_SCALE_A: Final = 2

_SCALE_B: Final = 3

_OUT_DTYPE: Final = 6


class _ProductSizes(NamedTuple):
    """The sizes of a product of A [batch, m, k] and B [batch, k, n]."""

    batch: int
    m: int
    n: int
    k: int


def matmul(inputs: Inputs) -> Amount | None:
    """Count the FLOP and bytes of an op that computes a matrix product.

    >>> from fusetui.gpu.roofline.inputs import inputs_of
    >>> args = {"Input Dims": [[8, 16], [16, 32]], "Input type": ["float"] * 2}
    >>> amount = matmul(inputs_of("aten::mm", args))
    >>> amount.flop, amount.bytes  # 2 * 8 * 16 * 32; and 128 + 512 + 256 floats
    (8192, 3584)

    Returns:
        The amount. `flop` and `bytes` are None for complex numbers, and for formats
        that pack two numbers in one element. None for other ops, and for shapes that do
        not fit together.
    """
    operands = _OPERANDS.get(inputs.op)
    if operands is None:
        return None
    a = inputs.tensor(operands.a)
    b = inputs.tensor(operands.b)
    if a is None or b is None:
        return None
    sizes = _derive_product_sizes(inputs.op, a.shape, b.shape)
    if sizes is None:
        return None

    amount = Amount(
        kind="matmul",
        shapes=(a.shape, b.shape),
        dtype=a.dtype,
        m=sizes.m,
        n=sizes.n,
        k=sizes.k,
        batch=sizes.batch,
    )

    is_complex = a.dtype in ("c64", "c128")
    is_packed = any("Float4" in dtype for dtype in inputs.types)
    if is_complex or is_packed:
        return amount
    return msgspec.structs.replace(
        amount,
        flop=2 * sizes.batch * sizes.m * sizes.n * sizes.k,
        bytes=_count_product_bytes(inputs, a, b, sizes),
    )


def _derive_product_sizes(op: str, a: Shape, b: Shape) -> _ProductSizes | None:
    """Return the sizes of a product by the shapes of its two operands.

    If B is a single matrix, the leading dimensions of A count as rows (m) of one large
    product.

    >>> _derive_product_sizes("aten::bmm", (4, 8, 16), (4, 16, 32))
    _ProductSizes(batch=4, m=8, n=32, k=16)

    Args:
        op: The name of the op, which may take B transposed or as a vector.
        a: The shape of A.
        b: The shape of B.

    Returns:
        The sizes; None if the shapes do not fit together.
    """
    multiplied_b = b
    if op == "aten::linear":
        multiplied_b = tuple(reversed(b))  # the weight is [out, in]
    elif op in ("aten::mv", "aten::addmv"):
        multiplied_b = (*b, 1)  # a vector is a matrix with one column
    if len(a) < 2 or len(multiplied_b) < 2:
        return None

    *a_batch, m, k = a
    *b_batch, b_rows, n = multiplied_b
    if b_rows != k:
        return None
    if not b_batch:
        return _ProductSizes(batch=1, m=math.prod(a_batch) * m, n=n, k=k)
    if b_batch != a_batch:
        return None
    return _ProductSizes(batch=math.prod(a_batch), m=m, n=n, k=k)


def _count_product_bytes(
    inputs: Inputs, a: Tensor, b: Tensor, sizes: _ProductSizes
) -> int | None:
    """Count the bytes that a matrix product moves at least.

    These are the operands, the result and the added tensor, each once. Returns None if
    the size of one of them is unknown.
    """
    has_strides = a.strides is not None and b.strides is not None
    if sizes.batch > 1 and not has_strides:
        return None  # one matrix may be repeated for the whole batch

    result_shape = (sizes.batch, sizes.m, sizes.n)
    result = Tensor(result_shape, _derive_out_type(inputs, a, b))
    product_bytes = total_bytes(a, b, result)
    added_bytes = _count_added_bytes(inputs)
    if product_bytes is None or added_bytes is None:
        return None
    return product_bytes + added_bytes


def _count_added_bytes(inputs: Inputs) -> int | None:
    """Count the bytes that a matrix product reads besides its two operands.

    These are the bias or the tensor that is added, unless its factor beta is 0, and the
    scales of scaled products.

    Returns:
        The bytes, 0 if there is nothing else to read; None if they are unknown.
    """
    position = _OPERANDS[inputs.op].added
    if position is None:
        return 0

    added = inputs.tensor(position)
    if inputs.op not in _OPS_WITH_OPTIONAL_BIAS:
        is_multiplied_by_0 = inputs.value(_BETA) in ("0", "0.")
        return 0 if is_multiplied_by_0 else total_bytes(added)

    read_tensors = [] if added is None else [added]
    if inputs.op == "aten::_scaled_mm":
        for scale_position in (_SCALE_A, _SCALE_B):
            scale = inputs.tensor(scale_position)
            if scale is None:
                return None
            read_tensors.append(scale)
    return total_bytes(*read_tensors)


def _derive_out_type(inputs: Inputs, a: Tensor, b: Tensor) -> str | None:
    """Return the dtype of the result of a matrix product; None if it is unknown.

    Some ops take the dtype, or a tensor to write to, as an argument. Otherwise it is
    the dtype of the operands, if both have the same.
    """
    if inputs.op == "aten::_int_mm":
        return "int32"

    if inputs.op == "aten::_scaled_mm":
        # Releases before 2.5 have another order of arguments.
        if inputs.tensor(_SCALE_A) is None or inputs.tensor(_SCALE_B) is None:
            return None
        has_default_dtype = inputs.value(_OUT_DTYPE) == ""
        return a.dtype if has_default_dtype else inputs.numbered_type(_OUT_DTYPE)

    out_position = _OUT_ARGUMENT.get(inputs.op)
    has_out_argument = out_position is not None and out_position < len(inputs.dims)
    if out_position is None or not has_out_argument:
        return a.dtype if a.dtype == b.dtype else None
    out = inputs.tensor(out_position)
    return inputs.numbered_type(out_position) if out is None else out.dtype


class _ConvArguments(NamedTuple):
    """Where the arguments of a forward convolution stand, after input and weight.

    A position is None if the op has no such argument.
    """

    stride: int
    padding: int
    dilation: int
    bias: int | None = 2
    transposed: int | None = None


_CONVS: Final = {
    "aten::conv1d": _ConvArguments(stride=3, padding=4, dilation=5),
    "aten::conv2d": _ConvArguments(stride=3, padding=4, dilation=5),
    "aten::conv3d": _ConvArguments(stride=3, padding=4, dilation=5),
    "aten::cudnn_convolution_relu": _ConvArguments(stride=3, padding=4, dilation=5),
    "aten::miopen_convolution_relu": _ConvArguments(stride=3, padding=4, dilation=5),
    "aten::convolution": _ConvArguments(stride=3, padding=4, dilation=5, transposed=6),
    "aten::_convolution": _ConvArguments(stride=3, padding=4, dilation=5, transposed=6),
    "aten::convolution_overrideable": _ConvArguments(
        stride=3, padding=4, dilation=5, transposed=6
    ),
    "aten::cudnn_convolution": _ConvArguments(
        padding=2, stride=3, dilation=4, bias=None
    ),
    "aten::miopen_convolution": _ConvArguments(padding=3, stride=4, dilation=5),
    "aten::miopen_depthwise_convolution": _ConvArguments(
        padding=3, stride=4, dilation=5
    ),
    "aten::_conv_depthwise2d": _ConvArguments(bias=3, stride=4, padding=5, dilation=6),
}
# positions of arguments of aten::convolution_backward
_TRANSPOSED: Final = 7

_OUTPUT_MASK: Final = 10


def conv(inputs: Inputs, kernel_pass: str | None) -> Amount | None:
    """Count the FLOP and bytes of one kernel of a convolution.

    Args:
        inputs: The op with its recorded inputs.
        kernel_pass: The pass that the name of the kernel tells: `fprop`, `dgrad`,
            `wgrad` or None. It matters only for aten::convolution_backward, of which
            each kernel computes one gradient.

    Returns:
        The amount. None for other ops, for transposed convolutions, and for shapes that
        do not fit together.
    """
    if inputs.op in _CONVS:
        arguments = _CONVS[inputs.op]
        return _count_conv_forward(inputs, arguments)
    if inputs.op == "aten::cudnn_convolution_backward_input":
        return _count_cudnn_backward_input(inputs)
    if inputs.op == "aten::convolution_backward":
        return _count_conv_backward(inputs, kernel_pass)
    return None


def _count_cudnn_backward_input(inputs: Inputs) -> Amount | None:
    """Count the FLOP of aten::cudnn_convolution_backward_input.

    Its arguments are (input_size, grad_output, weight, ...), and it computes the
    gradient of the input. The bytes stay unknown, because the size of the input is
    recorded as a value instead of a tensor.
    """
    grad_output = inputs.tensor(1)
    weight = inputs.tensor(2)
    if grad_output is None or weight is None:
        return None
    return _make_conv_amount(
        weight,
        image_of=grad_output,
        moved_bytes=None,
        multiplied=(grad_output, weight),
    )


def _count_conv_backward(inputs: Inputs, kernel_pass: str | None) -> Amount | None:
    """Count the FLOP and bytes of one kernel of aten::convolution_backward.

    The arguments of the op are (grad_output, input, weight, ...). One kernel computes
    either the gradient of the input (`dgrad`) or that of the weight (`wgrad`). The name
    of the kernel tells which one. Otherwise it is clear only if the op was called for
    one of them.

    Returns None if the gradient is unknown, if the convolution is or may be transposed,
    and if a tensor was not recorded.
    """
    grad_output = inputs.tensor(0)
    x = inputs.tensor(1)
    weight = inputs.tensor(2)
    if grad_output is None or x is None or weight is None:
        return None

    gradient = kernel_pass or _find_only_gradient(inputs)
    if gradient == "dgrad":
        multiplied = (grad_output, weight)
    elif gradient == "wgrad":
        multiplied = (grad_output, x)
    else:
        return None
    if not _is_plain_conv(inputs, grad_output, x, weight):
        return None

    # The third tensor has the shape of the gradient that is written.
    moved_bytes = total_bytes(grad_output, x, weight)
    return _make_conv_amount(
        weight, image_of=grad_output, moved_bytes=moved_bytes, multiplied=multiplied
    )


def _find_only_gradient(inputs: Inputs) -> str | None:
    """Return which gradient a backward convolution was called for, if only for one.

    Returns:
        `dgrad` or `wgrad`. None if it was called for both or for neither, and if the
        output mask was not recorded.
    """
    mask = inputs.flags(_OUTPUT_MASK)
    if mask is None or len(mask) < 2:
        return None
    # The mask has a flag for the gradients of input, weight and bias, in this order.
    wants_input_gradient = mask[0]
    wants_weight_gradient = mask[1]
    if wants_input_gradient and not wants_weight_gradient:
        return "dgrad"
    if wants_weight_gradient and not wants_input_gradient:
        return "wgrad"
    return None


def _count_conv_forward(inputs: Inputs, arguments: _ConvArguments) -> Amount | None:
    """Count the FLOP and bytes of a forward convolution.

    Args:
        inputs: The op with its recorded inputs.
        arguments: Where its arguments stand.

    Returns:
        The amount. None if the convolution is transposed, or may be, and for shapes
        that do not fit together.
    """
    x = inputs.tensor(0)
    weight = inputs.tensor(1)
    if x is None or weight is None or len(x.shape) != len(weight.shape):
        return None

    transposed = arguments.transposed
    may_be_transposed = transposed is not None and inputs.flag(transposed) is not False
    if may_be_transposed:
        return None

    image = _derive_output_image(inputs, x.shape, weight.shape, arguments)
    if image is None:
        return None
    out = Tensor((x.shape[0], weight.shape[0], *image), x.dtype)

    moved = [x, weight, out]
    bias = None if arguments.bias is None else inputs.tensor(arguments.bias)
    if bias is not None:
        moved.append(bias)
    return _make_conv_amount(
        weight,
        image_of=out,
        moved_bytes=total_bytes(*moved),
        multiplied=(x, weight),
    )


def _derive_output_image(
    inputs: Inputs, x: Shape, weight: Shape, arguments: _ConvArguments
) -> Shape | None:
    """Return the spatial shape of the output of a forward convolution.

    Each dimension is floor((in + 2 padding - dilation (kernel - 1) - 1) / stride) + 1.

    Returns None if an argument is unknown, or if a dimension would not be positive.

    Args:
        inputs: The op with its recorded inputs.
        x: The shape of the input, [batch, channels, *image].
        weight: The shape of the weight, [out, in, *kernel].
        arguments: At which positions stride, padding and dilation stand among the
            inputs.
    """
    input_image = x[2:]
    kernel_sizes = weight[2:]
    dimensions = len(input_image)
    if dimensions == 0:
        return None
    strides = inputs.numbers(arguments.stride, dimensions)
    paddings = inputs.numbers(arguments.padding, dimensions)
    dilations = inputs.numbers(arguments.dilation, dimensions)
    if strides is None or paddings is None or dilations is None or 0 in strides:
        return None

    output_image = []
    for size, kernel_size, stride, padding, dilation in zip(
        input_image, kernel_sizes, strides, paddings, dilations, strict=True
    ):
        kernel_extent = dilation * (kernel_size - 1) + 1
        output_size = (size + 2 * padding - kernel_extent) // stride + 1
        if output_size <= 0:
            return None
        output_image.append(output_size)
    return tuple(output_image)


def _is_plain_conv(inputs: Inputs, grad: Tensor, x: Tensor, weight: Tensor) -> bool:
    """Return whether a backward convolution is known not to be transposed.

    Its flag tells. If that was not recorded, the numbers of channels tell where they
    fit only to a plain convolution. Tensors without an image, or with different numbers
    of dimensions, give False.
    """
    has_equal_ranks = len(grad.shape) == len(x.shape) == len(weight.shape)
    has_image = len(x.shape) >= 3  # the first two dimensions are batch and channels
    if not has_equal_ranks or not has_image:
        return False

    is_transposed = inputs.flag(_TRANSPOSED)
    if is_transposed is not None:
        return not is_transposed

    # A weight is [out, in] in a plain convolution and [in, out] in a transposed one.
    in_channels = x.shape[1]
    out_channels = grad.shape[1]
    fits_plain = weight.shape[0] == out_channels
    fits_transposed = weight.shape[0] == in_channels
    return fits_plain and not fits_transposed


def _make_conv_amount(
    weight: Tensor,
    *,
    image_of: Tensor,
    moved_bytes: int | None,
    multiplied: tuple[Tensor, Tensor],
) -> Amount | None:
    """Return the FLOP and bytes of a convolution as an Amount.

    The convolution multiplies every element of the weight once at each position of an
    image. One multiplication and one addition count as 2 FLOP.

    Args:
        weight: The weight.
        image_of: The tensor [batch, channels, *image] whose image it is.
        moved_bytes: The bytes that the convolution moves; None if unknown.
        multiplied: The two tensors that it multiplies, whose shapes are shown.

    Returns:
        None if there is no image, or if the weight has another number of dimensions.
    """
    if len(image_of.shape) < 3 or len(image_of.shape) != len(weight.shape):
        return None
    batch, _channels, *image = image_of.shape
    multiplications = batch * math.prod(image) * math.prod(weight.shape)
    first, second = multiplied
    return Amount(
        kind="conv",
        shapes=(first.shape, second.shape),
        dtype=first.dtype,
        flop=2 * multiplications,
        bytes=moved_bytes,
    )


_HEADS_FIRST: Final = 1
"""The axis of the heads in [B, H, S, D]."""

_SEQUENCE_FIRST: Final = 2
"""The axis of the heads in [B, S, H, D]."""


class _AttentionArguments(NamedTuple):
    """Where the arguments of an attention op stand.

    The first three tensors are Q, K and V; in a backward op they follow the gradient.
    """

    head_axis: int  # the axis of the heads in Q, K and V
    causal: int
    is_backward: bool = False
    # The lengths of sequences, masks, and sizes of windows. The formulas hold only
    # without them, so if an op has one, its amount is not known.
    must_be_absent: tuple[int, ...] = ()
    out: int = 4  # the output of the forward pass, in a backward op
    # Whether the argument `causal` is a number (see _CAUSAL_BY_MASK_TYPE), not a flag.
    is_mask_type: bool = False


_ATTENTIONS: Final = {
    "aten::_scaled_dot_product_flash_attention": _AttentionArguments(
        head_axis=_HEADS_FIRST, causal=4
    ),
    "aten::_scaled_dot_product_efficient_attention": _AttentionArguments(
        head_axis=_HEADS_FIRST, causal=6
    ),
    "aten::_scaled_dot_product_cudnn_attention": _AttentionArguments(
        head_axis=_HEADS_FIRST, causal=6
    ),
    "aten::_cudnn_attention_forward": _AttentionArguments(
        head_axis=_HEADS_FIRST, causal=10, must_be_absent=(4, 5)
    ),
    "aten::_flash_attention_forward": _AttentionArguments(
        head_axis=_SEQUENCE_FIRST, causal=8, must_be_absent=(3, 4, 11, 12, 13, 15)
    ),
    "aten::_efficient_attention_forward": _AttentionArguments(
        head_axis=_SEQUENCE_FIRST,
        causal=9,
        must_be_absent=(4, 5, 12, 13),
        is_mask_type=True,
    ),
    "aten::_scaled_dot_product_flash_attention_backward": _AttentionArguments(
        head_axis=_HEADS_FIRST, causal=11, is_backward=True, must_be_absent=(6, 7)
    ),
    "aten::_scaled_dot_product_efficient_attention_backward": _AttentionArguments(
        head_axis=_HEADS_FIRST, causal=11, is_backward=True, out=5
    ),
    "aten::_scaled_dot_product_cudnn_attention_backward": _AttentionArguments(
        head_axis=_HEADS_FIRST, causal=14, is_backward=True, must_be_absent=(9, 10)
    ),
    "aten::_cudnn_attention_backward": _AttentionArguments(
        head_axis=_HEADS_FIRST, causal=14, is_backward=True, must_be_absent=(9, 10)
    ),
    "aten::_flash_attention_backward": _AttentionArguments(
        head_axis=_SEQUENCE_FIRST,
        causal=11,
        is_backward=True,
        must_be_absent=(6, 7, 15, 16),
    ),
    "aten::_efficient_attention_backward": _AttentionArguments(
        head_axis=_SEQUENCE_FIRST,
        causal=14,
        is_backward=True,
        must_be_absent=(6, 7, 18),
        out=5,
        is_mask_type=True,
    ),
}

_CAUSAL_BY_MASK_TYPE: Final = {"0": False, "1": True, "2": True}
"""Whether an attention is causal, by the number of its mask: none, or a causal one that
is aligned to the top left or to the bottom right corner."""

_FIRST_WINDOW_ARGUMENT: Final = 11
"""From this position on, the arguments in `must_be_absent` are plain values, such as the
sizes of windows. Before it they are tensors."""


class _AttentionSizes(NamedTuple):
    """The sizes of Q [batch, heads, queries, qk_dim] and V [batch, ..., keys, v_dim]."""

    batch: int
    heads: int  # of Q
    queries: int
    keys: int
    qk_dim: int
    v_dim: int


def attention(inputs: Inputs, causal: bool | None) -> Amount | None:
    """Count the FLOP and bytes of an attention op.

    Args:
        inputs: The op with its recorded inputs.
        causal: Whether the name of the kernel says that it is causal; None if it does
            not say.

    Returns:
        The amount. None for other ops, and for batches of sequences with different
        lengths, which the trace does not record.
    """
    arguments = _ATTENTIONS.get(inputs.op)
    if arguments is None:
        return None

    qkv = []
    for position in _find_qkv_positions(arguments):
        tensor = inputs.tensor(position)
        if tensor is None or len(tensor.shape) != 4:
            return None
        qkv.append(tensor)
    q, k, v = qkv

    for position in arguments.must_be_absent:
        tensor = inputs.tensor(position)
        if tensor is not None and tensor.elements > 0:
            return None

    sizes = _derive_attention_sizes(arguments.head_axis, q.shape, k.shape, v.shape)
    if sizes is None:
        return None
    is_causal = _is_causal(inputs, arguments, is_causal_by_name=causal)
    return Amount(
        kind="attention",
        shapes=(q.shape, k.shape, v.shape),
        dtype=q.dtype,
        flop=_count_attention_flop(sizes, arguments.is_backward, is_causal),
        bytes=_count_attention_bytes(inputs, arguments, q, k, v),
    )


def _find_qkv_positions(arguments: _AttentionArguments) -> range:
    """Return the positions of Q, K and V among the arguments of an attention op."""
    first = 1 if arguments.is_backward else 0
    return range(first, first + 3)


def _derive_attention_sizes(
    head_axis: int, q: Shape, k: Shape, v: Shape
) -> _AttentionSizes | None:
    """Return the sizes of an attention by the shapes of Q, K and V.

    Returns None if the shapes do not fit together.

    >>> q, k = (2, 8, 128, 64), (2, 4, 256, 64)  # 2 heads of Q share one of K
    >>> _derive_attention_sizes(1, q, k, k)
    _AttentionSizes(batch=2, heads=8, queries=128, keys=256, qk_dim=64, v_dim=64)
    """
    if head_axis == _SEQUENCE_FIRST:
        q = _move_heads_first(q)
        k = _move_heads_first(k)
        v = _move_heads_first(v)

    batch, heads, queries, qk_dim = q
    k_batch, kv_heads, keys, k_dim = k
    v_batch, v_heads, values, v_dim = v
    has_equal_batches = batch == k_batch == v_batch
    fits_together = kv_heads == v_heads and keys == values and qk_dim == k_dim
    if not has_equal_batches or not fits_together:
        return None

    # Several heads of Q may share one head of K and V.
    if kv_heads == 0 or heads % kv_heads != 0:
        return None
    return _AttentionSizes(
        batch=batch,
        heads=heads,
        queries=queries,
        keys=keys,
        qk_dim=qk_dim,
        v_dim=v_dim,
    )


def _move_heads_first(shape: Shape) -> Shape:
    """Turn a shape [batch, sequence, heads, dim] into [batch, heads, sequence, dim]."""
    batch, sequence, heads, dim = shape
    return batch, heads, sequence, dim


def _count_attention_flop(
    sizes: _AttentionSizes, is_backward: bool, is_causal: bool | None
) -> int | None:
    """Count the FLOP of an attention op from its sizes.

    Forward, the two products Q K^T and P V count 2 (D + Dv) for each pair of a query
    and a key. Backward, it is 2 (3 D + 2 Dv). A causal attention skips half of the
    pairs.

    Returns None if it is unknown whether the attention is causal, and for a causal one
    with different numbers of queries and keys.
    """
    if is_backward:
        flop_per_pair = 2 * (3 * sizes.qk_dim + 2 * sizes.v_dim)
    else:
        flop_per_pair = 2 * (sizes.qk_dim + sizes.v_dim)
    pairs = sizes.batch * sizes.heads * sizes.queries * sizes.keys
    flop = pairs * flop_per_pair

    if is_causal is None:
        return None
    if not is_causal:
        return flop
    return flop // 2 if sizes.queries == sizes.keys else None


def _is_causal(
    inputs: Inputs, arguments: _AttentionArguments, *, is_causal_by_name: bool | None
) -> bool | None:
    """Return whether an attention is causal; None if that is unknown.

    In a causal attention, a query sees no later key. The argument of the op decides. If
    it was not recorded, the name of the kernel does. An attention that is limited to a
    window of keys gives None.

    Args:
        inputs: The op with its recorded inputs.
        arguments: At which positions the arguments of the op stand.
        is_causal_by_name: What the name of the kernel says; None if nothing.
    """
    for position in arguments.must_be_absent:
        is_window = position >= _FIRST_WINDOW_ARGUMENT
        if is_window and inputs.value(position) not in (None, "", "-1"):
            return None

    if arguments.is_mask_type:
        mask_type = inputs.value(arguments.causal)
        if not mask_type:
            return is_causal_by_name
        return _CAUSAL_BY_MASK_TYPE.get(mask_type)

    is_causal_by_argument = inputs.flag(arguments.causal)
    if is_causal_by_argument is None:
        return is_causal_by_name
    return is_causal_by_argument


def _count_attention_bytes(
    inputs: Inputs, arguments: _AttentionArguments, q: Tensor, k: Tensor, v: Tensor
) -> int | None:
    """Count the bytes that an attention op has to move at least.

    Forward, it reads Q, K and V and writes the output. Backward, it also reads the
    output and its gradient, and writes three gradients.

    Returns None if a dtype is unknown, or if strides were not recorded: heads of K and
    V may then be repeated.
    """
    if q.strides is None or k.strides is None or v.strides is None:
        return None

    if not arguments.is_backward:
        batch, first_axis, second_axis, _ = q.shape  # heads and queries, in some order
        v_dim = v.shape[3]
        out = Tensor((batch, first_axis, second_axis, v_dim), q.dtype)
        return total_bytes(q, k, v, out)

    grad_out = inputs.tensor(0)
    forward_out = inputs.tensor(arguments.out)
    grad_q = Tensor(q.shape, q.dtype)
    grad_k = Tensor(k.shape, k.dtype)
    grad_v = Tensor(v.shape, v.dtype)
    return total_bytes(grad_out, forward_out, q, k, v, grad_q, grad_k, grad_v)
