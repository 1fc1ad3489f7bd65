"""What the benchmarks of planted changes keep for each trace, so that a stopped run
goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
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
planted_table = import_module("benchmarks.planted_table")
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
    capsys: pytest.CaptureFixture[str],
) -> None:
    traces = [build([("aten::mul", f"kernel_{n}", 20.0)]).report.path for n in range(2)]
    measured: list[str] = []

    def measure(trial: Any) -> None:
        measured.append(trial.path.name)
        trial.add("all ops renamed", "in all steps", Answer(True, ""))

    table = replace(launches.TABLE, tries=measure)
    work = ["--work", str(tmp_path)]
    for words in ([traces[0]], traces, [*traces, "--kept-only"]):
        assert table.main([*words, *work]) == 0
    assert measured == [Path(trace).name for trace in traces]
    assert "| all ops renamed |  | 2 of 2 |  |" in capsys.readouterr().out


def test_a_wrong_answer_is_said_and_counted(
    build: Callable[..., Trace], capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(trial: Any) -> None:
        trial.add("one op renamed", "in all steps", Answer(True, ""))
        trial.add("one op renamed", "in all steps", Answer(False, "2 rows"), "3")

    path = build([("aten::mul", "kernel", 20.0)]).report.path
    assert replace(launches.TABLE, tries=measure).main([path]) == 1
    said = capsys.readouterr()
    assert "| one op renamed |  | 1 of 2 |  |" in said.out
    assert "one op renamed, in all steps, 3: 2 rows" in said.err


def test_each_change_is_tried_at_each_place(
    build: Callable[..., Trace], tmp_path: Path
) -> None:
    path = Path(build([("aten::mul", "kernel", 20.0)], (1.0, 1.0, 1.0)).report.path)
    results: Any = {}
    trial = planted_table.Trial(path, tmp_path / "planted.json", 2, results)
    asked: list[tuple[str, int]] = []

    def nothing(subject: Any, place: str, number: int) -> None:
        asked.append((place, number))

    trial.plant(trial.subject(), {"nothing": nothing})
    places = ("in one step", "in all steps", "nested")
    assert asked == [(place, number) for place in places for number in range(2)]
    assert not results
