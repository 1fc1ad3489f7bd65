"""ATen's elementwise kernels and reductions."""

import pytest
from tests.gpu.kernel_names.conftest import Says

LAMBDA = "{lambda()#2}::operator()() const::{lambda()#4}::operator()() const::{lambda(c10::BFloat16)#1}"


def test_vectorized_add_has_functor_dtype_and_vector_size(says: Says) -> None:
    says(
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<"
        "c10::BFloat16>, std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<c10::BFloat16>, "
        "std::array<char*, 3ul>)",
        family="aten-elementwise",
        op="elementwise",
        functor="CUDAFunctor_add",
        dtype="bf16",
        vec=4,
        short="add bf16 x4",
    )


def test_comparison_with_a_scalar_has_types_of_operands_and_result(says: Says) -> None:
    says(
        "void at::native::vectorized_elementwise_kernel<2, "
        "at::native::AUnaryFunctor<int, int, bool, "
        "at::native::(anonymous namespace)::CompareEqFunctor<int> >, at::detail::Array<char*, 2> >"
        "(int)",
        functor="CompareEqFunctor",
        dtype_a="int32",
        dtype_b="int32",
        dtype_out="bool",
        dtype=None,
        short="scalar compare_eq int32->bool x2",
    )


def test_lambda_is_named_by_its_function(says: Says) -> None:
    says(
        f"void at::native::vectorized_elementwise_kernel<8, at::native::GeluCUDAKernelImpl("
        f"at::TensorIteratorBase&, at::native::GeluType)::{LAMBDA}, std::array<char*, 2ul> >(int)",
        functor="GeluCUDAKernelImpl",
        vec=8,
        dtype="bf16",
        short="gelu bf16 x8",
    )
    says(
        f"void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
        f"at::native::(anonymous namespace)::where_kernel_impl(at::TensorIterator&)::{LAMBDA}>"
        f"(at::TensorIteratorBase&)::{{lambda(int)#1}}>(int)",
        functor="where_kernel_impl",
        vec=None,
        short="where bf16 strided 128x4 nocast",
    )


@pytest.mark.parametrize(
    ("functor", "op"),
    [
        ("direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}", "copy"),
        ("FillFunctor<float>", "fill"),
        (
            "copysign_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}",
            "elementwise",
        ),
        ("batch_norm_calc_invstd(at::Tensor const&)::{lambda(float)#1}", None),
    ],
)
def test_functor_decides_the_operation_of_an_elementwise_kernel(
    says: Says, functor: str, op: str
) -> None:
    says(
        f"void at::native::unrolled_elementwise_kernel<at::native::{functor}, "
        "at::detail::Array<char*, 2> >(int)",
        op=op,
    )


def test_index_put_and_random_kernels_are_elementwise_of_their_operation(
    says: Says,
) -> None:
    says(
        "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<"
        "at::native::index_put_kernel_impl<at::native::OpaqueType<4> "
        ">(at::TensorIterator&)> >(int)",
        op="index",
        functor=None,
        short="index_put 4B",
    )
    says(
        "void at::native::(anonymous "
        "namespace)::distribution_elementwise_grid_stride_kernel<float, 4,"
        " at::native::templates::cuda::uniform_and_transform<float, float> >(int)",
        op="rng",
    )


def test_names_as_nsys_spells_them_decode_alike(says: Says) -> None:
    says(
        "void at::native::vectorized_elementwise_kernel<(int)4, at::native::<unnamed>::"
        "CompareFunctor<long>, at::detail::Array<char *, (int)3>>(int)",
        vec=4,
        functor="CompareFunctor",
        dtype="int64",
    )


LAUNCHER = "at::native::gpu_kernel_impl_nocast"
ADD = "at::native::CUDAFunctor_add<float>"


def test_a_functor_inside_the_wrapped_lambda_of_its_launcher(says: Says) -> None:
    says(
        "void at::native::elementwise_kernel<128, 4, __nv_hdl_wrapper_t<false, true, false, "
        f"__nv_dl_tag<void (*)(at::TensorIteratorBase&, {ADD} const&), &(void {LAUNCHER}<{ADD} >"
        f"(at::TensorIteratorBase&, {ADD} const&)), 1u>, void (int)> >(int, float)",
        functor="CUDAFunctor_add",
        dtype="fp32",
    )


def test_a_function_whose_address_is_in_parentheses(says: Says) -> None:
    says(
        f"void at::native::elementwise_kernel<128, 4, {LAUNCHER}<__nv_hdl_wrapper_t<false, false, "
        "false, __nv_dl_tag<void (*)(at::TensorIteratorBase&), &(at::native::(anonymous namespace)"
        "::sigmoid_kernel_cuda(at::TensorIteratorBase&)), 3u>, float (float)> >(int)::"
        "{lambda(int)#1}>(int, float)",
        functor="sigmoid_kernel_cuda",
        dtype="fp32",
    )


NAN_TO_NUM = (
    "at::native::nan_to_num_kernel_cuda(at::TensorIteratorBase&, c10::optional<double>)"
    "::{lambda()#1}::operator()() const::{lambda()#2}::operator()() const"
)


def elementwise(functor: str) -> str:
    return (
        f"void at::native::vectorized_elementwise_kernel<4, {functor}, "
        "at::detail::Array<char*, 2> >(int)"
    )


@pytest.mark.parametrize(
    ("parameters", "dtype"),
    [
        ("float", "fp32"),
        ("c10::BFloat16, c10::BFloat16", "bf16"),
        ("bool, c10::Half, c10::Half", "fp16"),
        ("c10::BFloat16, bool", "bf16"),
        ("bool", "bool"),
        ("c10::complex<double>", "c128"),
        ("float, float, c10::BFloat16", None),
        ("my::Vector", None),
        ("", None),
    ],
)
def test_the_parameters_of_a_lambda_say_the_type(
    says: Says, parameters: str, dtype: str | None
) -> None:
    """If they have one; a mask beside them does not count, optional<double> is none."""
    says(
        elementwise(f"{NAN_TO_NUM}::{{lambda({parameters})#1}}"),
        functor="nan_to_num_kernel_cuda",
        dtype=dtype,
    )


