"""Pointwise kernels next to each other under one module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .conftest import Ask, Lack
from .work import A100, ADD, COPY, FILL, ROWS, SGEMM, module, work

Make = Callable[..., Any]

THREE = (("aten::add", ADD, 20), ("aten::add", ADD, 30), ("aten::add", ADD, 10))


def test_it_speaks(found: Ask) -> None:
    """60 us; 2 x 4.19 MB in and 4.19 MB out at 2,039 GB/s take 6.171 us."""
    events = [*work(*THREE, args=ROWS), module("Norm_3", 0, 40)]
    (finding,) = found("fusable-run", events, **A100)
    assert finding.at_stake_ns == 60_000 - 6_171
    assert "1 run of pointwise kernels, 3 in all, take 60 us" in finding.text
    assert "most of it in Norm." in finding.text


def test_without_shapes_it_says_how_long_they_take(found: Ask) -> None:
    (finding,) = found("fusable-run", [*work(*THREE), module("Norm_3", 0, 40)], **A100)
    assert finding.at_stake_ns is None


def test_a_large_tensor_that_comes_in_later_is_read(found: Ask) -> None:
    """8 kB at first; then 8.39 MB, which the last one writes: at 2,039 GB/s 8.228 us."""
    small = {"Input Dims": [[1024], [1024]], "Input type": ["float", "float"]}
    large = {"Input Dims": [[2048, 1024]], "Input type": ["float"]}
    events = work(("aten::add", ADD, 20), ("aten::tanh", ADD, 30), args=small)
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
        "with_stack=True, or record_function",
    )


def test_stacks_that_name_no_modules_are_not_asked_for_again(lacking: Lack, event: Make) -> None:
    frame = event("/a.py(1): f", 500, 4, cat="python_function")
    (lack,) = lacking("fusable-run", [*work(*THREE, args=ROWS), frame], **A100)
    assert lack.record_with == "record_function"
