"""Libraries that a namespace or a prefix identifies: vLLM, sglang, FBGEMM, FlashInfer
and others.

Their kernels have ordinary C++ function names, so a library is two tables: how its
names begin, and which words of the base name say what it does. The names are those of
the public sources: vllm-project/vllm csrc/, sgl-project/sglang, pytorch/FBGEMM
fbgemm_gpu/, flashinfer-ai/flashinfer, NVIDIA/TransformerEngine, NVIDIA/apex csrc/,
Dao-AILab/flash-attention csrc/layer_norm, ROCm/aiter, deepseek-ai/DeepEP,
bitsandbytes-foundation/bitsandbytes csrc/kernels.cu, pytorch/ao torchao/csrc/, NVSHMEM,
uxlfoundation/oneCCL, HazyResearch/ThunderKittens, modular/modular
max/kernels/src/linalg, tile-ai/tilelang, and the kernels of NVIDIA/cutlass
python/CuTeDSL, which FlashAttention 4 uses. Of CUB (NVIDIA/cccl cub/cub/device/),
hipCUB and ROCm/rocPRIM, whose trampoline_kernel<...> names a config selector, the base
name says the algorithm. Of kernels of no known library only whole words of a C++
function's name count: rope_kernel, qknorm, all_reduce.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from fusetui.text.patterns import compiled, lazy_pattern

from .cxx import (
    SCOPE,
    Signature,
    callee_text,
    element_type,
    is_index_type,
    signature,
)
from .record import (
    KernelName,
    Word,
    build,
    explain_group,
    fields_of,
    find_first_op,
    spaced,
    word_of_group,
)
from .vocabulary import CXX_TYPE, cxx_type


class Library(NamedTuple):
    """How the kernels of one library are recognized, and what their names say.

    All texts are patterns. They are searched for in the namespaces and the base name.
    """

    family: str
    beginning: str  # how its names begin
    # by the field `op` the words that imply it; the first that matches counts
    ops: Mapping[str, str]
    # by `fwd` and `bwd` the words that imply it; None: the usual words
    passes: Mapping[str, str] | None = None
    # whether the words may also be in the first template argument
    searches_argument: bool = False


_LIBRARIES: Final = (
    Library(
        "vllm-sglang",
        r"(?:vllm|sglang|sgl_hip|sgl_kernel|(?:gptq_)?marlin|marlin_moe_wna16|marlin_24|machete)::"
        r"|Marlin(?:_24)?$|(?:gptq|awq)_marlin_repack|paged_attention_(?:ll4mi_|v\d)",
        {
            "moe": r"^vllm::moe::",
            "gemm": r"Marlin(?:_24)?$|^vllm::(?:gptq|awq)::gemm_",
            "copy": r"_marlin_repack_kernel$",
            "attention": r"paged_attention_",
            "comm": r"cross_device_reduce_",
            "norm": r"rms_norm",
            "elementwise": r"^(?:vllm|sgl_hip)::(?:\w+::)?\w*_and_mul_kernel",
            "rope": r"rotary_embedding",
            "quant": r"^vllm::(?:gptq|awq)::(?:dequantize|reconstruct)_"
            r"|scaled_(?:fp8|int8)_quant|per_token_group_quant",
        },
    ),
    Library(
        "fbgemm",
        r"(?:split|dense)_embedding_|fbgemm_gpu::|bounds_check_indices_kernel|permute_pooled_embs_"
        r"|linearize_(?:cache_)?index_|recat_\w*copy_async_kernel",
        {"embedding": r"embedding_(?:\w+_)?(?:backward_codegen_|codegen_forward_)"},
        {"fwd": r"codegen_forward_", "bwd": r"backward_codegen_"},
    ),
    Library(
        "flashinfer-trtllm",
        r"flashinfer::|tensorrt_llm::|trtllm_\w*::|moe::dev::|create_flashinfer_"
        r"|kernel_cutlass_kernel_(?:flashinfer|trtllm|tensorrt_llm)",
        {
            "moe": r"^moe::dev::",
            "comm": r"allreduce_fusion_kernel|allreduce",
            "norm": r"::\w*(?:RMSNorm|LayerNorm)\w*$",
            "gemm": r"router_gemm",
            "attention": r"::(?:Batch|Single)(?:Decode|Prefill)With",
        },
    ),
    Library(
        "deepseek",
        r"cuda::(?!std|__)|dpsk::|deep_ep::",
        {"comm": r"::(?:dispatch|combine)$"},
    ),
    Library(
        "aiter",
        r"aiter::",
        {
            "attention": r"fmha_(?:fwd|bwd)_",
            "norm": r"rmsnorm|layernorm",
            "moe": r"topksoftmax|moe_|fmoe_",
            "comm": r"cross_device_reduce|allreduce|reduce_scatter|allgather",
            "quant": r"_quant_kernel",
        },
        {"fwd": r"fmha_fwd_", "bwd": r"fmha_bwd_"},
    ),
    Library(
        "transformer-engine",
        r"transformer_engine::",
        {
            "norm": r"rmsnorm|layernorm|normalization::",
            "rope": r"rope",
            "quant": r"quantize|mxfp8|nvfp4",
        },
        {"fwd": r"_fwd_|_forward_", "bwd": r"_bwd_|_backward_"},
    ),
    Library(
        "flash-attn-ln",
        r"layer_norm::ln_",
        {"norm": r"ln_"},
        {"fwd": r"ln_fwd_", "bwd": r"ln_bwd_"},
    ),
    Library("gluon", r"gluon_", {"moe": r"_moe_"}),
    Library(
        "bitsandbytes",
        r"k(?:Quantize|Dequantize)(?:Blockwise)?$|kgemm_4bit_inference|kdequant_mm_int32"
        r"|kOptimizer(?:32bit|Static8bit)|kPreconditionOptimizer|kInt8VectorQuant",
        {
            "gemm": r"^kgemm_",
            "optimizer": r"Optimizer",
            "quant": r"^k(?:Quantize|Dequantize|dequant|Int8VectorQuant)",
        },
    ),
    Library("torchao", r"torchao::", {"gemm": r"gemm|_mm_|linear", "quant": r"quant"}),
    Library("nvshmem", r"nvshmem[xi]?_", {"comm": r"^"}),
    Library("oneccl", r"oneccl_|(?:one)?ccl::", {"comm": r"^"}),
    Library(
        "thunderkittens",
        r"kittens::|(?:bwd_)?attend_(?:prep_)?ker$",
        {
            "attention": r"attend|attn|attention",
            "gemm": r"matmul|gemm",
            "norm": r"layer_?norm|rms_?norm",
            "rope": r"rotary|rope",
        },
        searches_argument=True,
    ),
    Library(
        "mojo",
        r"(?:linalg|layout|nn)_\w{1,200}_gpu|multistage_gemm_",
        {"gemm": r"gemm|matmul"},
    ),
    Library(
        "tilelang",
        r"main_kernel$|\w{1,100}_tilelang(?:_kernel)?$",
        {
            "attention": r"(?:^|_)(?:mha|gqa|mla|attn|attention)_",
            "gemm": r"(?:^|_)(?:gemm|matmul)_",
        },
    ),
    Library(
        "flash-attn",
        r"kernel_cutlass_kernel_flash_attn|flash_(?:fwd|bwd)_sm\d{2,3}_",
        {"attention": r"^"},
        {"fwd": r"flash_fwd_|AttentionForward", "bwd": r"flash_bwd_|AttentionBackward"},
    ),
    Library(
        "cute-dsl",
        r"kernel_cutlass_",
        {
            "attention": r"Attention|[Ff][Mm][Hh][Aa]|Mla[A-Z]",
            "gemm": r"Gemm|gemm",
            "norm": r"RMSNorm|RmsNorm|LayerNorm|rmsnorm|layernorm",
            "loss": r"CrossEntropy",
            "softmax": r"Softmax",
        },
    ),
    Library(
        "apex",
        r"cu(?:ApplyLayerNorm|ApplyRMSNorm|ComputeGradInput|ComputePartGradGammaBeta"
        r"|ComputeGradGammaBeta)$|scaled_\w{0,60}softmax_warp_",
        {"softmax": r"softmax", "norm": r"^cu"},
        {"fwd": r"Apply|_forward$", "bwd": r"Grad|_backward$"},
    ),
)

# The traits of Apex have four types (weight, input, output, compute), those of
# FlashAttention a fifth, for the residual.
_LAYER_NORM_OF_APEX = lazy_pattern(
    r"<layer_norm::Kernel_traits(?:_finalize)?<(?:\d{1,7}u, )?(?:\w+, ){4}unsigned int,"
)
_APEX_FUNCTOR = lazy_pattern(
    rf">, (?P<functor>\w+Functor)\b(?:<(?P<dtype>{CXX_TYPE}) ?>)?"
)
_APEX_OPTIMIZER = lazy_pattern(r"Adam|SGD|LAMB|Lamb|Adagrad|NovoGrad")
# CuTe's Python kernels run module path, class and tensor shapes together.
_CUTE_DSL = lazy_pattern(
    r"kernel_cutlass_[a-z_0-9]*(?P<name>[A-Z]\w*?)_object_at_+(?P<rest>\w*)"
)
_AITER_ATTENTION = lazy_pattern(
    r"fmha_(?:fwd|bwd)_hd(?P<head_dim>\d{1,4})_(?P<dtype_a>bf16|fp16)(?P<causal>_causal)?(?:_|$)"
)


def decode(name: str) -> KernelName | None:
    """Decode the name of a kernel of one of the listed libraries.

    The library is recognized by the beginning of the name: `void vllm::moe::` is vLLM.
    A kernel of Apex without such a beginning is recognized by its functor. Returns None
    for a kernel of another library.
    """
    sign = signature(name)
    if sign is None:
        return None

    qualified_name = f"{sign.scope}{sign.base}"
    library = _find_library(qualified_name)
    if library is None:
        return _decode_apex(name, sign)

    # Layer norms of Apex have the same names, but other template arguments.
    family = library.family
    if family == "flash-attn-ln" and _LAYER_NORM_OF_APEX.match(name, sign.end):
        family = "apex"

    searched = qualified_name
    if library.searches_argument:
        template_arguments, *_ = name[sign.end : sign.end + 100].split("(", maxsplit=1)
        searched += template_arguments

    fields: dict[str, Any] = {
        "op": find_first_op(library.ops, searched),
        "pass_": _determine_pass(library, searched),
    }
    attention = _AITER_ATTENTION.match(sign.base) if family == "aiter" else None
    if attention:
        fields |= fields_of(attention, str)
        fields["causal"] = True if attention["causal"] else None
    else:
        fields["dtype"] = _find_element_type(name, sign)

    parts = [sign.explain_base(f"the kernel's own name; library: {family}")]
    return build(name, family, _compose_library_short(name, sign), parts, **fields)


def _decode_apex(name: str, sign: Signature) -> KernelName | None:
    """Decode the name of a kernel of NVIDIA Apex.

    Apex has a copy of ATen's multi_tensor_apply_kernel outside of any namespace:
    `void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, ...`.
    Returns None for other names.
    """
    if sign.base != "multi_tensor_apply_kernel" or sign.scope:
        return None

    match = _APEX_FUNCTOR.search(name, sign.end, sign.end + 200)
    parts = [sign.explain_base("one launch for many tensors")]
    if match is None:
        return build(name, "apex", "apex multi-tensor", parts)

    functor = match["functor"]
    is_optimizer = _APEX_OPTIMIZER.search(functor) is not None
    parts.append(explain_group(match, "functor", "what is done to each element"))
    return build(
        name,
        "apex",
        f"apex {functor}",
        parts,
        functor=functor,
        op="optimizer" if is_optimizer else None,
        dtype=cxx_type(match["dtype"]),
    )


def _find_library(qualified: str) -> Library | None:
    """Return the first library whose beginning fits a qualified name.

    Returns None if none does.
    """
    for library in _LIBRARIES:
        if compiled(library.beginning).match(qualified):
            return library
    return None


_FORWARD = lazy_pattern(r"(?:^|_|::)(?:fwd|forward)(?=_|$)|Forward")
_BACKWARD = lazy_pattern(r"(?:^|_|::)(?:bwd|backward)(?=_|$)|Backward")


def _determine_pass(library: Library, searched: str) -> str | None:
    """Say whether a kernel is of the forward or of the backward pass.

    Args:
        library: The library of the kernel, which may have words of its own.
        searched: The text in which the words are searched for.

    Returns:
        `fwd` or `bwd`. None if there are neither words, or the words of both, as for
        a kernel that does both.
    """
    if library.passes is not None:
        return find_first_op(library.passes, searched)

    is_forward = _FORWARD.search(searched) is not None
    is_backward = _BACKWARD.search(searched) is not None
    if is_forward and not is_backward:
        return "fwd"
    if is_backward and not is_forward:
        return "bwd"
    return None


_BLOCK_SCALED = lazy_pattern(r"(?:^|_)(?P<format>mxfp8|mxfp4|nvfp4)(?=_|$)")
_BLOCK_SCALED_TYPES: Final = {
    "mxfp8": "mxfp8",  # e4m3 or e5m2
    "mxfp4": "mxfp4_e2m1",
    "nvfp4": "nvfp4_e2m1",
}
"""Formats that a name may have as a word: those of OCP's microscaling formats
specification, of which MXFP4 has one element type, and NVIDIA's."""


