"""Pointwise kernels next to each other under one module."""

from __future__ import annotations

from .conftest import Ask, Lack
from .work import A100, ADD, ROWS, SGEMM, module, work

THREE = (("aten::add", ADD, 20), ("aten::add", ADD, 30), ("aten::add", ADD, 10))


def test_it_speaks(found: Ask) -> None:
    """60 us; 2 x 4.19 MB in and 4.19 MB out at 0.8 x 2,039 GB/s take 7.714 us."""
    events = [*work(*THREE, args=ROWS), module("Norm_3", 0, 40)]
    (finding,) = found("fusable-run", events, **A100)
    assert finding.at_stake_ns == 60_000 - 7_714
    assert "1 run of pointwise kernels, 3 in all, take 60 us" in finding.text
    assert "most of it in Norm:" in finding.text


def test_without_shapes_it_says_how_long_they_take(found: Ask) -> None:
    (finding,) = found("fusable-run", [*work(*THREE), module("Norm_3", 0, 40)], **A100)
    assert finding.at_stake_ns is None


def test_kernels_of_two_modules_are_no_run(found: Ask) -> None:
    events = [*work(*THREE[:2], args=ROWS), module("A_0", 0, 9), module("B_0", 10, 9)]
    assert found("fusable-run", events, **A100) == []


def test_a_product_between_them_ends_a_run(found: Ask) -> None:
    kernels = (THREE[0], ("aten::mm", SGEMM, 10), THREE[1])
    events = [*work(*kernels, args=ROWS), module("A_0", 0, 40)]
    assert found("fusable-run", events, **A100) == []


def test_without_modules_it_cannot_tell(lacking: Lack) -> None:
    (lack,) = lacking("fusable-run", work(*THREE, args=ROWS), **A100)
    assert lack.missing == "modules or annotations"
