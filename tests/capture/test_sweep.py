"""Sweeps: every point is a run, and an interrupted sweep can be continued."""

import csv
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fusetui.capture import command
from fusetui.capture.errors import CaptureError
from fusetui.capture.options import Options
from fusetui.capture.record import SavedRun, SavedVariant
from fusetui.capture.table import draw_sweep_chart, format_sweep_table

pytest.importorskip("torch", reason="capture runs torch")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("fast_timing")]

VARIANTS = ["loop", "bmm", "fused"]
SHAPES = ["--in=2", "--out=2"]
OPTIONS = Options(variants=VARIANTS, device="cpu", shapes=SHAPES, seconds=1e-9)


def run(out: Path | None, points: str = "batch=2,4 n=1,3", **options: Any) -> Path:
    asked = replace(OPTIONS, sweep=[points], **options)
    return command.capture("partitioned-linear", asked, out).folder


def test_every_point_is_a_run_folder(tmp_path: Path) -> None:
    folder = run(tmp_path / "a")
    names = sorted(path.name for path in folder.iterdir())
    points = ["batch=2,n=1", "batch=2,n=3", "batch=4,n=1", "batch=4,n=3"]
    assert names == [*points, "sweep.csv", "sweep.json"]
    shapes = json.loads((folder / points[1] / "run.json").read_text())["shapes"]
    assert shapes == {"batch": 2, "n": 3, "in_features": 2, "out_features": 2}


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
    assert heading.endswith("), float32, batch=64 in_features=2 out_features=2")
    assert columns.split() == ["n", *VARIANTS]
    assert "n = 3" in out
    assert "1.00x" in out
    assert "fused: it needs a GPU" in out


def test_the_points_at_which_something_else_was_running_are_named() -> None:
    def row(n: int, variant: str, p90_ns: int | None) -> dict[str, Any]:
        median_ns = None if p90_ns is None else 1500
        times = {"median_ns": median_ns, "p10_ns": 1000, "p90_ns": p90_ns}
        return {"n": n, "variant": variant, "failed": None, **times}

    rows = [
        *(row(n, "loop", p90_ns=n * 1000) for n in (1, 2, 3, 4)),
        *(row(n, "bmm", p90_ns=2000) for n in (1, 2, 3, 4)),
        *(row(n, "fused", p90_ns=None) for n in (1, 2, 3, 4)),
    ]
    _, *_, last = format_sweep_table(rows, ["n"]).splitlines()
    assert last == "loop: at n = 3, 4: something else was running."
    assert "running" not in format_sweep_table(rows[4:], ["n"])


def test_a_sweep_that_was_stopped_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measure, runs = command.measure, []

    def stop_at_the_second(*args: Any, **options: Any) -> Any:
        runs.append(options["out"].name)
        if len(runs) == 2:
            raise KeyboardInterrupt
        return measure(*args, **options)

    monkeypatch.setattr(command, "measure", stop_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "a", "n=1,2,3")
    assert f"same command with --out {tmp_path / 'a'}" in capsys.readouterr().err
    assert len(json.loads((tmp_path / "a" / "sweep.json").read_text())["rows"]) == len(
        VARIANTS
    )
    run(tmp_path / "a", "n=1,2,3")
    assert runs == ["n=1", "n=2", "n=2", "n=3"]


def test_another_sweep_is_not_mixed_in(tmp_path: Path) -> None:
    run(tmp_path / "a", "n=1")
    with pytest.raises(CaptureError, match="contains another sweep, with other sizes"):
        run(tmp_path / "a", "n=2")


def test_a_sweep_with_another_option_is_told_which(tmp_path: Path) -> None:
    run(tmp_path / "a", "n=1")
    with pytest.raises(
        CaptureError, match="with --backward false instead of true: choose"
    ):
        run(tmp_path / "a", "n=1", backward=True)


def test_a_folder_that_is_no_sweep_is_not_touched(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="is not a sweep"):
        run(tmp_path)


def test_a_point_that_fails_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run(tmp_path / "a", f"batch=2,{2**50}")
    assert "cannot be set up: it ran out of memory" in capsys.readouterr().err
    rows = json.loads((folder / "sweep.json").read_text())["rows"]
    assert {row["batch"] for row in rows} == {2}


