"""Who is told what, and how each recording ends; the process that asks is that of the tests."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.attach.fake_job import TAIL, FakeJob, question, told_file

from fusetui.attach import door as doors
from fusetui.attach import recording
from fusetui.attach.door import CannotListen, Door, Wish
from fusetui.attach.processes import Process, process
from fusetui.attach.recording import AttachedProcess, CannotRecord, Recording, RecordingPhase

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the door is Linux's")


@pytest.fixture
def sock(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A private folder, and patience of no time."""
    import tempfile

    for name in ("IMPORTING_S", "POLL_S", "PATIENCE_S"):
        monkeypatch.setattr(recording, name, 0.0)
    monkeypatch.setattr(recording, "TOGETHER_S", 60.0)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def this(folder: Path) -> Process:
    found = process(os.getpid())
    assert found is not None
    return replace(found, folder=str(folder), program="train.py")


def only(found: Recording) -> AttachedProcess:
    (job,) = found.jobs.values()
    return job


def test_a_trace_is_waited_for_until_it_is_whole(sock: Path, tmp_path: Path) -> None:
    with closing(Door(str(sock))) as door, FakeJob(sock) as fake:
        wish = Wish(0, extras=frozenset({"shapes", "stack"}))
        found = Recording([door], tmp_path, wish, [this(sock)])
        fake.ask(kind=1)
        found.turn(1)
        assert only(found).phase is RecordingPhase.WAITED_FOR
        fake.ask()
        found.turn(1)
        busy, told = fake.answers()
        assert busy == ""
        assert only(found).phase is RecordingPhase.TOLD
        file = told_file(told)
        file.with_name(f"{file.name}.tmp").write_text(TAIL)
        found.turn(0)
        assert (only(found).phase, only(found).size) == (RecordingPhase.WRITING, len(TAIL))
        file.write_text(TAIL[:-1])
        found.turn(0)
        assert not found.is_done
        file.write_text(TAIL)
        fake.ask()
        found.turn(1)
        assert only(found).phase is RecordingPhase.WHOLE
        assert only(found).why == "It holds no stack: this torch does not record that."
        assert fake.answers() == [""]


def test_a_process_that_was_not_asked_for_gets_no_answer(sock: Path, tmp_path: Path) -> None:
    with closing(Door(str(sock))) as door, FakeJob(sock) as fake:
        other = replace(this(sock), pid=1)
        found = Recording([door], tmp_path, Wish(0), [other])
        fake.ask()
        found.turn(1)
        assert not fake.answers()
        assert "ended" in only(found).why  # process 1 is not the one that was found


def test_a_trace_replaces_no_other_and_its_folder_is_private(sock: Path, tmp_path: Path) -> None:
    out, files = tmp_path / "a" / "b", []
    with closing(Door(str(sock))) as door, FakeJob(sock) as fake:
        for _ in range(3):
            found = Recording([door], out, Wish(0), [this(sock)])
            fake.ask()
            found.turn(1)
            files.append(told_file(fake.answers()[0]))
            files[-1].write_text(TAIL)
    assert [one.name.partition("_")[0] for one in files] == ["train", "train-2", "train-3"]
    assert out.stat().st_mode & 0o777 == 0o700


def test_several_begin_together(sock: Path, tmp_path: Path) -> None:
    with closing(Door(str(sock))) as door, FakeJob(sock) as fake:
        wanted = [this(sock), replace(this(sock), pid=1, rank="1")]
        found = Recording([door], tmp_path, Wish(), wanted)
        before = time.time()
        fake.ask()
        found.turn(1)
        (told,) = fake.answers()
        start = int(dict(line.split("=") for line in told.splitlines())["PROFILE_START_TIME"])
        assert before + 59 < start / 1000 < time.time() + 61
        found._start = time.time()
        found.jobs[os.getpid()] = AttachedProcess(wanted[0])
        fake.ask()
        found.turn(1)
        assert fake.answers() == [""]
        assert "after the others" in found.jobs[os.getpid()].why


