"""What the benchmarks of planted changes keep for each trace, so that a stopped run
goes on."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.diff.planting import Answer
from tests.scripts import benchmark

from fusetui.trace import Trace

launches = benchmark("diff_launches")
# which the script makes importable
kept_answers = import_module("benchmarks.kept_answers")
RESULTS = {("a copy", "nested"): [Answer(True, ""), Answer(False, "2 rows")]}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "a.json"
    path.write_text("[]")
    return path


def kept(folder: Path, made_by: str = "program 1") -> Any:
    return kept_answers.KeptAnswers(folder=folder / "work", made_by=made_by)


def test_answers_are_read_as_they_were_written(trace: Path, tmp_path: Path) -> None:
    assert kept(tmp_path).read(trace) is None
    kept(tmp_path).write(trace, RESULTS)
    assert kept(tmp_path).read(trace) == RESULTS


def test_answers_of_another_program_are_not_read(trace: Path, tmp_path: Path) -> None:
    kept(tmp_path).write(trace, RESULTS)
    assert kept(tmp_path, "program 2").read(trace) is None


def test_answers_on_another_trace_of_that_name_are_not_read(
    trace: Path, tmp_path: Path
) -> None:
    kept(tmp_path).write(trace, RESULTS)
    trace.write_text("[{}]")
    assert kept(tmp_path).read(trace) is None


def test_a_file_that_was_cut_short_is_not_read(trace: Path, tmp_path: Path) -> None:
    kept(tmp_path).write(trace, RESULTS)
    (file,) = (tmp_path / "work").iterdir()
    file.write_bytes(file.read_bytes()[:-5])
    assert kept(tmp_path).read(trace) is None


def test_a_table_says_which_traces_it_covers() -> None:
    coverage = kept_answers.Coverage()
    coverage.add("b.json.gz", RESULTS)
    coverage.add("a.json", RESULTS)
    coverage.add("cpu.json", {})
    coverage.add("large.json.gz", None)
    assert coverage.sentences() == (
        "Measured: a, b. Nothing could be planted into: cpu. Not measured: large."
    )


def test_a_run_that_was_stopped_measures_only_the_other_traces(
    build: Callable[..., Trace],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    traces = [build([("aten::mul", f"kernel_{n}", 20.0)]).report.path for n in range(2)]
    measured: list[str] = []

    def measure(path: Path, into: Path, results: Any) -> None:
        measured.append(path.name)
        results["all ops renamed", "in all steps"].append(Answer(True, ""))

    monkeypatch.setattr(launches, "_try", measure)
    work = ["--work", str(tmp_path)]
    for words in ([traces[0]], traces, [*traces, "--kept-only"]):
        monkeypatch.setattr("sys.argv", ["diff_launches.py", *words, *work])
        assert launches.main() == 0
    assert measured == [Path(trace).name for trace in traces]
    assert "| all ops renamed |  | 2 of 2 |  |" in capsys.readouterr().out
