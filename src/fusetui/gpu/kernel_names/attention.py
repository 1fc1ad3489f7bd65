"""Fused attention of NVIDIA GPUs: FlashAttention 2 and 3, memory-efficient and
TensorRT-LLM's.

Documented by Dao-AILab/flash-attention csrc/flash_attn/src/kernel_traits.h,
flash_fwd_launch_template.h, flash_bwd_launch_template.h,
hopper/mainloop_fwd_sm90_tma_gmma_ws.hpp; the memory-efficient kernels by
pytorch/pytorch aten/src/ATen/native/transformers/cuda/
mem_eff_attention/kernels/generate_kernels.py. The names of TensorRT-LLM follow from
patterns.
"""

from __future__ import annotations

import re
from typing import Any, Final

from fusetui.text.patterns import late

from .cxx import cute_tuple
from .fp8 import TRTLLM_TYPES
from .record import KernelName, Meaning, build, explain, fields_of, spaced, tile_words
from .vocabulary import CUTLASS, cxx_type

_INT = r"(?:\(int\))?(?P<{}>\d{{1,5}})"
_BOOL = r"(?:\(bool\))?(?:true|false|0|1)"
_FLASH2 = late(
    r"(?:void )?(?:(?:pytorch_)?flash::)?(?P<kernel>flash_(?P<pass>fwd|bwd)_\w+)<"
    rf"(?:{_BOOL}, )?(?:\w+::)?Flash_\w+_kernel_traits<"
    + ", ".join(_INT.format(group) for group in ("head_dim", "tile_m", "tile_n"))
    + r", [\w(), ]+?, (?P<dtype_a>cutlass::\w+), (?:\w+::)?Flash_kernel_traits<[^>]*> ?>"
    + rf"(?P<flags>(?:, {_BOOL}){{0,12}})"
)
_FLASH3 = late(
    r"FlashAttn(?P<pass>Fwd|Bwd)Sm\d{1,6}<(?:\w+::)?CollectiveMainloop\w*?Sm(?P<cc>\d{1,6})<"
    rf"(?P<stages>\d{{1,3}}), {cute_tuple('x', 'y', 'z')}, "
    rf"{cute_tuple('tile_m', 'tile_n', 'head_dim')}, "
    r"(?:\d{1,6}, )?(?P<dtype_a>[\w:]+), (?P<dtype_acc>[\w:]+), cutlass::arch::Sm\d{1,6}, "
    r"(?P<causal>true|false)(?:, (?P<local>true|false))?"
)
_FLASH_CLASS = late(r"flash::((?:Flash|flash_)\w+)")
_MEM_EFF = late(
    r"fmha_cutlass(?P<pass>[FB])_(?P<dtype_a>f16|bf16|f32)_(?P<aligned>aligned|notaligned)"
    r"_(?P<tile_m>\d{1,4})x(?P<tile_n>\d{1,4})(?P<rest>(?:_[a-z0-9]+)*?)_sm(?P<cc>\d{2,3})(?=\(|$)"
)
_TRTLLM_TYPE = "|".join(word for word in TRTLLM_TYPES if not word.startswith("Mx"))
_TRTLLM = late(
    r"(?:void )?(?:\w{1,40}::){0,8}fmhaSm(?P<cc>\d{2,3})[af]?Kernel_"
    rf"Q(?:kv)?(?P<dtype_a>{_TRTLLM_TYPE})"
    rf"(?:Kv(?:{_TRTLLM_TYPE}))?O(?P<dtype_out>{_TRTLLM_TYPE})"
    r"H(?:Qk(?P<qk>\d{1,6})HV\d{1,6}(?:HVPerCta\d{1,6})?|(?P<head_dim>\d{1,6}))"
    r"(?=[A-Za-z0-9]*?(?P<window>SlidingOrChunked)|)(?P<rest>[A-Za-z0-9]*?)"
    r"Q(?P<tile_m>\d{1,6})Kv(?P<tile_n>\d{1,6})(?P<tail>[A-Za-z0-9]*)"
)
_MEANINGS: Final = {
    "pass": "{}: forward or backward pass",
    "head_dim": "head dimension {}",
    "qk": "head dimension of Q and K: {}",
    "tile_m": "tile of {} queries",
    "tile_n": "tile of {} keys",
    "dtype_a": "type of Q, K and V",
    "aligned": "{}: whether the rows are aligned for vector loads",
    "causal": "full causal mask: {}",
    "local": "limited to a window (causal or not): {}",
    "dtype_out": "type of the result: {}",
    "window": "limited to a sliding window, or to chunks",
}


