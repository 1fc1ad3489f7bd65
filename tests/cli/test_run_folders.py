"""Run folders from somebody else: the contents of run.json are not trusted."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
File = Callable[..., Path]


@pytest.fixture
def folder(tmp_path: Path, trace_file: File) -> Path:
    """A folder with one trace, next to another trace."""
    (tmp_path / "run").mkdir()
    trace_file("secret.json")
    trace_file("run/a.json")
    return tmp_path / "run"


def lists(folder: Path, *files: object) -> None:
    record = {"variants": [{"name": "eager", "files": list(files)}]}
    (folder / "run.json").write_text(json.dumps(record))


def test_a_file_outside_is_ignored(fusetui: Run, folder: Path) -> None:
    lists(folder, "a.json", "../secret.json")
    found = fusetui("summary", folder, "--json")
    assert (found.code, found.json["file"]) == (0, str(folder / "a.json"))
    assert (
        "lists '../secret.json', which leads out of the folder: it is ignored."
        in found.sentence
    )


def test_several_files_are_told_in_one_line(fusetui: Run, folder: Path) -> None:
    lists(folder, "x" * 5000, "a.json", "/etc/passwd", "b\0")
    found = fusetui("summary", folder)
    assert found.code == 0
    assert found.sentence.endswith("it is ignored. So are 2 more of its files.")


def test_a_link_that_leads_out_is_not_followed(fusetui: Run, folder: Path) -> None:
    (folder / "a.json").unlink()
    (folder / "a.json").symlink_to("../secret.json")
    lists(folder, "a.json")
    found = fusetui("summary", folder)
    assert found.code == 2
    assert "leads out" in found.err.splitlines()[0]
    assert "is a folder without traces" in found.err.splitlines()[1]


@pytest.mark.parametrize("files", [5, None, "a.json", [5]])
def test_a_record_that_is_none_is_told(
    fusetui: Run, folder: Path, files: object
) -> None:
    (folder / "run.json").write_text(json.dumps({"variants": [{"files": files}, 7]}))
    found = fusetui("summary", folder)
    assert found.code == 0
    assert "is not the record of a fusetui run" in found.sentence
    assert found.sentence.endswith("The traces next to it are listed by name.")


def test_the_same_file_twice_is_one_trace(fusetui: Run, folder: Path) -> None:
    lists(folder, *["a.json"] * 100)
    found = fusetui("summary", folder)
    assert (found.code, found.err) == (0, "")


def test_a_pipe_is_not_waited_for(fusetui: Run, folder: Path) -> None:
    os.mkfifo(folder / "run.json")
    found = fusetui("summary", folder)
    assert (found.code, found.err) == (0, "")


def test_links_in_a_folder_of_the_users_own_are_followed(
    fusetui: Run, folder: Path
) -> None:
    (folder / "a.json").unlink()
    (folder / "a.json").symlink_to("../secret.json")
    assert fusetui("summary", folder).code == 0
