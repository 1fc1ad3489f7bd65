"""One recording of some processes: whom to tell what, and how far the trace of each is."""

from __future__ import annotations

import enum
import mmap
import os
import re
import select
import stat
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from fusetui import Error
from fusetui.attach.door import SAFE, ConfigRequest, Door, Heard, Wish, configuration, written
from fusetui.attach.processes import Process, age_s, is_alive

IMPORTING_S = 6.0
"""Age below which a process may still import: it would record that, and nothing else."""
POLL_S = 5.0  # between two questions of a process
PATIENCE_S = 3 * POLL_S  # after which a process is taken to never ask
TOGETHER_S = POLL_S + 2.5  # until several begin at once: all have asked, and warmed up for a second
NUMBERS = tuple(f"-{number}" for number in range(2, 1000))  # of a program that is recorded again
TAIL = 8 * 1024  # bytes at the end of a trace that are looked at
MARKS = {"stack": b'"python_function"', "shapes": b'"Input Dims"', "memory": b'"[memory]"'}
"""What a trace holds if that was recorded."""


class CannotRecord(Error):  # noqa: N818
    """The folder for the traces cannot be used."""


class RecordingPhase(enum.Enum):
    """How far a process is; the last two are final."""

    WAITED_FOR = "waiting for it to ask"
    TOLD = "recording"
    WRITING = "writing"
    WHOLE = "recorded"
    FAILED = "not recorded"


class AttachedProcess(Struct, frozen=True):
    """One process. `file`: where its trace will be; `size`: bytes written; `due`: when it must be
    free again (`time.monotonic`); `why`: a sentence about what failed, or the trace lacks."""

    process: Process
    phase: RecordingPhase = RecordingPhase.WAITED_FOR
    file: Path = Path()
    size: int = 0
    has_asked: bool = False
    due: float = 0.0
    why: str = ""

    @property
    def is_done(self) -> bool:
        return self.phase in (RecordingPhase.WHOLE, RecordingPhase.FAILED)


