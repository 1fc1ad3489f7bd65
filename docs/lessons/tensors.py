"""Tensors as ops see them, the memory behind them, and how the profiler describes
arguments."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from docs.lessons.figures import BF16

MIB = 1 << 20
_SMALL, _LARGE, _LARGE_SEGMENT, _UNIT = MIB, 10 * MIB, 20 * MIB, 512


@dataclass(frozen=True)
class Tensor:
    """A bfloat16 tensor."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int = 0

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * BF16

    def view(self, *shape: int) -> Tensor:
        return replace(self, shape=shape, strides=contiguous(shape))

    def t(self) -> Tensor:
        return replace(self, shape=self.shape[::-1], strides=self.strides[::-1])


Argument = Tensor | int | bool | str | tuple[int, ...] | None
"""Of an op; a str stands for one that the profiler leaves blank, as it does None."""


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(shape[n + 1 :]) for n in range(len(shape)))


def described(arguments: tuple[Argument, ...]) -> dict[str, object]:
    """`Concrete Inputs`, types, strides and dims of an op's arguments, as with
    record_shapes."""
    each = [_one(argument) for argument in arguments]
    keys = ("Concrete Inputs", "Input type", "Input Strides", "Input Dims")
    return {key: [parts[n] for parts in each] for n, key in enumerate(keys)}


def _one(argument: Argument) -> tuple[str, str, list[int], list[int]]:
    match argument:
        case Tensor():
            return "", "c10::BFloat16", list(argument.strides), list(argument.shape)
        case bool() | int():
            return str(argument), "Scalar", [], []
        case tuple():
            return str(list(argument)), "ScalarList", [], []
        case _:
            return "", "", [], []


class Allocator:
    """CUDA's caching allocator as far as the lessons need it: a freed block is used
    again."""

    def __init__(self, address: int) -> None:
        self._next = address
        self._free: dict[int, list[int]] = {}
        self.allocated = 0
        self.reserved = 0

    def allocate(self, nbytes: int) -> int:
        """The address of a block."""
        size = _up(nbytes, _UNIT)
        self.allocated += size
        if blocks := self._free.get(size):
            return blocks.pop()
        segment = self._segment(size)
        self.reserved += segment
        address, self._next = self._next, self._next + segment
        self._free.setdefault(size, []).extend(
            address + size * n for n in reversed(range(1, segment // size))
        )
        return address

    def release(self, address: int, nbytes: int) -> None:
        size = _up(nbytes, _UNIT)
        self.allocated -= size
        self._free.setdefault(size, []).append(address)

    @staticmethod
    def _segment(size: int) -> int:
        if size <= _SMALL:
            return 2 * MIB
        return _LARGE_SEGMENT if size < _LARGE else _up(size, 2 * MIB)


def _up(number: int, unit: int) -> int:
    return -(-number // unit) * unit
