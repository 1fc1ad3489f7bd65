"""Fused attention of NVIDIA GPUs: FlashAttention 2 and 3, memory-efficient and TensorRT-LLM's.

Documented by Dao-AILab/flash-attention csrc/flash_attn/src/kernel_traits.h,
flash_fwd_launch_template.h, flash_bwd_launch_template.h, hopper/mainloop_fwd_sm90_tma_gmma_ws.hpp;
the memory-efficient kernels by pytorch/pytorch aten/src/ATen/native/transformers/cuda/
mem_eff_attention/kernels/generate_kernels.py. The names of TensorRT-LLM follow from patterns.
"""

from __future__ import annotations

import re
from typing import Any, Final

from fusetui.gpu.kernel_names.cxx import cute_tuple
from fusetui.gpu.kernel_names.record import KernelName, build, explain, tile_words
from fusetui.gpu.kernel_names.vocabulary import CUTLASS, cxx_type, from_capability

_INT = r"(?:\(int\))?(?P<{}>\d{{1,5}})"
_BOOL = r"(?:\(bool\))?(?:true|false|0|1)"
_FLASH2 = re.compile(
    r"(?:void )?(?:(?:pytorch_)?flash::)?(?P<kernel>flash_(?P<pass>fwd|bwd)_\w+)<"
    rf"(?:{_BOOL}, )?(?:\w+::)?Flash_\w+_kernel_traits<"
    + ", ".join(_INT.format(group) for group in ("head", "m", "n"))
    + r", [\w(), ]+?, (?P<a>cutlass::\w+), (?:\w+::)?Flash_kernel_traits<[^>]*> ?>"
    + rf"(?P<flags>(?:, {_BOOL}){{0,12}})"
)
_FLASH3 = re.compile(
    r"FlashAttn(?P<pass>Fwd|Bwd)Sm\d{1,6}<(?:\w+::)?CollectiveMainloop\w*?Sm(?P<cc>\d{1,6})<"
    rf"(?P<stages>\d{{1,3}}), {cute_tuple('x', 'y', 'z')}, {cute_tuple('m', 'n', 'head')}, "
    r"(?:\d{1,6}, )?(?P<a>[\w:]+), (?P<acc>[\w:]+), cutlass::arch::Sm\d{1,6}, "
    r"(?P<causal>true|false)(?:, (?P<local>true|false))?"
)
_MEM_EFF = re.compile(
    r"fmha_cutlass(?P<pass>[FB])_(?P<a>f16|bf16|f32)_(?P<aligned>aligned|notaligned)"
    r"_(?P<m>\d{1,4})x(?P<n>\d{1,4})(?P<rest>(?:_[a-z0-9]+)*?)_sm(?P<cc>\d{2,3})(?=\(|$)"
)
_TRTLLM_TYPES: Final = {
    "Bfloat16": "bf16",
    "Fp16": "fp16",
    "Fp32": "fp32",
    "E4m3": "fp8_e4m3",
    "E5m2": "fp8_e5m2",
    "E2m1": "fp4_e2m1",
}
_TRTLLM_TYPE = "|".join(_TRTLLM_TYPES)
_TRTLLM = re.compile(
    r"(?:void )?(?:\w{1,40}::){0,8}fmhaSm(?P<cc>\d{2,3})[af]?Kernel_"
    rf"Q(?:kv)?(?P<a>{_TRTLLM_TYPE})"
    rf"(?:Kv(?:{_TRTLLM_TYPE}))?O(?P<out>{_TRTLLM_TYPE})"
    r"H(?:Qk(?P<qk>\d{1,6})HV\d{1,6}(?:HVPerCta\d{1,6})?|(?P<head>\d{1,6}))"
    r"(?=[A-Za-z0-9]*?(?P<window>SlidingOrChunked)|)(?P<rest>[A-Za-z0-9]*?)"
    r"Q(?P<m>\d{1,6})Kv(?P<n>\d{1,6})(?P<tail>[A-Za-z0-9]*)"
)
_MEANINGS: Final = {
    "pass": "{}: forward or backward pass",
    "head": "head dimension {}",
    "qk": "head dimension of Q and K: {}",
    "m": "tile of {} queries",
    "n": "tile of {} keys",
    "a": "type of Q, K and V",
    "cc": "built for compute capability {}",
    "stages": "pipeline stages in flight: {}",
    "aligned": "{}: whether the rows are aligned for vector loads",
    "causal": "full causal mask: {}",
    "local": "limited to a window (causal or not): {}",
    "out": "type of the result: {}",
    "window": "limited to a sliding window, or to chunks",
}


def decode(name: str) -> KernelName | None:
    """The record of a fused attention kernel."""
    if name.startswith("fmha_cutlass"):
        return _decode_mem_eff(name)
    if "fmhaSm" in name[:120]:
        return _decode_trtllm(name)
    if "flash" not in name[:60]:
        return None
    return _decode_flash2(name) or _decode_flash3(name)


