"""Chooses values for the tensors of a call: numbers of the right type, and indices
within the bounds that another argument implies.

Without a known bound, integers are 0 or 1, which are valid indices almost everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from fusetui.analysis.reproduce.arguments import QUANTIZED_BYTES, integer_of_argument
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


def _bound_by_size(position: int, dimension: int) -> Bound:
    """Make a function that returns the size of a dimension of the tensor at a position.

    Such a size bounds the indices in another argument of the call. The function returns
    None if there is no such tensor or dimension.
    """

    def bound(arguments: Arguments) -> int | None:
        shape = _shape_at(arguments, position)
        if shape is None:
            return None
        has_dimension = -len(shape) <= dimension < len(shape)
        return shape[dimension] if has_dimension else None

    return bound


def _bound_by_size_along(position: int, dimension_at: int) -> Bound:
    """Make a function that returns a size of a tensor, in the dimension that an
    argument names.

    The function takes the arguments of a call. It returns None if the size or the
    dimension is not known.

    Args:
        position: The position of the tensor among the arguments.
        dimension_at: The position of the number of the dimension.
    """

    def bound(arguments: Arguments) -> int | None:
        if dimension_at >= len(arguments):
            return None
        dimension = integer_of_argument(arguments[dimension_at])
        if dimension is None:
            return None
        return _bound_by_size(position, dimension)(arguments)

    return bound


def _bound_by_elements(position: int, last_dimensions: int) -> Bound:
    """Make a function that returns how many elements the last dimensions of a tensor
    have.

    E.g. 15 for the last two dimensions of a 2 x 3 x 5 tensor. The function takes the
    arguments of a call. It returns None if there is no tensor at the position.
    """

    def bound(arguments: Arguments) -> int | None:
        shape = _shape_at(arguments, position)
        return None if shape is None else math.prod(shape[-last_dimensions:])

    return bound


def _bound_by_number(position: int) -> Bound:
    """Make a function that returns the integer at a position among the arguments of a
    call.

    The function returns None if there is no integer at this position.
    """

    def bound(arguments: Arguments) -> int | None:
        if position >= len(arguments):
            return None
        return integer_of_argument(arguments[position])

    return bound


def _bound_by_classes(position: int) -> Bound:
    """Make a function that returns the number of classes that a tensor of scores has.

    Scores have the shape [classes] or [batch, classes, ...]. The function takes the
    arguments of a call. It returns None if there is no tensor of scores at the
    position.
    """

    def bound(arguments: Arguments) -> int | None:
        shape = _shape_at(arguments, position)
        if not shape:
            return None
        has_batch = len(shape) > 1
        return shape[1] if has_batch else shape[0]

    return bound


def _shape_at(arguments: Arguments, position: int) -> tuple[int, ...] | None:
    """Return the shape of the tensor at a position among the arguments; None if there
    is no tensor."""
    if position >= len(arguments):
        return None
    argument = arguments[position]
    return argument.shape if isinstance(argument, TensorArgument) else None


ALL_DIMENSIONS: Final = 64

RULES: Final = {
    "aten::embedding": (_Rule(1, _bound_by_size(0, 0)),),
    "aten::embedding_dense_backward": (_Rule(1, _bound_by_number(2)),),
    "aten::embedding_backward": (_Rule(1, _bound_by_number(2)),),
    "aten::embedding_renorm_": (_Rule(1, _bound_by_size(0, 0)),),
    "aten::embedding_bag": (
        _Rule(1, _bound_by_size(0, 0)),
        _Rule(2, _bound_by_size(1, 0), Filling.OFFSETS),
    ),
    "aten::_embedding_bag": (
        _Rule(1, _bound_by_size(0, 0)),
        _Rule(2, _bound_by_size(1, 0), Filling.OFFSETS),
    ),
    "aten::_embedding_bag_forward_only": (
        _Rule(1, _bound_by_size(0, 0)),
        _Rule(2, _bound_by_size(1, 0), Filling.OFFSETS),
    ),
    "aten::index_select": (_Rule(2, _bound_by_size_along(0, 1)),),
    "aten::index_select_backward": (_Rule(3, _bound_by_size_along(0, 2)),),
    "aten::index_add": (_Rule(2, _bound_by_size_along(0, 1)),),
    "aten::index_add_": (_Rule(2, _bound_by_size_along(0, 1)),),
    "aten::index_copy": (_Rule(2, _bound_by_size_along(0, 1)),),
    "aten::index_copy_": (_Rule(2, _bound_by_size_along(0, 1)),),
    "aten::index_fill": (_Rule(2, _bound_by_size_along(0, 1)),),
    "aten::index_fill_": (_Rule(2, _bound_by_size_along(0, 1)),),
    "aten::gather": (_Rule(2, _bound_by_size_along(0, 1)),),
    "aten::gather_backward": (_Rule(3, _bound_by_size_along(1, 2)),),
    "aten::scatter": (_Rule(2, _bound_by_size_along(0, 1)),),
    "aten::scatter_": (_Rule(2, _bound_by_size_along(0, 1)),),
    "aten::scatter_add": (_Rule(2, _bound_by_size_along(0, 1)),),
    "aten::scatter_add_": (_Rule(2, _bound_by_size_along(0, 1)),),
    "aten::scatter_reduce": (_Rule(2, _bound_by_size_along(0, 1)),),
    "aten::scatter_reduce_": (_Rule(2, _bound_by_size_along(0, 1)),),
    "aten::take_along_dim": (_Rule(1, _bound_by_size_along(0, 2)),),
    "aten::take": (_Rule(1, _bound_by_elements(0, ALL_DIMENSIONS)),),
    "aten::put_": (_Rule(1, _bound_by_elements(0, ALL_DIMENSIONS)),),
    "aten::one_hot": (_Rule(0, _bound_by_number(1)),),
    "aten::nll_loss": (_Rule(1, _bound_by_classes(0)),),
    "aten::nll_loss_nd": (_Rule(1, _bound_by_classes(0)),),
    "aten::nll_loss_forward": (_Rule(1, _bound_by_classes(0)),),
    "aten::nll_loss_backward": (_Rule(2, _bound_by_classes(1)),),
    "aten::nll_loss2d": (_Rule(1, _bound_by_classes(0)),),
    "aten::nll_loss2d_forward": (_Rule(1, _bound_by_classes(0)),),
    "aten::nll_loss2d_backward": (_Rule(2, _bound_by_classes(1)),),
    "aten::cross_entropy_loss": (_Rule(1, _bound_by_classes(0)),),
    "aten::max_pool2d_with_indices_backward": (_Rule(7, _bound_by_elements(1, 2)),),
    "aten::max_pool3d_with_indices_backward": (_Rule(7, _bound_by_elements(1, 3)),),
    "aten::max_unpool2d": (_Rule(1, _bound_by_elements(0, 2)),),
    "aten::_flash_attention_forward": (
        _Rule(3, _bound_by_size(0, 0), Filling.OFFSETS),
        _Rule(4, _bound_by_size(1, 0), Filling.OFFSETS),
    ),
    "aten::_efficient_attention_forward": (
        _Rule(4, _bound_by_size(0, 1), Filling.OFFSETS),
        _Rule(5, _bound_by_size(1, 1), Filling.OFFSETS),
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


def choose_fillings(op: str, arguments: Arguments) -> Filled:
    """Choose for each tensor of a call what values it is filled with.

    Indices must lie within the bounds that other arguments imply. Where such a bound is
    not known, a remark says so.

    Args:
        op: The name of the op.
        arguments: Its arguments, which stay unchanged.
    """
    rule_of_position = {rule.position: rule for rule in RULES.get(op, ())}
    new_arguments: list[Argument] = []
    remarks: list[Remark] = []
    for position, argument in enumerate(arguments):
        if isinstance(argument, TensorArgument):
            rule = rule_of_position.get(position)
            tensor = _choose_filling(op, position, argument, rule, arguments)
            if _has_unknown_bound(tensor):
                remarks.append(Remark(RemarkKind.BOUND, position))
            new_arguments.append(tensor)
        elif isinstance(argument, TensorsArgument):
            new_arguments.append(_choose_list_fillings(op, position, argument))
        else:
            new_arguments.append(argument)
    return Filled(tuple(new_arguments), tuple(remarks))


def _choose_filling(
    op: str,
    position: int,
    tensor: TensorArgument,
    rule: _Rule | None,
    arguments: Arguments,
) -> TensorArgument:
    """Choose what values a tensor is filled with, by its element type and its op.

    E.g. variances must be positive, divisors must not be 0, and indices have an upper
    bound.

    Args:
        op: The name of the op.
        position: The position of the tensor among the arguments.
        tensor: The tensor.
        rule: What bounds its integers; None if no rule of the op does.
        arguments: All arguments of the call, which tell the bound.
    """
    is_bounded_index = tensor.filling is Filling.INTEGERS and tensor.below is not None
    if is_bounded_index:
        return tensor
    if tensor.dtype in QUANTIZED_BYTES:
        return replace(tensor, filling=Filling.QUANTIZED)
    if tensor.dtype == "bool":
        return replace(tensor, filling=Filling.FLAGS)
    if tensor.dtype not in INTEGERS:
        is_positive = position in POSITIVE.get(op, ())
        filling = Filling.POSITIVE if is_positive else Filling.NORMAL
        return replace(tensor, filling=filling)

    bound = None if rule is None else rule.bound(arguments)
    if rule is not None and bound is not None and bound > 0:
        return replace(tensor, filling=rule.filling, below=bound)
    is_divisor = DIVISORS.get(op) == position
    return replace(tensor, filling=Filling.POSITIVE if is_divisor else Filling.INTEGERS)


def _choose_list_fillings(
    op: str, position: int, tensors: TensorsArgument
) -> TensorsArgument:
    """Choose what values each tensor of a list is filled with.

    Lists of variances, divisors and numbers of steps get positive values. Tensors that
    have a bound already stay unchanged.

    Args:
        op: The name of the op.
        position: The position of the list among the arguments.
        tensors: The list.
    """
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
    """Return whether a tensor may hold indices for which no upper bound is known. That
    is so for int64 and int32 tensors that are filled with integers."""
    is_index = tensor.dtype in INDEX_DTYPES and tensor.filling is Filling.INTEGERS
    return is_index and tensor.below is None
