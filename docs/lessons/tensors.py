"""Tensors, the memory behind them, and their description by the profiler."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from docs.lessons.figures import BF16

MIB = 1 << 20
_BLOCK_UNIT = 512
_MAX_SMALL_BLOCK = MIB
_SMALL_SEGMENT = 2 * MIB
_MIN_LARGE_BLOCK = 10 * MIB
_MEDIUM_SEGMENT = 20 * MIB
_LARGE_SEGMENT_UNIT = 2 * MIB
"""Bytes, as torch's caching allocator has them: a block up to 1 MiB is cut from a
segment of 2 MiB, one below 10 MiB from a segment of 20 MiB, and a larger one has a
segment of its own."""


@dataclass(frozen=True)
class Tensor:
    """A bfloat16 tensor."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int = 0

    @property
    def nbytes(self) -> int:
        return nbytes_of(self.shape)

    def view(self, *shape: int) -> Tensor:
        return replace(self, shape=shape, strides=contiguous(shape))

    def t(self) -> Tensor:
        return replace(self, shape=self.shape[::-1], strides=self.strides[::-1])


Argument = Tensor | int | bool | str | tuple[int, ...] | None
"""Of an op. The profiler writes nothing about a str, nor about None."""


def nbytes_of(shape: tuple[int, ...]) -> int:
    """Return the size of a bfloat16 tensor in bytes."""
    return prod(shape) * BF16


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor, in elements."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


@dataclass(frozen=True)
class _Description:
    """The profiler's description of an argument."""

    concrete: str = ""
    type: str = ""
    strides: tuple[int, ...] = ()
    dims: tuple[int, ...] = ()


def described(arguments: tuple[Argument, ...]) -> dict[str, object]:
    """Return the args of an op's event with record_shapes, given the arguments of
    the op."""
    descriptions = [_describe(argument) for argument in arguments]
    return {
        "Concrete Inputs": [found.concrete for found in descriptions],
        "Input type": [found.type for found in descriptions],
        "Input Strides": [list(found.strides) for found in descriptions],
        "Input Dims": [list(found.dims) for found in descriptions],
    }


def _describe(argument: Argument) -> _Description:
    match argument:
        case Tensor():
            return _Description(
                type="c10::BFloat16", strides=argument.strides, dims=argument.shape
            )
        case bool() | int():
            return _Description(concrete=str(argument), type="Scalar")
        case tuple():
            return _Description(concrete=str(list(argument)), type="ScalarList")
        case _:
            return _Description()


class Allocator:
    """A simplified version of torch's caching allocator. It reuses a freed block
    only for the same size. `allocated` and `reserved` are in bytes."""

    def __init__(self, first_address: int) -> None:
        self._next_segment = first_address
        self._free_blocks: dict[int, list[int]] = {}  # addresses by the block's size
        self.allocated = 0
        self.reserved = 0

    def allocate(self, nbytes: int) -> int:
        """Allocate a block and return its address."""
        size = rounded_up(nbytes, _BLOCK_UNIT)
        self.allocated += size
        free_blocks = self._free_blocks.setdefault(size, [])
        if not free_blocks:
            self._add_segment(size, free_blocks)
        return free_blocks.pop()

    def release(self, address: int, nbytes: int) -> None:
        """Free the block that was allocated with this size."""
        size = rounded_up(nbytes, _BLOCK_UNIT)
        self.allocated -= size
        self._free_blocks.setdefault(size, []).append(address)

    def _add_segment(self, size: int, free_blocks: list[int]) -> None:
        """Reserve a segment and divide it into blocks, ordered by their use."""
        segment_size = _segment_size(size)
        blocks = segment_size // size
        addresses = [self._next_segment + size * block for block in range(blocks)]
        free_blocks += reversed(addresses)
        self._next_segment += segment_size
        self.reserved += segment_size


def _segment_size(block_size: int) -> int:
    if block_size <= _MAX_SMALL_BLOCK:
        return _SMALL_SEGMENT
    if block_size < _MIN_LARGE_BLOCK:
        return _MEDIUM_SEGMENT
    return rounded_up(block_size, _LARGE_SEGMENT_UNIT)


def rounded_up(number: int, unit: int) -> int:
    """Round a number up to a multiple of the unit."""
    return -(-number // unit) * unit