def _find_element_type(name: str, sign: Signature) -> str | None:
    """Return the element type of a kernel.

    It is the block-scaled format that is a word of the name, else the only type among
    the template arguments. Returns None if neither is there.
    """
    block_scaled = _BLOCK_SCALED.search(sign.base)
    if block_scaled:
        return _BLOCK_SCALED_TYPES[block_scaled["format"]]
    return element_type(name, sign)


def _compose_library_short(name: str, sign: Signature) -> str:
    """Compose the short text of a kernel of a library.

    It has the outermost namespace, the function without `_kernel`, and the template
    arguments. The namespace is left out if the function repeats it. A kernel that was
    generated by CuTe DSL begins with `cute` instead.
    """
    function = sign.base.removesuffix("_kernel").removesuffix("Kernel")
    function = function.replace("embedding_backward_codegen", "emb_bwd")
    function = function.replace("embedding_codegen_forward", "emb_fwd")

    cute_match = _CUTE_DSL.match(function)
    if cute_match:
        return f"cute {cute_match['name']} {cute_match['rest']}"

    namespace, *_ = sign.scope.split("::", maxsplit=1)
    is_anonymous = namespace == "(anonymous namespace)"
    is_repeated = namespace.lower() in function.lower()
    first_words = function if is_anonymous or is_repeated else f"{namespace} {function}"
    return callee_text(name, sign, first_words)


