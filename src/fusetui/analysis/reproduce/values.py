"""Chooses values for the tensors of a call: numbers of the right type, and indices
within the bounds that another argument implies.

Without a known bound, integers are 0 or 1, which are valid indices almost everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from fusetui.analysis.reproduce.arguments import QUANTIZED_BYTES, whole_number
from fusetui.analysis.reproduce.model import (
    Argument,
    Filling,
    Remark,
    RemarkKind,
    TensorArgument,
    TensorsArgument,
)

INTEGERS: Final = ("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32")
INDEX_DTYPES: Final = ("int64", "int32")

Arguments = Sequence[Argument]
Bound = Callable[[Arguments], int | None]


class _Rule(NamedTuple):
    """The argument at `position` holds values below `bound`."""

    position: int
    bound: Bound
    filling: Filling = Filling.INTEGERS


def _size(position: int, dimension: int) -> Bound:
    """The size of a dimension of the tensor at a position."""

    def bound(arguments: Arguments) -> int | None:
        shape = _shape(arguments, position)
        if shape is None or not -len(shape) <= dimension < len(shape):
            return None
        return shape[dimension]

    return bound


def _size_along(position: int, dimension_at: int) -> Bound:
    """The size of a tensor in the dimension that another argument names."""

    def bound(arguments: Arguments) -> int | None:
        if dimension_at >= len(arguments):
            return None
        dimension = whole_number(arguments[dimension_at])
        if dimension is None:
            return None
        return _size(position, dimension)(arguments)

    return bound


def _elements(position: int, last_dimensions: int) -> Bound:
    """The number of elements of the last dimensions of a tensor."""

    def bound(arguments: Arguments) -> int | None:
        shape = _shape(arguments, position)
        if shape is None:
            return None
        elements = 1
        for size in shape[-last_dimensions:]:
            elements *= size
        return elements

    return bound


def _number(position: int) -> Bound:
    """A plain integer among the arguments."""

    def bound(arguments: Arguments) -> int | None:
        return whole_number(arguments[position]) if position < len(arguments) else None

    return bound


def _classes(position: int) -> Bound:
    """The number of classes of scores: [classes], or [batch, classes, ...]."""

    def bound(arguments: Arguments) -> int | None:
        shape = _shape(arguments, position)
        if not shape:
            return None
        return shape[0] if len(shape) == 1 else shape[1]

    return bound


def _shape(arguments: Arguments, position: int) -> tuple[int, ...] | None:
    argument = arguments[position] if position < len(arguments) else None
    return argument.shape if isinstance(argument, TensorArgument) else None


ALL_DIMENSIONS: Final = 64

RULES: Final = {
    "aten::embedding": (_Rule(1, _size(0, 0)),),
    "aten::embedding_dense_backward": (_Rule(1, _number(2)),),
    "aten::embedding_backward": (_Rule(1, _number(2)),),
    "aten::embedding_renorm_": (_Rule(1, _size(0, 0)),),
    "aten::embedding_bag": (
        _Rule(1, _size(0, 0)),
        _Rule(2, _size(1, 0), Filling.OFFSETS),
    ),
    "aten::_embedding_bag": (
        _Rule(1, _size(0, 0)),
        _Rule(2, _size(1, 0), Filling.OFFSETS),
    ),
    "aten::_embedding_bag_forward_only": (
        _Rule(1, _size(0, 0)),
        _Rule(2, _size(1, 0), Filling.OFFSETS),
    ),
    "aten::index_select": (_Rule(2, _size_along(0, 1)),),
    "aten::index_select_backward": (_Rule(3, _size_along(0, 2)),),
    "aten::index_add": (_Rule(2, _size_along(0, 1)),),
    "aten::index_add_": (_Rule(2, _size_along(0, 1)),),
    "aten::index_copy": (_Rule(2, _size_along(0, 1)),),
    "aten::index_copy_": (_Rule(2, _size_along(0, 1)),),
    "aten::index_fill": (_Rule(2, _size_along(0, 1)),),
    "aten::index_fill_": (_Rule(2, _size_along(0, 1)),),
    "aten::gather": (_Rule(2, _size_along(0, 1)),),
    "aten::gather_backward": (_Rule(3, _size_along(1, 2)),),
    "aten::scatter": (_Rule(2, _size_along(0, 1)),),
    "aten::scatter_": (_Rule(2, _size_along(0, 1)),),
    "aten::scatter_add": (_Rule(2, _size_along(0, 1)),),
    "aten::scatter_add_": (_Rule(2, _size_along(0, 1)),),
    "aten::scatter_reduce": (_Rule(2, _size_along(0, 1)),),
    "aten::scatter_reduce_": (_Rule(2, _size_along(0, 1)),),
    "aten::take_along_dim": (_Rule(1, _size_along(0, 2)),),
    "aten::take": (_Rule(1, _elements(0, ALL_DIMENSIONS)),),
    "aten::put_": (_Rule(1, _elements(0, ALL_DIMENSIONS)),),
    "aten::one_hot": (_Rule(0, _number(1)),),
    "aten::nll_loss": (_Rule(1, _classes(0)),),
    "aten::nll_loss_nd": (_Rule(1, _classes(0)),),
    "aten::nll_loss_forward": (_Rule(1, _classes(0)),),
    "aten::nll_loss_backward": (_Rule(2, _classes(1)),),
    "aten::nll_loss2d": (_Rule(1, _classes(0)),),
    "aten::nll_loss2d_forward": (_Rule(1, _classes(0)),),
    "aten::nll_loss2d_backward": (_Rule(2, _classes(1)),),
    "aten::cross_entropy_loss": (_Rule(1, _classes(0)),),
    "aten::max_pool2d_with_indices_backward": (_Rule(7, _elements(1, 2)),),
    "aten::max_pool3d_with_indices_backward": (_Rule(7, _elements(1, 3)),),
    "aten::max_unpool2d": (_Rule(1, _elements(0, 2)),),
    "aten::_flash_attention_forward": (
        _Rule(3, _size(0, 0), Filling.OFFSETS),
        _Rule(4, _size(1, 0), Filling.OFFSETS),
    ),
    "aten::_efficient_attention_forward": (
        _Rule(4, _size(0, 1), Filling.OFFSETS),
        _Rule(5, _size(1, 1), Filling.OFFSETS),
    ),
}
"""Whose indices are bounded by which other argument (native_functions.yaml)."""

POSITIVE: Final = {
    "aten::native_batch_norm": (4,),
    "aten::batch_norm": (4,),
    "aten::_batch_norm_impl_index": (4,),
    "aten::cudnn_batch_norm": (4,),
    "aten::miopen_batch_norm": (4,),
    "aten::native_batch_norm_backward": (4, 6),
    "aten::cudnn_batch_norm_backward": (4, 6),
    "aten::miopen_batch_norm_backward": (4, 6),
    "aten::native_layer_norm_backward": (4,),
    "aten::native_group_norm_backward": (3,),
    "aten::sqrt": (0,),
    "aten::sqrt_": (0,),
    "aten::rsqrt": (0,),
    "aten::rsqrt_": (0,),
    "aten::log": (0,),
    "aten::log_": (0,),
    "aten::log2": (0,),
    "aten::pow": (0,),
    "aten::_foreach_sqrt": (0,),
    "aten::_foreach_sqrt_": (0,),
    "aten::multinomial": (0,),
    "aten::binary_cross_entropy": (0, 1),
    "aten::binary_cross_entropy_backward": (1, 2),
    "aten::bernoulli_": (1,),
}
"""Floating-point arguments that are variances, probabilities or roots of them: negative
ones would give NaN, or an error."""

POSITIVE_LISTS: Final = {
    "aten::_fused_adam_": (3, 4, 5),
    "aten::_fused_adamw_": (3, 4, 5),
    "aten::_fused_sgd_": (),
    "aten::_fused_adagrad_": (2, 3),
    "aten::_foreach_addcdiv_": (2,),
    "aten::_foreach_div_": (1,),
}
"""Lists of variances, divisors and numbers of steps."""

DIVISORS: Final = {
    "aten::div": 1,
    "aten::div_": 1,
    "aten::floor_divide": 1,
    "aten::floor_divide_": 1,
    "aten::remainder": 1,
    "aten::remainder_": 1,
    "aten::fmod": 1,
}
"""Integer arguments that must not be 0."""


class Filled(NamedTuple):
    """Arguments with their fillings, and remarks about bounds that are not known."""

    arguments: tuple[Argument, ...]
    remarks: tuple[Remark, ...]


def filled(op: str, arguments: Arguments) -> Filled:
    """The arguments of an op, each tensor with the values that it is filled with."""
    bounded = {rule.position: rule for rule in RULES.get(op, ())}
    new_arguments: list[Argument] = []
    remarks: list[Remark] = []
    for position, argument in enumerate(arguments):
        if isinstance(argument, TensorArgument):
            rule = bounded.get(position)
            tensor = _filled_tensor(op, position, argument, rule, arguments)
            if _has_unknown_bound(tensor):
                remarks.append(Remark(RemarkKind.BOUND, position))
            new_arguments.append(tensor)
        elif isinstance(argument, TensorsArgument):
            new_arguments.append(_filled_list(op, position, argument))
        else:
            new_arguments.append(argument)
    return Filled(tuple(new_arguments), tuple(remarks))


def _filled_tensor(
    op: str,
    position: int,
    tensor: TensorArgument,
    rule: _Rule | None,
    arguments: Arguments,
) -> TensorArgument:
    """The tensor at a position with its filling. `rule` says what bounds its integers,
    None if no rule does; `arguments` are all of the call."""
    if tensor.filling is Filling.INTEGERS and tensor.below is not None:
        return tensor  # an index whose bound is known already
    if tensor.dtype in QUANTIZED_BYTES:
        return replace(tensor, filling=Filling.QUANTIZED)
    if tensor.dtype == "bool":
        return replace(tensor, filling=Filling.FLAGS)
    if tensor.dtype not in INTEGERS:
        is_positive = position in POSITIVE.get(op, ())
        filling = Filling.POSITIVE if is_positive else Filling.NORMAL
        return replace(tensor, filling=filling)
    if rule is not None:
        bound = rule.bound(arguments)
        if bound is not None and bound > 0:
            return replace(tensor, filling=rule.filling, below=bound)
    if DIVISORS.get(op) == position:
        return replace(tensor, filling=Filling.POSITIVE)
    return replace(tensor, filling=Filling.INTEGERS)


def _filled_list(op: str, position: int, tensors: TensorsArgument) -> TensorsArgument:
    """The list of tensors at a position, each with its filling."""
    is_positive = position in POSITIVE_LISTS.get(op, ())
    new_tensors: list[TensorArgument | None] = []
    for tensor in tensors.tensors:
        if tensor is None or tensor.below is not None:
            new_tensors.append(tensor)
            continue
        if tensor.dtype == "bool":
            filling = Filling.FLAGS
        elif tensor.dtype in QUANTIZED_BYTES:
            filling = Filling.QUANTIZED
        elif is_positive:
            filling = Filling.POSITIVE
        elif tensor.dtype in INTEGERS:
            filling = Filling.INTEGERS
        else:
            filling = Filling.NORMAL
        new_tensors.append(replace(tensor, filling=filling))
    return TensorsArgument(tuple(new_tensors))


def _has_unknown_bound(tensor: TensorArgument) -> bool:
    """Whether a tensor may hold indices of something unknown."""
    is_index = tensor.dtype in INDEX_DTYPES and tensor.filling is Filling.INTEGERS
    return is_index and tensor.below is None
