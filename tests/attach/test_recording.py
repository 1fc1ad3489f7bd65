"""Who is told what, and how each recording ends; the process that asks is that of the
tests."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.attach.fake_job import TAIL, FakeJob, question, told_file

from fusetui.attach import daemon_socket, processes, recording
from fusetui.attach.daemon_socket import (
    CannotListenError,
    DaemonSocket,
    RecordingRequest,
)
from fusetui.attach.processes import Process, process
from fusetui.attach.recording import (
    AttachedProcess,
    CannotRecordError,
    Recording,
    RecordingPhase,
)
from fusetui.commands.record import trace_folder

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the door is Linux's")


@pytest.fixture
def sock(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A private folder, and patience of no time."""
    import tempfile

    for name in ("IMPORTING_S", "POLL_S", "PATIENCE_S"):
        monkeypatch.setattr(recording, name, 0.0)
    monkeypatch.setattr(recording, "RESTS_S", (0.0,))
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
    with closing(DaemonSocket(str(sock))) as door, FakeJob(sock) as fake:
        wish = RecordingRequest(0, extras=frozenset({"shapes", "stack"}))
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
        assert (only(found).phase, only(found).size) == (
            RecordingPhase.WRITING,
            len(TAIL),
        )
        file.write_text(TAIL[:-1])
        found.turn(0)
        assert not found.is_done
        file.write_text(TAIL)
        fake.ask()
        found.turn(1)
        assert only(found).phase is RecordingPhase.WHOLE
        assert only(found).why == (
            "It has no stack, because this torch version does not record that."
        )
        assert fake.answers() == [""]


def test_a_process_that_was_not_asked_for_gets_no_answer(
    sock: Path, tmp_path: Path
) -> None:
    with closing(DaemonSocket(str(sock))) as door, FakeJob(sock) as fake:
        other = replace(this(sock), pid=1)
        found = Recording([door], tmp_path, RecordingRequest(0), [other])
        fake.ask()
        found.turn(1)
        assert not fake.answers()
        assert "ended" in only(found).why  # process 1 is not the one that was found


def test_a_trace_replaces_no_other_and_its_folder_is_private(
    sock: Path, tmp_path: Path
) -> None:
    out, files = tmp_path / "a" / "b", []
    with (
        closing(DaemonSocket(str(sock))) as door,
        FakeJob(sock) as fake,
        trace_folder(out),
    ):
        for _ in range(3):
            found = Recording([door], out, RecordingRequest(0), [this(sock)])
            fake.ask()
            found.turn(1)
            files.append(told_file(fake.answers()[0]))
            files[-1].write_text(TAIL)
    assert [one.name.partition("_")[0] for one in files] == [
        "train",
        "train-2",
        "train-3",
    ]
    assert out.stat().st_mode & 0o777 == 0o700


def test_several_processes_are_told_the_same_start_time(
    sock: Path, tmp_path: Path
) -> None:
    with closing(DaemonSocket(str(sock))) as door, FakeJob(sock) as fake:
        wanted = [this(sock), replace(this(sock), pid=1, rank="1")]
        found = Recording([door], tmp_path, RecordingRequest(), wanted)
        before = time.time()
        fake.ask()
        found.turn(1)
        (told,) = fake.answers()
        start = int(
            dict(line.split("=") for line in told.splitlines())["PROFILE_START_TIME"]
        )
        assert before + 59 < start / 1000 < time.time() + 61
        found._start = time.time()
        found.jobs[os.getpid()] = AttachedProcess(wanted[0])
        fake.ask()
        found.turn(1)
        assert fake.answers() == [""]
        assert "after the other recordings" in found.jobs[os.getpid()].why


