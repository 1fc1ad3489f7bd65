"""`diff` of folders: variants of a run with a baseline, files of equal names in two
folders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

Run = Callable[..., Any]
File = Callable[..., Path]


@pytest.fixture
def run_folder(trace_file: File, tmp_path: Path) -> Path:
    names = ("eager", "compiled", "fused")
    for place, name in enumerate(names):
        (tmp_path / "run").mkdir(exist_ok=True)
        trace_file(f"run/{name}.json", scale=1 + place / 2)
    record = {"variants": [{"name": name, "files": [f"{name}.json"]} for name in names]}
    (tmp_path / "run" / "run.json").write_bytes(orjson.dumps(record))
    return tmp_path / "run"


def sides(document: Any) -> list[tuple[str, str]]:
    return [(Path(d["a"]).stem, Path(d["b"]).stem) for d in document["diffs"]]


def test_every_variant_is_compared_with_the_first(
    fusetui: Run, run_folder: Path
) -> None:
    found = fusetui("diff", run_folder, "--json")
    assert sides(found.json) == [("eager", "compiled"), ("eager", "fused")]


def test_the_baseline_can_be_named(fusetui: Run, run_folder: Path) -> None:
    found = fusetui("diff", run_folder, "--baseline", "fused", "--json")
    assert sides(found.json) == [("fused", "eager"), ("fused", "compiled")]


def test_a_baseline_that_is_not_there(fusetui: Run, run_folder: Path) -> None:
    found = fusetui("diff", run_folder, "--baseline", "x")
    assert found.code == 2
    assert "only eager, compiled, fused" in found.sentence


def test_diff_step_by_takes_matching_annotations_as_steps(
    fusetui: Run, run_folder: Path
) -> None:
    found = fusetui("diff", run_folder, "--step-by", "Step#[12]", "--json").json[
        "diffs"
    ][0]
    assert found["steps"] == {"a": 2, "b": 2}
    missing = fusetui("diff", run_folder, "--step-by", "decode")
    assert (missing.code, missing.out) == (2, "")
    assert missing.sentence == "eager has no annotation that matches decode."


def test_two_folders_are_paired_by_name(
    fusetui: Run, trace_file: File, tmp_path: Path
) -> None:
    for folder in ("old", "new"):
        (tmp_path / folder).mkdir()
        for rank in ("rank0.json", "rank1.json"):
            trace_file(f"{folder}/{rank}")
    found = fusetui("diff", tmp_path / "old", tmp_path / "new", "--json")
    assert sides(found.json) == [("rank0", "rank0"), ("rank1", "rank1")]


def test_diff_of_folders_without_a_common_name_is_refused(
    fusetui: Run, trace_file: File, tmp_path: Path
) -> None:
    for folder in ("old", "new"):
        (tmp_path / folder).mkdir()
        trace_file(f"{folder}/{folder}.json")
    found = fusetui("diff", tmp_path / "old", tmp_path / "new")
    assert found.code == 2
    assert "no file name in common" in found.sentence


@pytest.mark.parametrize(
    ("scales", "steps", "code"),
    [
        ([1, 1], [5, 5], 0),
        ([1, 2], [5, 5], 1),
        ([1, 1], [5, 2], 3),
        ([2, 1], [5, 2], 1),
    ],
)
def test_of_several_pairs_the_worst_answer_counts(
    fusetui: Run,
    trace_file: File,
    tmp_path: Path,
    scales: list[int],
    steps: list[int],
    code: int,
) -> None:
    """A slower pair matters more than one that cannot be judged."""
    for folder in ("old", "new"):
        (tmp_path / folder).mkdir()
        for rank, (scale, count) in enumerate(zip(scales, steps, strict=True)):
            factor = scale if folder == "new" else 1
            trace_file(f"{folder}/rank{rank}.json", factor, count)
    found = fusetui("diff", tmp_path / "old", tmp_path / "new", "--fail-over", 5)
    assert found.code == code
