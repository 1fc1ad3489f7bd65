"""Pairs of traces: captures that ship with the package, and traces of the corpus."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.corpus.files import corpus_path

from fusetui import sample_traces
from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.model import Diff, Row, RowKind
from fusetui.trace import open_trace

Work = Callable[[Diff], list[Row]]


def compared(a: Path, b: Path) -> Diff:
    return diff(open_trace(str(a)), open_trace(str(b)))


def samples(a: str, b: str) -> Diff:
    """Of two captures that ship."""
    return compared(sample_traces.path(a), sample_traces.path(b))


def op_kinds(rows: list[Row], *ops: str) -> set[RowKind]:
    return {row.kind for row in rows if row.op in ops}


def test_mlp_compiled_fuses_gelu_and_mul(work: Work) -> None:
    rows = work(samples("mlp-eager", "mlp-compiled"))
    (fused,) = [row for row in rows if row.kind is RowKind.FUSED]
    assert fused.op == "aten::gelu + aten::mul"
    assert "fused" in fused.b[0]
    assert "the fused kernel's name lists gelu and mul" in fused.why


def test_mlp_compiled_keeps_its_three_gemms(work: Work) -> None:
    rows = work(samples("mlp-eager", "mlp-compiled"))
    gemms = [row for row in rows if "mm" in row.op or "linear" in row.op]
    assert len(gemms) == 3
    assert all(row.a and row.b for row in gemms)


def test_mlp_compiled_has_less_dispatch_and_new_guards() -> None:
    rows = samples("mlp-eager", "mlp-compiled").rows
    kinds = {row.op: row.kind for row in rows if row.on_cpu}
    assert kinds["CPU: aten::t"] is kinds["CPU: aten::linear"] is RowKind.REMOVED
    assert kinds["CPU: TorchDynamo Cache Lookup"] is RowKind.ADDED
    assert kinds["CPU: AOTDispatcher Runtime Wrapper Prologue"] is RowKind.ADDED
    assert kinds["CPU: ## Call CompiledFxGraph ##"] is RowKind.ADDED


def test_linear_compiled_loses_only_its_transpose(work: Work) -> None:
    found = samples("linear-eager", "linear-compiled")
    assert op_kinds(work(found), "aten::addmm") <= {
        RowKind.SAME,
        RowKind.FASTER,
        RowKind.SLOWER,
    }
    assert any(r.op == "CPU: aten::t" and r.kind is RowKind.REMOVED for r in found.rows)


PAIRS = (
    ("training", "training-slower"),
    ("sample-mlp-eager", "sample-mlp-compiled"),
    ("lesson-mlp-eager", "lesson-mlp-compiled"),
    ("job/rank0", "job/rank2"),
)


def sum_closes_and_every_piece_is_in_one_row(found: Diff, work: Work) -> None:
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


@pytest.mark.parametrize("turned", [False, True], ids=["", "turned round"])
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0])
def test_the_sum_closes_and_every_piece_is_in_one_row(
    pair: tuple[str, str], turned: bool, work: Work
) -> None:
    a, b = map(corpus_path, pair[::-1] if turned else pair)
    sum_closes_and_every_piece_is_in_one_row(compared(a, b), work)


def test_slower_matrix_products_are_the_rows_that_are_slower(work: Work) -> None:
    found = compared(corpus_path("training"), corpus_path("training-slower"))
    slower = {row.op for row in work(found) if row.kind is RowKind.SLOWER}
    assert slower == {"aten::addmm", "aten::mm"}
