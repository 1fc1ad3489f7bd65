"""The figures of the sources beside ours: benchmarks/sources.py and docs/sources.toml."""

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
    names = {name for workload in kernels.names() for name in kernels.get(workload).variants}
    facts = sources.facts()
    for figure in facts.figure:
        assert set(figure.variants) <= names | {"liger"}
        assert figure.source in facts.sources
        assert sources.said(figure)


@pytest.mark.parametrize(("times", "said"), [(1.6, ": yes"), (1.02, ": no"), (3.1, ": no")])
def test_a_claim_is_answered(times: float, said: str) -> None:
    claim = sources.Figure("mlp", "retelling", faster=("a", "b"), least=1.5, most=3)
    assert sources.said(claim) == "at least 1.5x and at most 3x"
    assert sources.answer(claim, times) == said


def test_our_figure_and_the_reason_come_from_the_run(tmp_path: Path) -> None:
    from fusetui.capture.command import capture
    from fusetui.capture.options import Options

    sizes = ["--features=2", "--rows=4", "--dim=8"]
    variants = ["split", "combined"]
    capture("split-stack", Options(variants, "cpu", shapes=sizes, seconds=0.01), tmp_path / "run")
    table = sources.compared("split-stack", tmp_path / "run").splitlines()
    row = next(line for line in table if line.startswith("combined against split"))
    assert "8.4x" in row
    assert "split: " in row.partition("combined: ")[2]
    assert table[-1] == "Source: To Fuse or Not to Fuse?; A100, 40 GB."
    missing = next(line for line in table if line.startswith("split-compiled"))
    assert missing.split()[-2:] == ["-", "-"]


def test_the_reason_of_a_gpu_is_its_account() -> None:
    found = why(open_trace(str(ROOT / "sample_traces" / "lessons" / "mlp-eager.json.gz")))
    assert sources.reason(found).startswith("compute ")
