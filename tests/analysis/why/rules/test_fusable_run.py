"""Pointwise kernels next to each other under one module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .conftest import Ask, Lack
from .work import A100, ADD, COPY, FILL, ROWS, SGEMM, Event, module, work

Make = Callable[..., Any]

SUM = (
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<"
    "float, at::native::sum_functor<float, float, float>::operator()(at::TensorIterator&)::"
    "{lambda(float, float)#1}>, unsigned int, float, 4> >(at::native::ReduceOp<float>)"
)
THREE = (("aten::add", ADD, 20), ("aten::add", ADD, 30), ("aten::add", ADD, 10))


def test_fusable_run_reports_pointwise_kernels_of_one_module(found: Ask) -> None:
    """60 us; 2 x 4.19 MB in and 4.19 MB out at 2,039 GB/s take 6.171 us."""
    events = [*work(*THREE, args=ROWS), module("Norm_3", 0, 40)]
    (finding,) = found("fusable-run", events, **A100)
    assert finding.at_stake_ns == 60_000 - 6_171
    assert (
        "1 run of consecutive pointwise kernels (3 kernels) takes 60 us"
    ) in finding.text
    assert "most of it in Norm." in finding.text


def test_without_shapes_it_says_how_long_they_take(found: Ask) -> None:
    (finding,) = found("fusable-run", [*work(*THREE), module("Norm_3", 0, 40)], **A100)
    assert finding.at_stake_ns is None
    assert (
        "it in Norm. Without shapes, fusetui cannot determine which of them share data,"
    ) in finding.text


def of(*shapes: list[int]) -> Event:
    """The args of an op with float tensors of these shapes."""
    return {"Input Dims": [*shapes], "Input type": ["float"] * len(shapes)}


def in_module(*args: Event, op: str = "aten::mul", kernel: str = ADD) -> list[Any]:
    """An op with a kernel of 20 us for each of some args, one after another, in one
    module."""
    events = work(*((op, kernel, 20) for _ in args))
    for place, own in enumerate(args):
        events[3 * place] |= {"args": own}
    return [*events, module("A_0", 0, 60)]


def test_kernels_on_tensors_of_other_sizes_are_no_run(found: Ask) -> None:
    """The gradient of a bias is no input of the next sum of gradients."""
    events = in_module(of([1024, 96], [1024, 96]), of([1024, 1024], [1024, 1024]))
    assert found("fusable-run", events, **A100) == []


def test_a_part_of_what_a_reduction_read_may_be_its_result(found: Ask) -> None:
    """The mean of each row, 1,024 numbers, scales the rows."""
    events = in_module(of([1024, 768]), of([1024, 768], [1024, 1]))
    events[2]["name"] = SUM
    (finding,) = found("fusable-run", events, **A100)
    assert "1 run of consecutive pointwise kernels (2 kernels)" in finding.text


def test_a_concatenation_writes_all_that_it_reads(found: Ask) -> None:
    """Half of each row turned around beside the other half, times the sine: as in a
    rotary embedding."""
    half, whole = [1024, 384], [1024, 768]
    halves = {"Input Dims": [[half, half], []], "Input type": ["TensorList", "Scalar"]}
    events = in_module(of(half), halves, of(whole, whole))
    (finding,) = found("fusable-run", events, **A100)
    assert "1 run of consecutive pointwise kernels (3 kernels)" in finding.text


def test_one_op_on_several_tensors_is_no_run(found: Ask) -> None:
    events = in_module(
        of([1024, 768]), of([1024, 768]), of([1024, 768]), op="aten::clamp"
    )
    assert found("fusable-run", events, **A100) == []


def test_copies_of_several_tensors_are_no_run(found: Ask) -> None:
    both = of([1024, 768], [1024, 768])
    assert (
        found(
            "fusable-run", in_module(both, both, op="aten::copy_", kernel=COPY), **A100
        )
        == []
    )


def test_inputs_of_a_compiled_function_are_not_those_of_its_kernels(found: Ask) -> None:
    """It launches two of them, and records a number among its inputs; another op has
    shapes."""
    events = in_module(of([]), of([]), of([64, 64], [64, 64]))
    for place in (0, 3):
        events[place]["name"] = "CompiledFunctionBackward"
    assert found("fusable-run", events, **A100) == []


def test_a_large_tensor_that_comes_in_later_is_read(found: Ask) -> None:
    """8 kB at first; then 8.39 MB, which the last one writes: at 2,039 GB/s 8.228 us.
    The small result is added to every row."""
    small = {"Input Dims": [[1024], [1024]], "Input type": ["float", "float"]}
    large = {"Input Dims": [[2048, 1024], [1024]], "Input type": ["float", "float"]}
    events = work(("aten::add", ADD, 20), ("aten::mul", ADD, 30), args=small)
    events[3] |= {"args": large}
    (finding,) = found("fusable-run", [*events, module("A_0", 0, 40)], **A100)
    assert finding.at_stake_ns == 50_000 - 8_228


def test_a_copy_writes_its_first_input(found: Ask) -> None:
    """2 x 4.19 MB in; 2.1 MB out: 5.143 us."""
    half = {"Input Dims": [[1024, 1024]] * 2, "Input type": ["c10::BFloat16", "float"]}
    events = work(("aten::add", ADD, 20), ("aten::copy_", COPY, 30), args=ROWS)
    events[3] |= {"args": half}
    (finding,) = found("fusable-run", [*events, module("A_0", 0, 40)], **A100)
    assert finding.at_stake_ns == 50_000 - 5_143


def test_fills_read_nothing_from_each_other(found: Ask) -> None:
    events = [*work(("aten::fill_", FILL, 20), ("aten::fill_", FILL, 30), args=ROWS)]
    assert found("fusable-run", [*events, module("A_0", 0, 40)], **A100) == []


def test_an_optimizer_is_no_run(found: Ask, event: Make) -> None:
    step = event("Optimizer.step#Adam.step", 0, 40, cat="user_annotation")
    assert found("fusable-run", [*work(*THREE, args=ROWS), step], **A100) == []


def test_kernels_of_two_modules_are_no_run(found: Ask) -> None:
    events = [*work(*THREE[:2], args=ROWS), module("A_0", 0, 9), module("B_0", 10, 9)]
    assert found("fusable-run", events, **A100) == []


def test_a_product_between_them_ends_a_run(found: Ask) -> None:
    kernels = (THREE[0], ("aten::mm", SGEMM, 10), THREE[1])
    events = [*work(*kernels, args=ROWS), module("A_0", 0, 40)]
    assert found("fusable-run", events, **A100) == []


def test_without_modules_it_cannot_tell(lacking: Lack) -> None:
    (lack,) = lacking("fusable-run", work(*THREE, args=ROWS), **A100)
    assert (lack.missing, lack.record_with) == (
        "modules or annotations",
        "with_stack=True or record_function",
    )


def test_stacks_that_name_no_modules_are_not_asked_for_again(
    lacking: Lack, event: Make
) -> None:
    frame = event("/a.py(1): f", 500, 4, cat="python_function")
    (lack,) = lacking("fusable-run", [*work(*THREE, args=ROWS), frame], **A100)
    assert lack.record_with == "record_function"
