"""The words of short names, and what they mean."""

from __future__ import annotations

import pytest

from fusetui.gpu.kernel_names import decoded
from fusetui.gpu.kernel_names.short_words import short_words

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
STRIDED = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
    "at::native::CUDAFunctor_add<float> >(at::TensorIteratorBase&, "
    "at::native::CUDAFunctor_add<float> const&)::{lambda(int)#1}>(int, "
    "at::native::gpu_kernel_impl_nocast<at::native::CUDAFunctor_add<float> >("
    "at::TensorIteratorBase&, at::native::CUDAFunctor_add<float> const&)::{lambda(int)#1})"
)
VECTORS = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>,"
    " std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, "
    "std::array<char*, 3ul>)"
)
REDUCTION = (
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, "
    "at::native::func_wrapper_t<float, at::native::sum_functor<float, float, float>::"
    "operator()(at::TensorIterator&)::{lambda(float, float)#1}>, unsigned int, float, 4, 4>"
    " >(at::native::ReduceOp<float>)"
)
TENSILE = (
    "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT16x16x256_MI16x16x1_MIWT1_1_ISA942"
)

SOFTMAX = (
    "void (anonymous namespace)::cunn_SoftMaxForward<8, float, float, float, "
    "at::native::(anonymous namespace)::SoftMaxForwardEpilogue>(float*, float const*, int)"
)
GATHER = "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int)"
EXPERTS = "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu"
VOLTA = "volta_scudnn_128x64_stridedB_splitK_xregs_large_nn_v1"
CONVOLUTION = (
    "void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false, false, "
    "true>(int, int, int)"
)
OPTIMIZED = (
    "void cutlass_cudnn_train::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_64x64_"
    "16x10_nhwc_align4>(Params)"
)
COMPLEX = "void fft2d_r2c_32x32<float2>(float2*)"
GENERATION = (
    "fmhaSm100fKernel_QkvE4m3OBfloat16HQk576HV512HVPerCta256PagedKvDenseStaticToken"
    "Sparse0P64VarSeqQ16Kv128StaticSwapsAbForGen"
)
CUTE = "kernel_cutlass_kernel___main__PersistentDenseGemmKernel_object_at__"
NORM = "void ck_tile::Rmsnorm2dFwd<float>(float)"


@pytest.mark.parametrize(
    ("name", "word", "meaning"),
    [
        (GEMM, "bf16", "the type of the elements"),
        (GEMM, "128x128x32", "tile of one block"),
        (GEMM, "s5", "5 pipeline stages"),
        (GEMM, "tn", "A is read transposed, B as stored"),
        (GEMM, "sm80", "the target that it was built for"),
        (STRIDED, "nocast", "without converting their type"),
        (STRIDED, "128x4", "threads of a block x elements of each thread"),
        (VECTORS, "x4", "a thread loads 4 elements at once"),
        (REDUCTION, "512x1.4", "the most threads of a block x outputs of each thread"),
        (SOFTMAX, "8", "elements that a thread loads at once"),
        (GATHER, "16", "bytes that a thread copies at once"),
        (EXPERTS, "NNT", "layouts of the result, A and B"),
        (EXPERTS, "ogs", "gathers its input rows"),
        (EXPERTS, "bf16*mxfp4_e2m1", "mxfp4_e2m1: elements that share a scale"),
        (VOLTA, "stridedB", "its meaning is not documented"),
        (VOLTA, "xregs...", "its meaning is not documented"),
        (CONVOLUTION, "1024.5.5.3.3.3.1...", "template arguments"),
        (OPTIMIZED, "optimized", "precomputed offsets"),
        (COMPLEX, "c64", "complex: two fp32 values"),
        (GENERATION, "gen", "generation phase"),
        (CUTE, "cute", "written in CuTe"),
        (NORM, "Rmsnorm2dFwd", "RMS norm"),
        (TENSILE, "w1_1", "matrix instructions of a wave: 1 along M, 1 along N"),
    ],
)
def test_words_of_short_names_are_explained(name: str, word: str, meaning: str) -> None:
    meanings = dict(short_words(decoded(name)))
    assert meaning in meanings[word]


def test_names_of_functions_are_not_explained() -> None:
    assert "gemm" not in dict(short_words(decoded(GEMM)))


def test_words_of_an_unrecognized_name_are_not_explained() -> None:
    assert [*short_words(decoded("my_kernel"))] == []