def _record(
    name: str, match: re.Match[str], words: tuple[str | None, ...], **fields: Any
) -> KernelName:
    head = fields.get("head_dim")
    shown = (
        f"attn {fields.get('pass_') or ''}".strip(),
        fields.get("dtype_a"),
        tile_words(fields.get("tile_m"), fields.get("tile_n"), None),
        f"d{head}" if head else None,
        "causal" if fields.get("causal") else None,
        *words,
    )
    short = " ".join(word for word in shown if word)
    present = {group: text for group, text in _MEANINGS.items() if group in match.groupdict()}
    return build(name, "flash-attn", short, explain(match, present), op="attention", **fields)


def _decode_flash2(name: str) -> KernelName | None:
    match = _FLASH2.match(name)
    if match is None:
        return None
    flags, kernel = _flags(match), match["kernel"]
    what = kernel.removeprefix(f"flash_{match['pass']}_").removesuffix("kernel").strip("_")
    return _record(
        name,
        match,
        (
            what[:20] or None,
            "local" if flags.get("local") else None,
            "dropout" if flags.get("dropout") else None,
        ),
        pass_=match["pass"],
        head_dim=int(match["head"]),
        tile_m=int(match["m"]),
        tile_n=int(match["n"]),
        dtype_a=cxx_type(match["a"]),
        causal=flags.get("causal"),
        local=flags.get("local") or None,
    )


_FLAGS: Final = {
    "flash_fwd_kernel": (("dropout", "causal", "local"), 6),
    "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel": (("dropout", "causal", "local"), 5),
    "flash_fwd_splitkv_kernel": (("causal", "local"), 6),
}
"""The first flags after the traits, and how many there are at least where `local` is one of them:
FlashAttention has it from 2.3 on, and every release added some after it."""


def _flags(match: re.Match[str]) -> dict[str, bool]:
    names, with_local = _FLAGS.get(match["kernel"], ((), 0))
    given = match["flags"].replace("(bool)", "").split(", ")[1:]
    found = {name: flag in ("true", "1") for name, flag in zip(names, given, strict=False)}
    return found if len(given) >= with_local else {**found, "local": False}


def _decode_flash3(name: str) -> KernelName | None:
    if "flash::" not in name[:120]:
        return None
    match = _FLASH3.search(name, 0, 3000)
    if match is None or match["pass"] == "Bwd":
        return _decode_flash_other(name)
    flags = {name: match[name] == "true" for name in ("causal", "local")}
    return _record(
        name,
        match,
        ("fa3", f"s{match['stages']}", "local" if flags["local"] else None),
        **from_capability(match["cc"]),
        pass_="fwd",
        stages=int(match["stages"]),
        cluster=f"{match['x']}x{match['y']}x{match['z']}",
        tile_m=int(match["m"]),
        tile_n=int(match["n"]),
        head_dim=int(match["head"]),
        dtype_a=cxx_type(match["a"]),
        dtype_acc=cxx_type(match["acc"]),
        causal=flags.get("causal"),
        local=flags.get("local") or None,
    )


_FLASH_CLASS = re.compile(r"flash::(?P<word>(?:Flash|flash_)\w+)")


def _decode_flash_other(name: str) -> KernelName | None:
    match = _FLASH_CLASS.search(name, 0, 300)
    if match is None:
        return None
    return build(name, "flash-attn", f"attn {match['word']}", [], op="attention")


def _decode_mem_eff(name: str) -> KernelName | None:
    match = _MEM_EFF.match(name)
    if match is None:
        return None
    words = tuple(match["rest"].split("_"))
    return _record(
        name,
        match,
        (*words, None if match["aligned"] == "aligned" else "notaligned", f"sm{match['cc']}"),
        **from_capability(match["cc"]),
        pass_="fwd" if match["pass"] == "F" else "bwd",
        dtype_a=CUTLASS[match["a"]],
        tile_m=int(match["m"]),
        tile_n=int(match["n"]),
    )


def _decode_trtllm(name: str) -> KernelName | None:
    match = _TRTLLM.match(name)
    if match is None:
        return None
    tail = "gen" if match["tail"].endswith("ForGen") else None
    return _record(
        name,
        match,
        ("local" if match["window"] else None, tail, f"sm{match['cc']}"),
        **from_capability(match["cc"]),
        dtype_a=_TRTLLM_TYPES.get(match["a"]),
        dtype_out=_TRTLLM_TYPES.get(match["out"]),
        head_dim=int(match["qk"] or match["head"]),
        tile_m=int(match["m"]),
        tile_n=int(match["n"]),
        causal=True if "Causal" in match["rest"] else None,
        local=True if match["window"] else None,
    )
