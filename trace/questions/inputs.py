"""The shapes and types of inputs, as recorded, told apart by numbers."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.arguments import Arguments, parsed
from fusetui.trace.model.ids import exact_id
from fusetui.trace.roofline.inputs import type_of

DEEPEST = 4  # levels of lists: the inputs, a list of tensors, a shape


class InputKeys(msgspec.Struct, frozen=True, eq=False):
    """`number[n]` is the place in `distinct` of the shapes and types of the n-th op's inputs.

    -1 where nothing was recorded. Each of `distinct` is the texts of `Input Dims` and `Input type`.
    """

    number: NDArray[np.int32]
    distinct: tuple[tuple[bytes, bytes], ...]

    def fields(self, number: int) -> dict[str, Any]:
        """`shapes` and `dtypes` as JSON has them: lists, None where nothing was recorded."""
        if number < 0:
            return {"shapes": None, "dtypes": None}
        dims, types = map(parsed, self.distinct[number])
        return {"shapes": _list(dims), "dtypes": _types(_list(types))}


def input_keys(found: Arguments) -> InputKeys:
    """Ops with equal dims and types have one number; strides and values do not count.

    The args are those of `many.INPUTS`.
    """
    numbers: dict[tuple[bytes, bytes], int] = {}
    of_args = np.full(len(found.distinct) + 1, -1, dtype=np.int32)  # the last is that of -1
    for number, texts in enumerate(found.distinct):
        dims, types, *_ = texts
        if dims or types:
            of_args[number] = numbers.setdefault((dims, types), len(numbers))
    return InputKeys(of_args[found.number], tuple(numbers))


def _list(value: object) -> list[Any] | None:
    return _plain(value) if isinstance(value, list) else None


def _plain(value: Any, levels: int = DEEPEST) -> Any:
    """Whole numbers that a double does not hold as text; None for what is deeper than lists of
    tensors."""
    if isinstance(value, list):
        return [_plain(inner, levels - 1) for inner in value] if levels else None
    if isinstance(value, int):
        return exact_id(value)
    return value if isinstance(value, str | float) else None


def _types(words: list[Any] | None) -> list[Any] | None:
    """Our names of element types; other words, such as `Scalar`, as they are."""
    return words and [(type_of(w) or w) if isinstance(w, str) else w for w in words]
