"""Sweeps: every point is a run, and a sweep that was stopped goes on."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from fusetui.capture import command
from fusetui.capture.errors import CaptureError
from fusetui.capture.options import Options

pytest.importorskip("torch", reason="capture runs torch")
sweep = pytest.importorskip("fusetui.capture.sweep")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("fast_timing")]

VARIANTS = ["loop", "bmm", "fused"]
SHAPES = ["--in=2", "--out=2"]


def run(out: Path, points: str = "batch=2,4 n=1,3") -> Path:
    return command.capture(
        "partitioned-linear",
        variants=VARIANTS,
        device="cpu",
        shapes=SHAPES,
        sweep=[points],
        seconds=1e-9,
        out=out,
    )


def test_every_point_is_a_run_folder(tmp_path: Path) -> None:
    folder = run(tmp_path / "a")
    names = sorted(path.name for path in folder.iterdir())
    points = ["batch=2,n=1", "batch=2,n=3", "batch=4,n=1", "batch=4,n=3"]
    assert names == [*points, "sweep.csv", "sweep.json"]
    shapes = json.loads((folder / points[1] / "run.json").read_text())["shapes"]
    assert shapes == {"batch": 2, "n": 3, "in": 2, "out": 2}


def test_json_and_csv_have_a_row_per_point_and_variant(tmp_path: Path) -> None:
    folder = run(tmp_path / "a", "n=1,3")
    rows = json.loads((folder / "sweep.json").read_text())["rows"]
    assert [(row["n"], row["variant"]) for row in rows] == [
        (n, variant) for n in (1, 3) for variant in VARIANTS
    ]
    with (folder / "sweep.csv").open() as file:
        assert [row["median_ns"] for row in csv.DictReader(file)] == [
            str(row["median_ns"] or "") for row in rows
        ]


def test_the_table_and_the_chart_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path / "a", "n=1,3")
    out = capsys.readouterr().out
    heading, _, columns, *_ = out.splitlines()
    assert heading.startswith("partitioned-linear on cpu (")
    assert heading.endswith("), bfloat16, batch=64 in=2 out=2")
    assert columns.split() == ["n", *VARIANTS]
    assert "n = 3" in out
    assert "1.00x" in out
    assert "fused: it needs a GPU" in out


def test_a_sweep_that_was_stopped_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measure, runs = sweep.measure, []

    def stop_at_the_second(*args: Any, **options: Any) -> Any:
        runs.append(options["out"].name)
        if len(runs) == 2:
            raise KeyboardInterrupt
        return measure(*args, **options)

    monkeypatch.setattr(sweep, "measure", stop_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "a", "n=1,2,3")
    assert f"same command with --out {tmp_path / 'a'}" in capsys.readouterr().err
    assert len(json.loads((tmp_path / "a" / "sweep.json").read_text())["rows"]) == len(VARIANTS)
    run(tmp_path / "a", "n=1,2,3")
    assert runs == ["n=1", "n=2", "n=2", "n=3"]


def test_another_sweep_is_not_mixed_in(tmp_path: Path) -> None:
    run(tmp_path / "a", "n=1")
    with pytest.raises(CaptureError, match="holds another sweep"):
        run(tmp_path / "a", "n=2")


def test_a_folder_that_is_no_sweep_is_not_touched(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="is no sweep"):
        run(tmp_path)


def test_a_point_that_fails_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run(tmp_path / "a", f"batch=2,{2**50}")
    assert "cannot be set up: it ran out of memory" in capsys.readouterr().err
    rows = json.loads((folder / "sweep.json").read_text())["rows"]
    assert {row["batch"] for row in rows} == {2}


def test_a_sweep_without_a_result_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="nothing was captured at any point"):
        run(tmp_path / "a", f"batch={2**50}")
    assert list(tmp_path.iterdir()) == []


def test_bars_are_ascii_where_blocks_cannot_be_shown() -> None:
    rows = [
        {"n": 1, "variant": "a", "median_ns": 100, "failed": None},
        {"n": 1, "variant": "bc", "median_ns": 50, "failed": None},
    ]
    bars = sweep.sweep_chart(rows, ["n"], ascii_only=True).splitlines()[3:]
    assert bars == [f"  a  {'#' * 40} 100 ns  1.00x", f"  bc {'#' * 20}{' ' * 20} 50 ns  2.00x"]


def test_guesses_hold_at_every_point(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = Options(variants=["loop"], device="cpu", expect=["gemm=3"], seconds=1e-9)
    outcome = command.run_capture(
        "partitioned-linear", options, sweep=["n=2,3"], out=tmp_path / "a"
    )
    assert not outcome.right
    assert capsys.readouterr().out.splitlines()[-1] == "n=2: ! loop gemm: guess 3, found 2"
