"""A trace against itself: everything is the same, and nothing changed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.places import TRACES

from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.model import Diff, RowKind
from fusetui.trace import Trace, open_trace

FILES = (
    "cpu_only_small.json.gz",
    "cupti_counters.json.gz",
    "h100_Qwen1.5-0.5B.json.gz",
    "h100_transformer_step.json.gz",
    "large_integer.json.gz",
    "mi210_gpu_only.json.gz",
    "mi250_minitoy.json.gz",
    "mtia_inference.json.gz",
    "nccl_collectives.json.gz",
    "v100_train_diff_test.json.gz",
    "xpu_fixture.json.gz",
)
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


@pytest.mark.parametrize("name", FILES)
def test_real_trace_against_itself_is_all_same(name: str) -> None:
    if not (TRACES / name).exists():
        pytest.skip(
            "the corpus of real traces is not here; FUSETUI_TRACES names its folder"
        )
    trace = open_trace(str(TRACES / name))
    found = diff(trace, trace)
    assert is_all_same(found)
    assert found.accounting.not_explained_ns == 0