@pytest.mark.parametrize("what", ["nothing", "half", "link"])
def test_a_half_written_or_linked_trace_is_not_taken_from_a_job(
    what: str, sock: Path, tmp_path: Path
) -> None:
    """The job says that it is done; a link is not followed."""
    with closing(DaemonSocket(str(sock))) as door, FakeJob(sock) as fake:
        found = Recording(
            [door], tmp_path, RecordingRequest(0), [this(sock)], attempts=1
        )
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
        expected = {
            "nothing": "wrote no file",
            "half": "(20 bytes) does not end as a trace does",
            "link": "belongs to another user",
        }
        assert expected[what] in only(found).why


@pytest.mark.parametrize("profiled", [False, True])
def test_a_process_that_dies(sock: Path, tmp_path: Path, profiled: bool) -> None:
    """If its own torch.profiler was seen at work before, that is said too."""
    with (
        closing(DaemonSocket(str(sock))) as door,
        subprocess.Popen(["sleep", "1"]) as child,
    ):
        until = time.monotonic() + 1
        while (one := process(child.pid)) is None and time.monotonic() < until:
            pass  # it has no command for a moment
        assert one is not None
        found = Recording([door], tmp_path, RecordingRequest(0), [one])
        file = tmp_path / "half.json"
        file.write_text(TAIL[:20])
        job = AttachedProcess(one, RecordingPhase.TOLD, file, profiles_itself=profiled)
        found.jobs[child.pid] = job
        found.turn(0)
        assert only(found).phase is RecordingPhase.WRITING
        child.kill()
        child.wait()
        found.turn(0)
        reason, _, because = only(found).why.partition("; ")
        assert reason == "it ended before its trace was written, 20 bytes of it"
        assert ("torch.profiler" in because) == profiled


