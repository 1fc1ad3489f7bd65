"""The results of a capture may come from anybody."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusetui.capture import command
from fusetui.capture.errors import CaptureError
from fusetui.capture.record import (
    MAX_JSON_BYTES,
    SavedRun,
    SavedVariant,
    Traces,
    list_traces,
    read_json,
    read_run,
)
from fusetui.capture.table import format_sweep_csv

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner)
    ),
    max_leaves=5,
)
VARIANT = {
    "name": "eager",
    "step_ns": {"median": 2, "p10": 1, "p90": 3, "n": 9},
    "guesses": [{"kind": "gemm", "expected": 1, "found": [1, 1]}],
    "files": ["eager.json.gz"],
}
RUN: dict[str, Any] = {
    "workload": "mlp",
    "shapes": {"batch": 2},
    "dtype": "float32",
    "device": "a",
    "device_kind": "cpu",
    "variants": [VARIANT, {"name": "fused", "failed": "no GPU."}],
}


def saved(folder: Path, content: object) -> Path:
    (folder / "run.json").write_text(json.dumps(content))
    return folder


def lists(folder: Path, *files: object) -> Path:
    return saved(folder, {"variants": [{"name": "eager", "files": list(files)}]})


def test_failed_variants_have_no_trace_file(tmp_path: Path) -> None:
    (tmp_path / "eager.json.gz").touch()
    found = list_traces(saved(tmp_path, RUN))
    assert found.found == (("eager", tmp_path / "eager.json.gz"),)
    assert found.ignored == ()


def test_a_link_inside_the_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "a.json").touch()
    (tmp_path / "b.json").symlink_to("a.json")
    assert list_traces(lists(tmp_path, "b.json")).found == (
        ("eager", tmp_path / "b.json"),
    )


@pytest.mark.parametrize(
    "name", ["../a.json", "OUTSIDE/a.json", "link.json", "folder/a.json"]
)
def test_traces_listed_outside_the_folder_of_a_run_are_ignored(
    tmp_path: Path, name: str
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (tmp_path / "a.json").touch()
    (run / "link.json").symlink_to(tmp_path / "a.json")
    (run / "folder").symlink_to(tmp_path)
    found = list_traces(lists(run, name.replace("OUTSIDE", str(tmp_path))))
    assert found.found == ()
    assert "leads out of the folder: it is ignored." in found.ignored[0]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nowhere.json", "no such file"),
        ("x" * 5000, "xxx...', which cannot be opened (file name too long)"),
        ("a\0b", "is not a file name"),
        ("loop.json", "symbolic links"),
        ("pipe.json", "is not a regular file"),
        (".", "is not a regular file"),
        ("", "is not a regular file"),
    ],
)
def test_listed_names_of_no_regular_file_are_ignored_with_a_reason(
    tmp_path: Path, name: str, why: str
) -> None:
    (tmp_path / "loop.json").symlink_to("loop.json")
    os.mkfifo(tmp_path / "pipe.json")
    found = list_traces(lists(tmp_path, name))
    assert found.found == ()
    assert why in found.ignored[0]
    assert len(found.ignored[0]) < 250


@pytest.mark.parametrize("files", [5, "eager.json", {"a": 1}, [5], [None], True])
def test_files_that_are_no_names_are_told(tmp_path: Path, files: object) -> None:
    with pytest.raises(
        CaptureError, match=r"not the record of a fusetui run: .*\.files"
    ):
        list_traces(saved(tmp_path, {"variants": [{"files": files}]}))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "Cannot read .*: No such file"),
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[1]", "is not the record of a fusetui run"),
        ("{}", "is not the record of a fusetui run: .*variants"),
    ],
)
def test_a_folder_without_a_record_is_told(
    tmp_path: Path, content: str | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(CaptureError, match=message):
        list_traces(tmp_path)


def test_a_record_that_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "run.json")
    with pytest.raises(CaptureError, match="not a regular file"):
        list_traces(tmp_path)


def test_a_record_without_an_end_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "run.json").open("wb") as file:
        file.truncate(MAX_JSON_BYTES + 1)
    with pytest.raises(CaptureError, match="larger than 16 MiB"):
        read_json(tmp_path / "run.json")


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    eager, fused = read_run(saved(tmp_path, RUN)).variants
    assert eager.step_ns
    assert (eager.step_ns.median, eager.guesses[0].right) == (2, True)
    assert fused == SavedVariant("fused", failed="no GPU.")


def test_a_run_without_variants_is_none_of_ours(tmp_path: Path) -> None:
    with pytest.raises(
        CaptureError, match=r"is not the record of a fusetui run: .*variants"
    ):
        read_run(saved(tmp_path, {**RUN, "variants": []}))


@pytest.fixture(scope="module")
def anywhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run")


@settings(deadline=None)  # files are written
@given(st.data())
def test_any_content_is_read_or_told(anywhere: Path, data: st.DataObject) -> None:
    """Any value of a record is replaced by anything."""
    place, key = data.draw(st.sampled_from(places(RUN)))
    before = place[key]
    place[key] = data.draw(JSON)
    try:
        saved(anywhere, RUN)
    finally:
        place[key] = before
    assert isinstance(outcome(read_run, anywhere), SavedRun | CaptureError)
    assert isinstance(outcome(list_traces, anywhere), Traces | CaptureError)


def outcome(read: Callable[[Path], object], folder: Path) -> object:
    try:
        return read(folder)
    except CaptureError as error:
        return error


@settings(deadline=None)  # the first example imports much
@given(st.data())
def test_any_run_that_is_read_can_be_shown_again(
    anywhere: Path, data: st.DataObject
) -> None:
    """As happens when a sweep is continued next to a run that was modified."""
    place, key = data.draw(st.sampled_from(places(RUN)))
    before = place[key]
    place[key] = data.draw(JSON)
    try:
        run = msgspec.convert(RUN, SavedRun)
    except msgspec.ValidationError:
        return
    finally:
        place[key] = before
    runs = [command.SweptRun({"n": 1}, run)]
    command._print_sweep(anywhere, runs)
    command._find_wrong_guesses(runs)
    assert format_sweep_csv(list(command._make_rows(runs)))


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) inside a JSON value."""
    keys = (
        value
        if isinstance(value, dict)
        else range(len(value))
        if type(value) is list
        else ()
    )
    return [(value, key) for key in keys] + [
        at for key in keys for at in places(value[key])
    ]
