"""benchmarks/gpu_session.py: all that only a GPU can show, in one command."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.places import ROOT
from tests.scripts import benchmark

from fusetui import kernels

torch = pytest.importorskip("torch", reason="the scripts run torch")
gpu = pytest.importorskip("tests.fake_gpu")
pytest.importorskip("fusetui.capture.recorder", reason="needs torch")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("fast_timing")]

LINEAR = ROOT / "sample_traces" / "lessons" / "linear-eager.json.gz"


@pytest.fixture(scope="module")
def session() -> Any:
    return benchmark("gpu_session")


def test_every_experiment_has_its_turn_once(session: Any, tmp_path: Path) -> None:
    experiments = [one.name for one in benchmark("capture_experiments").EXPERIMENTS]
    words = [word for part in session.parts(tmp_path) for word in part.command]
    assert sorted(word for word in words if word in experiments) == sorted(experiments)
    assert all(
        (ROOT / word).exists() for word in words if word.startswith(("benchmarks/", "tests/"))
    )


def test_a_part_that_fails_spares_the_others(
    session: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = [
        session.Piece("fails", [sys.executable, "-c", "raise SystemExit(3)"], 60),
        session.Piece("missing", [str(tmp_path / "no-such-program")], 60),
        session.Piece("runs", [sys.executable, "-c", "print('measured')"], 60),
    ]
    monkeypatch.setattr(session, "parts", lambda _: made)
    monkeypatch.setattr(sys, "argv", ["gpu_session.py", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        session.main()
    assert ended.value.code == 1
    codes = [part["code"] for part in json.loads((tmp_path / "session.json").read_text())]
    assert (codes[0], codes[2]) == (3, 0)
    assert "No such file" in codes[1]
    assert (tmp_path / "logs" / "runs.txt").read_text() == "measured\n"


def test_a_table_of_a_gpu_is_filled_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script, page = benchmark("capture_experiments"), tmp_path / "page.md"
    page.write_text("<!-- table: linear cuda -->\nNot measured yet.\n<!-- end -->\n")
    gpu.stand_in(monkeypatch, LINEAR)
    monkeypatch.setattr("fusetui.capture.step.MAX_SAMPLES", 10)
    variants = kernels.get("linear").variants
    monkeypatch.setitem(variants, "compiled", replace(variants["compiled"], compiled=False))
    monkeypatch.setattr(script, "PAGE", page)
    command = ["", "--device", "cuda", "--runs", str(tmp_path / "runs"), "linear"]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as ended:
        script.main()
    assert ended.value.code == 0
    text = page.read_text()
    assert f"linear on cuda ({gpu.NAME})" in text
    assert "= eager gemm: guess 1, found 1" in text
    assert "eager: compute " in text