def test_garbage_is_counted_and_nothing_else(
    sock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the recording goes on meanwhile: at its end all processes are looked through
    monkeypatch.setattr(recording, "PATIENCE_S", 600.0)
    with closing(DaemonSocket(str(sock))) as door, FakeJob(sock) as fake:
        found = Recording([door], tmp_path, RecordingRequest(0), [this(sock)])
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
    monkeypatch.setattr(daemon_socket, "ABSTRACT", name)
    with closing(DaemonSocket("")) as door:
        code = (
            "import os, socket, sys; os.setuid(65534)\n"
            "s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.settimeout(0.1)\n"
            f"s.bind({name + 'dynoconfigclient'!r})\n"
            f"s.sendto(bytes.fromhex({question(os.getpid()).hex()!r}), {name!r})\n"
            "import time; time.sleep(0.2); s.recv(9)"
        )
        with subprocess.Popen(
            [sys.executable, "-c", code], stderr=subprocess.PIPE
        ) as child:
            assert child.stderr is not None
            found = Recording(
                [door],
                tmp_path,
                RecordingRequest(0),
                [replace(this(sock), pid=child.pid)],
            )
            until = time.monotonic() + 5
            while not door.ignored and time.monotonic() < until:
                found.turn(0.1)
            assert b"timed out" in child.stderr.read()
        assert door.ignored == 1


def test_a_folder_of_sockets_is_private(sock: Path) -> None:
    sock.chmod(0o750)
    with pytest.raises(CannotListenError, match="chmod 700"):
        DaemonSocket(str(sock))
    with pytest.raises(CannotListenError, match="absolute path of at most 54 bytes"):
        DaemonSocket("relative")
    with pytest.raises(CannotListenError, match="at most 54"):
        DaemonSocket("/tmp/" + "x" * 50)


def test_a_second_daemon_is_told_so_and_a_dead_one_replaced(sock: Path) -> None:
    with closing(DaemonSocket(str(sock))):
        with pytest.raises(CannotListenError, match="dyno gputrace"):
            DaemonSocket(str(sock))
        os.link(sock / "dynolog", sock / "kept")
    os.rename(sock / "kept", sock / "dynolog")
    DaemonSocket(str(sock)).close()
    assert not list(sock.iterdir())


@pytest.mark.parametrize("name", ["a b", "a#b", "a\nb"])
def test_libkineto_is_not_told_other_folders(name: str, tmp_path: Path) -> None:
    with pytest.raises(CannotRecordError, match="--out"):
        Recording([], tmp_path / name, RecordingRequest(), [])


EMPTY = '{"traceEvents": [],"traceName": "x" }'


def asked_and_told(found: Recording, fake: FakeJob) -> tuple[Path, str]:
    """The process asks and is told: the file that it must write, and the
    configuration."""
    fake.ask()
    found.turn(1)
    told = fake.answers()[-1]
    assert told
    return told_file(told), told


@pytest.mark.parametrize("last", [TAIL, EMPTY])
def test_a_trace_without_operations_is_recorded_again_and_longer(
    last: str, sock: Path, tmp_path: Path
) -> None:
    """The first with operations shows how the program begins to compute: there is one
    more, which is kept if it has operations too."""
    with closing(DaemonSocket(str(sock))) as door, FakeJob(sock) as fake:
        found = Recording([door], tmp_path, RecordingRequest(500), [this(sock)])
        first, told = asked_and_told(found, fake)
        assert "ACTIVITIES_DURATION_MSECS=500" in told
        first.write_text(EMPTY)
        found.turn(0)
        assert only(found).phase is RecordingPhase.WAITED_FOR
        assert "no operations in that time. Attempt 2 of 6" in only(found).why
        second, told = asked_and_told(found, fake)
        assert "ACTIVITIES_DURATION_MSECS=1000" in told
        second.write_text(TAIL)
        found.turn(0)
        assert only(found).phase is RecordingPhase.WAITED_FOR
        assert "recording again" in only(found).why
        third, _ = asked_and_told(found, fake)
        third.write_text(last)
        found.turn(0)
        while not found.is_done:  # it stopped again, until all attempts are used
            asked_and_told(found, fake)[0].write_text(EMPTY)
            found.turn(0)
    assert only(found).phase is RecordingPhase.WHOLE
    assert only(found).file == (third if last == TAIL else second)
    assert list(tmp_path.iterdir()) == [only(found).file]


def test_a_trace_of_kernels_alone_holds_operations(sock: Path, tmp_path: Path) -> None:
    """As of CUDA graphs that are launched by other threads."""
    with closing(DaemonSocket(str(sock))) as door, FakeJob(sock) as fake:
        found = Recording([door], tmp_path, RecordingRequest(500), [this(sock)])
        file, _ = asked_and_told(found, fake)
        file.write_text('{"traceEvents": [{"cat": "kernel"}],"traceName": "x" }')
        found.turn(0)
    assert only(found).phase is RecordingPhase.WHOLE


TRACED = (
    '{"traceEvents": [{"cat": "cpu_op", "name": "PythonDispatchMode", "pid": 1, "tid": 1, "ts": 1}'
    ', {"cat": "cpu_op"}],"traceName": "x" }'
)


def test_a_trace_of_compilation_is_recorded_again_until_the_loop_runs(
    sock: Path, tmp_path: Path
) -> None:
    with closing(DaemonSocket(str(sock))) as door, FakeJob(sock) as fake:
        found = Recording([door], tmp_path, RecordingRequest(500), [this(sock)])
        for _ in range(2):
            file, _ = asked_and_told(found, fake)
            file.write_text(TRACED)
            found.turn(0)
            assert only(found).phase is RecordingPhase.WAITED_FOR
            assert "torch.compile is compiling: recording again" in only(found).why
        file, told = asked_and_told(found, fake)
        assert "ACTIVITIES_DURATION_MSECS=500" in told
        file.write_text(TAIL)
        found.turn(0)
    assert only(found).phase is RecordingPhase.WHOLE
    assert "torch.compile" not in only(found).why
    assert list(tmp_path.iterdir()) == [file]


def test_a_program_that_always_compiles_is_recorded_with_a_remark(
    sock: Path, tmp_path: Path
) -> None:
    with closing(DaemonSocket(str(sock))) as door, FakeJob(sock) as fake:
        found = Recording(
            [door], tmp_path, RecordingRequest(500), [this(sock)], attempts=99
        )
        attempts = 0
        while not found.is_done:
            attempts += 1
            asked_and_told(found, fake)[0].write_text(TRACED)
            found.turn(0)
    assert attempts == recording.MAX_COMPILING
    assert only(found).phase is RecordingPhase.WHOLE
    assert "It covers a compilation by torch.compile." in only(found).why
    assert len(list(tmp_path.iterdir())) == 1


STARTED = (
    '{"traceEvents": [{"cat": "cpu_op", "name": "aten::uniform_", "pid": 1, "tid": 1, "ts": 1}'
    '],"traceName": "x" }'
)


@pytest.mark.parametrize("later", [[TAIL], [EMPTY, TAIL, TAIL], [STARTED, STARTED]])
def test_a_trace_that_repeats_nothing_is_recorded_again(
    later: list[str], sock: Path, tmp_path: Path
) -> None:
    """It may show how the model is made; a program of long steps is not recorded for
    ever."""
    with closing(DaemonSocket(str(sock))) as door, FakeJob(sock) as fake:
        found = Recording([door], tmp_path, RecordingRequest(500), [this(sock)])
        for text in [STARTED, *later]:
            assert not found.is_done
            file, _ = asked_and_told(found, fake)
            file.write_text(text)
            found.turn(0)
        assert found.is_done
    assert only(found).phase is RecordingPhase.WHOLE
    assert only(found).file == file
    assert list(tmp_path.iterdir()) == [file]


def test_a_trace_that_repeats_nothing_is_kept_with_a_remark(
    sock: Path, tmp_path: Path
) -> None:
    with closing(DaemonSocket(str(sock))) as door, FakeJob(sock) as fake:
        found = Recording([door], tmp_path, RecordingRequest(500), [this(sock)])
        while not found.is_done:
            file, _ = asked_and_told(found, fake)
            file.write_text(STARTED)
            found.turn(0)
    assert only(found).phase is RecordingPhase.WHOLE
    assert "Its operations do not repeat" in only(found).why


@pytest.mark.parametrize(("first", "is_kept"), [(STARTED, False), (TAIL, True)])
def test_how_a_program_starts_is_no_trace_of_one_that_profiles_itself(
    first: str, is_kept: bool, sock: Path, tmp_path: Path
) -> None:
    """Its own profiler cancels all recordings of its loop. A trace of the loop, as the
    first with operations may be, is kept."""
    with closing(DaemonSocket(str(sock))) as door, FakeJob(sock) as fake:
        found = Recording([door], tmp_path, RecordingRequest(0), [this(sock)])
        for text in (EMPTY, first):
            asked_and_told(found, fake)[0].write_text(text)
            found.turn(0)
        while not found.is_done:
            fake.ask(kind=1)
            found.turn(1)
            assert fake.answers() == [""]
            file, _ = asked_and_told(found, fake)
            file.with_name(f"{file.name}.tmp").touch()
            fake.ask()
            found.turn(1)
            fake.answers()
    assert (only(found).phase is RecordingPhase.WHOLE) == is_kept
    assert (recording.PROFILES_ITSELF in only(found).why) != is_kept
    assert bool(list(tmp_path.iterdir())) == is_kept


def test_long_steps_of_a_program_that_has_profiled_itself_are_kept(
    sock: Path, tmp_path: Path
) -> None:
    with closing(DaemonSocket(str(sock))) as door, FakeJob(sock) as fake:
        found = Recording([door], tmp_path, RecordingRequest(0), [this(sock)])
        fake.ask(kind=1)
        found.turn(1)
        assert fake.answers() == [""]
        while not found.is_done:
            asked_and_told(found, fake)[0].write_text(STARTED)
            found.turn(0)
    assert only(found).phase is RecordingPhase.WHOLE
    assert list(tmp_path.iterdir()) == [only(found).file]


def test_a_program_that_never_computes_is_not_recorded(
    sock: Path, tmp_path: Path
) -> None:
    with closing(DaemonSocket(str(sock))) as door, FakeJob(sock) as fake:
        found = Recording(
            [door], tmp_path, RecordingRequest(500), [this(sock)], attempts=2
        )
        for _ in range(2):
            asked_and_told(found, fake)[0].write_text(EMPTY)
            found.turn(0)
    assert only(found).phase is RecordingPhase.FAILED
    assert only(found).why == "it ran no operations in that time in 2 attempts"
    assert not list(tmp_path.iterdir())


def test_the_end_of_its_own_profiling_is_waited_for(sock: Path, tmp_path: Path) -> None:
    with closing(DaemonSocket(str(sock))) as door, FakeJob(sock) as fake:
        found = Recording([door], tmp_path, RecordingRequest(0), [this(sock)])
        fake.ask(kind=1)
        found.turn(1)
        assert only(found).phase is RecordingPhase.WAITED_FOR
        assert "uses torch.profiler itself" in only(found).why
        assert fake.answers() == [""]
        asked_and_told(found, fake)[0].write_text(TAIL)
        found.turn(0)
    assert only(found).phase is RecordingPhase.WHOLE
    assert not only(found).why.startswith("It uses")


def test_profiling_that_does_not_end_is_the_reason(sock: Path, tmp_path: Path) -> None:
    with closing(DaemonSocket(str(sock))) as door, FakeJob(sock) as fake:
        found = Recording(
            [door], tmp_path, RecordingRequest(0), [this(sock)], own_profiler_s=0.0
        )
        fake.ask(kind=1)
        found.turn(1)
    assert only(found).phase is RecordingPhase.FAILED
    assert "uses torch.profiler itself" in only(found).why


@pytest.mark.parametrize(
    ("is_seen", "said"),
    [
        (True, "own torch.profiler cancelled"),
        (False, "program may profile itself, or the machine"),
    ],
)
def test_a_cancelled_recording_is_asked_for_again(
    is_seen: bool, said: str, sock: Path, tmp_path: Path
) -> None:
    """libkineto then leaves the empty file that it began with, and the process is free
    again. That the program profiles itself is only said if that was seen."""
    with closing(DaemonSocket(str(sock))) as door, FakeJob(sock) as fake:
        found = Recording(
            [door], tmp_path, RecordingRequest(0), [this(sock)], attempts=2
        )
        if is_seen:
            fake.ask(kind=1)
            found.turn(1)
            assert fake.answers() == [""]
        for attempt in (1, 2):
            file, _ = asked_and_told(found, fake)
            file.with_name(f"{file.name}.tmp").touch()
            fake.ask()
            found.turn(1)
            if attempt == 1:
                assert only(found).phase is RecordingPhase.WAITED_FOR
                assert said in only(found).why
            assert fake.answers() == [""]
    assert only(found).phase is RecordingPhase.FAILED
    assert ("it uses torch.profiler itself" in only(found).why) is is_seen
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("left", "said"),
    [
        ("nothing", "there is no file"),
        ("empty", "is empty"),
        ("garbage", "does not begin as a trace does"),
        ("half", "does not end as a trace does"),
        ("sparse", "is sparse: parts of it were never written"),
    ],
)
def test_a_process_that_stops_asking_is_given_up(
    left: str, said: str, sock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what it left is said. As long as it asks, it is waited for."""
    with closing(DaemonSocket(str(sock))) as door, FakeJob(sock) as fake:
        found = Recording([door], tmp_path, RecordingRequest(0), [this(sock)])
        file, _ = asked_and_told(found, fake)
        if left != "nothing":
            file.write_text(
                {"garbage": "x" * 99 + TAIL, "half": TAIL[:20]}.get(left, "")
            )
        if left == "sparse":
            file.write_text("{")
            with file.open("r+b") as opened:
                opened.seek(1 << 30)
                opened.write(TAIL.encode())
        found.turn(0)
        assert not only(found).is_done
        monkeypatch.setattr(recording, "SILENCE_S", 0.0)
        found.turn(0)
    assert only(found).phase is RecordingPhase.FAILED
    assert only(found).why.startswith("it stopped polling")
    assert said in only(found).why


def test_a_recording_that_never_ends_is_given_up(
    sock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks on and says that it records, and its file does not grow."""
    with closing(DaemonSocket(str(sock))) as door, FakeJob(sock) as fake:
        found = Recording([door], tmp_path, RecordingRequest(0), [this(sock)])
        file, _ = asked_and_told(found, fake)
        file.write_text(TAIL[:20])
        fake.ask(kind=1)
        found.turn(1)
        assert not only(found).is_done
        monkeypatch.setattr(recording, "STALLED_S", 0.0)
        found.turn(0)
    assert "its recording does not end, and train_" in only(found).why


def test_a_folder_that_was_replaced_is_not_used(sock: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir(mode=0o700)
    with closing(DaemonSocket(str(sock))) as door, FakeJob(sock) as fake:
        found = Recording([door], out, RecordingRequest(0), [this(sock)])
        out.rename(tmp_path / "kept")
        out.mkdir()
        fake.ask()
        found.turn(1)
        assert fake.answers() == [""]
    assert "removed or replaced during the recording" in only(found).why


def test_who_only_starts_others_is_left_out(sock: Path, tmp_path: Path) -> None:
    """Without an error; a process beside it without operations is one."""
    with (
        subprocess.Popen(["sleep", "30"]) as child,
        closing(DaemonSocket(str(sock))) as door,
    ):
        own = replace(this(sock))
        started = replace(own, pid=child.pid, parent=own.pid)
        found = Recording(
            [door], tmp_path, RecordingRequest(0), [own, started], attempts=1
        )
        traced = tmp_path / "train_1.json"
        empty = AttachedProcess(own, RecordingPhase.EMPTY, why=recording.NO_OPERATIONS)
        whole = AttachedProcess(started, RecordingPhase.WHOLE, traced)
        found.jobs = {own.pid: empty, child.pid: whole}
        found.turn(0)
        assert found.jobs[own.pid].phase is RecordingPhase.IDLE
        found.jobs = {
            own.pid: replace(whole, process=own),
            child.pid: replace(empty, process=started),
        }
        found.turn(0)
        assert found.jobs[child.pid].phase is RecordingPhase.FAILED
        child.kill()


def test_a_rank_without_operations_has_all_recorded_again(
    sock: Path, tmp_path: Path
) -> None:
    """Traces of ranks are of the same time, so that those of the first attempt give
    way."""
    ranks = [
        replace(this(sock), rank="0"),
        replace(this(sock), pid=os.getppid(), rank="1"),
    ]
    parent = process(os.getppid())
    assert parent is not None
    ranks[1] = replace(ranks[1], started=parent.started)
    with closing(DaemonSocket(str(sock))) as door:
        found = Recording([door], tmp_path, RecordingRequest(0), ranks, attempts=2)
        files = [tmp_path / "first.json", tmp_path / "second.json"]
        for file in files:
            file.write_text(TAIL)
        empty = AttachedProcess(
            ranks[1], RecordingPhase.EMPTY, why=recording.NO_OPERATIONS
        )
        whole = AttachedProcess(ranks[0], RecordingPhase.WHOLE, files[0])
        found.jobs = {ranks[0].pid: whole, ranks[1].pid: empty}
        found.turn(0)
        assert {job.phase for job in found.jobs.values()} == {RecordingPhase.WAITED_FOR}
        assert "Another process was not" in found.jobs[ranks[0].pid].why
        assert "no operations" in found.jobs[ranks[1].pid].why
        found.jobs = {
            ranks[0].pid: replace(whole, file=files[1]),
            ranks[1].pid: empty,
        }
        found.turn(0)
    assert found.jobs[ranks[0].pid].file == files[1]
    assert found.jobs[ranks[1].pid].phase is RecordingPhase.FAILED
    assert list(tmp_path.iterdir()) == [files[1]]


def two_ranks(folder: Path) -> list[Process]:
    """Processes that run, as ranks of one job."""
    parent = process(os.getppid())
    assert parent is not None
    own = this(folder)
    return [
        replace(own, rank="0"),
        replace(own, pid=parent.pid, started=parent.started, rank="1"),
    ]


def test_each_attempt_of_several_begins_at_another_phase(
    sock: Path, tmp_path: Path
) -> None:
    """libkineto looks once a second, and cancels if it looks too late for the start: a
    rank that was late for one start would be late for all that are seconds later."""
    with closing(DaemonSocket(str(sock))) as door, FakeJob(sock) as fake:
        ranks = two_ranks(sock)
        found = Recording(
            [door], tmp_path, RecordingRequest(500), ranks, own_profiler_s=0.0
        )
        phases = []
        for _ in range(5):
            before = time.time()
            _, told = asked_and_told(found, fake)
            start = dict(line.split("=") for line in told.splitlines())[
                "PROFILE_START_TIME"
            ]
            phases.append((int(start) / 1000 - before) % recording.TICK_S)
            found.jobs = {
                one.pid: AttachedProcess(one, RecordingPhase.CANCELLED) for one in ranks
            }
            found.turn(0)
    phases.sort()
    gaps = [after - one for one, after in pairwise(phases)]
    assert min(gaps) > 0.1 * recording.TICK_S


@pytest.mark.parametrize("profiles_itself", [False, True])
def test_a_late_libkineto_has_more_attempts_than_a_profiler_of_the_programs_own(
    profiles_itself: bool, sock: Path, tmp_path: Path
) -> None:
    """And the reason names what was cancelled, also where the last attempt was not."""
    with closing(DaemonSocket(str(sock))) as door:
        ranks = two_ranks(sock)
        found = Recording([door], tmp_path, RecordingRequest(500), ranks, attempts=99)
        attempts = 0
        while not found.is_done:
            attempts += 1
            found.jobs = {
                one.pid: AttachedProcess(
                    one,
                    RecordingPhase.CANCELLED,
                    why=recording.LEFT_EMPTY,
                    profiles_itself=profiles_itself,
                )
                for one in ranks
            }
            found.turn(0)
    limit = recording.MAX_CANCELLED if profiles_itself else recording.MAX_LATE
    assert attempts == limit + 1
    expected = recording.PROFILES_ITSELF if profiles_itself else recording.LEFT_EMPTY
    assert {job.why for job in found.jobs.values()} == {expected}


def test_no_operations_in_the_last_attempt_is_not_the_whole_reason(
    sock: Path, tmp_path: Path
) -> None:
    with closing(DaemonSocket(str(sock))) as door:
        ranks = two_ranks(sock)
        found = Recording([door], tmp_path, RecordingRequest(500), ranks, attempts=3)
        for phase in (
            RecordingPhase.CANCELLED,
            RecordingPhase.CANCELLED,
            RecordingPhase.EMPTY,
        ):
            found.jobs = {
                one.pid: AttachedProcess(one, phase, why=recording.NO_OPERATIONS)
                for one in ranks
            }
            found.turn(0)
    assert {job.why for job in found.jobs.values()} == {
        "it ran no operations in that time in 1 attempt, and libkineto cancelled 2"
    }


def test_files_that_are_sent_along_are_not_taken(sock: Path, tmp_path: Path) -> None:
    """Anybody could use up all descriptors otherwise."""
    with closing(DaemonSocket(str(sock))) as door, FakeJob(sock) as fake:
        fake.socket.connect(f"{sock}/dynolog")
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            sent = question(os.getpid())
            socket.send_fds(fake.socket, [sent], [fake.socket.fileno()] * 9)
            (heard,) = door.messages()
            assert heard.pid == os.getpid()
        assert len(os.listdir("/proc/self/fd")) == before


def test_a_process_that_cannot_be_looked_at_has_not_ended(
    sock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: Path) -> tuple[str, int, int, int]:
        raise OSError(errno.EMFILE, "Too many open files")

    own = this(sock)
    monkeypatch.setattr(processes, "_stat", refused)
    assert processes.is_alive(own)
