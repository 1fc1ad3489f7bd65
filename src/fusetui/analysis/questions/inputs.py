"""The recorded shapes and types of inputs, with a number for each distinct combination."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.gpu.roofline.inputs import type_of
from fusetui.trace.model.arguments import Arguments, parsed
from fusetui.trace.model.ids import exact_id

DEEPEST = 4  # levels of lists: the inputs, a list of tensors, a shape


class InputKeys(msgspec.Struct, frozen=True, eq=False):
    """`number[n]` is the index in `distinct` of the shapes and types of the inputs of op n.

    -1 if nothing was recorded. Each of `distinct` is the texts of `Input Dims` and `Input type`.
    """

    number: NDArray[np.int32]
    distinct: tuple[tuple[bytes, bytes], ...]

    def fields(self, number: int) -> dict[str, Any]:
        """`shapes` and `dtypes` as in JSON: lists, None if nothing was recorded."""
        if number < 0:
            return {"shapes": None, "dtypes": None}
        dims, types = map(parsed, self.distinct[number])
        return {"shapes": _list(dims), "dtypes": _types(_list(types))}


def input_keys(found: Arguments) -> InputKeys:
    """Ops with equal dims and types get equal numbers; strides and values do not matter.

    The args are those of `many.INPUTS`.
    """
    numbers: dict[tuple[bytes, bytes], int] = {}
    of_args = np.full(len(found.distinct) + 1, -1, dtype=np.int32)  # the last element is that of -1
    for number, texts in enumerate(found.distinct):
        dims, types, *_ = texts
        if dims or types:
            of_args[number] = numbers.setdefault((dims, types), len(numbers))
    return InputKeys(of_args[found.number], tuple(numbers))


def _list(value: object) -> list[Any] | None:
    return _plain(value) if isinstance(value, list) else None


def _plain(value: Any, levels: int = DEEPEST) -> Any:
    """Integers that a double cannot represent as text; None for anything nested deeper than lists
    of tensors."""
    if isinstance(value, list):
        return [_plain(inner, levels - 1) for inner in value] if levels else None
    if isinstance(value, int):
        return exact_id(value)
    return value if isinstance(value, str | float) else None


def _types(words: list[Any] | None) -> list[Any] | None:
    """Our names of element types; other words, such as `Scalar`, unchanged."""
    return words and [(type_of(w) or w) if isinstance(w, str) else w for w in words]
