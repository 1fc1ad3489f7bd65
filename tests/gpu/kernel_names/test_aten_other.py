"""Other kernels of ATen, and those of Intel GPUs."""

import pytest
from tests.gpu.kernel_names.conftest import Says

from fusetui.gpu.kernel_names import decode


def test_softmax_forward_has_types_of_input_output_and_sums(says: Says) -> None:
    says(
        "void (anonymous namespace)::softmax_warp_forward<c10::Half, float, float, 6, false, false>"
        "(float*, c10::Half const*, int)",
        family="aten-other",
        op="softmax",
        pass_="fwd",
        dtype_a="fp16",
        dtype_out="fp32",
        dtype_acc="fp32",
    )


def test_softmax_of_long_rows_swaps_input_and_output_types_in_backward(
    says: Says,
) -> None:
    """The backward kernel writes what the forward one reads."""
    scope = "at::native::(anonymous namespace)::"
    says(
        f"void {scope}cunn_SoftMaxBackward<4, c10::BFloat16, float, double, {scope}Epilogue>(int)",
        dtype_a="fp64",
        dtype_acc="fp32",
        dtype_out="bf16",
    )
    says(
        f"void {scope}cunn_SoftMaxForward<4, c10::BFloat16, float, double, {scope}Epilogue>(int)",
        dtype_a="bf16",
        dtype_acc="fp32",
        dtype_out="fp64",
    )


def test_layer_norm_has_the_type_of_its_sums_only_if_the_name_has_two_types(
    says: Says,
) -> None:
    layer_norm = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel"
    says(f"{layer_norm}<c10::Half, float>(int)", dtype_a="fp16", dtype_acc="fp32")
    says(f"{layer_norm}<c10::Half>(int)", dtype_a=None, dtype_acc=None)


ARANGE = (
    "elementwise_kernel_with_index<int, at::native::arange_cuda_out(c10::Scalar const&, "
    "at::Tensor&)::{lambda()#1}::operator()() const::{lambda(long)#1}>(int)"
)


@pytest.mark.parametrize(
    "scope", ["(anonymous namespace)::", "<unnamed>::", "at::native::", ""]
)
def test_arange_has_no_dtype_because_its_parameter_is_the_index(
    says: Says, scope: str
) -> None:
    """The parameter of the lambda is the index, whatever the elements are."""
    found = says(
        f"void {scope}{ARANGE}",
        family="aten-other",
        op="elementwise",
        functor="arange_cuda_out",
        dtype=None,
        short="arange of index",
    )
    texts = [found.name[start:end] for start, end, _ in found.parts]
    assert texts == ["elementwise_kernel_with_index", "arange_cuda_out"]


def test_elementwise_kernel_with_index_alone_has_no_functor(says: Says) -> None:
    says("elementwise_kernel_with_index", op="elementwise", functor=None)


def test_unnamed_namespaces_of_nsys_decode_as_anonymous_ones(says: Says) -> None:
    says(
        "void <unnamed>::softmax_warp_forward<float, float, float, (int)6, (bool)0>(T2 *)",
        family="aten-other",
        op="softmax",
        dtype_a="fp32",
    )


def test_foreach_kernels_have_the_type_of_their_functor(says: Says) -> None:
    scope = "at::native::(anonymous namespace)::"
    head = (
        f"void {scope}multi_tensor_apply_kernel<{scope}TensorListMetadata<2>, {scope}"
    )
    says(
        f"{head}UnaryOpFunctor<c10::Half, 2, 1, 1>, std::x<float> >(int)", dtype="fp16"
    )
    says(
        f"{head}CopyFunctor<bool, float, 2, 1, 1>, at::native::Copy<bool, float> >(int)",
        dtype=None,
        dtype_a="fp32",
        dtype_out="bool",
        short="foreach Copy Copy fp32->bool",
    )


@pytest.mark.parametrize(
    ("base", "op", "direction"),
    [
        ("(anonymous namespace)::CatArrayBatchedCopy_contig<float, 2>", "copy", None),
        (
            "(anonymous namespace)::vectorized_layer_norm_kernel<float, float>",
            "norm",
            "fwd",
        ),
        ("(anonymous namespace)::RowwiseMomentsCUDAKernel<float>", "norm", None),
        ("batch_norm_backward_elemt_kernel<float>", "norm", "bwd"),
        ("(anonymous namespace)::indexSelectLargeIndex<float, long>", "index", None),
        ("(anonymous namespace)::max_pool_backward_nchw<float, float>", "pool", "bwd"),
        ("bitonicSortKVInPlace<-2, -1, 16, 16, float>", "sort", None),
        ("(anonymous namespace)::searchsorted_cuda_kernel<float, long>", None, None),
    ],
)
def test_base_name_decides_operation_and_direction(
    says: Says, base: str, op: str, direction: str
) -> None:
    says(
        f"void at::native::{base}(float*)", family="aten-other", op=op, pass_=direction
    )


def test_multi_tensor_apply_is_foreach_or_optimizer_by_its_functor(says: Says) -> None:
    scope = "at::native::(anonymous namespace)::"
    says(
        f"void {scope}multi_tensor_apply_kernel<{scope}TensorListMetadata<2>, {scope}"
        f"BinaryOpListAlphaFunctor<float, 2, 2, 0>, std::plus<float>, float>(int)",
        op="foreach",
        functor="BinaryOpListAlphaFunctor",
        short="foreach BinaryOpListAlpha plus fp32",
    )
    says(
        f"void {scope}multi_tensor_apply_kernel<{scope}FusedOptimizerTensorListMetadata<5>, {scope}"
        f"FusedAdamMathFunctor<float, 5> >(int)",
        op="optimizer",
        functor="FusedAdamMathFunctor",
    )


def test_mangled_name_of_a_gather_is_an_index_operation(says: Says) -> None:
    says(
        "_ZN2at6native12_GLOBAL__N_120vectorized_gather_kernelIfEEvv",
        family="aten-other",
        op="index",
    )


def test_xpu_kernels_are_elementwise_or_of_unknown_operation(says: Says) -> None:
    says(
        "at::native::xpu::VectorizedElementwiseKernel<4, at::native::xpu::GeluErfFunctor<float>>",
        family="xpu",
        op="elementwise",
    )
    says("gemm_kernel", family="xpu", op=None)


@pytest.mark.parametrize(
    ("kernel", "op"),
    [
        ("adaptive_average_pool<float>(float const*, float*, int)", "pool"),
        ("cuComputeGradGammaBeta<float, float, true>(float const*, long)", "norm"),
        ("cuComputePartGradGammaBeta<float, float, true>(float const*, long)", "norm"),
    ],
)
def test_pools_and_gradients_of_norms_have_their_operation(
    kernel: str, op: str
) -> None:
    found = decode(f"void at::native::(anonymous namespace)::{kernel}")
    assert found is not None
    assert (found.family, found.op) == ("aten-other", op)
