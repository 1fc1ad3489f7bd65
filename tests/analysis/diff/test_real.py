"""Real pairs: captures that ship with the package, and traces from other people's
machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.places import TRACES

from fusetui import sample_traces
from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.model import Diff, Row, RowKind
from fusetui.trace import open_trace

SAMPLES = Path(str(sample_traces.__file__)).parent

Work = Callable[[Diff], list[Row]]


def compared(folder: Path, a: str, b: str) -> Diff:
    paths = [folder / f"{name}.json.gz" for name in (a, b)]
    if not all(path.exists() for path in paths):
        pytest.skip(f"{a} and {b} are not in {folder}; FUSETUI_TRACES names the corpus")
    return diff(*(open_trace(str(path)) for path in paths))


def op_kinds(rows: list[Row], *ops: str) -> set[RowKind]:
    return {row.kind for row in rows if row.op in ops}


def test_mlp_compiled_fuses_gelu_and_mul(work: Work) -> None:
    rows = work(compared(SAMPLES, "mlp-eager", "mlp-compiled"))
    (fused,) = [row for row in rows if row.kind is RowKind.FUSED]
    assert fused.op == "aten::gelu + aten::mul"
    assert "fused" in fused.b[0]
    assert "its name lists gelu and mul" in fused.why


def test_mlp_compiled_keeps_its_three_gemms(work: Work) -> None:
    rows = work(compared(SAMPLES, "mlp-eager", "mlp-compiled"))
    gemms = [row for row in rows if "mm" in row.op or "linear" in row.op]
    assert len(gemms) == 3
    assert all(row.a and row.b for row in gemms)


def test_mlp_compiled_has_less_dispatch_and_new_guards() -> None:
    rows = compared(SAMPLES, "mlp-eager", "mlp-compiled").rows
    kinds = {row.op: row.kind for row in rows if row.on_cpu}
    assert kinds["CPU: aten::t"] is kinds["CPU: aten::linear"] is RowKind.REMOVED
    assert kinds["CPU: TorchDynamo Cache Lookup"] is RowKind.ADDED
    assert kinds["CPU: AOTDispatcher Runtime Wrapper Prologue"] is RowKind.ADDED
    assert kinds["CPU: ## Call CompiledFxGraph ##"] is RowKind.ADDED


def test_linear_compiled_loses_only_its_transpose(work: Work) -> None:
    found = compared(SAMPLES, "linear-eager", "linear-compiled")
    assert op_kinds(work(found), "aten::addmm") <= {
        RowKind.SAME,
        RowKind.FASTER,
        RowKind.SLOWER,
    }
    assert any(r.op == "CPU: aten::t" and r.kind is RowKind.REMOVED for r in found.rows)


def test_real_attention_in_three_kernels_and_in_one_is_fused(work: Work) -> None:
    names = "pair_attention_unfused_h100", "pair_attention_fused_mi300"
    (row,) = work(compared(TRACES, *names))
    assert (row.kind, row.a_count, row.b_count) == (RowKind.FUSED, 3, 1)
    (row,) = work(compared(TRACES, *names[::-1]))
    assert (row.kind, row.a_count, row.b_count) == (RowKind.SPLIT, 1, 3)


def test_real_experts_in_four_kernels_and_in_one_are_fused(work: Work) -> None:
    (row,) = work(compared(TRACES, "pair_moe_unfused_mi300", "pair_moe_fused_h100"))
    assert (row.kind, row.a_count, row.b_count) == (RowKind.FUSED, 4, 1)


def test_one_model_on_h100_and_mi300_is_paired_without_additions(work: Work) -> None:
    found = compared(TRACES, "h100_bert-small", "mi300_bert-small")
    kinds = Counter(row.kind for row in work(found))
    assert not kinds.keys() & {
        RowKind.ADDED,
        RowKind.REMOVED,
        RowKind.FUSED,
        RowKind.SPLIT,
    }
    assert op_kinds(work(found), "aten::addmm") == {RowKind.REPLACED}
    assert found.notes[0].startswith("devices differ: NVIDIA H100")


def test_two_training_runs_take_that_much_more_time() -> None:
    sums = compared(
        TRACES, "a100_train_diff_control", "v100_train_diff_test"
    ).accounting
    assert sums.step_ns == 37_856_000


PAIRS = (
    ("a100_train_diff_control", "v100_train_diff_test"),
    ("b300_deepseek_r1_decode", "mi300_deepseek_r1_decode"),
    ("h100_Qwen1.5-0.5B", "mi300_Qwen1.5-0.5B"),
    ("h100_bert-small", "mi300_bert-small"),
    ("pair_attention_fused_mi300", "pair_attention_unfused_h100"),
    ("pair_moe_unfused_mi300", "pair_moe_fused_h100"),
)


@pytest.mark.parametrize("turned", [False, True], ids=["", "turned round"])
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0])
def test_the_sum_closes_and_every_piece_is_in_one_row(
    pair: tuple[str, str], turned: bool, work: Work
) -> None:
    found = compared(TRACES, *(pair[::-1] if turned else pair))
    sums, rows = found.accounting, [row for row in work(found) if row.counts]
    assert sums.rows_ns == sum(row.change_ns for row in found.rows if row.counts)
    beside = sums.overlap_ns + sums.later_ns + sums.earlier_ns + sums.odd_ns
    assert sums.step_ns == sums.rows_ns + sums.idle_ns + beside + sums.not_explained_ns
    a_ns, b_ns = found.step.a_ns or 0, found.step.b_ns or 0
    assert abs(sums.not_explained_ns) <= (abs(sums.step_ns) + max(a_ns, b_ns)) // 100
    for side, used, ns in (
        (
            found.side_a,
            [n for row in rows for n in row.a_rows],
            sum(row.a_ns for row in rows),
        ),
        (
            found.side_b,
            [n for row in rows for n in row.b_rows],
            sum(row.b_ns for row in rows),
        ),
    ):
        assert len(set(used)) == len(used) == side.items
        assert ns == side.work_ns
