"""What a diff comes to: in a sentence, by sort of work, and by place."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.model import Diff
from fusetui.report.diff import document, format_diff, format_markdown
from fusetui.trace import Trace

Build = Callable[..., Trace]

TF32 = "cutlass_80_tensorop_s1688gemm_128x128_16x5_nt_align4"
SIMT = "volta_sgemm_128x64_nt"
REDUCE = (
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"
)
MUL = "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float> >(int)"
MM = ("aten::mm", TF32, 100.0)
ADD = (
    "aten::add",
    "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add>(int)",
    30.0,
)


def slow() -> list[tuple[object, ...]]:
    return [
        ("aten::mm", SIMT, 300.0),
        ADD,
        ("aten::copy_", "Memcpy DtoD (Device -> Device)", 50.0),
    ]


def test_the_largest_term_comes_first_with_its_sign_and_unit(build: Build) -> None:
    found = diff(build([MM, ADD]), build(slow()))
    assert found.story == (
        "B takes 250 us more per step: +200 us GEMMs (without TF32), +50 us copies "
        "(mostly memcpy DtoD Device->Device)"
    )


def test_turned_round_it_takes_as_much_less(build: Build) -> None:
    found = diff(build(slow()), build([MM, ADD]))
    assert found.story.startswith(
        "B takes 250 us less per step: -200 us GEMMs (in TF32)"
    )


def test_story_of_equal_traces_says_the_same_time(build: Build) -> None:
    trace = build([MM, ADD])
    assert diff(trace, trace).story == "B takes the same time per step"


def test_the_story_comes_before_the_table(build: Build) -> None:
    found = diff(build([MM, ADD]), build(slow()))
    assert format_diff(found, 300).splitlines()[1] == found.story
    assert (
        format_markdown(found)
        .splitlines()[2]
        .startswith("B takes 250 us more per step: +200 us GEMMs")
    )


def test_communication_behind_compute_makes_nothing_longer(build: Build) -> None:
    def beside(us: float) -> Trace:
        return build(
            [("aten::mm", TF32, 900.0, 7), ("nccl:all_reduce", REDUCE, us, 13)]
        )

    found = diff(beside(100.0), beside(400.0))
    (row,) = [row for row in found.rows if row.work == "communication"]
    assert (row.change_ns, row.hidden_change_ns) == (300_000, 300_000)
    assert found.story == "B takes the same time per step"


def test_the_sums_by_work_and_by_place_are_those_of_the_rows(build: Build) -> None:
    found = diff(build([MM, ADD]), build(slow()))
    for parts in (found.by_work, found.by_place):
        assert sum(part.change_ns for part in parts) == found.accounting.rows_ns
    assert [(part.name, part.change_ns) for part in found.by_work[:2]] == [
        ("GEMM", 200_000),
        ("copy", 50_000),
    ]


def test_the_json_tells_it_too(build: Build) -> None:
    found = msgspec.to_builtins(document(diff(build([MM, ADD]), build(slow()))))
    assert found["story"].startswith("B takes 250 us more per step")
    assert found["by_work"][0]["name"] == "GEMM"
    assert {"overlap_ns", "later_ns", "earlier_ns", "odd_ns"} <= found[
        "accounting"
    ].keys()


def test_summary_does_not_call_a_change_of_a_quarter_the_same(build: Build) -> None:
    a = build([ADD], (1.0, 1.9, 1.0, 1.9, 1.5))
    b = build([ADD], (2.4, 1.4, 1.8, 2.2, 2.4))
    rows = [
        text
        for text in format_diff(diff(a, b), 200).splitlines()
        if "  may be noise " in text
    ]
    assert len(rows) == 1
    assert "may be noise: 30 us to 57 us -> 42 us to 72 us" in rows[0]


@pytest.fixture
def region(build: Build) -> Diff:
    eager = [(f"aten::{op}", ADD[1], 20.0) for op in ("add", "mul", "sub")]
    return diff(build(eager), build([("CompiledFunction", MUL, 50.0)] * 2))


def test_a_compiled_region_against_the_ops_that_it_replaced_is_one_row(
    region: Diff,
) -> None:
    (row,) = [row for row in region.rows if not row.on_cpu]
    assert (row.a_count, row.b_count, row.a_ns, row.b_ns) == (3, 2, 60_000, 100_000)
    assert (row.together, row.compiled, row.why) == (
        True,
        "b",
        "all unpaired pointwise work",
    )
    assert region.by_work[0].compiled == "b"


def test_ops_known_on_both_sides_are_no_region(build: Build) -> None:
    found = diff(build([MM]), build([("aten::bmm", SIMT, 90.0), ADD]))
    assert not any(row.together for row in found.rows)


def test_summary_names_what_was_fused(build: Build) -> None:
    ops = "Torch-Compiled Region: 0/0 / triton_poi_fused_gelu_mul_0"
    a = build([MM, ("aten::gelu", ADD[1], 30.0), ("aten::mul", ADD[1], 30.0)])
    b = build([MM, (ops, "triton_poi_fused_gelu_mul_0", 35.0)])
    assert (
        "-25 us pointwise kernels in the compiled regions (aten::gelu + aten::mul in one kernel)"
        in (diff(a, b).story)
    )


def test_a_term_that_may_be_noise_says_so(build: Build) -> None:
    a, b = (
        build([MM, ADD], (1.0, 1.9, 1.0, 1.9, 1.5)),
        build([MM, ADD], (2.0, 1.2, 1.8, 2.0, 1.9)),
    )
    assert "GEMMs (may be noise)" in diff(a, b).story


def test_a_hand_written_kernel_is_told_by_the_words_in_its_name(build: Build) -> None:
    a, b = (build([("", "my_flash_fwd_hdim64", us)]) for us in (20.0, 50.0))
    assert "+30 us attention" in diff(a, b).story


def test_summary_names_gains_beside_losses(build: Build) -> None:
    """As +13.2 ms of bmm hidden in "+575 us GEMMs, mostly addmm"."""

    def step(mm: float, bmm: float) -> list[tuple[object, ...]]:
        return [("aten::mm", TF32, mm), ("aten::bmm", SIMT, bmm), ADD]

    found = diff(build(step(900.0, 100.0)), build(step(500.0, 520.0)))
    assert found.story == (
        "B takes 20 us more per step: +420 us GEMMs (mostly aten::bmm); offset by "
        "-400 us GEMMs (mostly aten::mm)"
    )


def test_a_little_less_of_one_op_is_not_a_term_of_its_own(build: Build) -> None:
    a = [("aten::mm", TF32, 900.0), ("aten::bmm", SIMT, 100.0)]
    b = [("aten::mm", TF32, 500.0), ("aten::bmm", SIMT, 130.0)]
    assert diff(build(a), build(b)).story == (
        "B takes 370 us less per step: -370 us GEMMs (mostly aten::mm)"
    )


def test_a_kernel_that_got_faster_is_no_reason_why_a_step_takes_longer(
    build: Build,
) -> None:
    """Although the attention changes more than anything that takes longer."""

    def step(attention: float, others: float) -> list[tuple[object, ...]]:
        flash = ("aten::_flash_attention_forward", "flash_fwd_kernel", attention)
        mul = ("aten::mul", MUL, others)
        return [
            flash,
            ("aten::mm", TF32, others),
            mul,
            ("aten::bmm", SIMT, 900.0),
        ]

    found = diff(build(step(90.0, 100.0)), build(step(50.0, 121.0)))
    head, offset = found.story.split("; offset by ")
    assert head.startswith("B takes 2 us more per step: +21 us ")
    assert ", +21 us " in head
    assert "-" not in head
    assert offset == "-40 us attention (mostly aten::_flash_attention_forward)"


def test_a_story_whose_terms_all_add_time_names_no_offset(build: Build) -> None:
    assert "offset" not in diff(build([MM, ADD]), build(slow())).story


def test_the_largest_reason_is_named_though_many_terms_offset_it(
    build: Build,
) -> None:
    """Five terms of -60 us are larger than each of those that take longer."""
    norm = ("aten::layer_norm", "layer_norm_kernel")
    shorter = [
        ("aten::_flash_attention_forward", "flash_fwd_kernel"),
        ("aten::mm", TF32),
        ("aten::convolution", "conv_fprop_kernel"),
        ("aten::softmax", "softmax_warp_forward"),
        ("aten::mul", MUL),
    ]
    longer = [
        norm,
        ("aten::embedding", "embedding_kernel"),
        ("aten::sum", "reduce_kernel"),
        ("aten::copy_", "Memcpy DtoD (Device -> Device)"),
        ("aten::fill_", "fill_kernel"),
        ("aten::topk", "topk_kernel"),
        ("nccl:all_reduce", REDUCE),
    ]

    def step(us_of_shorter: float, us_of_longer: float) -> list[tuple[object, ...]]:
        pieces = [(*names, us_of_shorter) for names in shorter]
        return [*pieces, *((*names, us_of_longer) for names in longer)]

    found = diff(build(step(160.0, 100.0)), build(step(100.0, 150.0)))
    head, offset = found.story.split("; offset by ")
    assert head.startswith("B takes 50 us more per step: +50 us ")
    assert head.endswith(" everything else")
    assert offset.count("-60 us") == 5