@pytest.mark.parametrize("what", ["nothing", "half", "link"])
def test_what_is_no_whole_trace_is_not_taken(what: str, sock: Path, tmp_path: Path) -> None:
    """The job says that it is done; a link is not followed."""
    with closing(Door(str(sock))) as door, FakeJob(sock) as fake:
        found = Recording([door], tmp_path, Wish(0), [this(sock)])
        fake.ask()
        found.turn(1)
        file = told_file(fake.answers()[0])
        if what == "half":
            file.write_text(TAIL[:20])
        elif what == "link":
            (tmp_path / "elsewhere").write_text(TAIL)
            file.symlink_to(tmp_path / "elsewhere")
        fake.ask()
        found.turn(1)
        assert only(found).phase is RecordingPhase.FAILED
        assert {"link": "no file"}.get(what, "no whole trace") in only(found).why.replace(
            "not a", "no"
        )


def test_a_process_that_dies(sock: Path, tmp_path: Path) -> None:
    with closing(Door(str(sock))) as door, subprocess.Popen(["sleep", "1"]) as child:
        until = time.monotonic() + 1
        while (one := process(child.pid)) is None and time.monotonic() < until:
            pass  # it has no command for a moment
        assert one is not None
        found = Recording([door], tmp_path, Wish(0), [one])
        file = tmp_path / "half.json"
        file.write_text(TAIL[:20])
        found.jobs[child.pid] = AttachedProcess(one, RecordingPhase.TOLD, file)
        found.turn(0)
        assert only(found).phase is RecordingPhase.WRITING
        child.kill()
        child.wait()
        found.turn(0)
        assert only(found).why == "it ended before its trace was written, 20 bytes of it"


def test_garbage_is_counted_and_nothing_else(sock: Path, tmp_path: Path) -> None:
    with closing(Door(str(sock))) as door, FakeJob(sock) as fake:
        found = Recording([door], tmp_path, Wish(0), [this(sock)])
        wrong = [b"", b"\xff" * 40, question(1, 2)[:-1], os.urandom(9000)]
        for number in range(10_000 // 4):
            for sent in wrong:
                fake.socket.sendto(sent, f"{sock}/dynolog")
            if number % 2:  # a socket holds ten or so
                found.turn(0)
        found.turn(0)
        assert door.ignored == 10_000
        fake.ask()
        found.turn(1)
        assert len(fake.answers()) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="another user can be played only by root")
def test_a_stranger_is_not_answered(
    sock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the abstract address, where a folder keeps nobody out."""
    name = f"\0fusetui-test-{os.getpid()}"
    monkeypatch.setattr(doors, "ABSTRACT", name)
    with closing(Door("")) as door:
        code = (
            "import os, socket, sys; os.setuid(65534)\n"
            "s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.settimeout(0.1)\n"
            f"s.bind({name + 'dynoconfigclient'!r})\n"
            f"s.sendto(bytes.fromhex({question(os.getpid()).hex()!r}), {name!r})\n"
            "import time; time.sleep(0.2); s.recv(9)"
        )
        with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) as child:
            assert child.stderr is not None
            found = Recording([door], tmp_path, Wish(0), [replace(this(sock), pid=child.pid)])
            until = time.monotonic() + 5
            while not door.ignored and time.monotonic() < until:
                found.turn(0.1)
            assert b"timed out" in child.stderr.read()
        assert door.ignored == 1


def test_a_folder_of_sockets_is_private(sock: Path) -> None:
    sock.chmod(0o750)
    with pytest.raises(CannotListen, match="chmod 700"):
        Door(str(sock))
    with pytest.raises(CannotListen, match="absolute path of at most 54 bytes"):
        Door("relative")
    with pytest.raises(CannotListen, match="at most 54"):
        Door("/tmp/" + "x" * 50)


def test_a_second_daemon_is_told_so_and_a_dead_one_replaced(sock: Path) -> None:
    with closing(Door(str(sock))):
        with pytest.raises(CannotListen, match="dyno gputrace"):
            Door(str(sock))
        os.link(sock / "dynolog", sock / "kept")
    os.rename(sock / "kept", sock / "dynolog")
    Door(str(sock)).close()
    assert not list(sock.iterdir())


@pytest.mark.parametrize("name", ["a b", "a#b", "a\nb"])
def test_libkineto_is_not_told_other_folders(name: str, tmp_path: Path) -> None:
    with pytest.raises(CannotRecord, match="--out"):
        Recording([], tmp_path / name, Wish(), [])
