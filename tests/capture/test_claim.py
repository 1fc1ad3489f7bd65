"""What a killed capture leaves behind is removed by the next one; nothing else is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fusetui.capture import folder as claim
from fusetui.capture.folder import MARKER, FolderClaim, new_folder, remove_abandoned

DIES = """
import os, signal, sys
from pathlib import Path
from fusetui.capture.folder import new_folder

with new_folder(Path(sys.argv[1])) as folder:
    (folder / "eager.json").write_text("{")
    DEATH
"""


needs_locks = pytest.mark.skipif(
    "claim.fcntl is None", reason="files cannot be locked here"
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def abandoned(tmp_path: Path) -> Path:
    """What a capture leaves behind when its process is killed."""
    made = FolderClaim(tmp_path / "a")
    (made.part / "eager.json").write_text("{")
    os.close(made._marker)
    claim._open_claims.discard(made)
    return made.part


@needs_locks
@pytest.mark.parametrize(
    "death", ["os._exit(0)", "os.kill(os.getpid(), signal.SIGSEGV)"]
)
def test_the_next_capture_removes_what_a_dead_one_left(
    tmp_path: Path, death: str
) -> None:
    script = DIES.replace("DEATH", death)
    subprocess.run(
        [sys.executable, "-P", "-c", script, str(tmp_path / "a")], check=False
    )
    assert names(tmp_path) == [".a.part"]
    with new_folder(tmp_path / "b"):
        pass
    assert names(tmp_path) == ["b"]


@needs_locks
def test_an_abandoned_name_can_be_claimed_again(
    tmp_path: Path, abandoned: Path
) -> None:
    with new_folder(tmp_path / "a"):
        pass
    assert names(tmp_path / "a") == []


def test_a_capture_that_lives_is_left_alone(tmp_path: Path) -> None:
    with new_folder(tmp_path / "a") as folder:
        remove_abandoned(tmp_path)
        assert names(folder) == [MARKER]


def test_a_folder_without_a_marker_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / ".video.part").mkdir()
    (tmp_path / ".video.part" / "eager.json").touch()
    remove_abandoned(tmp_path)
    assert names(tmp_path / ".video.part") == ["eager.json"]


@pytest.mark.parametrize(
    "content", [b"", b"fusetui capture on another-machine\n", b"mine"]
)
def test_a_marker_without_a_lock_of_this_machine_proves_nothing(
    tmp_path: Path, abandoned: Path, content: bytes
) -> None:
    (abandoned / MARKER).write_bytes(content)
    remove_abandoned(tmp_path)
    assert names(abandoned) == [MARKER, "eager.json"]


def test_abandoned_folder_with_subfolders_is_left_alone(
    tmp_path: Path, abandoned: Path
) -> None:
    (abandoned / "folder").mkdir()
    remove_abandoned(tmp_path)
    assert names(abandoned) == [MARKER, "eager.json", "folder"]


@needs_locks
def test_a_folder_whose_marker_is_replaced_meanwhile_is_left_alone(
    tmp_path: Path, abandoned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is that of the marker that was there before."""
    lock = claim._lock

    def lock_after_replacing(marker: int) -> bool:
        path = abandoned / MARKER
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content)
        return lock(marker)

    monkeypatch.setattr(claim, "_lock", lock_after_replacing)
    remove_abandoned(tmp_path)
    assert names(abandoned) == [MARKER, "eager.json"]


def test_abandoned_folder_with_a_link_is_left_alone(
    tmp_path: Path, abandoned: Path
) -> None:
    (abandoned / "linked.json").symlink_to(abandoned / "eager.json")
    remove_abandoned(tmp_path)
    assert names(abandoned) == [MARKER, "eager.json", "linked.json"]


def test_a_folder_behind_a_link_is_not_removed_as_abandoned(
    tmp_path: Path, abandoned: Path
) -> None:
    moved = abandoned.rename(tmp_path / "precious")
    abandoned.symlink_to(moved)
    remove_abandoned(tmp_path)
    assert names(moved) == [MARKER, "eager.json"]


def test_abandoned_folder_of_another_user_is_left_alone(
    tmp_path: Path, abandoned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    remove_abandoned(tmp_path)
    assert abandoned.exists()


def test_a_run_that_is_kept_while_somebody_looks_at_it_stays(
    tmp_path: Path, abandoned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = claim._lock

    def finish(marker: int) -> bool:
        abandoned.rename(tmp_path / "a")
        return locked(marker)

    monkeypatch.setattr(claim, "_lock", finish)
    remove_abandoned(tmp_path)
    assert names(tmp_path / "a") == [MARKER, "eager.json"]


def test_where_files_cannot_be_locked_nothing_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "_lock", lambda marker: False)
    with new_folder(tmp_path / "a") as folder:
        assert (folder / MARKER).read_bytes() == b""
        monkeypatch.undo()
        remove_abandoned(tmp_path)
        assert names(folder) == [MARKER]
    assert names(tmp_path / "a") == []


FORKS = """
import os, sys
from pathlib import Path
from fusetui.capture.folder import new_folder

with new_folder(Path(sys.argv[1])) as folder:
    child = os.fork()
    if child == 0:
        CHILD
    os.waitpid(child, 0)
    (folder / "x").touch()
"""


@pytest.mark.parametrize("child", ["sys.exit(0)", "pass"])
def test_a_forked_child_neither_keeps_nor_removes_the_run(
    tmp_path: Path, child: str
) -> None:
    script = FORKS.replace("CHILD", child).replace(
        "os.waitpid(child, 0)", "child and os.wait()"
    )
    subprocess.run(
        [sys.executable, "-P", "-c", script, str(tmp_path / "a")], check=True
    )
    assert names(tmp_path) == ["a"]
    assert names(tmp_path / "a") == ["x"]