_CUB_ALGORITHMS: Final = {
    "sort": r"(?:Radix|Merge|Segmented)Sort|(?:radix|merge|segmented|block)_sort",
    "scan": r"[Ss]can",
    "reduction": r"[Rr]educe",
}
_SELECTOR = lazy_pattern(rf"{SCOPE}(?:wrapped_)?(?P<what>\w+?)_config(?:_selector)?<")
_CUB_TYPE = lazy_pattern(rf"\b(?:{CXX_TYPE})(?=[,>*])")


def decode_cub(name: str) -> KernelName | None:
    """Decode the name of a kernel of CUB, hipCUB or rocPRIM.

    Such a name begins like `void cub::DeviceScanKernel<`. Returns None for a kernel of
    another library.
    """
    sign = signature(name)
    if sign is None:
        return None

    if "cub::" not in sign.scope and not sign.scope.startswith("rocprim::"):
        return None

    algorithm = _find_algorithm(name, sign)
    op = find_first_op(_CUB_ALGORITHMS, algorithm.text)
    meaning = f"the algorithm: {op}" if op else "the algorithm"
    short_algorithm = algorithm.text.removeprefix("Device").removesuffix("Kernel")

    types = _find_cub_types(name, algorithm.end)
    is_known_type = len(types) == 1 and not is_index_type(types[0])
    return build(
        name,
        "cub",
        short=spaced("cub", short_algorithm, "*".join(types)),
        parts=[(algorithm.start, algorithm.end, meaning)],
        op=op,
        dtype=types[0] if is_known_type else None,
    )


