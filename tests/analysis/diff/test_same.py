"""A trace against itself: everything is the same, and nothing changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.model import Diff, RowKind
from fusetui.trace import Trace, open_trace

MLP = [
    ("mlp / aten::linear / aten::mm", "ampere_bf16_gemm", 20),
    ("mlp / aten::gelu", "gelu_kernel", 8),
    ("mlp / aten::mul", "mul_kernel", 6),
    ("copy / aten::copy_", "Memcpy DtoD", 3, 13),
]


def is_all_same(found: Diff) -> bool:
    return all(row.kind is RowKind.SAME and row.change_ns == 0 for row in found.rows)


def test_built_trace_against_itself_is_all_same(build: Callable[..., Trace]) -> None:
    trace = build(MLP)
    found = diff(trace, trace)
    assert is_all_same(found)
    assert found.step.ratio == 1


def test_shifted_times_and_renumbered_ids_are_no_difference(
    build: Callable[..., Trace],
) -> None:
    other = build(MLP, shift=12_345_678, tid=42, first_id=9000)
    found = diff(build(MLP), other)
    assert is_all_same(found)
    assert found.accounting.step_ns == 0


def test_numbers_of_compiled_kernels_are_no_difference(
    build: Callable[..., Trace],
) -> None:
    a = build([("triton_poi_fused_add_0", "triton_poi_fused_add_0")])
    b = build([("triton_poi_fused_add_3", "triton_poi_fused_add_3")])
    assert is_all_same(diff(a, b))


def test_trace_of_a_file_against_itself_is_all_same(any_trace: Path) -> None:
    trace = open_trace(str(any_trace))
    found = diff(trace, trace)
    assert is_all_same(found)
    assert found.accounting.not_explained_ns == 0
