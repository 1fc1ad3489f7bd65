"""MIOpen, AMD's library for convolutions: `igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32_...`.

Documented by ROCm/MIOpen, PerformanceConfigAsmImplicitGemmGTC::ToKernelName:

    igemm_{fwd|bwd|wrw}_{gtcx|gtcx2|gtcx3}_{layout}_{type}_bx{}_ex{}_bt{M}x{N}x{K}_wt{wave tile}_...
"""

from __future__ import annotations

import re
from typing import Any, Final

from fusetui.gpu.kernel_names.record import KernelName, build, explain, gemm_label
from fusetui.gpu.kernel_names.vocabulary import from_gfx

_IGEMM = re.compile(
    r"igemm_(?P<pass>fwd|bwd|wrw)_(?P<target>gtcx?[23]?)_(?P<layout>n[a-z0-9]+)_(?P<a>[a-z0-9]+)"
    r"_bx\d{1,6}_ex\d{1,6}_bt(?P<m>\d{1,4})x(?P<n>\d{1,4})x(?P<k>\d{1,4})"
    r"_wt(?P<wave>\d{1,6}x\d{1,6}x\d{1,6})(?P<rest>\w*)"
)
_PASSES: Final = {"fwd": "fprop", "bwd": "dgrad", "wrw": "wgrad"}
_TARGETS: Final = {"gtcx": "908", "gtcx2": "90a"}
_TYPES: Final = {"fp32": "fp32", "fp16": "fp16", "bf16": "bf16", "int8": "int8"}
_MEANINGS: Final = {
    "pass": "{}: fwd forward, bwd gradient of the data, wrw gradient of the weight",
    "target": "{}: gtcx gfx908, gtcx2 gfx90a, gtcx3 any later one",
    "layout": "the tensors are stored as {}",
    "a": "type of the operands: {}",
    "m": "output tile of one workgroup: {} rows",
    "n": "output tile of one workgroup: {} columns",
    "k": "each step takes {} of K",
    "wave": "tile of one wave: {}",
}

# Other kernels of MIOpen by how their names begin: (prefix, op, pass, algo).
_PREFIXES: Final = (
    ("MIOpenBatchNormFwd", "norm", "fwd", None),
    ("MIOpenBatchNormBwd", "norm", "bwd", None),
    ("miopenSp3AsmConv", "conv", None, "winograd"),
    ("naive_conv_", "conv", None, None),
    ("batched_transpose_", "copy", None, None),
    ("transpose_NCHW", "copy", None, None),
    ("transpose_CNHW", "copy", None, None),
    ("mloPoolingG", "pool", "fwd", None),
    ("mloPooling", "pool", None, None),
    ("MIOpenConv", "conv", None, None),
    ("MIOpen", None, None, None),
    ("miopen", None, None, None),
    ("Im2d2Col", None, None, None),
    ("Im3d2Col", None, None, None),
    ("Col2Im", None, None, None),
    ("SubTensorOp", None, None, None),
    ("OpTensor", None, None, None),
)
_ALL_PREFIXES: Final = tuple(row[0] for row in _PREFIXES)


def decode(name: str) -> KernelName | None:
    """The record of a MIOpen kernel."""
    if name.startswith("igemm_"):
        return _decode_igemm(name)
    if not name.startswith(_ALL_PREFIXES):
        return None
    prefix, op, direction, algo = next(row for row in _PREFIXES if name.startswith(row[0]))
    parts = [(0, len(prefix), f"MIOpen: {op or 'a helper'}")]
    word = name.partition("(")[0].removeprefix("MIOpen")
    return build(name, "miopen", word, parts, op=op, pass_=direction, algo=algo)


def _decode_igemm(name: str) -> KernelName | None:
    match = _IGEMM.fullmatch(name)
    if match is None:
        return None
    fields: dict[str, Any] = {
        "op": "conv",
        "pass_": _PASSES[match["pass"]],
        **from_gfx(_TARGETS.get(match["target"])),
        "dtype_a": _TYPES.get(match["a"]),
        "tile_m": int(match["m"]),
        "tile_n": int(match["n"]),
        "tile_k": int(match["k"]),
        "layout": match["layout"],
    }
    more = (f"w{match['wave']}", "gkgs" if match["rest"].endswith("_gkgs") else None)
    short = gemm_label(fields["pass_"], fields, *more)
    return build(name, "miopen", short, explain(match, _MEANINGS), **fields)
