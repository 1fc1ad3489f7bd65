"""Guesses about the kernels of a step."""

import pytest

from fusetui.capture.count import Kernels
from fusetui.capture.errors import CaptureError
from fusetui.capture.expect import Guess, compare, guess_lines, kinds, parse, parse_for

GELU = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl("
    "at::TensorIteratorBase&, at::native::GeluType)::{lambda()#1}::operator()() const::"
    "{lambda()#4}::operator()() const::{lambda(c10::BFloat16)#1}, std::array<char*, 2ul> >"
    "(int, at::native::GeluCUDAKernelImpl, std::array<char*, 2ul>)"
)


def test_a_guess_is_counts_by_kind() -> None:
    assert parse("kernels=5, gemm=3 pointwise=2") == {"kernels": 5, "gemm": 3, "pointwise": 2}


@pytest.mark.parametrize("guess", ["gemm", "gemm=", "gemm=-1", "mat=3", "gemm=three"])
def test_what_is_no_guess_names_the_kinds(guess: str) -> None:
    with pytest.raises(CaptureError, match=r"no guess such as gemm=3: .*attention, .*gemm"):
        parse(guess)


def test_an_empty_guess_shows_one() -> None:
    with pytest.raises(CaptureError, match="the guess is empty"):
        parse(" ")


def test_a_guess_can_be_for_one_variant() -> None:
    assert parse_for(["gemm=3", "compiled: kernels=4"], ["eager", "compiled"]) == {
        "eager": {"gemm": 3},
        "compiled": {"gemm": 3, "kernels": 4},
    }


def test_a_guess_for_an_unknown_variant_is_told() -> None:
    with pytest.raises(CaptureError, match="names 'fast'"):
        parse_for(["fast: gemm=3"], ["eager"])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::mm", "gemm"),
        ("aten::addmm", "gemm"),
        ("mkldnn::_linear_pointwise", "unknown"),
        ("aten::gelu", "pointwise"),
        ("aten::native_layer_norm", "norm"),
        ("aten::sum", "reduction"),
        ("aten::cat", "copy"),
        ("graph_0_cpp_fused_gelu_mul_0", "pointwise"),
        ("graph_1_cpp_fused_native_layer_norm_tanh_2", "reduction"),
        ("nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT", "gemm"),
        ("triton_poi_fused_gelu_mul_0", "pointwise"),
        ("triton_per_fused_native_layer_norm_0", "reduction"),
        (GELU, "pointwise"),
        ("geglu_forward_kernel_triton", "pointwise"),
        ("geglu_gemm_kernel_triton", "gemm"),
        ("grouped_gemm_kernel_triton", "gemm"),
        ("my_kernel", "unknown"),
    ],
)
def test_a_kernel_counts_as_its_kind(name: str, kind: str) -> None:
    assert kind in kinds(name)


def test_found_is_the_number_per_step() -> None:
    kernels = Kernels(["aten::mm", "aten::mm", "aten::gelu", "aten::gelu"], steps=2)
    assert compare({"kernels": 2, "gemm": 2, "conv": 0}, kernels) == (
        Guess("kernels", 2, 2),
        Guess("gemm", 2, 1),
        Guess("conv", 0, 0),
    )


def test_copies_are_no_kernels() -> None:
    kernels = Kernels(["k"], steps=1, copies=2, sets=1)
    found = compare({"kernels": 1, "memcpy": 2, "memset": 1}, kernels)
    assert all(guess.right for guess in found)


def test_guesses_are_marked_right_or_wrong() -> None:
    lines = guess_lines("eager", [Guess("gemm", 3, 3), Guess("kernels", 5, 4.5)])
    assert lines == ["= eager gemm: guess 3, found 3", "! eager kernels: guess 5, found 4.5"]