class Recording:
    """Records each of some processes once; several begin together. Traces go to `folder`, which is
    made when it is needed, and replace no others. Raises CannotRecord if libkineto cannot be told
    its name."""

    def __init__(
        self, doors: Sequence[Door], folder: Path, wish: Wish, wanted: Iterable[Process]
    ) -> None:
        self._doors, self._folder, self._wish = doors, folder.absolute(), wish
        if not SAFE.fullmatch(str(self._folder)):
            raise CannotRecord(
                f"Traces cannot be written to {folder}: libkineto takes paths of letters, digits "
                "and . _ - + : , @ ~ only. Give another --out."
            )
        self.jobs = {one.pid: AttachedProcess(one) for one in wanted}
        self._begun = time.monotonic()
        self._start = 0.0  # when several begin, in seconds since 1970

    @property
    def is_done(self) -> bool:
        return all(job.is_done for job in self.jobs.values())

    def turn(self, seconds: float) -> None:
        """Answers what is asked within this time, and looks how far the traces are."""
        for door in select.select(self._doors, [], [], seconds)[0]:
            for heard in door.heard():
                self._hear(door, heard)
        for pid, job in self.jobs.items():
            if not job.is_done:
                self.jobs[pid] = self._looked(job)

    def _hear(self, door: Door, heard: Heard) -> None:
        job = self.jobs.get(heard.pid)
        if job is None:
            return
        text, job = "", replace(job, has_asked=True)
        if isinstance(heard.message, ConfigRequest) and heard.message.is_free:
            if job.phase is RecordingPhase.WAITED_FOR:
                job, text = self._told(job, heard.message.pids[0])
            else:
                job = self._asks_again(job)
        if door.answer(heard, text) or not text:
            self.jobs[heard.pid] = job

    def _told(self, job: AttachedProcess, own_pid: int) -> tuple[AttachedProcess, str]:
        """What a process is told that would record now; nothing while it may be importing."""
        if age_s(job.process) < IMPORTING_S:
            return job, ""
        alone, now = len(self.jobs) == 1, time.time()
        if not alone and not self._start:
            self._start = now + TOGETHER_S
        if not alone and now > self._start - 1:
            return _failed(job, "it asked only after the others had begun"), ""
        rank = f"-rank{job.process.rank}" if job.process.rank.isdecimal() else ""
        stem = re.sub(r"[^A-Za-z0-9_.-]", "-", job.process.program.removesuffix(".py"))
        names = (self._folder / f"{stem}{again}{rank}.json" for again in ("", *NUMBERS))
        file = next(name for name in names if not os.path.lexists(written(name, own_pid)))
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            return _failed(job, f"{self._folder} cannot be made: {error.strerror}"), ""
        takes = max(self._start - now, POLL_S) + self._wish.milliseconds / 1000 + POLL_S
        place, due = written(file, own_pid), time.monotonic() + takes
        told = replace(job, phase=RecordingPhase.TOLD, file=place, due=due)
        return told, configuration(self._wish, file, round(self._start * 1000))

    def _asks_again(self, job: AttachedProcess) -> AttachedProcess:
        """It is free again: its trace is there by now, or never will be."""
        if job.is_done or time.monotonic() < job.due or (self._wish.steps and not job.size):
            return job
        looked = self._looked(job)
        if looked.is_done:
            return looked
        disk, because = os.statvfs(self._folder), f"it may not see or write {self._folder}"
        if disk.f_bavail * disk.f_frsize < 1 << 20:
            because = "the disk is full"
        return _failed(job, f"it stopped, and there is no whole trace: {because}")

    def _looked(self, job: AttachedProcess) -> AttachedProcess:
        alive = is_alive(job.process)
        if job.phase is RecordingPhase.WAITED_FOR:
            waited = time.monotonic() - self._begun
            if not alive:
                return _failed(job, "it ended before it asked")
            old = age_s(job.process) > IMPORTING_S + PATIENCE_S
            is_late = not job.has_asked and waited > PATIENCE_S and old
            return _failed(job, NEVER_ASKED) if is_late else job
        found = _stat(job.file) or _stat(job.file.with_name(job.file.name + ".tmp"))
        if found is not None and not (stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()):
            return _failed(job, f"{job.file.name} is not a file of yours")
        if found is not None and found.st_size:
            job = replace(job, phase=RecordingPhase.WRITING, size=found.st_size)
        if _is_whole(job.file):
            return replace(job, phase=RecordingPhase.WHOLE, why=missing(job.file, self._wish))
        if not alive:
            left = f", {job.size:,} bytes of it" * (job.size > 0)
            return _failed(job, f"it ended before its trace was written{left}")
        return job


NEVER_ASKED = (
    "it never asked: its torch has no door, or its folder of sockets was not there when it started"
)
NO_OPERATIONS = (
    "It holds no operations: the program did not compute then, or ended before they were written."
)


def missing(file: Path, wish: Wish) -> str:
    """A sentence about what was asked for and is not in a trace; "" if all of it is."""
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as text:
        if text.find(b'"cpu_op"') < 0:
            return NO_OPERATIONS
        absent = [extra for extra in sorted(wish.extras) if text.find(MARKS[extra]) < 0]
    return f"It holds no {' and no '.join(absent)}: this torch does not record that." * bool(absent)


def _failed(job: AttachedProcess, why: str) -> AttachedProcess:
    return replace(job, phase=RecordingPhase.FAILED, why=why)


def _stat(file: Path) -> os.stat_result | None:
    try:
        return file.lstat()
    except OSError:
        return None


def _is_whole(file: Path) -> bool:
    """Whether it ends as libkineto ends a trace. No link is followed."""
    try:
        number = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    with open(number, "rb") as opened:
        opened.seek(max(os.fstat(number).st_size - TAIL, 0))
        tail = opened.read(TAIL).rstrip()
    return tail.endswith(b"}") and b'"traceName"' in tail
