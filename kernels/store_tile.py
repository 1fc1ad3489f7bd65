"""How a tile of sums is written: 16 bytes a thread."""

# ruff: noqa: N803 (Triton writes constants of a kernel in capitals)

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def store_tile(  # type: ignore[no-untyped-def]
    out_ptr,
    tile,
    row,
    rows,
    row_stride,
    first_column,
    columns,
    column_stride,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    RUN: tl.constexpr,
):
    """Writes what is inside of a tile [BLOCK_M, BLOCK_N] of a matrix [rows, columns].

    With a RUN of 1, Triton chooses how. Otherwise the tile is [BLOCK_M, BLOCK_N / RUN, RUN], and
    Triton exchanges values in shared memory, so that each thread has RUN adjacent ones to write.
    """
    at, inside = out_ptr + row * row_stride, row < rows
    if RUN == 1:
        column = first_column + tl.arange(0, BLOCK_N)
        at = at[:, None] + column[None, :] * column_stride
        tl.store(at, tile, mask=inside[:, None] & (column < columns)[None, :])
    else:
        # A sum of ranges, because Triton forgets of a reshaped range what is adjacent in it.
        run = first_column + RUN * tl.arange(0, BLOCK_N // RUN)
        column = run[:, None] + tl.arange(0, RUN)[None, :]
        at = at[:, None, None] + (column * column_stride)[None, :, :]
        inside = inside[:, None, None] & (column < columns)[None, :, :]
        tl.store(at, tl.reshape(tile, (BLOCK_M, BLOCK_N // RUN, RUN)), mask=inside)