def test_a_sweep_without_a_result_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="No point of the sweep was captured"):
        run(tmp_path / "a", f"batch={2**50}")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_resumption_removes_no_other_file(tmp_path: Path) -> None:
    def fail() -> None:
        with pytest.raises(CaptureError, match="No point of the sweep was captured"):
            run(tmp_path / "a", f"batch={2**50}")

    fail()
    asked = command._make_identity("partitioned-linear", OPTIONS, [{"batch": 2**50}])
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "sweep.json").write_text(json.dumps({"asked": asked}))
    (tmp_path / "a" / "notes.txt").touch()
    fail()
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["notes.txt"]


def test_outcome_of_a_sweep_names_what_failed(tmp_path: Path) -> None:
    options = replace(OPTIONS, variants=["loop", "fused"], sweep=[f"batch=2,{2**50}"])
    outcome = command.capture("partitioned-linear", options, tmp_path / "a")
    assert outcome.failed == (f"batch={2**50}", "batch=2 fused")
    again = command.capture("partitioned-linear", options, tmp_path / "a")
    assert again == outcome  # the existing point counts as well


def test_a_variant_that_was_skipped_did_not_fail() -> None:
    variants = (
        SavedVariant("a", failed="it needs a GPU.", skipped=True),
        SavedVariant("b", failed="it ran out of memory."),
        SavedVariant("c"),
    )
    done = SavedRun("mlp", {}, "float32", "a CPU", "cpu", variants)
    assert list(
        command._find_failures([command.SweptRun({"n": 1}, done)], [{"n": 1}, {"n": 2}])
    ) == [
        "n=2",
        "n=1 b",
    ]


def test_two_sweeps_in_one_second_get_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "default_folder", lambda *_: Path("runs/a"))
    folders = [run(None, "n=1"), run(None, "n=1")]
    assert folders == [Path("runs/a"), Path("runs/a-2")]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, fast_timing: None) -> Path:
    """A sweep of two points."""
    return run(tmp_path_factory.mktemp("sweep") / "a", "n=1,2")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("sweep.json", "[", "is not a sweep"),
        ("sweep.json", "[5]", "is not a sweep"),
        ("sweep.json", '{"asked": {"points": 5}}', "contains another sweep"),
        ("n=1/run.json", "[", r"n=1/run.json is not JSON: .* move its folder"),
        (
            "n=1/run.json",
            '{"variants": [{"name": 5}]}',
            r"n=1/run.json is not the record",
        ),
        ("n=1/run.json", None, r"Cannot read .*n=1/run.json: No such file"),
    ],
)
def test_a_sweep_that_was_damaged_is_told_before_it_goes_on(
    swept: Path, tmp_path: Path, name: str, content: str | None, message: str
) -> None:
    folder = Path(shutil.copytree(swept, tmp_path / "a"))
    shutil.rmtree(folder / "n=2")
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content)
    with pytest.raises(CaptureError, match=message):
        run(folder, "n=1,2")
    assert not (folder / "n=2").exists()


def test_a_sweep_that_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    os.mkfifo(tmp_path / "a" / "sweep.json")
    with pytest.raises(CaptureError, match="is not a sweep"):
        run(tmp_path / "a")


def test_bars_are_ascii_where_blocks_cannot_be_shown() -> None:
    rows = [
        {"n": 1, "variant": "a", "median_ns": 100, "failed": None},
        {"n": 1, "variant": "bc", "median_ns": 50, "failed": None},
    ]
    bars = draw_sweep_chart(rows, ["n"], ascii_only=True).splitlines()[3:]
    assert bars == [
        f"  a  {'#' * 40} 100 ns  1.00x",
        f"  bc {'#' * 20}{' ' * 20} 50 ns  2.00x",
    ]


def test_guesses_hold_at_every_point(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = Options(["loop"], "cpu", expect=["gemm=3"], sweep=["n=2,3"], seconds=1e-9)
    outcome = command.capture("partitioned-linear", options, tmp_path / "a")
    assert not outcome.right
    assert (
        capsys.readouterr().out.splitlines()[-1]
        == "n=2: ! loop gemm: expected 3, found 2"
    )
