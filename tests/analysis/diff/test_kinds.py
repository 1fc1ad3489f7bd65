"""What each kind of row is, on traces with one change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.model import Diff, Row, RowKind
from fusetui.trace import Trace

Build = Callable[..., Trace]
Work = Callable[[Diff], list[Row]]
Kinds = Callable[[Diff], list[RowKind]]

TILE = "ampere_bf16_s16816gemm_bf16_{}_ldg8_f2f_stages_64x3_{}"
MM = ("aten::linear / aten::mm", TILE.format("128x128", "tn"), 20.0)
ADD = ("aten::add", "add_kernel", 5.5)
RELU = ("aten::relu", "relu_kernel", 4.0)


def one(found: list[Row], kind: RowKind) -> Row:
    (row,) = [row for row in found if row.kind is kind]
    return row


def test_a_kernel_that_takes_more_time_is_slower(build: Build, kinds: Kinds) -> None:
    found = diff(build([MM, ADD]), build([MM, (*ADD[:2], 6.6)]))
    assert kinds(found) == [RowKind.SAME, RowKind.SLOWER]


def test_a_kernel_that_takes_less_time_is_faster(build: Build, work: Work) -> None:
    row = one(
        work(diff(build([MM, ADD]), build([MM, (*ADD[:2], 4.4)]))), RowKind.FASTER
    )
    assert row.why == "the same kernel takes 20.0 % less time"


def test_kernel_that_varies_from_step_to_step_is_no_change(
    build: Build, kinds: Kinds
) -> None:
    a = build([ADD], factors=(1.0, 1.3, 1.1, 1.4, 1.2))
    b = build([ADD], factors=(1.2, 1.5, 1.1, 1.5, 1.35))
    assert kinds(diff(a, b)) == [RowKind.SAME]


def test_an_op_at_another_place_is_moved(build: Build, work: Work) -> None:
    cat, others = ("aten::cat", "cat_kernel", 20.0), [MM, ADD, RELU]
    found = diff(build([cat, *others]), build([*others, cat]))
    assert sorted(row.kind for row in work(found)) == [
        RowKind.MOVED,
        *[RowKind.SAME] * 3,
    ]
    (row,) = [row for row in work(found) if row.kind is RowKind.MOVED]
    assert (row.op, row.change_ns) == ("aten::cat", 0)
    assert row.why == "the same kernel; in another place or on another stream"
    assert found.story.endswith("; 1 kernel moved (aten::cat)")


def test_an_op_that_stays_is_not_moved(build: Build, work: Work) -> None:
    a = [MM, ADD, RELU]
    found = diff(build(a), build([MM, ADD, ADD, RELU]))
    assert RowKind.MOVED not in {row.kind for row in work(found)}
    assert "moved" not in found.story


def test_a_kernel_that_is_gone_is_removed(build: Build, work: Work) -> None:
    row = one(work(diff(build([MM, ADD, RELU]), build([MM, RELU]))), RowKind.REMOVED)
    assert (row.op, row.a, row.b, row.a_ns, row.b_ns) == (
        "aten::add",
        ("add_kernel",),
        (),
        5500,
        0,
    )


def test_a_kernel_that_is_new_is_added_where_it_runs(
    build: Build, kinds: Kinds
) -> None:
    assert kinds(diff(build([MM, RELU]), build([MM, ADD, RELU]))) == [
        RowKind.SAME,
        RowKind.ADDED,
        RowKind.SAME,
    ]


def test_another_kernel_under_the_same_op_is_replaced(build: Build, work: Work) -> None:
    other = (MM[0], TILE.format("128x256", "nn"), 15.0)
    row = one(work(diff(build([MM, ADD]), build([other, ADD]))), RowKind.REPLACED)
    assert "tile 128x128" in row.why
    assert "-> 128x256" in row.why
    assert "layout tn -> nn" in row.why


def test_rows_of_the_representative_steps_are_given(build: Build, work: Work) -> None:
    a, b = build([MM, ADD]), build([MM, ADD])
    row = work(diff(a, b))[1]
    assert (
        [a.name_of(r) for r in row.a_rows]
        == [b.name_of(r) for r in row.b_rows]
        == ["add_kernel"]
    )


def test_streams_are_aligned_by_what_they_do(build: Build, kinds: Kinds) -> None:
    def on(*streams: int) -> list[Any]:
        return [(*MM, streams[0]), (*ADD, streams[1]), (*RELU, streams[0])]

    assert kinds(diff(build(on(7, 13)), build(on(20, 3)))) == [RowKind.SAME] * 3


def test_ops_align_where_all_kernels_have_other_names(build: Build, work: Work) -> None:
    a = [("aten::mm", "nv_gemm"), ("aten::add", "shared"), ("aten::relu", "nv_relu")]
    b = [("aten::mm", "amd_gemm"), ("aten::add", "amd_add"), ("aten::relu", "shared")]
    found = work(diff(build(a), build(b)))
    assert [(row.op, row.kind) for row in found] == [
        ("aten::mm", RowKind.REPLACED),
        ("aten::add", RowKind.REPLACED),
        ("aten::relu", RowKind.REPLACED),
    ]
