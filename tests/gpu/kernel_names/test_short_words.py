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
        (REDUCTION, "512x1.4", "threads of a block x outputs of each thread"),
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
