"""`--annotations`: replayed kernels have the modules that a file of annotations
names."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.servers import Server, save

from fusetui.analysis.graphs import annotations as serving_annotations
from fusetui.command_line.arguments import BY_ANNOTATIONS

Run = Callable[..., Any]
GRAPH = 5


@pytest.fixture
def replay(tmp_path: Path) -> Path:
    step = Server(hip=False).step(4, 0, 1)
    for n, event in enumerate(step[2:], 1):
        event["args"] |= {"graph id": GRAPH, "graph node id": n}
    return save(tmp_path / "replay.json", step)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "names.pkl"
    path.write_bytes(
        pickle.dumps({GRAPH << 32 | n: {"name": "L.mlp"} for n in range(1, 11)})
    )
    return path


def test_annotation_prefix_is_the_same_in_command_line_and_analysis() -> None:
    assert serving_annotations.BY_ANNOTATIONS == BY_ANNOTATIONS


def test_annotations_option_gives_modules_to_replayed_kernels(
    fusetui: Run, replay: Path, file: Path
) -> None:
    found = fusetui("modules", replay, "--annotations", file, "--json").json
    assert [one["path"] for one in found["modules"]][:2] == ["L", "L > L.mlp"]
    assert found["none"][0]["kernels"] == 3
    text = fusetui("modules", replay, "--annotations", file).out
    assert "0 ns" not in text
    found = fusetui(
        "kernels", replay, "--by", "module", "--annotations", file, "--json"
    ).json
    assert found["kernels"][0]["module"] == "L.mlp"
    assert str(file) in found["note"]


@pytest.mark.parametrize(
    "command", ["summary", "ops", "lines", "why", "gaps", "launches"]
)
def test_every_command_says_it(
    fusetui: Run, replay: Path, file: Path, command: str
) -> None:
    found = fusetui(command, replay, "--annotations", file)
    assert found.code == 0
    text = " ".join(found.out.split())
    assert (
        "In 1 of 1 graph replays, 10 events take their module from annotations" in text
    )


def test_why_names_the_modules(fusetui: Run, replay: Path, file: Path) -> None:
    found = fusetui("why", replay, "--annotations", file, "--json").json
    assert "L.mlp" in {one["module"] for one in found["modules"]}


def test_serving_lists_the_join_by_annotations(
    fusetui: Run, replay: Path, file: Path
) -> None:
    (join,) = fusetui("serving", replay, "--annotations", file, "--json").json["joins"]
    assert (join["joined_by"], join["kernels"], join["unnamed"]) == (
        "annotations",
        10,
        3,
    )


def test_file_that_holds_no_annotations_is_refused(fusetui: Run, replay: Path) -> None:
    found = fusetui("modules", replay, "--annotations", replay.parent)
    assert found.code != 0
    assert "cannot be read" in found.sentence
    found = fusetui("modules", replay, "--annotations", replay)
    assert found.code != 0
    assert "contains no graph annotations" in found.sentence


def test_annotations_option_changes_nothing_without_graphs(
    fusetui: Run, file: Path
) -> None:
    found = fusetui("modules", "sample:mlp-eager", "--annotations", file)
    assert found.sentence.endswith("replays no graph: --annotations has no effect.")
