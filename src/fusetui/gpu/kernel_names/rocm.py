"""AMD's libraries: Tensile and hipBLASLt, MIOpen, Composable Kernel.

Documented by ROCm/Tensile Tensile/SolutionStructs.py and
docs/src/reference/nomenclature.rst, ROCm/hipBLASLt
tensilelite/Tensile/SolutionStructs.py, ROCm/MIOpen
PerformanceConfigAsmImplicitGemmGTC::ToKernelName and the struct pages of
ROCm/composable_kernel.

    Cijk_A{ilk|lik}_B{ljk|jlk}_{types}_{flags}..._MT{M}x{N}x{K}_MI{...}_..._ISA{target}_...
    igemm_{fwd|bwd|wrw}_{gtcx|gtcx2|gtcx3}_{layout}_{type}_bx{}_ex{}_bt{M}x{N}x{K}_wt{wave
    tile}_...

Names of Composable Kernel are often left mangled: `_ZN2ck16tensor_operation6device...`.
The place of the tile among the template arguments differs by struct and release, so it
is found by its arithmetic: ten integers BlockSize, M, N, K, AK1, BK1, MPerXdl, NPerXdl,
MXdlPerWave, NXdlPerWave in a row, with BlockSize = 64 * M / (MPerXdl * MXdlPerWave) * N
/ (NPerXdl * NXdlPerWave).
"""

from __future__ import annotations

import re
from typing import Any, Final

from fusetui.text.patterns import late

from .cxx import Signature, signature
from .record import KernelName, Part, build, explain, fields_of, gemm_label
from .vocabulary import from_gfx, layout_meaning

_TENSILE = late(
    r"(?:Custom_)?Cijk_A(?P<a>ilk|lik)C?_B(?P<b>ljk|jlk)C?_(?P<types>[A-Z0-9]+)"
    r"(?:_(?P<more>[A-Z0-9]+))?"
)
_SEARCHED: Final = {
    "tile": late(
        r"_MT(?P<tile_m>\d{1,4})x(?P<tile_n>\d{1,4})x(?P<tile_k>\d{1,4})(?=_|$)"
    ),
    "mma": late(r"_MI(?P<m>\d{1,6})x(?P<n>\d{1,6})x(\d{1,6})(?:x(\d{1,6}))?(?=_|$)"),
    "target": late(r"_(?:ISA|gfx)(?P<gfx>[0-9a-f]+)(?=_|$)"),
    "split": late(r"_GSU(?P<split>\d{1,4})(?=_|$)"),
    "stream": late(r"_SK(?P<stream>\d{1,6})(?=_|$)"),
    "bias": late(r"_(?P<bias>Bias)(?=_)"),
    "waves": late(r"_(?:MIWT|WG)(\d{1,6}_\d{1,6})"),
}
_LETTERS: Final = {
    "S": "fp32",
    "D": "fp64",
    "C": "c64",
    "Z": "c128",
    "H": "fp16",
    "B": "bf16",
    "I": "int32",
    "I8": "int8",
    "F8": "fp8_e4m3",
    "B8": "fp8_e5m2",
    "F8N": "fp8_e4m3fnuz",
    "B8N": "fp8_e5m2fnuz",
}
_LETTER = late("F8N|B8N|F8|B8|I8|[SDCZHBI]")

_IGEMM = late(
    r"igemm_(?P<pass>fwd|bwd|wrw)_(?P<target>gtcx?[23]?)_(?P<layout>n[a-z0-9]+)_(?P<dtype_a>[a-z0-9]+)"
    r"_bx\d{1,6}_ex\d{1,6}_bt(?P<tile_m>\d{1,4})x(?P<tile_n>\d{1,4})x(?P<tile_k>\d{1,4})"
    r"_wt(?P<wave>\d{1,6}x\d{1,6}x\d{1,6})(?P<rest>\w*)"
)
_IGEMM_PASSES: Final = {"fwd": "fprop", "bwd": "dgrad", "wrw": "wgrad"}
_IGEMM_TARGETS: Final = {"gtcx": "908", "gtcx2": "90a"}
_MEANINGS: Final = {
    "pass": "{}: fwd forward, bwd gradient of the data, wrw gradient of the weight",
    "target": "{}: gtcx gfx908, gtcx2 gfx90a, gtcx3 any later one",
    "layout": "the tensors are stored as {}",
    "dtype_a": "type of the operands: {}",
    "tile_m": "output tile of one workgroup: {} rows",
    "tile_n": "output tile of one workgroup: {} columns",
    "wave": "tile of one wave: {}",
    "m": "matrix instruction: M is {}",
    "n": "matrix instruction: N is {}",
    "gfx": "built for gfx{}; 000 is any device",
    "split": "K is split {} ways (1: not split)",
    "stream": "stream-K mode {} (0: off)",
    "bias": "can add a bias when it stores; plain matrix products run it too",
}

