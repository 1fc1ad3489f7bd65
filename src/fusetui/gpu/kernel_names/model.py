"""What the name of a GPU kernel says: the record that every decoder returns."""

from __future__ import annotations

from typing import Any

import msgspec

Part = tuple[int, int, str]
"""(start, end, meaning): the characters name[start:end] and what they mean, in plain words."""


class KernelName(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The fields of one kernel name. A field is None if the name does not determine it.

    Tiles are in elements, `align` in elements, `layout` holds the BLAS letters of A and B (t: read
    transposed) or the tensor layout of a convolution. The vocabulary of each field is in
    docs/kernel-names.md.
    """

    name: str
    short: str
    family: str
    op: str | None = None
    arch: str | None = None
    arch_name: str | None = None
    dtype_a: str | None = None
    dtype_b: str | None = None
    dtype_acc: str | None = None
    dtype_out: str | None = None
    dtype: str | None = None
    math: str | None = None
    tile_m: int | None = None
    tile_n: int | None = None
    tile_k: int | None = None
    stages: int | str | None = None
    layout: str | None = None
    mma: str | None = None
    mma_mn: str | None = None
    align: int | None = None
    cluster: str | None = None
    split_k: bool | int | None = None
    stream_k: bool | None = None
    role: str | None = None
    epilogue: str | None = None
    pass_: str | None = None
    head_dim: int | None = None
    causal: bool | None = None  # the flag of a full causal mask
    local: bool | None = None  # limited to a window, causal or not
    functor: str | None = None
    vec: int | None = None
    fused_ops: tuple[str, ...] | None = None
    kernel_category: str | None = None
    collective: str | None = None
    redop: str | None = None
    algo: str | None = None
    proto: str | None = None
    direction: str | None = None
    parts: tuple[Part, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The `decode` contract: the keys that the name determines; `pass_` is written `pass`."""
        found = {
            key: value for key, value in msgspec.structs.asdict(self).items() if value is not None
        }
        if "pass_" in found:
            found["pass"] = found.pop("pass_")
        return found