def test_the_lambda_of_a_launcher_has_no_element(says: Says) -> None:
    """Its parameter is the number of an element."""
    says(
        "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<"
        f"{NAN_TO_NUM}::{{lambda()#1}}>(at::TensorIteratorBase&)::{{lambda(int)#1}}>(int)",
        functor="nan_to_num_kernel_cuda",
        dtype=None,
    )


def test_a_wrapped_lambda_is_a_type_of_function(says: Says) -> None:
    says(
        elementwise(
            "__nv_hdl_wrapper_t<false, false, false, __nv_dl_tag<void (*)(at::TensorIteratorBase&, "
            "float), &(void at::native::pow_impl<float, float>(at::TensorIteratorBase&, float)), 1u>, "
            "c10::BFloat16 (c10::BFloat16, c10::BFloat16), float>"
        ),
        functor="pow_impl",
        dtype="bf16",
    )


def test_reduction_with_a_named_operator_has_its_functor_and_types(says: Says) -> None:
    says(
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<"
        "float>, unsigned int, long, 4, 4> >(at::native::ReduceOp<float>)",
        family="aten-reduce",
        op="reduction",
        functor="ArgMaxOps",
        dtype_a="fp32",
        dtype_out="int64",
        short="reduce arg_max fp32->int64 512x1.4",
    )


def test_reduction_with_a_wrapped_lambda_has_the_functor_around_it(says: Says) -> None:
    says(
        "void at::native::reduce_kernel<128, 4, at::native::ReduceOp<c10::Half, at::native::"
        "func_wrapper_t<float, at::native::sum_functor<c10::Half, float, float>::operator()("
        "at::TensorIterator&)::{lambda(float, float)#1}>, unsigned int, float, 4, 4> >(int)",
        functor="sum_functor",
        dtype_a="fp16",
        dtype_out="fp32",
    )


def test_reduction_with_the_address_of_a_function_has_its_name(says: Says) -> None:
    says(
        "void at::native::reduce_kernel<256, 2, at::native::ReduceOp<short, "
        "at::native::func_wrapper_t"
        "<bool, __nv_hdl_wrapper_t<false, true, false, __nv_dl_tag<void (*)(at::TensorIterator&), "
        "&at::native::and_kernel_cuda, 5u>, bool (short, short)> >, unsigned "
        "int, bool, 4, 4> >(int)",
        functor="and_kernel_cuda",
        dtype_a="int16",
        dtype_out="bool",
    )


def reduction(operator: str, scalar: str = "c10::Half") -> str:
    return (
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<"
        f"{scalar}, at::native::{operator}, unsigned int, float, 4, 4> >(int)"
    )


@pytest.mark.parametrize(
    ("operator", "sums"),
    [
        ("NormOps<c10::Half, float, c10::Half>", "fp32"),
        ("NormTwoOps<c10::Half, double, float>", "fp64"),
        ("NormOneOps<float>", "fp32"),
        ("MeanOps<c10::Half, float, float, c10::Half>", "fp32"),
        ("MeanOps<double, float>", "fp64"),
        ("NanSumOps<float, c10::Half>", "fp32"),
        ("MinMaxOps<c10::Half, float, int>", "fp32"),
        ("WelfordOps<c10::Half, float, int, thrust::pair<double, double> >", "fp32"),
        (
            "func_wrapper_t<c10::Half, at::native::sum_functor<c10::Half, float, c10::Half>::"
            "operator()(at::TensorIterator&)::{lambda(float, float)#1}>",
            "fp32",
        ),
        ("func_wrapper_t<float, at::native::MaxNanFunctor<float> >", "fp32"),
    ],
)
def test_type_of_the_sums(says: Says, operator: str, sums: str) -> None:
    """By the place that a release gives it among the arguments of the operator."""
    says(reduction(operator), family="aten-reduce", dtype_acc=sums)


@pytest.mark.parametrize(
    "operator",
    [
        "ArgMaxOps<float>",
        "MaxOps<float>",
        "MeanOps<float, float, float>",
        "func_wrapper_t<bool, at::native::and_kernel_cuda(at::TensorIterator&)::{lambda(bool)#1}>",
        "NormOps",
    ],
)
def test_reduction_without_sums_has_no_accumulator_type(
    says: Says, operator: str
) -> None:
    says(reduction(operator), family="aten-reduce", dtype_acc=None)


def test_every_argument_of_a_reduction_is_explained(says: Says) -> None:
    found = says(reduction("MaxOps<float>"), family="aten-reduce")
    texts = [found.name[start:end] for start, end, _ in found.parts[3:]]
    assert texts == [
        "c10::Half",
        "at::native::MaxOps<float>",
        *("unsigned int", "float", "4", "4"),
    ]


def test_the_operator_of_a_scalar_and_the_types_are_explained(says: Says) -> None:
    functor = "AUnaryFunctor<float, int, bool, at::native::x::CompareFunctor<float> >"
    found = says(elementwise(f"at::native::{functor}"), functor="CompareFunctor")
    texts = [found.name[start:end] for start, end, _ in found.parts[2:]]
    assert texts == ["AUnaryFunctor", "float", "int", "bool", "CompareFunctor"]
    plain = says(elementwise("at::native::CUDAFunctor_add<float>"), dtype="fp32")
    assert plain.parts[-1][2] == "type of an element"
