"""Several kernels by one of the other side, and the evidence for it."""

from __future__ import annotations

from collections.abc import Callable

from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.model import Diff, Row, RowKind
from fusetui.trace import Trace

Build = Callable[..., Trace]
Work = Callable[[Diff], list[Row]]

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn"
FUSED = "triton_poi_fused__unsafe_view_gelu_mul_0"
GATE = ("aten::linear / aten::mm", GEMM, 20.0)
GELU = ("aten::gelu", "gelu_kernel", 8.0)
MUL = ("aten::mul", "mul_kernel", 6.0)


def fused(found: list[Row], kind: RowKind = RowKind.FUSED) -> Row:
    (row,) = [row for row in found if row.kind is kind]
    return row


def test_ops_in_a_triton_name_make_a_fused_row(build: Build, work: Work) -> None:
    found = work(diff(build([GATE, GELU, MUL]), build([GATE, (FUSED, FUSED, 7.0)])))
    row = fused(found)
    assert row.a == ("gelu_kernel", "mul_kernel")
    assert row.b == (FUSED,)
    assert (row.a_ns, row.b_ns) == (14_000, 7_000)
    assert row.why == "the fused kernel's name lists gelu and mul"


def test_the_ops_may_lie_on_both_sides_of_a_gemm(build: Build, work: Work) -> None:
    eager = [GATE, GELU, GATE, MUL, GATE]
    compiled = [GATE, GATE, (FUSED, FUSED, 7.0), GATE]
    found = work(diff(build(eager), build(compiled)))
    assert [row.kind for row in found].count(RowKind.SAME) == 3
    assert fused(found).op == "aten::gelu + aten::mul"


def test_turned_round_it_is_a_split(build: Build, work: Work) -> None:
    row = fused(work(diff(build([(FUSED, FUSED)]), build([GELU, MUL]))), RowKind.SPLIT)
    assert (row.a, row.b_count) == ((FUSED,), 2)


def test_several_fused_kernels_in_a_row_share_what_was_there(
    build: Build, work: Work
) -> None:
    names = ("triton_poi_fused_gelu_mul_0", "triton_poi_fused_add_mul_1")
    eager = [GELU, MUL, ("aten::add", "add_kernel"), MUL]
    found = work(diff(build(eager), build([(name, name) for name in names])))
    assert [row.op for row in found] == [
        "aten::gelu + aten::mul",
        "aten::add + aten::mul",
    ]


def test_a_compiled_kernel_stands_for_no_gemm(build: Build, work: Work) -> None:
    name = "triton_poi_fused_addmm_gelu_0"
    found = work(diff(build([("aten::addmm", GEMM), GELU]), build([(name, name)])))
    assert [row.kind for row in found] == [RowKind.REMOVED, RowKind.REPLACED]


def test_the_words_of_a_hand_written_kernel(build: Build, work: Work) -> None:
    found = work(
        diff(
            build([GATE, GELU, GATE, MUL]),
            build([GATE, GATE, ("", "_gelu_mul_kernel")]),
        )
    )
    assert fused(found).a == ("gelu_kernel", "mul_kernel")


def test_flash_attention_stands_for_its_three_parts(build: Build, work: Work) -> None:
    parts = [
        ("aten::bmm", "gemm_a"),
        ("aten::_softmax", "softmax"),
        ("aten::bmm", "gemm_b"),
    ]
    row = fused(work(diff(build(parts), build([("my::attn", "flash_fwd_kernel")]))))
    assert row.a_count == 3


def test_three_kernels_and_one_under_the_same_op_are_fused(
    build: Build, work: Work
) -> None:
    parts = (
        "moe",
        [("my::sort", "sort_kernel"), ("my::stage1", "k1"), ("my::stage2", "k2")],
    )
    row = fused(work(diff(build([parts]), build([("moe / my::all_of_it", "k")]))))
    assert row.why == "both under moe"


LN = "aten::layer_norm / aten::native_layer_norm"


def test_ops_repeated_in_a_and_once_in_b_are_paired_as_wholes(
    build: Build, work: Work
) -> None:
    split = [(LN, "ln", 3.0), ("aten::tanh", "tanh", 2.0)]
    whole = [(LN, "ln", 12.0), ("aten::tanh", "tanh", 9.0)]
    head = ("aten::linear / aten::addmm", GEMM, 9.0)
    a = [*split * 16, ("aten::stack / aten::cat", "cat", 4.0), head]
    found = work(diff(build(a), build([*whole, head])))
    assert [(row.kind, row.a_count, row.b_count) for row in found] == [
        (RowKind.FUSED, 16, 1),
        (RowKind.FUSED, 16, 1),
        (RowKind.REMOVED, 1, 0),
        (RowKind.SAME, 1, 1),
    ]


def test_twice_and_once_is_believed_when_the_tensor_is_as_large(
    build: Build, work: Work
) -> None:
    def tanh(rows: int) -> tuple[object, ...]:
        return ("aten::tanh", "tanh", 2.0, 7, [[rows, 8]])

    assert fused(work(diff(build([tanh(4), tanh(4)]), build([tanh(8)])))).a_count == 2
    kinds = {
        row.kind for row in work(diff(build([tanh(8), tanh(8)]), build([tanh(8)])))
    }
    assert kinds == {RowKind.SAME, RowKind.REMOVED}


def test_one_kernel_left_of_several_equals_one_of_them_and_not_all(
    build: Build, work: Work
) -> None:
    """Whether it is the largest of them, or shapes were not recorded and it takes as
    long."""
    small, large = (
        ("aten::tanh", "tanh", us, 7, [[rows, 8]]) for us, rows in ((2.0, 4), (6.0, 16))
    )
    plain = ("aten::tanh", "tanh", 2.0)
    for many, left in (([small, large], [large]), ([plain] * 3, [plain])):
        kinds = [row.kind for row in work(diff(build(many), build(left)))]
        assert kinds.count(RowKind.SAME) == 1
        assert set(kinds) == {RowKind.SAME, RowKind.REMOVED}


def test_relu_in_the_epilogue_of_a_gemm_is_fused(build: Build, work: Work) -> None:
    plain = "cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64_32x6_tn_align8"
    with_relu = "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_32x6_tn_align8"
    a = [("aten::addmm", plain, 9.0), ("aten::relu", "relu_kernel", 4.0)]
    row = fused(
        work(diff(build(a), build([("aten::_addmm_activation", with_relu, 9.0)])))
    )
    assert row.why == "the GEMM's epilogue includes relu"


def test_a_kernel_of_no_known_op_in_the_place_of_several(
    build: Build, work: Work
) -> None:
    row = fused(
        work(diff(build([GATE, GELU, MUL, GATE]), build([GATE, ("", "mine"), GATE])))
    )
    assert row.why.startswith("matched by position only")


def test_different_known_ops_are_not_taken_for_each_other(
    build: Build, work: Work
) -> None:
    found = work(diff(build([GELU]), build([("aten::sort", "sort_kernel")])))
    assert {row.kind for row in found} == {RowKind.REMOVED, RowKind.ADDED}


def test_the_tensor_between_them_is_named(build: Build, work: Work) -> None:
    shape = [8192, 3072]
    a = [(*GELU, 7, [shape]), (*MUL, 7, [shape, shape])]
    row = fused(work(diff(build(a), build([(FUSED, FUSED)]))))
    assert "intermediate [8192, 3072] bfloat16 (50.33 MB)" in row.why
