"""Families that a namespace or a prefix determines: vLLM, sglang, FBGEMM, FlashInfer and others.

Their kernels have ordinary C++ function names, so a library is two tables: how its names begin, and
which words of the base name say what it does. The names are those of the public sources:
vllm-project/vllm csrc/, sgl-project/sglang, pytorch/FBGEMM fbgemm_gpu/, flashinfer-ai/flashinfer,
NVIDIA/TransformerEngine, NVIDIA/apex csrc/, Dao-AILab/flash-attention csrc/layer_norm, ROCm/aiter,
deepseek-ai/DeepEP, bitsandbytes-foundation/bitsandbytes csrc/kernels.cu, pytorch/ao torchao/csrc/,
NVSHMEM, uxlfoundation/oneCCL, HazyResearch/ThunderKittens, modular/modular max/kernels/src/linalg,
tile-ai/tilelang, and the kernels of NVIDIA/cutlass python/CuTeDSL, which FlashAttention 4 uses.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from fusetui.gpu.kernel_names.cxx import Signature, callee_text, signature
from fusetui.gpu.kernel_names.record import KernelName, build

Rule = tuple[str, str]
"""A pattern for scope and base name together, and the op that it determines."""


class Library(NamedTuple):
    """One library: how its names begin, what the rest says, whether fwd and bwd are
    distinguished, and whether the first template argument counts as part of the name."""

    family: str
    begins: re.Pattern[str]
    rules: tuple[tuple[re.Pattern[str], str], ...]
    forward: re.Pattern[str] | None = None
    backward: re.Pattern[str] | None = None
    argument: bool = False


def _library(
    family: str,
    begins: str,
    *rules: Rule,
    forward: str = "",
    backward: str = "",
    argument: bool = False,
) -> Library:
    return Library(
        family,
        re.compile(begins),
        tuple((re.compile(pattern), op) for pattern, op in rules),
        re.compile(forward) if forward else None,
        re.compile(backward) if backward else None,
        argument,
    )


_LIBRARIES: Final = (
    _library(
        "vllm-sglang",
        r"(?:vllm|sglang|sgl_hip|sgl_kernel|(?:gptq_)?marlin|marlin_moe_wna16|marlin_24|machete)::"
        r"|Marlin(?:_24)?$|(?:gptq|awq)_marlin_repack|paged_attention_(?:ll4mi_|v\d)",
        (r"^vllm::moe::", "moe"),
        (r"Marlin(?:_24)?$|^vllm::(?:gptq|awq)::gemm_", "gemm"),
        (r"^vllm::(?:gptq|awq)::(?:dequantize|reconstruct)_", "quant"),
        (r"_marlin_repack_kernel$", "copy"),
        (r"paged_attention_", "attention"),
        (r"cross_device_reduce_", "comm"),
        (r"rms_norm", "norm"),
        (r"^vllm::(?:masked_)?act_and_mul_kernel", "elementwise"),
        (r"rotary_embedding", "rope"),
        (r"scaled_(?:fp8|int8)_quant|per_token_group_quant", "quant"),
    ),
    _library(
        "fbgemm",
        r"(?:split|dense)_embedding_|fbgemm_gpu::|bounds_check_indices_kernel|permute_pooled_embs_"
        r"|linearize_(?:cache_)?index_|recat_\w*copy_async_kernel",
        (r"embedding_(?:\w+_)?(?:backward_codegen_|codegen_forward_)", "embedding"),
        forward=r"codegen_forward_",
        backward=r"backward_codegen_",
    ),
    _library(
        "flashinfer-trtllm",
        r"flashinfer::|tensorrt_llm::|trtllm_\w*::|moe::dev::|create_flashinfer_"
        r"|kernel_cutlass_kernel_(?:flashinfer|trtllm|tensorrt_llm)",
        (r"^moe::dev::", "moe"),
        (r"allreduce_fusion_kernel|allreduce", "comm"),
        (r"::\w*(?:RMSNorm|LayerNorm)\w*$", "norm"),
        (r"router_gemm", "gemm"),
        (r"::(?:Batch|Single)(?:Decode|Prefill)With", "attention"),
    ),
    _library(
        "deepseek",
        r"cuda::(?!std|__)|dpsk::|deep_ep::",
        (r"::(?:dispatch|combine)$", "comm"),
    ),
    _library(
        "aiter",
        r"aiter::",
        (r"fmha_(?:fwd|bwd)_", "attention"),
        (r"rmsnorm|layernorm", "norm"),
        (r"topksoftmax|moe_|fmoe_", "moe"),
        (r"cross_device_reduce|allreduce|reduce_scatter|allgather", "comm"),
        (r"_quant_kernel", "quant"),
        forward=r"fmha_fwd_",
        backward=r"fmha_bwd_",
    ),
    _library(
        "transformer-engine",
        r"transformer_engine::",
        (r"rmsnorm|layernorm|normalization::", "norm"),
        (r"rope", "rope"),
        (r"quantize|mxfp8|nvfp4", "quant"),
        forward=r"_fwd_|_forward_",
        backward=r"_bwd_|_backward_",
    ),
    _library(
        "flash-attn-ln",
        r"layer_norm::ln_",
        (r"ln_", "norm"),
        forward=r"ln_fwd_",
        backward=r"ln_bwd_",
    ),
    _library("gluon", r"gluon_"),
    _library(
        "bitsandbytes",
        r"k(?:Quantize|Dequantize)(?:Blockwise)?$|kgemm_4bit_inference|kdequant_mm_int32"
        r"|kOptimizer(?:32bit|Static8bit)|kPreconditionOptimizer|kInt8VectorQuant",
        (r"^kgemm_", "gemm"),
        (r"Optimizer", "optimizer"),
        (r"^k(?:Quantize|Dequantize|dequant|Int8VectorQuant)", "quant"),
    ),
    _library("torchao", r"torchao::", (r"gemm|_mm_|linear", "gemm"), (r"quant", "quant")),
    _library("nvshmem", r"nvshmem[xi]?_", (r"^", "comm")),
    _library("oneccl", r"oneccl_|(?:one)?ccl::", (r"^", "comm")),
    _library(
        "thunderkittens",
        r"kittens::|(?:bwd_)?attend_(?:prep_)?ker$",
        (r"attend|attn|attention", "attention"),
        (r"matmul|gemm", "gemm"),
        (r"layer_?norm|rms_?norm", "norm"),
        (r"rotary|rope", "rope"),
        argument=True,
    ),
    _library(
        "mojo", r"(?:linalg|layout|nn)_\w{1,200}_gpu|multistage_gemm_", (r"gemm|matmul", "gemm")
    ),
    _library(
        "tilelang",
        r"main_kernel$|\w{1,100}_tilelang(?:_kernel)?$",
        (r"(?:^|_)(?:mha|gqa|mla|attn|attention)_", "attention"),
        (r"(?:^|_)(?:gemm|matmul)_", "gemm"),
    ),
    _library(
        "flash-attn",
        r"kernel_cutlass_kernel_flash_attn|flash_(?:fwd|bwd)_sm\d{2,3}_",
        (r"^", "attention"),
        forward=r"flash_fwd_|AttentionForward",
        backward=r"flash_bwd_|AttentionBackward",
    ),
    _library(
        "cute-dsl",
        r"kernel_cutlass_",
        (r"Attention|[Ff][Mm][Hh][Aa]|Mla[A-Z]", "attention"),
        (r"Gemm|gemm", "gemm"),
        (r"RMSNorm|RmsNorm|LayerNorm|rmsnorm|layernorm", "norm"),
        (r"CrossEntropy", "loss"),
        (r"Softmax", "softmax"),
    ),
    _library(
        "apex",
        r"cu(?:ApplyLayerNorm|ApplyRMSNorm|ComputeGradInput|ComputePartGradGammaBeta"
        r"|ComputeGradGammaBeta)$|scaled_\w{0,60}softmax_warp_",
        (r"softmax", "softmax"),
        (r"^cu", "norm"),
        forward=r"Apply|_forward$",
        backward=r"Grad|_backward$",
    ),
)
# The traits of Apex have four types (weight, input, output, compute), those of FlashAttention a
# fifth, for the residual.
_LAYER_NORM_OF_APEX = re.compile(
    r"<layer_norm::Kernel_traits(?:_finalize)?<(?:\d{1,7}u, )?(?:\w+, ){4}unsigned int,"
)
_APEX_FUNCTOR = re.compile(r">, (\w+Functor)\b")
_APEX_OPTIMIZER = re.compile(r"Adam|SGD|LAMB|Lamb|Adagrad|NovoGrad")
# CuTe's Python kernels run module path, class and tensor shapes together.
_CUTE_DSL = re.compile(r"kernel_cutlass_[a-z_0-9]*(?P<name>[A-Z]\w*?)_object_at_+(?P<rest>\w*)")
_AITER_ATTENTION = re.compile(r"fmha_(?:fwd|bwd)_hd(\d{1,4})_(bf16|fp16)(_causal)?(?:_|$)")


def decode(name: str) -> KernelName | None:
    """The record of a kernel whose namespace or prefix names its library."""
    sign = signature(name)
    if sign is None:
        return None
    qualified = sign.scope + sign.base
    library = next((entry for entry in _LIBRARIES if entry.begins.match(qualified)), None)
    if library is None:
        return _decode_apex(name, sign)
    family = library.family
    if family == "flash-attn-ln" and _LAYER_NORM_OF_APEX.match(name, sign.end):
        family = "apex"
    argument = name[sign.end : sign.end + 100].partition("(")[0] if library.argument else ""
    fields = _fields(library, qualified + argument, sign)
    parts = [(sign.start, sign.end, f"the kernel's own name; library: {family}")]
    return build(name, family, _short(name, sign), parts, **fields)


def _fields(library: Library, qualified: str, sign: Signature) -> dict[str, Any]:
    if sign.mangled and library.family != "aiter":
        return {}
    op = next((op for pattern, op in library.rules if pattern.search(qualified)), None)
    fields: dict[str, Any] = {"op": op}
    if op is not None and library.forward and library.forward.search(qualified):
        fields["pass_"] = "fwd"
    elif op is not None and library.backward and library.backward.search(qualified):
        fields["pass_"] = "bwd"
    match = _AITER_ATTENTION.match(sign.base) if library.family == "aiter" else None
    if match is not None:
        causal = True if match[3] else None
        fields |= {"head_dim": int(match[1]), "dtype_a": match[2], "causal": causal}
    return fields


def _decode_apex(name: str, sign: Signature) -> KernelName | None:
    """NVIDIA Apex has ATen's multi_tensor_apply_kernel outside any namespace."""
    if sign.base != "multi_tensor_apply_kernel" or sign.scope:
        return None
    functor = _APEX_FUNCTOR.search(name, sign.end, sign.end + 200)
    parts = [(sign.start, sign.end, "one launch for many tensors")]
    if functor is None:
        return build(name, "apex", "apex multi-tensor", parts)
    optimizer = _APEX_OPTIMIZER.search(functor[1])
    return build(
        name,
        "apex",
        f"apex {functor[1]}",
        [*parts, (*functor.span(1), "what is done to each element")],
        functor=functor[1],
        op="optimizer" if optimizer else None,
    )


def _short(name: str, sign: Signature) -> str:
    """The library's outer namespace, then the function."""
    space = sign.scope.partition("::")[0]
    base = sign.base.removesuffix("_kernel").removesuffix("Kernel")
    base = base.replace("embedding_backward_codegen", "emb_bwd")
    base = base.replace("embedding_codegen_forward", "emb_fwd")
    tensors = _CUTE_DSL.match(base)
    if tensors is not None:
        return f"cute {tensors['name']} {tensors['rest']}"
    shown = space if space.lower() not in base.lower() and space != "(anonymous namespace)" else ""
    return callee_text(name, sign, f"{shown} {base}".strip())