# Other kernels of MIOpen by how their names begin: op, pass and algorithm, none for a
# helper.
_MIOPEN: Final = {
    "MIOpenBatchNormFwd": "norm.fwd",
    "MIOpenBatchNormBwd": "norm.bwd",
    "miopenSp3AsmConv": "conv..winograd",
    "naive_conv_": "conv",
    "batched_transpose_": "copy",
    "transpose_NCHW": "copy",
    "transpose_CNHW": "copy",
    "mloPoolingG": "pool.fwd",
    "mloPooling": "pool",
    "MIOpenConv": "conv",
    "MIOpen": ".",
    "miopen": ".",
    "Im2d2Col": ".",
    "Im3d2Col": ".",
    "Col2Im": ".",
    "SubTensorOp": ".",
    "OpTensor": ".",
}

_MANGLED_RUN = late(r"(?:L[ij]\d{1,6}E){10,40}")
_PLAIN_RUN = late(r"(?:\b\d{1,6}u?, ){9,39}\d{1,6}\b")
_CLASS = late(r"NS_(\d{1,3})")
_CK_PASSES: Final = (
    ("conv_fwd", "fprop"),
    ("bwd_data", "dgrad"),
    ("bwd_weight", "wgrad"),
)
_CK_MEANINGS: Final = (
    "threads of a workgroup: {}",
    "output tile: {} rows",
    "output tile: {} columns",
    "each step takes {} of K",
)

Place = tuple[int, int, int]


def decode_tensile(name: str) -> KernelName | None:
    match = _TENSILE.match(name)
    if match is None and name.startswith("Cijk_"):  # a small kernel around a product
        if "_PostGSU" not in name:
            return build(name, "tensile", name[:48])
        short = f"splitk-reduce {name[5:]}"  # adds up partial sums
        return build(name, "tensile", short, op="reduction", role="splitk_reduce")
    if match is None:
        return None
    found = {
        key: pattern.search(name, match.end("types"))
        for key, pattern in _SEARCHED.items()
    }
    layout = ("n" if match["a"] == "ilk" else "t") + (
        "n" if match["b"] == "ljk" else "t"
    )
    fields = {"op": "gemm", "layout": layout, **_tensile_fields(match, found)}
    types = f"{match['types']}: types of A and B, of the result and of the sums"
    parts = [(match.start("a") - 1, match.end("b"), layout_meaning(layout))]
    parts.append((*match.span("types"), types))
    for hit in filter(None, found.values()):
        parts += explain(hit, _MEANINGS)
    waves = found["waves"]
    short = gemm_label(
        "gemm", fields, waves and f"w{waves[1]}", fields["stream_k"] and "stream-k"
    )
    return build(name, "tensile", short, parts, **fields)


def _tensile_fields(
    match: re.Match[str], found: dict[str, re.Match[str] | None]
) -> dict[str, Any]:
    tile, mma, split, stream = (
        found[key] for key in ("tile", "mma", "split", "stream")
    )
    target = found["target"]
    whole = mma is not None and mma[4] is not None  # with K and the number of blocks
    return {
        **_tensile_types(match["types"], match["more"] or ""),
        **(fields_of(tile) if tile else {}),
        "mma": "x".join(mma.groups()[:3]) if mma and whole else None,
        "mma_mn": "x".join(mma.groups()[:2]) if mma and not whole else None,
        **from_gfx(target[1] if target else None),
        "epilogue": "bias" if found["bias"] else None,
        "split_k": int(split[1]) if split and int(split[1]) > 1 else None,
        "stream_k": True if stream and int(stream[1]) > 0 else None,
    }


def _tensile_types(first: str, second: str) -> dict[str, str]:
    """`BBS` is A/B, result, compute; `SB` one type and the flag for beta. The newer
    form: A/B (two letters if they differ), then result and compute (`B_BS`) or
    flags."""
    letters, rest = _LETTER.findall(first), _LETTER.findall(second)
    if "".join(letters) != first:
        return {}
    one = [letters[0]] * 4
    if len(letters) == 2 and letters[1] == "B":
        found = one
    elif len(letters) == 3:
        found = [letters[0], *letters]
    elif len(letters) > 2 or "".join(rest) != second:
        return {}
    elif len(letters) == 1 and second == "B":
        found = one
    else:
        found = [letters[0], letters[-1], *rest] if len(rest) == 2 else []
    keys = ("dtype_a", "dtype_b", "dtype_out", "dtype_acc")
    return {key: _LETTERS[letter] for key, letter in zip(keys, found, strict=False)}


