"""What the ops of one side do not explain: by the same kernel, in order, or as a
whole."""

from __future__ import annotations

from collections.abc import Callable

from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.model import Diff, Row, RowKind
from fusetui.report.diff import format_diff
from fusetui.report.diff_lines import MANY_LINES, lines, regions
from fusetui.trace import Trace

Build = Callable[..., Trace]
Work = Callable[[Diff], list[Row]]

ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)"
DTOD = "Memcpy DtoD (Device -> Device)"
TF32 = "cutlass_80_tensorop_s1688gemm_128x128_16x5_{}_align4"
SIMT = "volta_sgemm_128x64_{}"


def eager(*kernels: tuple[str, float]) -> list[tuple[str, str, float]]:
    return [(f"aten::op{n}", kernel, us) for n, (kernel, us) in enumerate(kernels)]


def compiled(*kernels: tuple[str, float]) -> list[tuple[str, str, float]]:
    return [("CompiledFunction", kernel, us) for kernel, us in kernels]


def test_the_same_kernel_several_times_on_both_sides_is_one_group(
    build: Build, work: Work
) -> None:
    (row,) = work(
        diff(build(eager(*[(ADD, 20.0)] * 3)), build(compiled(*[(ADD, 60.0)] * 2)))
    )
    assert (row.kind, row.a_count, row.b_count) == (RowKind.SLOWER, 3, 2)
    assert row.why == "all unpaired runs of this kernel"


def test_such_a_group_says_how_often(build: Build) -> None:
    a, b = build(eager(*[(ADD, 20.0)] * 3)), build(compiled(*[(ADD, 60.0)] * 2))
    assert "3 -> 2 times" in format_diff(diff(a, b), 200)


def test_copies_that_only_one_side_has_are_added(build: Build, work: Work) -> None:
    rows = work(
        diff(
            build(eager((ADD, 20.0))), build(compiled((ADD, 20.0), *[(DTOD, 9.0)] * 4))
        )
    )
    assert [(row.kind, row.b) for row in rows if row.kind is not RowKind.SAME] == [
        (RowKind.ADDED, (DTOD,))
    ] * 4


def products(kernel: str, layouts: str, times: list[float]) -> list[tuple[str, float]]:
    return [
        (kernel.format(layout), us)
        for layout, us in zip(layouts.split(), times, strict=True)
    ]


def test_products_are_paired_in_order_where_their_times_agree(
    build: Build, work: Work
) -> None:
    times = [10.0, 80.0, 30.0, 200.0, 15.0]
    a = eager(*products(TF32, "tn tn tn tn tn", times))
    b = compiled(*products(SIMT, "tn tn tn tn tn", [3 * us for us in times]))
    rows = work(diff(build(a), build([("aten::fill_", ADD, 5.0), *b])))
    pairs = [row for row in rows if row.a and row.b]
    assert [(row.a_ns, row.b_ns) for row in pairs] == [
        (us * 1000, us * 3000) for us in times
    ]
    assert not any(row.together for row in rows)


def test_products_in_another_order_are_grouped_by_layout(
    build: Build, work: Work
) -> None:
    """The backward pass of a graph may do its products in another order than autograd
    does."""
    a = eager(
        *products(TF32, "nt nn nt nn nt nn", [10.0, 300.0, 200.0, 20.0, 15.0, 90.0])
    )
    b = compiled(
        *products(SIMT, "nn nn nn nt nt nt", [30.0, 40.0, 800.0, 500.0, 30.0, 40.0])
    )
    other = ("aten::fill_", ADD, 5.0)
    rows = work(diff(build([other, *a]), build([*b, other])))
    assert [
        (row.together, row.a_count, row.b_count, row.why)
        for row in rows
        if row.a_count > 1
    ] == [
        (True, 3, 3, "similar counts of unpaired GEMM nt work"),
        (True, 3, 3, "similar counts of unpaired GEMM nn work"),
    ]


def test_a_copy_launched_by_an_op_in_a_compiled_region_is_of_the_region(
    build: Build,
) -> None:
    a = build([("aten::mul", ADD, 5.0)])
    b = build([("aten::mul", ADD, 5.0), ("CompiledFunction / aten::copy_", DTOD, 90.0)])
    assert (
        "+90 us copies in the compiled regions (mostly memcpy DtoD" in diff(a, b).story
    )


def test_a_compiled_part_of_many_lines_is_one_line_that_can_be_opened(
    build: Build,
) -> None:
    kernels = [(f"{TF32.format('tn')}_{n}", 10.0 + n) for n in range(MANY_LINES)]
    found = diff(build(eager(*kernels)), build(compiled(*kernels)))
    (region,), rest = regions(found)
    assert (
        region.line.what
        == f"the program: {MANY_LINES} kernels -> {MANY_LINES} kernels, "
        + (f"{MANY_LINES} compiled")
    )
    assert region.line.change_ns == sum(line.change_ns for line in region.inner)
    assert all(line.what.startswith("CPU: ") for line in rest)
    assert len(lines(found)) == len(region.inner) + len(rest)


def test_one_of_few_lines_is_not_folded(build: Build) -> None:
    found = diff(build(eager((ADD, 20.0))), build(compiled((ADD, 20.0))))
    assert regions(found)[0] == []
