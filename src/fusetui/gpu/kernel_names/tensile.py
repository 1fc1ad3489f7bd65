"""AMD's matrix products: `Cijk_Alik_Bljk_BBS_BH_Bias_..._MT128x96x64_MI16x16x1_...`.

Documented by ROCm/Tensile Tensile/SolutionStructs.py and docs/src/reference/nomenclature.rst and by
ROCm/hipBLASLt tensilelite/Tensile/SolutionStructs.py.

    Cijk_A{ilk|lik}_B{ljk|jlk}_{types}_{flags}..._MT{M}x{N}x{K}_MI{...}_..._ISA{target}_...
"""

from __future__ import annotations

import re
from typing import Any, Final

from fusetui.gpu.kernel_names.record import KernelName, Part, build, gemm_label
from fusetui.gpu.kernel_names.vocabulary import from_gfx, layout_meaning

_HEAD = re.compile(
    r"(?:Custom_)?Cijk_A(?P<a>ilk|lik)C?_B(?P<b>ljk|jlk)C?_(?P<types>[A-Z0-9]+)(?:_(?P<more>[A-Z0-9]+))?"
)
_TILE = re.compile(r"_MT(\d{1,4})x(\d{1,4})x(\d{1,4})(?=_|$)")
_INSTRUCTION = re.compile(r"_MI(\d{1,6})x(\d{1,6})x(\d{1,6})(?:x(\d{1,6}))?(?=_|$)")
_TARGET = re.compile(r"_(?:ISA|gfx)([0-9a-f]+)(?=_|$)")
_SPLIT = re.compile(r"_GSU(\d{1,4})(?=_|$)")
_STREAM = re.compile(r"_SK(\d{1,6})(?=_|$)")
_BIAS = re.compile(r"_(Bias)(?=_)")
_WAVES = re.compile(r"_(?:MIWT|WG)(\d{1,6}_\d{1,6})")

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
_LETTER = re.compile("F8N|B8N|F8|B8|I8|[SDCZHBI]")


def decode(name: str) -> KernelName | None:
    """The record of a Tensile or hipBLASLt kernel."""
    if "Cijk_" not in name[:12]:
        return None
    match = _HEAD.match(name)
    if match is None:
        return _decode_helper(name)
    found = {key: pattern.search(name, match.end("types")) for key, pattern in _SEARCHES.items()}
    fields = _fields(match, found)
    waves = found["waves"]
    short = gemm_label("gemm", fields, waves and f"w{waves[1]}", fields["stream_k"] and "stream-k")
    return build(name, "tensile", short, _parts(match, found), **fields)


_SEARCHES: Final = {
    "tile": _TILE,
    "mma": _INSTRUCTION,
    "target": _TARGET,
    "split": _SPLIT,
    "stream": _STREAM,
    "bias": _BIAS,
    "waves": _WAVES,
}


def _decode_helper(name: str) -> KernelName | None:
    """Small kernels around a product: PostGSU adds up the partial sums of split-K."""
    if not name.startswith("Cijk_"):
        return None
    if "_PostGSU" in name:
        fields = {"op": "reduction", "role": "splitk_reduce"}
        return build(name, "tensile", f"splitk-reduce {name[5:]}", [], **fields)
    return build(name, "tensile", name[:48], [])


def _fields(match: re.Match[str], found: dict[str, re.Match[str] | None]) -> dict[str, Any]:
    tile, mma, split, stream = (found[key] for key in ("tile", "mma", "split", "stream"))
    target = found["target"]
    whole = mma is not None and mma[4] is not None
    return {
        "op": "gemm",
        "layout": ("n" if match["a"] == "ilk" else "t") + ("n" if match["b"] == "ljk" else "t"),
        **_types(match["types"], match["more"] or ""),
        "tile_m": int(tile[1]) if tile else None,
        "tile_n": int(tile[2]) if tile else None,
        "tile_k": int(tile[3]) if tile else None,
        "mma": f"{mma[1]}x{mma[2]}x{mma[3]}" if mma and whole else None,
        "mma_mn": f"{mma[1]}x{mma[2]}" if mma and not whole else None,
        **from_gfx(target[1] if target else None),
        "epilogue": "bias" if found["bias"] else None,
        "split_k": int(split[1]) if split and int(split[1]) > 1 else None,
        "stream_k": True if stream and int(stream[1]) > 0 else None,
    }


def _types(first: str, second: str) -> dict[str, str | None]:
    """`BBS` is A/B, result, compute; `SB` one type and the flag for beta; `B_BS` the newer form."""
    letters = _LETTER.findall(first)
    if "".join(letters) != first:
        return {}
    if len(letters) == 2 and letters[1] == "B":
        return _named(letters[0], letters[0], letters[0], letters[0])
    if len(letters) == 3:
        return _named(letters[0], letters[0], letters[1], letters[2])
    return _split_types(letters, second)


def _split_types(letters: list[str], second: str) -> dict[str, str | None]:
    """The newer form: A/B type (two letters if they differ), then result and compute or flags."""
    rest = _LETTER.findall(second)
    if len(letters) > 2 or "".join(rest) != second:
        return {}
    if len(letters) == 1 and second == "B":
        return _named(letters[0], letters[0], letters[0], letters[0])
    return _named(letters[0], letters[-1], rest[0], rest[1]) if len(rest) == 2 else {}


def _named(a: str, b: str, out: str, acc: str) -> dict[str, str | None]:
    return {
        "dtype_a": _LETTERS[a],
        "dtype_b": _LETTERS[b],
        "dtype_out": _LETTERS[out],
        "dtype_acc": _LETTERS[acc],
    }


def _parts(match: re.Match[str], found: dict[str, re.Match[str] | None]) -> list[Part]:
    letters = ("n" if match["a"] == "ilk" else "t") + ("n" if match["b"] == "ljk" else "t")
    layout_span = (match.start("a") - 1, match.end("b"))
    parts: list[Part] = [
        (*layout_span, layout_meaning(letters)),
        (
            *match.span("types"),
            f"{match['types']}: types of A and B, of the result and of the sums",
        ),
    ]
    for key, group, text in _PART_TEXTS:
        hit = found[key]
        if hit is not None and hit[group] is not None:
            parts.append((*hit.span(group), text.format(hit[group])))
    return parts


_PART_TEXTS: Final = (
    ("tile", 1, "output tile of one workgroup: {} rows"),
    ("tile", 2, "output tile of one workgroup: {} columns"),
    ("tile", 3, "each step takes {} of K"),
    ("mma", 1, "matrix instruction: M is {}"),
    ("mma", 2, "matrix instruction: N is {}"),
    ("target", 1, "built for gfx{}; 000 is any device"),
    ("split", 1, "K is split {} ways (1: not split)"),
    ("stream", 1, "stream-K mode {} (0: off)"),
    ("bias", 1, "can add a bias when it stores; plain matrix products run it too"),
)
