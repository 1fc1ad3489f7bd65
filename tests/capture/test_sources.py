"""The figures of the sources beside ours: benchmarks/sources.py and
docs/sources.toml."""

from pathlib import Path

import pytest
from tests.places import ROOT
from tests.scripts import benchmark

from fusetui import kernels
from fusetui.analysis.why.answer import why
from fusetui.trace import open_trace

torch = pytest.importorskip("torch", reason="the runs are made with torch")
sources = benchmark("sources")
pytestmark = pytest.mark.torch


def test_every_figure_is_about_variants_that_there_are() -> None:
    names = {
        name for workload in kernels.names() for name in kernels.get(workload).variants
    }
    facts = sources.facts()
    for figure in facts.figure:
        assert set(figure.variants) <= names | {"liger"}
        assert figure.source in facts.sources
        assert sources.said(figure)


@pytest.mark.parametrize(
    ("times", "said"), [(1.6, ": yes"), (1.02, ": no"), (3.1, ": no")]
)
def test_a_claim_is_answered(times: float, said: str) -> None:
    claim = sources.Figure("mlp", "retelling", faster=("a", "b"), least=1.5, most=3)
    assert sources.said(claim) == "at least 1.5x and at most 3x"
    assert sources.answer(claim, times) == said


@pytest.mark.parametrize(
    ("speedups", "said"),
    [([12.0, 8.0, 1.5], True), ([12.0, 12.0], False), ([1.0, 2.0], False)],
)
def test_a_gap_shrinks_where_each_is_smaller(speedups: list[float], said: bool) -> None:
    assert sources.falls(speedups) is said


def test_a_trend_and_what_weights_and_arithmetic_cost_are_rows(tmp_path: Path) -> None:
    from fusetui.capture.command import capture
    from fusetui.capture.options import Options

    variants, n = ["loop", "big"], 4
    for batch in (2, 3):
        shapes = [f"--batch={batch}", f"--n={n}", "--in=8", "--out=8"]
        options = Options(variants, "cpu", shapes=shapes, seconds=0.01)
        capture("partitioned-linear", options, tmp_path / f"batch={batch}")
    points = ("batch=2", "batch=3")
    trend = sources.Figure(
        "x", "post", said="shrinks", faster=("big", "loop"), points=points, falls=True
    )
    (row,) = sources._rows(trend, tmp_path)
    assert row[0] == "big (A) against loop (B), batch=2 to batch=3"
    assert row[2].count("x") == 2
    (missing,) = sources._rows(trend, tmp_path / "batch=2")
    assert missing[2] == "-"
    weights = sources.Figure("x", "post", weights=("big", "loop"), points=points[:1])
    flop = sources.Figure("x", "post", flop=("big", "loop"), points=points[:1])
    (of_weights,), (of_flop,) = (
        sources._rows(weights, tmp_path),
        sources._rows(flop, tmp_path),
    )
    biases = n * 8
    expected = (n * n * 64 + biases) / (n * 64 + biases)
    assert of_weights[:3:2] == (
        "bytes of weights of big (A) against loop (B), batch=2",
        f"{expected:.1f}x",
    )
    assert of_flop[:3:2] == ("FLOP of big (A) against loop (B), batch=2", f"{n:.1f}x")


def test_our_figure_and_the_reason_come_from_the_run(tmp_path: Path) -> None:
    from fusetui.capture.command import capture
    from fusetui.capture.options import Options

    sizes = ["--features=2", "--rows=4", "--dim=8"]
    variants = ["split", "combined"]
    capture(
        "split-stack",
        Options(variants, "cpu", shapes=sizes, seconds=0.01),
        tmp_path / "run",
    )
    table = sources.compared("split-stack", tmp_path / "run").splitlines()
    row = next(line for line in table if line.startswith("combined against split"))
    assert "8.4x" in row
    assert "split: " in row.partition("combined: ")[2]
    assert table[-1] == "Source: To Fuse or Not to Fuse?; A100, 40 GB."
    missing = next(line for line in table if line.startswith("split-compiled"))
    assert missing.split()[-2:] == ["-", "-"]


def test_the_reason_of_a_gpu_is_its_account() -> None:
    found = why(
        open_trace(str(ROOT / "sample_traces" / "lessons" / "mlp-eager.json.gz"))
    )
    assert sources.reason(found).startswith("compute ")
