"""Large matrix products that take more than twice as long as they need."""

from __future__ import annotations

from .conftest import Ask
from .test_alignment import ALIGN1, ALIGN8
from .work import A100, Event, work

SMALL = {"Input Dims": [[512, 512]] * 2, "Input type": ["c10::BFloat16"] * 2}
LARGE = {"Input Dims": [[4096, 4096]] * 2, "Input type": ["c10::BFloat16"] * 2}


def product(kernel: str, dur: int, args: Event) -> list[Event]:
    """Blocks of 128 x 128, one for each tile."""
    side = args["Input Dims"][0][0] // 128
    events = work(("aten::mm", kernel, dur), args=args)
    events[-1]["args"] |= {"grid": [side, side, 1], "block": [256, 1, 1]}
    return events


def test_it_speaks(found: Ask) -> None:
    """2 x 4096 ** 3 FLOP at the measured 271.2 TFLOP/s take 506.781 us; 1,024 tiles on 108 SMs."""
    (finding,) = found("far-from-peak", product(ALIGN8, 1_100, LARGE), **A100)
    assert finding.at_stake_ns == 1_100_000 - 506_781
    assert "reach 46 % of what is attainable" in finding.text
    assert finding.part_of is None


def test_unaligned_products_are_part_of_that(found: Ask) -> None:
    (finding,) = found("far-from-peak", product(ALIGN1, 1_100, LARGE), **A100)
    assert finding.part_of == "alignment"


def test_less_than_twice_is_silent(found: Ask) -> None:
    assert found("far-from-peak", product(ALIGN8, 1_000, LARGE), **A100) == []


def test_a_product_that_does_not_fill_the_device_is_silent(found: Ask) -> None:
    assert found("far-from-peak", product(ALIGN8, 1_000, SMALL), **A100) == []
