"""benchmarks/outputs.py names what two checkouts print differently."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.scripts import benchmark

outputs = benchmark("outputs")


def folder(path: Path, answers: dict[str, str]) -> Path:
    path.mkdir()
    for name, text in answers.items():
        (path / name).write_text(text)
    return path


def test_equal_answers_do_not_differ(tmp_path: Path) -> None:
    answers = {"a--why.txt": "exit 0\n", "a--gaps.txt": "exit 0\n"}
    before = folder(tmp_path / "before", answers)
    after = folder(tmp_path / "after", answers)
    assert outputs.compare(before, after, 4) == 0


def test_a_changed_line_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = folder(tmp_path / "before", {"a--why.txt": "same\nbusy 20 %\n"})
    after = folder(tmp_path / "after", {"a--why.txt": "same\nbusy 21 %\n"})
    assert outputs.compare(before, after, 4) == 1
    printed = capsys.readouterr().out
    assert "-busy 20 %" in printed
    assert "+busy 21 %" in printed


def test_an_answer_that_is_missing_differs(tmp_path: Path) -> None:
    before = folder(tmp_path / "before", {"a--why.txt": "exit 0\n"})
    after = folder(tmp_path / "after", {})
    assert outputs.compare(before, after, 4) == 1


def test_a_folder_of_ranks_is_one_question_about_a_job(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    for rank in range(2):
        (job / f"rank{rank}.json").write_text("[]")
    commands = {
        asked.name: asked.command_lines[0][0] for asked in outputs.questions([tmp_path])
    }
    name = f"{tmp_path.name}__job"
    assert commands[name] == "ranks"
    assert commands[f"{name}__rank0.json"] == "summary"
