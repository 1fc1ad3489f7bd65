"""A folder of run folders, as `fusetui capture` fills: a person chooses among what is
there."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fusetui.commands.open import find_offers
from fusetui.commands.sources import find_folders_below
from fusetui.sample_traces import lessons

Run = Callable[..., Any]
Opened = list[dict[str, Any]]
VARIANTS = ("mlp-eager", "mlp-compiled")


def run_at(folder: Path, age: int = 0, variants: Sequence[str] = VARIANTS) -> Path:
    """A run folder that was written so many seconds ago."""
    folder.mkdir(parents=True)
    for name in variants:
        shutil.copy(lessons.path(name), folder)
    listed = [{"name": name, "files": [f"{name}.json.gz"]} for name in variants]
    record = folder / "run.json"
    record.write_text(json.dumps({"variants": listed}))
    os.utime(record, (2e9 - age, 2e9 - age))
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    run_at(tmp_path / "runs" / "older", 10)
    run_at(tmp_path / "runs" / "sweep" / "newer", 0)
    return tmp_path / "runs"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    """What the app was asked to show; there is a terminal."""
    calls: Opened = []

    def run(paths: Sequence[str], **settings: Any) -> int:
        calls.append({"paths": paths, **settings})
        return 0

    monkeypatch.setattr("fusetui.commands.open.has_terminal", lambda: True)
    monkeypatch.setattr("fusetui.tui.app.run", run)
    return calls


def test_a_person_chooses_a_run_and_the_newest_comes_first(
    fusetui: Run, opened: Opened, runs: Path
) -> None:
    assert fusetui("open", runs).code == 0
    (asked,) = opened
    assert asked["opened"] == 0
    assert [offer.label for offer in asked["offers"]] == [
        f"{runs}/sweep/newer/",
        f"{runs}/older/",
    ]
    assert [Path(path).name for path in asked["offers"][0].paths] == [
        f"{name}.json.gz" for name in VARIANTS
    ]


def test_a_single_run_is_opened_itself(
    fusetui: Run, opened: Opened, tmp_path: Path
) -> None:
    run_at(tmp_path / "runs" / "mine")
    assert fusetui("open", tmp_path / "runs").code == 0
    assert [Path(path).parent.name for path in opened[0]["paths"]] == ["mine", "mine"]


def test_folders_of_traces_are_listed_by_trace(
    fusetui: Run, opened: Opened, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        shutil.copy(lessons.path("linear-eager"), tmp_path / name / f"{name}.json.gz")
    assert fusetui("open", tmp_path).code == 0
    labels = {Path(offer.label).name for offer in opened[0]["offers"]}
    assert labels == {"a.json.gz", "b.json.gz"}


def test_list_of_runs_is_bounded_and_says_so(
    fusetui: Run, opened: Opened, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fusetui.commands.open.MAX_OFFERS", 1)
    found = fusetui("open", runs)
    assert len(opened[0]["offers"]) == 1
    assert (
        found.sentence
        == "There are more than 1 runs and traces: only the newest are listed."
    )


@pytest.mark.parametrize(
    "command", ["summary", "kernels", "why", "gaps", "diff", "ranks"]
)
def test_command_on_a_folder_of_runs_names_them(
    fusetui: Run, runs: Path, command: str
) -> None:
    found = fusetui(command, runs)
    assert (found.code, found.out) == (2, "")
    assert found.sentence == (
        f"{runs} contains 2 folders with traces: choose one ({runs}/sweep/newer, "
        f"{runs}/older)."
    )


def test_the_only_run_is_meant(fusetui: Run, tmp_path: Path) -> None:
    run_at(tmp_path / "runs" / "mine")
    assert "mlp-compiled" in fusetui("diff", tmp_path / "runs").out
    listed = "choose one (mine/mlp-eager.json.gz, mine/mlp-compiled.json.gz)"
    assert listed in fusetui("summary", tmp_path / "runs").sentence
    run_at(tmp_path / "single" / "mine", variants=VARIANTS[:1])
    assert fusetui("summary", tmp_path / "single").code == 0


def test_a_folder_for_each_rank_is_one_job(fusetui: Run, tmp_path: Path) -> None:
    for rank in ("rank0", "rank1"):
        (tmp_path / rank).mkdir()
        shutil.copy(lessons.path("linear-eager"), tmp_path / rank)
    assert len(json.loads(fusetui("ranks", tmp_path, "--json").out)["ranks"]) == 2


def test_hidden_and_deeper_folders_are_no_runs(tmp_path: Path) -> None:
    """A capture that is not complete has a hidden folder."""
    for inner in (".hidden", "a/b/deeper"):
        run_at(tmp_path / inner)
    assert find_folders_below(str(tmp_path)) == []
    run_at(tmp_path / "a" / "run")
    assert find_folders_below(str(tmp_path)) == [f"{tmp_path}/a/run"]


def test_a_run_without_a_trace_is_not_listed(tmp_path: Path) -> None:
    """As after a capture of which every variant failed."""
    run_at(tmp_path / "failed", variants=())
    run_at(tmp_path / "mine")
    labels = [offer.label for offer in find_offers(tmp_path)]
    assert f"{tmp_path}/mine/" in labels
    assert f"{tmp_path}/failed/" not in labels
