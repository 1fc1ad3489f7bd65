"""A layer, or another block that repeats, more or less often: one row, whatever is
beside it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fusetui.analysis.diff.blocks import LaneWork, find_surplus_blocks
from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.model import Diff, Row, RowKind
from fusetui.report.diff import format_diff
from fusetui.trace import Trace

Build = Callable[..., Trace]
Work = Callable[[Diff], list[Row]]

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn"
OTHER = GEMM.replace("128x128", "64x256")
FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>(int)"
HEAD = [("aten::embedding", "embedding_kernel", 7.0), ("aten::add", "add_kernel", 3.0)]
TAIL = [("aten::native_layer_norm", "norm_kernel", 5.0), ("aten::mm", GEMM, 90.0)]


def layer(nth: int, gemm: str = GEMM) -> list[tuple[Any, ...]]:
    """Takes longer than the one before it, by more than noise."""
    longer = 1 + nth / 4
    return [
        ("aten::native_layer_norm", "norm_kernel", 5.0 * longer),
        ("aten::linear / aten::mm", gemm, 40.0 * longer),
        ("aten::_flash_attention_forward", FLASH, 30.0 * longer),
        ("aten::add", "add_kernel", 4.0 * longer),
        ("aten::gelu", "gelu_kernel", 6.0 * longer),
    ]


def model(layers: list[int], gemm: str = GEMM) -> list[tuple[Any, ...]]:
    return [*HEAD, *(piece for nth in layers for piece in layer(nth, gemm)), *TAIL]


def changed(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row.kind is not RowKind.SAME]


def test_a_removed_layer_is_one_row_with_its_time(build: Build) -> None:
    for gone in range(6):
        left = [n for n in range(6) if n != gone]
        found = diff(build(model([*range(6)])), build(model(left)))
        (row,) = changed(list(found.rows))
        assert (row.kind, row.op, row.change_ns) == (
            RowKind.REMOVED,
            "6 layers -> 5",
            -85_000 - 21_250 * gone,
        )
        assert found.accounting.rows_ns == row.change_ns
        assert "6 layers -> 5" in found.story
        assert "6 layers -> 5" in format_diff(found)


def test_a_layer_done_twice_is_one_row(build: Build) -> None:
    a, b = build(model([0, 1, 2, 3])), build(model([0, 1, 1, 2, 3]))
    (row,) = changed(list(diff(a, b).rows))
    assert (row.kind, row.op, row.b_count) == (RowKind.ADDED, "4 layers -> 5", 5)
    assert row.why == "5 pieces of work in each"


def test_of_equal_times_a_block_begins_as_early_as_it_may() -> None:
    """So that what the CPU did for the first of several is what came before its first
    kernel."""
    block, more = [1, 2, 3, 4] * 4, [1, 9]
    a = lane([*more, *block, 8], [10, 10, 10, 10, 70, 80, *[10] * 13])
    b = lane([*more, *block[4:], 8], [10] * 15)
    (found,) = find_surplus_blocks(a, b)
    assert found.items == (2, 3, 4, 5)


def lane(keys: list[int], times: list[int]) -> LaneWork:
    return LaneWork(
        keys=np.array(keys),
        features=np.array(times)[:, None],
        items=np.arange(len(keys)),
    )


def test_layers_apart_from_each_other_are_one_row(build: Build) -> None:
    found = diff(build(model([*range(8)])), build(model([0, 2, 3, 4, 6, 7])))
    (row,) = changed(list(found.rows))
    assert (row.op, row.a_count) == ("8 layers -> 6", 10)
    assert row.change_ns == -2 * 85_000 - 21_250 * (1 + 5)


def test_another_product_in_all_layers_is_told_beside_it(
    build: Build, work: Work
) -> None:
    found = diff(build(model([*range(6)])), build(model([0, 1, 3, 4, 5], OTHER)))
    rows = changed(work(found))
    assert [row.kind for row in rows].count(RowKind.REMOVED) == 1
    assert {row.kind for row in rows} == {RowKind.REMOVED, RowKind.REPLACED}
    assert len(rows) == 1 + 5


def test_a_kernel_gone_from_a_layer_is_no_layer_gone(build: Build) -> None:
    pieces = model([*range(6)])
    attention = 2 + 3 * 5 + 2
    found = diff(build(pieces), build(pieces[:attention] + pieces[attention + 1 :]))
    (row,) = (row for row in changed(list(found.rows)) if not row.on_cpu)
    assert (row.kind, row.op) == (RowKind.REMOVED, "aten::_flash_attention_forward")


def test_blocks_without_attention_are_not_called_layers(build: Build) -> None:
    pieces = [piece for piece in layer(0) if "flash" not in piece[0]]
    a, b = build([*HEAD, *pieces * 5]), build([*HEAD, *pieces * 3])
    (row,) = changed(list(diff(a, b).rows))
    assert row.op == "5 repeated blocks -> 3"


def test_the_sum_closes(build: Build) -> None:
    found = diff(build(model([*range(6)])), build(model([0, 1, 3, 5])))
    sums = found.accounting
    parts = (
        sums.rows_ns + sums.idle_ns + sums.overlap_ns + sums.later_ns + sums.earlier_ns
    )
    assert sums.step_ns == parts + sums.not_explained_ns + sums.odd_ns
    assert sums.not_explained_ns == 0
    assert sum(part.change_ns for part in found.by_work) == sums.rows_ns


def parallel_layer(nth: int) -> list[tuple[Any, ...]]:
    """With two collectives on another stream, whose times vary from layer to layer in
    no order."""
    gather = (
        "c10d::allgather_",
        "ncclDevKernel_AllGather_RING_LL",
        50.0 + 20 * (nth % 3),
        20,
    )
    scatter = (
        "c10d::reduce_scatter_",
        "ncclDevKernel_ReduceScatter",
        40.0 + 30 * (nth % 2),
        20,
    )
    pieces = layer(nth)
    return [*pieces[:2], gather, *pieces[2:], scatter]


def test_the_collectives_of_a_layer_are_part_of_it(build: Build) -> None:
    def parallel_model(layers: list[int]) -> list[tuple[Any, ...]]:
        return [
            *HEAD,
            *(piece for nth in layers for piece in parallel_layer(nth)),
            *TAIL,
        ]

    whole = build(parallel_model([*range(6)]))
    for gone in range(6):
        left = build(parallel_model([n for n in range(6) if n != gone]))
        pieces = parallel_layer(gone)
        ns = round(1000 * sum(piece[2] for piece in pieces))
        (removed,) = changed(list(diff(whole, left).rows))
        (added,) = changed(list(diff(left, whole).rows))
        assert (removed.op, removed.change_ns, removed.a_count) == (
            "6 layers -> 5",
            -ns,
            7,
        )
        assert (added.op, added.change_ns, added.b_count) == ("5 layers -> 6", ns, 7)


def test_a_collective_that_the_other_side_still_does_is_no_part_of_a_layer(
    build: Build, work: Work
) -> None:
    """The layer is gone, but not what it gathered."""
    gone = 3
    pieces = [
        *HEAD,
        *(piece for nth in range(6) for piece in parallel_layer(nth)),
        *TAIL,
    ]
    layer_gone = [
        *HEAD,
        *(
            piece
            for nth in range(6)
            for piece in parallel_layer(nth)
            if nth != gone or piece[0] == "c10d::allgather_"
        ),
        *TAIL,
    ]
    (row,) = changed(work(diff(build(pieces), build(layer_gone))))
    assert (row.op, row.a_count) == ("6 layers -> 5", 6)


LAYERS, STEPS = 6, 6


def varied_model(step: int, gone: int | None = None) -> list[tuple[Any, ...]]:
    """Layers that differ by chance, and by chance otherwise in each step."""
    chance = random.Random(f"11 {step}")
    pieces = [*HEAD]
    for nth in range(LAYERS):
        times = [round(piece[2] * chance.uniform(0.8, 1.2), 1) for piece in layer(0)]
        if nth != gone:
            for piece, us in zip(layer(0), times, strict=True):
                pieces.append((*piece[:2], us))
    return [*pieces, *TAIL]


def in_steps(build: Build, gone: int | None = None) -> Trace:
    steps = {step: varied_model(step, gone) for step in range(STEPS)}
    return build([], (1.0,) * STEPS, odd=steps)


@pytest.mark.parametrize("gone", range(LAYERS))
def test_a_layer_is_found_by_its_times_in_the_same_steps(
    build: Build, gone: int
) -> None:
    """Not by those in the usual steps of each side, which are others where the layer
    is gone."""
    a, b = in_steps(build), in_steps(build, gone)
    found = diff(a, b)
    (row,) = changed(list(found.rows))
    usual = found.side_a.usual
    times = [int(a.dur[row]) for step in usual for row in kernels_of(a, step, gone)]
    pieces = len(layer(0))
    assert abs(row.change_ns + sum(times) / len(usual)) <= pieces  # each is rounded


def kernels_of(trace: Trace, step: int, layer_number: int) -> list[int]:
    """The rows of the kernels of a layer in a step."""
    kernels = trace.gpu_rows[np.argsort(trace.start[trace.gpu_rows])].tolist()
    of_layer = len(layer(0))
    of_step = len(HEAD) + of_layer * LAYERS + len(TAIL)
    first = step * of_step + len(HEAD) + of_layer * layer_number
    rows: list[int] = kernels[first : first + of_layer]
    return rows
