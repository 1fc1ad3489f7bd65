"""The cache reads, replaces and removes only its own files, whatever else is in its
folder."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fusetui.trace import open_trace
from fusetui.trace.cache import Entry, entry_for
from fusetui.trace.cache.folder import (
    MAGIC,
    cache_folder,
    make_room,
    open_own,
    opened,
    own_files,
    remove,
)
from fusetui.trace.formats import text_of

TEXT = json.dumps({"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 9}]})
HASH = "0123456789abcdef" * 2


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the cache, with a limit that any file exceeds."""
    (tmp_path / "cache").mkdir()
    monkeypatch.setenv("FUSETUI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FUSETUI_CACHE_MB", "0")
    monkeypatch.setattr("fusetui.trace.cache.entry.MIN_DOCUMENT_BYTES", 0)
    return tmp_path / "cache"


@pytest.fixture
def entry(
    folder: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[..., Path]
) -> Entry:
    """The entry of a trace that was opened once."""
    monkeypatch.setenv("FUSETUI_CACHE_MB", "1")
    path = str(write(TEXT))
    open_trace(path)
    found = entry_for(path)
    assert found
    assert found.place.exists()
    return found


@pytest.fixture
def in_time() -> Iterator[None]:
    """Fails if anything waits for another process."""

    def late(*_: object) -> None:
        raise TimeoutError("it waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(10)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def plant(folder: Path, name: str, content: bytes) -> Path:
    """A file that was not used for a long time."""
    path = folder / name
    path.write_bytes(content)
    os.utime(path, (0, 0))
    return path


@contextmanager
def open_files(free: int) -> Iterator[None]:
    """Only this many more files can be opened."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = os.open(os.devnull, os.O_RDONLY)
    os.close(spare)
    resource.setrlimit(resource.RLIMIT_NOFILE, (spare + free, limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("notes.txt", MAGIC + b"..."),
        ("download.part", b""),
        ("download.part", MAGIC + b"..."),
        ("tmpabcd1234.part", b""),
        ("tmpabcd1234.part", MAGIC + b"..."),
        (f"{HASH}.v2", b""),
        (f"{HASH}.v2", b"precious"),
        (f"{HASH}.v2", MAGIC[:-1]),
        (f"{HASH.upper()}.v2", MAGIC + b"..."),
        (f"{HASH[1:]}.v2", MAGIC + b"..."),
        (f"{HASH}.v2.bak", MAGIC + b"..."),
        (f"{HASH}.v2\n", MAGIC + b"..."),
        (f"{HASH}.v2.abcd1234.part", b"precious"),
        (f"{HASH}.v2.abcd.part", b""),
    ],
)
def test_no_other_file_is_removed(folder: Path, name: str, content: bytes) -> None:
    path = plant(folder, name, content)
    newer = plant(folder, "f" * 32 + ".v2", MAGIC)
    os.utime(newer)
    make_room(folder)
    assert path.read_bytes() == content
    assert not newer.exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (f"{HASH}.v1", MAGIC + b"..."),
        (f"{HASH}.v2", MAGIC + b"..."),
        (f"{HASH}.v2.autograd", MAGIC + b"..."),
        (f"{HASH}.v2.inputs.abcd1234.part", b""),
        (f"{HASH}.v2.abcd1234.part", b""),
        (f"{HASH}.v2.abcd1234.part", MAGIC[:3]),
        (f"{HASH}.v2.abcd1234.part", MAGIC + b"..."),
    ],
)
def test_old_files_of_ours_are_removed(folder: Path, name: str, content: bytes) -> None:
    path = plant(folder, name, content)
    make_room(folder)
    assert not path.exists()


def test_unfinished_files_stay_while_somebody_may_write_them(folder: Path) -> None:
    path = plant(folder, f"{HASH}.v2.abcd1234.part", MAGIC)
    os.utime(path)
    make_room(folder)
    assert path.exists()


def make_link(path: Path) -> None:
    path.with_name("target").write_bytes(MAGIC)
    path.symlink_to("target")


def make_socket(path: Path) -> None:
    os.chdir(path.parent)  # the whole path may be too long for a socket
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path.name)


@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, make_link, make_socket])
def test_only_regular_files_are_opened(
    folder: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None]
) -> None:
    monkeypatch.chdir(folder)
    path = folder / f"{HASH}.v2"
    make(path)
    make_room(folder)
    assert os.path.lexists(path)
    with pytest.raises(PermissionError), open_own(path):
        pass


@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, make_link, make_socket])
def test_another_file_at_the_place_of_a_cache_entry_stays(
    entry: Entry, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None]
) -> None:
    monkeypatch.chdir(entry.place.parent)
    entry.place.unlink()
    make(entry.place)
    before = entry.place.lstat()
    assert len(open_trace(entry.path)) == 1
    assert os.path.samestat(entry.place.lstat(), before)


def test_a_file_of_somebody_elses_at_the_place_of_an_entry_stays(entry: Entry) -> None:
    entry.place.write_bytes(b"precious")
    assert len(open_trace(entry.path)) == 1
    assert entry.place.read_bytes() == b"precious"


def test_an_entry_that_a_power_cut_emptied_is_written_anew(entry: Entry) -> None:
    entry.place.write_bytes(b"")
    open_trace(entry.path)
    assert entry.trace(text_of)


def test_other_files_in_the_cache_folder_do_not_count_as_its_size(
    entry: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(entry.place.parent, "large.bin", bytes(3_000_000))
    make_room(entry.place.parent)
    assert entry.place.exists()


def test_files_of_another_user_are_neither_read_nor_removed(
    entry: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSETUI_CACHE_MB", "0")
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    assert entry.trace(text_of) is None
    before = entry.place.stat()
    make_room(entry.place.parent)
    entry.store(open_trace(entry.path))
    assert os.path.samestat(entry.place.stat(), before)


def test_users_who_share_a_folder_have_entries_of_their_own(
    entry: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    other = entry_for(entry.path)
    assert other
    assert other.place != entry.place


def test_files_that_do_not_become_this_users_are_not_kept(
    entry: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a file system that gives every file to one user."""
    trace = open_trace(entry.path)
    entry.place.unlink()
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    entry.store(trace)
    assert list(entry.place.parent.iterdir()) == []


def test_one_file_that_cannot_be_removed_keeps_no_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, other = (plant(folder, f"{sign * 32}.v2", MAGIC) for sign in "ab")
    os.utime(stuck, (-1, -1))  # its turn comes first
    unlink = os.unlink

    def refuse(name: str, **place: int) -> None:
        if Path(name).name == stuck.name:
            raise PermissionError
        unlink(name, **place)

    monkeypatch.setattr(os, "unlink", refuse)
    make_room(folder)
    assert stuck.exists()
    assert not other.exists()


def test_a_file_that_another_process_replaced_or_removed(folder: Path) -> None:
    replaced, removed = (plant(folder, f"{sign * 32}.v2", MAGIC) for sign in "ab")
    with opened(folder) as at:
        found = {item.name: item for item in own_files(at)}
        plant(folder, "new", b"precious").rename(replaced)
        removed.unlink()
        assert not remove(at, found[replaced.name])
        assert remove(at, found[removed.name])
    assert replaced.read_bytes() == b"precious"


def test_an_entry_can_be_removed_while_it_is_read(entry: Entry) -> None:
    trace = entry.trace(text_of)
    assert trace
    entry.place.unlink()
    assert trace.name_of(0) == "a"


def test_a_user_without_a_home_has_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FUSETUI_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert cache_folder() is None


@pytest.mark.parametrize("free", range(8))
def test_few_files_can_be_opened(entry: Entry, free: int) -> None:
    trace = open_trace(entry.path)
    with open_files(free):
        entry_for(entry.path)
        entry.trace(text_of)
        entry.store(trace)
    assert entry.trace(text_of)


FIRST_USE = """
import resource, sys
from fusetui.trace.cache import entry, entry_for

entry.MIN_DOCUMENT_BYTES = 0
limit = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, limit[1]))
print(entry_for(sys.argv[1]))
"""


def test_no_file_can_be_opened_for_what_the_cache_imports(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    command = [sys.executable, "-P", "-c", FIRST_USE, str(write(TEXT))]
    left = {
        name: value for name, value in os.environ.items() if name != "FUSETUI_CACHE"
    }
    run = subprocess.run(
        command, env={**left, "HOME": str(tmp_path)}, capture_output=True, text=True
    )
    assert (run.stdout, run.stderr) == ("None\n", "")
