"""Fused attention on NVIDIA GPUs: FlashAttention 2 and 3, memory-efficient attention,
and that of TensorRT-LLM.

Documented by Dao-AILab/flash-attention csrc/flash_attn/src/kernel_traits.h,
flash_fwd_launch_template.h, flash_bwd_launch_template.h,
hopper/mainloop_fwd_sm90_tma_gmma_ws.hpp; the memory-efficient kernels by
pytorch/pytorch aten/src/ATen/native/transformers/cuda/
mem_eff_attention/kernels/generate_kernels.py. The names of TensorRT-LLM follow from
patterns.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from fusetui.text.patterns import lazy_pattern

from .cxx import make_cute_tuple_pattern
from .fp8 import TRTLLM_TYPES
from .record import KernelName, Meaning, build, explain, fields_of, spaced, tile_words
from .vocabulary import CUTLASS, cxx_type

_INT = r"(?:\(int\))?(?P<{}>\d{{1,5}})"
_FLAG_VALUE = lazy_pattern(r"true|false|0|1")
_BOOL = rf"(?:\(bool\))?(?:{_FLAG_VALUE.pattern})"
_FLASH2 = lazy_pattern(
    r"(?:void )?(?:(?:pytorch_)?flash::)?(?P<kernel>flash_(?P<pass>fwd|bwd)_\w+)<"
    rf"(?:{_BOOL}, )?(?:\w+::)?Flash_\w+_kernel_traits<"
    + ", ".join(_INT.format(group) for group in ("head_dim", "tile_m", "tile_n"))
    + r", [\w(), ]+?, (?P<dtype_a>cutlass::\w+), (?:\w+::)?Flash_kernel_traits<[^>]*> ?>"
    + rf"(?P<flags>(?:, {_BOOL}){{0,12}})"
)
_FLASH3 = lazy_pattern(
    r"FlashAttn(?P<pass>Fwd|Bwd)Sm\d{1,6}<(?:\w+::)?CollectiveMainloop\w*?Sm(?P<cc>\d{1,6})<"
    rf"(?P<stages>\d{{1,3}}), {make_cute_tuple_pattern('x', 'y', 'z')}, "
    rf"{make_cute_tuple_pattern('tile_m', 'tile_n', 'head_dim')}, "
    r"(?:\d{1,6}, )?(?P<dtype_a>[\w:]+), (?P<dtype_acc>[\w:]+), cutlass::arch::Sm\d{1,6}, "
    r"(?P<causal>true|false)(?:, (?P<local>true|false))?"
)
_FLASH_CLASS = lazy_pattern(r"flash::((?:Flash|flash_)\w+)")
_MEM_EFF = lazy_pattern(
    r"fmha_cutlass(?P<pass>[FB])_(?P<dtype_a>f16|bf16|f32)_(?P<aligned>aligned|notaligned)"
    r"_(?P<tile_m>\d{1,4})x(?P<tile_n>\d{1,4})(?P<rest>(?:_[a-z0-9]+)*?)_sm(?P<cc>\d{2,3})(?=\(|$)"
)
_TRTLLM_TYPE = "|".join(word for word in TRTLLM_TYPES if not word.startswith("Mx"))
_TRTLLM = lazy_pattern(
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


_WORDS: Final = {
    "rf": "the output stays in registers until it is complete",
    "gmem": "parts of the output go through memory",
    "dropout": "can apply dropout",
    "seqaligned": "for lengths that are multiples of the tile",
}
"""Words behind the tile of memory-efficient attention."""

_MAX_VARIANT_CHARACTERS: Final = 20
"""Of the words that tell kernels of FlashAttention 2 apart, as they are shown."""

_MAX_HEAD_DIM = lazy_pattern(r"k(\d{1,6})")


def _explain_word(word: str) -> str | None:
    """Explain a word behind the tile of memory-efficient attention.

    Returns None if the meaning is not known.
    """
    head_dim = _MAX_HEAD_DIM.fullmatch(word)
    if head_dim:
        return f"for head dimensions up to {head_dim[1]}"
    return _WORDS.get(word)


def decode(name: str) -> KernelName | None:
    """Decode the name of a kernel of fused attention.

    Returns None for any other kernel.

    >>> decode("fmha_cutlassF_bf16_aligned_64x64_rf_sm80").short
    'attn fwd bf16 64x64 rf sm80'
    """
    memory_efficient = _MEM_EFF.match(name)
    if memory_efficient:
        return _build_memory_efficient_record(memory_efficient)

    if "fmhaSm" in name[:120]:
        trtllm = _TRTLLM.match(name)
        if trtllm:
            return _build_trtllm_record(trtllm)

    if "flash" not in name[:60]:
        return None

    flash2 = _FLASH2.match(name)
    if flash2:
        return _build_flash2_record(flash2)
    return _decode_flash3(name)


def _build_attention_record(
    match: re.Match[str], types: Meaning, *words: str | None, **other_fields: Any
) -> KernelName:
    """Build the record of a kernel of fused attention.

    Args:
        match: The match of the scheme; its groups become fields.
        types: Translates the type words of the scheme to our names.
        words: Words that end the short text; None is left out.
        other_fields: Fields that are not groups of the match.
    """
    fields = {**fields_of(match, types), **other_fields}

    head_dim = fields.get("head_dim")
    is_causal = fields.get("causal") is True
    short = spaced(
        "attn",
        fields.get("pass_"),
        fields.get("dtype_a"),
        tile_words(fields["tile_m"], fields["tile_n"]),
        f"d{head_dim}" if head_dim else None,
        "causal" if is_causal else None,
        *words,
    )

    parts = explain(match, _MEANINGS, _explain_word)
    return build(match.string, "flash-attn", short, parts, op="attention", **fields)


def _build_flash2_record(match: re.Match[str]) -> KernelName:
    """Build the record of a kernel of FlashAttention 2.

    The name contains `flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<...`, for
    instance. The short text has the variant, here `splitkv`, and says whether the mask
    is local and dropout can be applied, if the order of the flags is known.
    """
    words_behind_pass = match["kernel"].removeprefix(f"flash_{match['pass']}_")
    variant = words_behind_pass.removesuffix("kernel").strip("_")

    flags = _read_flags(match)
    is_local = flags.get("local") is True
    has_dropout = flags.get("dropout") is True
    return _build_attention_record(
        match,
        cxx_type,
        variant[:_MAX_VARIANT_CHARACTERS],
        "local" if is_local else None,
        "dropout" if has_dropout else None,
        pass_=match["pass"],
        causal=flags.get("causal"),
        local=True if is_local else None,
    )


class _FlagOrder(NamedTuple):
    """What the boolean template arguments of a kernel of FlashAttention 2 mean."""

    names: tuple[str, ...]
    """The names of the first flags after the traits, in their order."""
    count_with_local: int
    """The number of flags in the first release that has `local`; earlier ones have
    fewer, and another flag in its place."""


_FLAG_ORDERS: Final = {
    "flash_fwd_kernel": _FlagOrder(
        names=("dropout", "causal", "local"), count_with_local=6
    ),
    "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel": _FlagOrder(
        names=("dropout", "causal", "local"), count_with_local=5
    ),
    "flash_fwd_splitkv_kernel": _FlagOrder(
        names=("causal", "local"), count_with_local=6
    ),
}
"""The flags of kernels of FlashAttention 2 by the name of the kernel. It has `local`
from 2.3 on, and every release added some flags after it."""


def _read_flags(match: re.Match[str]) -> dict[str, bool]:
    """Read the flags of a kernel of FlashAttention 2.

    The group `flags` of the match is a list such as `, (bool)1, (bool)0, false`.

    Returns:
        The values of `dropout`, `causal` and `local`, as far as the kernel has these
        flags. `local` is False in a release that does not have it. Empty for a kernel
        whose flags have an unknown order.
    """
    order = _FLAG_ORDERS.get(match["kernel"])
    if order is None:
        return {}

    value_texts = _FLAG_VALUE.findall(match["flags"])
    values = [text in ("true", "1") for text in value_texts]
    # Later releases have more flags than names, and a shortened name may have fewer.
    flags = dict(zip(order.names, values, strict=False))
    if len(values) < order.count_with_local:
        flags["local"] = False
    return flags


def _decode_flash3(name: str) -> KernelName | None:
    """Decode the name of a kernel of FlashAttention 3.

    Of a backward kernel only the class is known. Returns None for a name without such a
    class.
    """
    if "flash::" not in name[:120]:
        return None

    forward = _FLASH3.search(name, 0, 3000)
    if forward is None or forward["pass"] == "Bwd":
        flash_class = _FLASH_CLASS.search(name, 0, 300)
        if flash_class is None:
            return None
        return build(name, "flash-attn", f"attn {flash_class[1]}", op="attention")

    is_local = forward["local"] == "true"
    return _build_attention_record(
        forward,
        cxx_type,
        "fa3",
        f"s{forward['stages']}",
        "local" if is_local else None,
        cluster=f"{forward['x']}x{forward['y']}x{forward['z']}",
        pass_="fwd",
        causal=forward["causal"] == "true",
        local=True if is_local else None,
    )


def _build_memory_efficient_record(match: re.Match[str]) -> KernelName:
    """Build the record of a kernel of memory-efficient attention.

    Such a name is `fmha_cutlassF_bf16_aligned_64x128_rf_sm80`.
    """
    is_aligned = match["aligned"] == "aligned"
    is_forward = match["pass"] == "F"
    words_behind_tile = match["rest"].split("_")
    return _build_attention_record(
        match,
        CUTLASS.get,
        *words_behind_tile,
        None if is_aligned else "notaligned",
        f"sm{match['cc']}",
        pass_="fwd" if is_forward else "bwd",
    )


def _build_trtllm_record(match: re.Match[str]) -> KernelName:
    """Build the record of an attention kernel of TensorRT-LLM.

    The name begins like `fmhaSm100aKernel_QkvE4m3OBfloat16H128`. The field `causal` is
    True if the name has `Causal`. It is None otherwise, because a name without that
    word does not exclude a causal mask.
    """
    is_causal = "Causal" in match["rest"]
    is_local = match["window"] is not None
    is_generation = match["tail"].endswith("ForGen")
    return _build_attention_record(
        match,
        TRTLLM_TYPES.get,
        "local" if is_local else None,
        "gen" if is_generation else None,
        f"sm{match['cc']}",
        head_dim=int(match["qk"] or match["head_dim"]),
        causal=True if is_causal else None,
        local=True if is_local else None,
    )
