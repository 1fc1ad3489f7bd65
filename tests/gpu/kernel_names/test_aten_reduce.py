"""ATen reductions."""

from tests.gpu.kernel_names.conftest import Says


def test_named_operator(says: Says) -> None:
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


def test_wrapped_lambda(says: Says) -> None:
    says(
        "void at::native::reduce_kernel<128, 4, at::native::ReduceOp<c10::Half, at::native::"
        "func_wrapper_t<float, at::native::sum_functor<c10::Half, float, float>::operator()("
        "at::TensorIterator&)::{lambda(float, float)#1}>, unsigned int, float, 4, 4> >(int)",
        functor="sum_functor",
        dtype_a="fp16",
        dtype_out="fp32",
    )


def test_wrapped_address(says: Says) -> None:
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
