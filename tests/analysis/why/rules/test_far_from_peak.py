"""Kernels that take longer than the device needs for their work."""

from __future__ import annotations

from .conftest import Ask
from .test_alignment import ALIGN1, ALIGN8
from .work import A100, Event, search, tried, work

FLASH = (
    "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, "
    "cutlass::bfloat16_t, Flash_kernel_traits<128, 128, 64, 4, cutlass::bfloat16_t> >, "
    "false, true, false, false, true, true, false>(flash::Flash_fwd_params)"
)
ROWS_OF_4096 = (
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float, "
    "c10::BFloat16, at::native::(anonymous namespace)::SoftMaxForwardEpilogue>(c10::BFloat16*, "
    "c10::BFloat16 const*, int)"
)
SMALL = {"Input Dims": [[512, 512]] * 2, "Input type": ["c10::BFloat16"] * 2}
LARGE = {"Input Dims": [[4096, 4096]] * 2, "Input type": ["c10::BFloat16"] * 2}


def product(kernel: str, dur: int, args: Event) -> list[Event]:
    """Blocks of 128 x 128, one for each tile."""
    side = args["Input Dims"][0][0] // 128
    events = work(("aten::mm", kernel, dur), args=args)
    events[-1]["args"] |= {"grid": [side, side, 1], "block": [256, 1, 1]}
    return events


def test_far_from_peak_reports_a_product_at_65_percent_of_attainable(
    found: Ask,
) -> None:
    """2 x 4096 ** 3 FLOP at the measured 271.2 TFLOP/s take 506.781 us: 65 % of 780
    us."""
    (finding,) = found("far-from-peak", product(ALIGN8, 780, LARGE), **A100)
    assert finding.at_stake_ns == 780_000 - 506_781
    assert "reaches an estimated 65 % of the attainable" in finding.text
    assert finding.part_of is None


def test_sizes_that_are_multiples_of_64_are_not_asked_for(found: Ask) -> None:
    (finding,) = found("far-from-peak", product(ALIGN8, 780, LARGE), **A100)
    assert str(finding.try_).startswith(
        "Use a newer cuBLAS or cuDNN, or torch.compile("
    )
    odd = {"Input Dims": [[4000, 4000]] * 2, "Input type": ["c10::BFloat16"] * 2}
    (finding,) = found("far-from-peak", product(ALIGN8, 780, odd), **A100)
    assert str(finding.try_).startswith(
        "Use sizes that are multiples of 64, a newer cuBLAS"
    )


def test_three_quarters_are_near_enough(found: Ask) -> None:
    """506.781 us are 75.0 % of 675.7 us."""
    assert found("far-from-peak", product(ALIGN8, 675, LARGE), **A100) == []
    assert len(found("far-from-peak", product(ALIGN8, 676, LARGE), **A100)) == 1


def test_unaligned_products_are_left_to_their_rule(found: Ask) -> None:
    assert found("far-from-peak", product(ALIGN1, 1_100, LARGE), **A100) == []
    assert len(found("alignment", product(ALIGN1, 1_100, LARGE), **A100)) == 1


def test_product_of_less_than_a_wave_is_reported_with_its_tiles(found: Ask) -> None:
    """2 x 1280 ** 3 FLOP take 15.466 us at that rate; 100 tiles on 108
    multiprocessors."""
    middle = {"Input Dims": [[1280, 1280]] * 2, "Input type": ["c10::BFloat16"] * 2}
    (finding,) = found("far-from-peak", product(ALIGN8, 500, middle), **A100)
    assert finding.at_stake_ns == 500_000 - 15_466
    assert "an estimated 3.1 % of" in finding.text


def test_a_device_with_few_blocks_is_left_to_that_rule(found: Ask) -> None:
    """Sixteen tiles."""
    assert found("far-from-peak", product(ALIGN8, 1_000, SMALL), **A100) == []
    assert len(found("few-blocks", product(ALIGN8, 1_000, SMALL), **A100)) == 1


def test_short_kernels_are_silent(found: Ask) -> None:
    assert found("far-from-peak", product(ALIGN8, 9, SMALL), **A100) == []


def test_attention_far_from_peak_is_reported(found: Ask) -> None:
    """4 x 16 heads, 4096 ** 2 scores of 2 x 256 FLOP, half of them masked: 1.0136
    ms."""
    args = {
        "Input Dims": [[4, 4096, 16, 128]] * 3,
        "Input type": ["c10::BFloat16"] * 3,
        "Input Strides": [[8388608, 2048, 128, 1]] * 3,
        "Concrete Inputs": [""] * 8 + ["True"],
    }
    events = work(("aten::_flash_attention_forward", FLASH, 1_500), args=args)
    (finding,) = found("far-from-peak", events, **A100)
    assert finding.at_stake_ns == 1_500_000 - 1_013_562
    assert finding.try_ is not None
    assert finding.try_.startswith(
        "Use another attention backend (torch.nn.attention.sdpa_kernel)."
    )


def test_softmax_far_from_the_bandwidth_is_reported(found: Ask) -> None:
    """536,870,912 bytes read and written at 0.8 of 2,039 GB/s take 658.253 us."""
    args = {"Input Dims": [[16, 4096, 4096]], "Input type": ["c10::BFloat16"]}
    events = work(("aten::_softmax", ROWS_OF_4096, 2_000), args=args)
    (finding,) = found("far-from-peak", events, **A100)
    assert finding.at_stake_ns == 2_000_000 - 658_253


def test_several_kernels_far_from_peak_name_the_one_with_most_at_stake(
    found: Ask,
) -> None:
    kernels = [("aten::mm", ALIGN8, 1_100), ("aten::mm", ALIGN8, 1_200)]
    (finding,) = found("far-from-peak", work(*kernels, args=LARGE), **A100)
    assert "Most of this time is in 2 x gemm bf16" in finding.text
    assert "(2.3 ms, 44 % of the attainable rate)" in finding.text


def test_far_from_peak_ignores_kernels_of_an_algorithm_search(
    found: Ask,
) -> None:
    """2 x 2048 ** 3 FLOP take 63.3 us at the measured 271.2 TFLOP/s, and each kernel takes
    100 us: the one that runs after three were measured counts."""
    names = tuple(ALIGN8.replace("32x3", f"32x{n}") for n in (3, 4, 5))
    tries = tried(names, 100)
    shapes = {"Input Dims": [[2048, 2048]] * 2, "Input type": ["c10::BFloat16"] * 2}

    def measured(then: list[Event]) -> list[Event]:
        events = search(0, tries, then)
        products = [
            {**events[0], "name": "aten::mm", "args": shapes}
            | {"ts": one["ts"], "dur": one["dur"]}
            for one in events
            if one["name"] == "cudaLaunchKernel"
        ]
        return [events[0], *products, *events[1:]]

    assert found("far-from-peak", measured([]), **A100) == []
    (finding,) = found("far-from-peak", measured(tries[:1]), **A100)
    assert finding.text.startswith("1 kernel reaches an estimated")
