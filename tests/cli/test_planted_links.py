"""Links that another user has planted where fusetui writes: nothing is written through
them."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fusetui.trace import new_file as new_file_module
from fusetui.trace.model.errors import TraceError
from fusetui.trace.new_file import new_file, replaced_file

Run = Callable[..., Any]
LESSON = "lesson:mlp-eager"
WRITERS = {
    "report": ("report", LESSON, "{}.html"),
    "picture": ("picture", LESSON, "{}.svg"),
    "stacks": ("stacks", LESSON, "{}.txt"),
    "kernels as CSV": ("kernels", LESSON, "--output", "{}.csv"),
    "kernels as Parquet": ("kernels", LESSON, "--output", "{}.parquet"),
    "kernels as a table": ("kernels", LESSON, "--format=table", "--output", "{}.txt"),
    "cut": ("cut", LESSON, "--from=0ns", "{}.json"),
    "junit": ("check", LESSON, "--expect=kernels=5", "--junit", "{}.xml"),
}


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    path = tmp_path / "precious"
    path.write_text("keep me")
    return path


@pytest.mark.parametrize("arguments", WRITERS.values(), ids=WRITERS)
def test_no_writer_follows_a_link_at_its_temporary_name(
    fusetui: Run,
    tmp_path: Path,
    precious: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
) -> None:
    """Even an attacker who guesses the random part of the name only makes the command
    fail."""
    monkeypatch.setattr(new_file_module, "_random_part", lambda: "guessed")
    target = arguments[-1].format(tmp_path / "out")
    os.symlink(precious, f"{target}.guessed.part")
    outcome = fusetui(*arguments[:-1], target)
    assert outcome.code == 2
    assert precious.read_text() == "keep me"
    assert not os.path.lexists(target)


@pytest.mark.parametrize("arguments", WRITERS.values(), ids=WRITERS)
def test_a_link_at_the_old_predictable_name_is_left_alone(
    fusetui: Run, tmp_path: Path, precious: Path, arguments: tuple[str, ...]
) -> None:
    target = arguments[-1].format(tmp_path / "out")
    os.symlink(precious, f"{target}.{os.getpid()}.part")
    outcome = fusetui(*arguments[:-1], target)
    assert outcome.code == 0
    assert precious.read_text() == "keep me"
    assert Path(target).stat().st_size > 0


def test_temporary_names_differ_each_time(tmp_path: Path) -> None:
    names = set()
    for _ in range(2):
        with new_file(str(tmp_path / "a"), replace=True):
            names |= {path.name for path in tmp_path.glob("*.part")}
    assert len(names) == 2


def test_a_new_file_has_the_permissions_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with new_file(str(tmp_path / "a")) as file:
            file.write(b"text")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_a_replaced_file_is_private(tmp_path: Path) -> None:
    with replaced_file(tmp_path / "a") as file:
        file.write(b"text")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600


def test_an_error_leaves_no_temporary_file(tmp_path: Path) -> None:
    with pytest.raises(TraceError), new_file(str(tmp_path / "a")):
        raise OSError(28, "No space left on device")
    assert [*tmp_path.iterdir()] == []