def _find_algorithm(name: str, sign: Signature) -> Word:
    """Find the word of a name that says the algorithm of a kernel.

    It is the function, except where rocPRIM runs every algorithm through one
    function: there it is the configuration among the template arguments.
    """
    selector = None
    if sign.base == "trampoline_kernel":
        selector = _SELECTOR.search(name, sign.end, sign.end + 400)
    if selector is None:
        return Word(sign.base, sign.start, sign.end)
    return word_of_group(selector, "what")


def _find_cub_types(name: str, end: int) -> list[str]:
    """Collect the element types that follow the algorithm of a kernel, each once.

    Flags are left out.

    Args:
        name: The full name of the kernel.
        end: The index at which the name of the algorithm ends.
    """
    types: list[str] = []
    for cxx_name in _CUB_TYPE.findall(name[end : end + 160]):
        dtype = cxx_type(cxx_name)
        is_flag = dtype == "bool"
        if dtype is not None and not is_flag and dtype not in types:
            types.append(dtype)
    return types


_RUNTIME = lazy_pattern(r"__amd_rocclr_(?P<op>fill|copy)Buffer\w*")
_WORDS_OF_OPS: Final = {
    "comm": r"(?:^|_)all_?reduce(?:_|$)",
    "rope": r"rope_kernel|rotary_embedding_kernel",
    "norm": r"(?:^|_)(?:rms_?norm|layer_?norm|group_?norm|qk_?norm)(?:_|$)",
    "quant": r"_group_quant_|(?:^|_)(?:fp8|int8|8bit)_quant|(?:^|_)quant(?:ize)?_(?:fp8|int8|8bit)",
    "moe": r"^moe_sum_kernel$|(?:^|_)moe_(?:sorting|align_block_size)",
}
"""Whole words of a base name of no known library, by the op that they imply."""


def decode_other(name: str) -> KernelName | None:
    """Decode a kernel of no known library whose words say what it does.

    Copies and fills of the ROCm runtime belong here too. Returns None if the words
    imply nothing.
    """
    runtime = _RUNTIME.fullmatch(name)
    if runtime:
        op = runtime["op"]
        meaning = f"{op}: a job of the runtime, done by a kernel"
        parts = [explain_group(runtime, "op", meaning)]
        return build(name, "other", f"{op} buffer (rocclr)", parts, op=op)

    sign = signature(name)
    if sign is None or sign.mangled:
        return None
    if sign.scope not in ("", "(anonymous namespace)::"):
        return None

    op_by_words = find_first_op(_WORDS_OF_OPS, sign.base)
    # Words of moe are telling enough. Others imply something only in the name of a C++
    # function, whose parameters follow its name.
    has_parameters = "(" in name
    if op_by_words is None or (op_by_words != "moe" and not has_parameters):
        return None
    return build(
        name,
        "other",
        short=sign.base,
        parts=[sign.explain_base(f"its name says {op_by_words}")],
        op=op_by_words,
        dtype=element_type(name, sign),
    )