def decode_miopen(name: str) -> KernelName | None:
    """The record of a MIOpen kernel:
    `igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32_wt...`."""
    if name.startswith("igemm_"):
        return _decode_igemm(name)
    if (prefix := next(filter(name.startswith, _MIOPEN), None)) is None:
        return None
    fields = dict(
        zip(("op", "pass_", "algo"), _MIOPEN[prefix].split("."), strict=False)
    )
    parts = [(0, len(prefix), f"MIOpen: {fields['op'] or 'a helper'}")]
    word = name.partition("(")[0].removeprefix("MIOpen")
    return build(
        name,
        "miopen",
        word,
        parts,
        **{key: text for key, text in fields.items() if text},
    )


def _decode_igemm(name: str) -> KernelName | None:
    if (match := _IGEMM.fullmatch(name)) is None:
        return None
    fields = {
        "op": "conv",
        **fields_of(
            match,
            {
                "fp32": "fp32",
                "fp16": "fp16",
                "bf16": "bf16",
                "int8": "int8",
            }.get,
        ),
    }
    fields |= from_gfx(_IGEMM_TARGETS.get(match["target"]))
    fields["pass_"] = _IGEMM_PASSES[match["pass"]]
    more = (f"w{match['wave']}", "gkgs" if match["rest"].endswith("_gkgs") else None)
    short = gemm_label(fields["pass_"], fields, *more)
    return build(name, "miopen", short, explain(match, _MEANINGS), **fields)


def decode_ck(name: str) -> KernelName | None:
    if (sign := signature(name)) is None or not sign.scope.startswith(
        ("ck::", "ck_tile::")
    ):
        return None
    fields = _ck_operation(name, sign)
    parts: list[Part] = [(sign.start, sign.end, "a kernel of Composable Kernel")]
    if fields["op"] in ("gemm", "conv") and fields.get("pass_") != "wgrad":
        sizes = _find_tile(name)
        parts += [
            (start, end, text.format(value))
            for (start, end, value), text in zip(sizes, _CK_MEANINGS, strict=False)
        ]
        values = [value for _, _, value in sizes]
        fields |= dict(zip(("tile_m", "tile_n", "tile_k"), values[1:], strict=False))
        fields |= {"mma_mn": f"{values[6]}x{values[7]}"} if values else {}
    word = fields.get("pass_") or fields["op"] or "ck"
    mma = f"mi{fields['mma_mn']}" if "mma_mn" in fields else None
    return build(
        name, "ck", gemm_label(word, fields, mma, _tail(name, sign)), parts, **fields
    )


def _tail(name: str, sign: Signature) -> str:
    """The name of the kernel; ck_tile runs every class through one function, kentry."""
    found = (
        _CLASS.search(name, sign.end, sign.end + 30) if sign.base == "kentry" else None
    )
    if found is not None:
        return name[found.end() : found.end() + min(int(found[1]), 40)]
    return sign.base.removeprefix("kernel_").replace("grouped_conv_", "")


def _ck_operation(name: str, sign: Signature) -> dict[str, Any]:
    base, head = sign.base, name[sign.end : sign.end + 120]
    if sign.scope.startswith("ck_tile::"):
        if "MoeSorting" in head or "MoeSorting" in base:
            return {"op": "moe"}
        norm = "norm" if re.search("norm2d(?:Fwd|Bwd)", head) else None
        return {"op": "attention" if "Fmha" in head else norm}
    direction = next((way for piece, way in _CK_PASSES if piece in base), None)
    if "conv" in base or direction:
        return {"op": "conv", "pass_": direction}
    return {"op": "gemm" if "gemm" in base else None}


def _find_tile(name: str) -> list[Place]:
    """The only ten consecutive integers that satisfy the arithmetic, or nothing."""
    pattern = _MANGLED_RUN if name.startswith("_Z") else _PLAIN_RUN
    hits: dict[tuple[int, ...], list[Place]] = {}
    for run in pattern.finditer(name):
        digits = re.compile(r"\d{1,6}").finditer(name, *run.span())
        numbers = [(*found.span(), int(found[0])) for found in digits]
        for at in range(len(numbers) - 9):
            window = numbers[at : at + 10]
            values = tuple(value for _, _, value in window)
            if _is_tile(values):
                hits.setdefault(values, window)
    # A demangled name repeats its types in the parameters, so the same values may come
    # twice.
    return next(iter(hits.values())) if len(hits) == 1 else []


def _is_tile(values: tuple[int, ...]) -> bool:
    block, m, n, _, _, _, m_xdl, n_xdl, m_wave, n_wave = values
    rows, columns = m_xdl * m_wave, n_xdl * n_wave
    if 0 in values or m_xdl not in (4, 16, 32, 64) or n_xdl not in (4, 16, 32, 64):
        return False
    return (
        m % rows == 0
        and n % columns == 0
        and block == 64 * (m // rows) * (n // columns)
    )