def decode(name: str) -> KernelName | None:
    if match := _MEM_EFF.match(name):
        return _mem_eff(match)
    if "fmhaSm" in name[:120] and (match := _TRTLLM.match(name)):
        return _trtllm(match)
    if "flash" not in name[:60]:
        return None
    match = _FLASH2.match(name)
    return _flash2(match) if match else _decode_flash3(name)


def _record(
    match: re.Match[str], types: Meaning, *words: str | None, **more: Any
) -> KernelName:
    fields = {**fields_of(match, types), **more}
    head, tile = fields.get("head_dim"), tile_words(fields["tile_m"], fields["tile_n"])
    known = (
        fields.get("pass_"),
        fields.get("dtype_a"),
        tile,
        f"d{head}" if head else None,
    )
    short = spaced("attn", *known, "causal" if fields.get("causal") else None, *words)
    parts = explain(match, _MEANINGS)
    return build(match.string, "flash-attn", short, parts, op="attention", **fields)


def _flash2(match: re.Match[str]) -> KernelName:
    flags, kernel = _flags(match), match["kernel"]
    what = (
        kernel.removeprefix(f"flash_{match['pass']}_").removesuffix("kernel").strip("_")
    )
    words = (what[:20], *(word for word in ("local", "dropout") if flags.get(word)))
    fields = {"causal": flags.get("causal"), "local": flags.get("local") or None}
    return _record(match, cxx_type, *words, pass_=match["pass"], **fields)


_FLAGS: Final = {
    "flash_fwd_kernel": (("dropout", "causal", "local"), 6),
    "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel": (("dropout", "causal", "local"), 5),
    "flash_fwd_splitkv_kernel": (("causal", "local"), 6),
}
"""The first flags after the traits, and how many there are at least where `local` is
one of them: FlashAttention has it from 2.3 on, and every release added some after
it."""


def _flags(match: re.Match[str]) -> dict[str, bool]:
    names, with_local = _FLAGS.get(match["kernel"], ((), 0))
    given = match["flags"].replace("(bool)", "").split(", ")[1:]
    found = {
        name: flag in ("true", "1") for name, flag in zip(names, given, strict=False)
    }
    return found if len(given) >= with_local else {**found, "local": False}


def _decode_flash3(name: str) -> KernelName | None:
    if "flash::" not in name[:120]:
        return None
    if (match := _FLASH3.search(name, 0, 3000)) is None or match["pass"] == "Bwd":
        other = _FLASH_CLASS.search(name, 0, 300)
        return (
            build(name, "flash-attn", f"attn {other[1]}", op="attention")
            if other
            else None
        )
    local = match["local"] == "true" or None
    words = ("fa3", f"s{match['stages']}", "local" if local else None)
    fields = {"pass_": "fwd", "causal": match["causal"] == "true", "local": local}
    return _record(
        match, cxx_type, *words, cluster="x".join(match.group("x", "y", "z")), **fields
    )


def _mem_eff(match: re.Match[str]) -> KernelName:
    loads = None if match["aligned"] == "aligned" else "notaligned"
    words = (*match["rest"].split("_"), loads, f"sm{match['cc']}")
    return _record(
        match, CUTLASS.get, *words, pass_="fwd" if match["pass"] == "F" else "bwd"
    )


def _trtllm(match: re.Match[str]) -> KernelName:
    local, generates = match["window"] is not None, match["tail"].endswith("ForGen")
    words = (
        "local" if local else None,
        "gen" if generates else None,
        f"sm{match['cc']}",
    )
    fields = {
        "causal": True if "Causal" in match["rest"] else None,
        "local": local or None,
    }
    head_dim = int(match["qk"] or match["head_dim"])
    return _record(match, TRTLLM_TYPES.get, *words, head_dim=head_dim, **fields)
