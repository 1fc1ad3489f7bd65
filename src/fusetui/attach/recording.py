"""One recording of some processes: which process gets which request, the progress of
each trace, and when to record again. A trace without operations, one that shows how the
program starts or compiles, one that the program's own profiler cancelled, and one of a
group that a process missed are recorded again, a limited number of times."""

from __future__ import annotations

import enum
import os
import re
import select
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from fusetui import Error
from fusetui.attach.daemon_socket import (
    SAFE,
    ClientMessage,
    ConfigRequest,
    DaemonSocket,
    RecordingRequest,
    configuration,
    written,
)
from fusetui.attach.processes import (
    Process,
    age_s,
    forks_of,
    is_alive,
    is_ancestor,
    is_fork,
)
from fusetui.attach.trace_file import (
    FileState,
    describe_file,
    inspect_contents,
    inspect_trace,
    partial_file,
    remove_if_own,
)
from fusetui.text.cutting import with_capital
from fusetui.text.figures import plural

IMPORTING_S = 6.0
"""Age below which a process may still import: it would record that, and nothing
else."""
POLL_S = 5.0  # between two questions of a process
PATIENCE_S = 3 * POLL_S  # after which a process is taken to never ask
# until several begin at once: all have asked, and warmed up for a second
TOGETHER_S = POLL_S + 2.5
WARM_UP_S = 1.0
"""Before a common start: a process that asks later has missed it."""

TICK_S = 1.0
"""Every so many seconds libkineto looks whether it is time to warm up. It takes the
first look within two ticks of the start, and cancels the recording if that comes less
than one tick before it."""
PHASE_S = 0.382 * TICK_S
"""What the start of each attempt is moved by, modulo a tick: a process whose looks come
so late for one start does not have them late for the next. The golden ratio spreads any
number of attempts evenly."""
SILENCE_S = 60.0
"""A process that asked before and has not for this many seconds is given up."""
STALLED_S = 300.0
"""Seconds without growth of its file after which a recording that does not end is given
up."""
STEPS_S = 600.0  # within which the optimizer steps that were asked for must begin
OWN_PROFILER_S = 120.0
"""Seconds that `record` waits for the end of the program's own profiling."""
MAX_ATTEMPTS = 6  # of `record`, where a trace has no operations
MAX_FORK_ATTEMPTS = 6  # where forks of the program run: the operations may be in these
MAX_COMPILING = 6  # attempts whose traces show torch.compile at work
# attempts whose traces repeat nothing: long steps look as a start does
MAX_WITHOUT_LOOP = 3
MAX_CANCELLED = 4  # attempts that the program's own profiler cancelled
MAX_LATE = 8
"""Attempts of several that libkineto cancelled in one that was not seen to profile
itself: it was late."""
RESTS_S = (0.0, 0.0, 0.0, 5.0, 10.0, 20.0, 30.0)
"""Seconds that a program is left alone before attempts 2, 3, ...; the last, before all
others."""
LONGEST_RETRY_MS = 4_000  # each attempt without operations doubles the time, up to this
MAX_DOUBLINGS = 12
MIN_FREE_BYTES = 1 << 20  # on a disk that is not called full
# of a program that is recorded again
NUMBERS = tuple(f"-{number}" for number in range(2, 1000))


class CannotRecordError(Error):
    """The folder for the traces cannot be used."""


class RecordingPhase(enum.Enum):
    """How far a process is; the last two, and IDLE, are final. EMPTY, MISSED and
    CANCELLED end an attempt: the process is recorded again, or becomes FAILED."""

    WAITED_FOR = "waiting for the process to poll (every 5 s)"
    TOLD = "recording"
    WRITING = "writing"
    EMPTY = "no operations"
    MISSED = "too late"
    CANCELLED = "cancelled"
    IDLE = "left out"
    WHOLE = "recorded"
    FAILED = "not recorded"


RETRIED = (RecordingPhase.EMPTY, RecordingPhase.MISSED, RecordingPhase.CANCELLED)
FINAL = (RecordingPhase.IDLE, RecordingPhase.WHOLE, RecordingPhase.FAILED)


class AttachedProcess(Struct, frozen=True):
    """One process, and how far its recording is. Times are those of
    `time.monotonic`."""

    process: Process
    phase: RecordingPhase = RecordingPhase.WAITED_FOR
    file: Path = Path()  # where its trace will be
    size: int = 0  # bytes of it that are written
    has_asked: bool = False
    is_free: bool = False  # it said last that it would record now
    # it said that it records, and nobody had asked it to
    profiles_itself: bool = False
    is_compiling: bool = False  # its trace shows torch.compile at work
    is_loop: bool = True  # its trace shows operations that repeat
    told_at: float = 0.0  # when it was asked to record
    due: float = 0.0  # when it must be free again
    heard_at: float = 0.0  # its last message
    grown_at: float = 0.0  # when its file grew
    # a sentence about what failed, or the trace lacks, or why it is recorded again
    why: str = ""
    before: str = ""  # a clause about what became of the attempt before

    @property
    def is_done(self) -> bool:
        """Whether nothing more happens to this process."""
        return self.phase in FINAL

    @property
    def is_settled(self) -> bool:
        """Whether the present attempt is over for this process."""
        return self.is_done or self.phase in RETRIED


class _Order(NamedTuple):
    """A process once it was answered, and the configuration that it is told; "" for
    none."""

    attached: AttachedProcess
    configuration: str = ""


class Recording:
    """Records each of some processes, in several attempts if that is necessary. Several
    processes begin together. No file is overwritten."""

    def __init__(
        self,
        sockets: Sequence[DaemonSocket],
        folder: Path,
        request: RecordingRequest,
        recorded: Iterable[Process],
        *,
        attempts: int = MAX_ATTEMPTS,
        own_profiler_s: float = OWN_PROFILER_S,
    ) -> None:
        """Prepare to record; `turn` does the work.

        Args:
            sockets: Where processes ask.
            folder: Where traces are written; it exists. Raises CannotRecordError if
                libkineto cannot be told its name.
            request: What to record, and for how long.
            recorded: The processes.
            attempts: How often a process without operations is recorded at most.
            own_profiler_s: How many seconds to wait for the end of a profiling that the
                program does itself.
        """
        self._sockets = sockets
        self._folder = folder.absolute()
        self._request = request
        self._attempts = attempts
        self._own_profiler_s = own_profiler_s
        check_name(folder)
        self._place = _folder_identity(self._folder)
        self.attempt = 1
        self._empty_attempts = 0
        self._cancelled_attempts = 0
        self._compiling_attempts = 0
        self._attempts_without_loop = 0
        self._was_empty = False  # whether the attempt before had no operations
        self.jobs = {process.pid: AttachedProcess(process) for process in recorded}
        self.forks: dict[int, Process] = {}
        """By PID, those that ran at the end of an attempt: they cannot be recorded."""
        # those recorded in the attempt before
        self._previous: list[AttachedProcess] = []
        self._first_begun = self._begun = time.monotonic()
        self._rests_until = 0.0  # time.monotonic before which nobody is told to record
        self._start = 0.0  # when several begin, in seconds since 1970

    @property
    def is_done(self) -> bool:
        """Whether nothing more happens to any of the processes."""
        return all(attached.is_done for attached in self.jobs.values())

    def turn(self, seconds: float) -> None:
        """Answer the messages that come within some seconds, and look at the traces.

        Once all processes of an attempt are settled, the next attempt begins, or the
        recording is done.
        """
        readable, _, _ = select.select(self._sockets, [], [], seconds)
        for socket in readable:
            for message in socket.messages():
                self._hear(socket, message)
        for pid, attached in self.jobs.items():
            if not attached.is_settled:
                self.jobs[pid] = self._update_process(attached)
        if all(attached.is_settled for attached in self.jobs.values()):
            self._end_attempt()

    def _hear(self, socket: DaemonSocket, message: ClientMessage) -> None:
        """Answer a message of one of the processes; ignore those of others.

        A process that asks for a configuration and is free is told to record, if it was
        not told so yet. What a message changes counts only if the answer arrives.
        """
        attached = self.jobs.get(message.pid)
        if attached is None:
            return
        attached = replace(attached, has_asked=True, heard_at=time.monotonic())
        order = _Order(attached)
        if isinstance(message.content, ConfigRequest):
            order = self._answer_request(attached, message.content)

        has_arrived = socket.answer(message, order.configuration)
        if has_arrived or not order.configuration:
            self.jobs[message.pid] = order.attached

    def _answer_request(
        self, attached: AttachedProcess, request: ConfigRequest
    ) -> _Order:
        """Decide what to tell a process that asks for a configuration.

        A process that is not free, although it was not told to record, profiles itself.
        One that is free again after it was told has ended its recording.
        """
        attached = replace(attached, is_free=request.is_free)
        was_told = attached.phase is not RecordingPhase.WAITED_FOR
        if was_told and request.is_free:
            return _Order(self._judge_recording(attached))
        if was_told:
            return _Order(attached)
        if not request.is_free:
            return _Order(
                replace(attached, profiles_itself=True, why=WAITS_FOR_PROFILER)
            )
        return self._order_for_free_process(attached, own_pid=request.pids[0])

    def _order_for_free_process(
        self, attached: AttachedProcess, own_pid: int
    ) -> _Order:
        """Decide what to tell a process that asks and is free.

        It is told nothing while it may still be importing, or between two attempts. Of
        several processes all begin at one time, which is set when the first of them can
        be told; one that asks too late for it has missed the attempt.

        Args:
            attached: The process.
            own_pid: Its PID as it sees it, which differs in a container.
        """
        is_importing = age_s(attached.process) < IMPORTING_S
        if is_importing or time.monotonic() < self._rests_until:
            return _Order(attached)
        now = time.time()
        begins_with_others = len(self.jobs) > 1
        if begins_with_others and not self._set_common_start(now):
            return _Order(attached)
        if begins_with_others and now > self._start - WARM_UP_S:
            missed = replace(attached, phase=RecordingPhase.MISSED, why=TOO_LATE)
            return _Order(missed)
        if self._place != _folder_identity(self._folder):
            why = f"{self._folder} was removed or replaced during the recording"
            return _Order(_mark_failed(attached, why))
        return self._order_to_record(attached, own_pid, now)

    def _set_common_start(self, now: float) -> bool:
        """Set the time at which all processes begin, if it is not set yet.

        Returns False if it cannot be set yet: after the first attempt, all processes
        have to be free.

        Args:
            now: The time in seconds since 1970.
        """
        is_set = self._start > 0
        if is_set:
            return True
        if self.attempt > 1 and not self._are_free():
            return False
        phase_s = (self.attempt - 1) * PHASE_S % TICK_S
        self._start = now + TOGETHER_S + phase_s
        return True

    def _order_to_record(
        self, attached: AttachedProcess, own_pid: int, now: float
    ) -> _Order:
        """Return the order to record, from the common start on or at once.

        Args:
            attached: The process.
            own_pid: Its PID as it sees it.
            now: The time in seconds since 1970.
        """
        request = self._request_now()
        told_at = time.monotonic()
        waits_s = max(self._start - now, POLL_S)
        records_s = request.milliseconds / 1000
        file = self._new_file(attached.process, own_pid)
        told_job = replace(
            attached,
            phase=RecordingPhase.TOLD,
            file=written(file, own_pid),
            why="",
            told_at=told_at,
            grown_at=told_at,
            due=told_at + waits_s + records_s + POLL_S,
        )
        start_ms = round(self._start * 1000)
        return _Order(told_job, configuration(request, file, start_ms))

    def _request_now(self) -> RecordingRequest:
        """Return what this attempt records.

        The time is doubled for each attempt before that had no operations, up to
        LONGEST_RETRY_MS: 500 ms, then 1,000, 2,000 and 4,000. It is never shorter than
        asked for.
        """
        asked_ms = self._request.milliseconds
        longest_ms = max(asked_ms, LONGEST_RETRY_MS)
        doublings = min(self._empty_attempts, MAX_DOUBLINGS)
        doubled_ms = asked_ms * 2**doublings
        return replace(self._request, milliseconds=min(doubled_ms, longest_ms))

    def _are_free(self) -> bool:
        """Return whether all processes that still run have said in this attempt that
        they would record now. After some time the others are no longer waited for."""
        if time.monotonic() - self._begun > self._own_profiler_s:
            return True
        return all(
            attached.is_free or attached.is_settled for attached in self.jobs.values()
        )

    def _new_file(self, recorded: Process, own_pid: int) -> Path:
        """Choose the name that a process is told, so that no file is overwritten.

        It is train-rank3.json for rank 3 of train.py, or train-2-rank3.json if the file
        that this gives is there already. Raises CannotRecordError if all NUMBERS are
        taken.

        Args:
            recorded: The process.
            own_pid: Its PID as it sees it, which it adds to the name (`written`).
        """
        rank = f"-rank{recorded.rank}" if recorded.rank.isdecimal() else ""
        program = recorded.program.removesuffix(".py")
        stem = re.sub(r"[^A-Za-z0-9_.-]", "-", program)
        for number in ("", *NUMBERS):
            name = self._folder / f"{stem}{number}{rank}.json"
            file = written(name, own_pid)
            is_taken = os.path.lexists(file) or os.path.lexists(partial_file(file))
            if not is_taken:
                return name
        raise CannotRecordError(
            f"{self._folder} contains too many traces of {stem}: choose another --out."
        )

    def _judge_recording(self, attached: AttachedProcess) -> AttachedProcess:
        """Decide what became of a recording whose process is free again.

        A process writes its trace before it is free. So the trace is whole by now, or
        there will be none, and the file and the disk tell why. Before the recording can
        have ended (`due`), nothing is decided.
        """
        if attached.is_settled or time.monotonic() < attached.due:
            return attached
        waits_for_steps = self._request.steps and not attached.size
        if waits_for_steps and time.monotonic() < attached.told_at + STEPS_S:
            return attached
        updated = self._update_process(attached)
        if updated.is_settled:
            return updated
        trace = inspect_trace(attached.file)
        disk = os.statvfs(self._folder)
        free_bytes = disk.f_bavail * disk.f_frsize
        if free_bytes < MIN_FREE_BYTES:
            return _mark_failed(attached, f"{NO_TRACE}: the disk is full")
        if self._request.steps and trace.state in (FileState.ABSENT, FileState.EMPTY):
            return _mark_failed(
                attached, f"it ran no optimizer step within {STEPS_S:.0f} s"
            )
        if trace.state is FileState.EMPTY:
            remove_if_own(trace.path)
            why = CANCELLED if attached.profiles_itself else LEFT_EMPTY
            return replace(attached, phase=RecordingPhase.CANCELLED, why=why)
        is_absent = trace.state is FileState.ABSENT
        if is_absent and self._is_seen_by(attached.process):
            return replace(attached, phase=RecordingPhase.CANCELLED, why=IGNORED)
        if is_absent:
            why = f"{NO_TRACE}: it may be unable to see or write {self._folder}"
            return _mark_failed(attached, why)
        return _mark_failed(attached, f"{NO_TRACE}: {describe_file(trace)}")

    def _is_seen_by(self, recorded: Process) -> bool:
        """Return whether the process sees the same folder at the path of the traces. In
        a container there may be another one."""
        folder_seen_by_process = Path(f"/proc/{recorded.pid}/root{self._folder}")
        return _folder_identity(folder_seen_by_process) == self._place

    def _update_process(self, attached: AttachedProcess) -> AttachedProcess:
        """Return a process that is not settled as it is now, by its file.

        It is recorded once the file is whole. It has failed if it ended before, sent no
        message for SILENCE_S, or if the file has not grown for STALLED_S.
        """
        alive = is_alive(attached.process)
        if attached.phase is RecordingPhase.WAITED_FOR:
            return self._update_waiting_process(attached, alive)
        trace = inspect_trace(attached.file)
        now = time.monotonic()
        if trace.state is FileState.STRANGE:
            return _mark_failed(
                attached, f"{attached.file.name} belongs to another user"
            )
        if trace.size and trace.size != attached.size:
            attached = replace(
                attached, phase=RecordingPhase.WRITING, size=trace.size, grown_at=now
            )
        if trace.state is FileState.WHOLE:
            return self._judge_whole_trace(attached)
        if not alive:
            left = f", {attached.size:,} bytes of it" if attached.size else ""
            ended = f"it ended before its trace was written{left}"
            return _mark_failed(attached, f"{ended}{_because_of_profiler(attached)}")
        file_clause = describe_file(trace)
        silent_s = now - max(attached.heard_at, attached.grown_at, attached.due)
        if silent_s > SILENCE_S:
            return _mark_failed(attached, f"{_describe_silence()}, and {file_clause}")
        stalled_s = now - max(attached.grown_at, attached.due)
        if stalled_s > STALLED_S and not self._request.steps:
            return _mark_failed(
                attached, f"its recording does not end, and {file_clause}"
            )
        return attached

    def _judge_whole_trace(self, attached: AttachedProcess) -> AttachedProcess:
        """Return a process whose file is whole: recorded, or without operations.

        A trace without operations is removed. What a trace lacks, or that it shows
        torch.compile at work or no loop, is said in `why`.
        """
        contents = inspect_contents(attached.file)
        if not contents.has_operations:
            remove_if_own(attached.file)
            return replace(attached, phase=RecordingPhase.EMPTY, why=NO_OPERATIONS)
        remarks = []
        if contents.is_compiling:
            remarks.append(COMPILING)
        elif not contents.is_loop:
            remarks.append(NOT_REPEATED)
        absent = sorted(self._request.extras - contents.extras)
        if absent:
            remarks.append(
                f"It has no {' and no '.join(absent)}, because this torch version "
                "does not record that."
            )
        return replace(
            attached,
            phase=RecordingPhase.WHOLE,
            is_compiling=contents.is_compiling,
            is_loop=contents.is_loop,
            why=" ".join(remarks),
        )

    def _update_waiting_process(
        self, attached: AttachedProcess, alive: bool
    ) -> AttachedProcess:
        """Return a process that was not told to record yet as it is now.

        It has failed if it has ended, never asked within PATIENCE_S, profiles itself
        for too long, or stopped asking.

        Args:
            attached: The process.
            alive: Whether it still runs.
        """
        now_s = time.monotonic()
        if not alive:
            why = "it ended before it polled"
            if attached.before:
                why = f"it ended before it could be recorded again: {attached.before}"
            return _mark_failed(attached, f"{why}{_because_of_profiler(attached)}")
        if not attached.has_asked:
            was_waited_for = now_s - self._begun > PATIENCE_S
            is_old = age_s(attached.process) > IMPORTING_S + PATIENCE_S
            if was_waited_for and is_old:
                why = FORKED if is_fork(attached.process) else NEVER_ASKED
                return _mark_failed(attached, why)
        elif attached.profiles_itself and not attached.is_free:
            if now_s - self._first_begun > self._own_profiler_s:
                return _mark_failed(attached, PROFILES_ITSELF)
            if self._start and time.time() > self._start:
                return replace(
                    attached, phase=RecordingPhase.MISSED, why=PROFILES_ITSELF
                )
        if attached.heard_at and now_s - attached.heard_at > SILENCE_S:
            return _mark_failed(attached, _describe_silence())
        return attached

    def _end_attempt(self) -> None:
        """Begin the next attempt or end the recording, once all processes are settled.
        It ends if the traces are good, or all attempts were made."""
        jobs = list(self.jobs.values())
        for fork in forks_of(self.jobs):
            self.forks[fork.pid] = fork
        whole = [
            attached for attached in jobs if attached.phase is RecordingPhase.WHOLE
        ]
        is_wanted = (
            self._is_trace_missing(jobs, whole)
            or self._is_beginning(whole)
            or self._is_without_loop(whole)
        )
        if is_wanted and self._has_attempts_left(jobs):
            self._keep_better(whole)
            self._begin_attempt(jobs)
            return
        for attached in jobs:
            if attached.phase in RETRIED:
                self.jobs[attached.process.pid] = self._give_up(attached, whole)
        self._restore_better()

    def _has_attempts_left(self, jobs: Sequence[AttachedProcess]) -> bool:
        """Tell whether there may be another attempt.

        There may not if all were made, or if libkineto cancelled too many of them. It
        may cancel more if that is because it was late for a common start: there are
        several processes, and none was seen to profile itself.
        """
        attempts = self._attempts
        if self.forks:
            attempts = min(attempts, MAX_FORK_ATTEMPTS)
        profiles_itself = any(attached.profiles_itself for attached in jobs)
        is_late = len(jobs) > 1 and not profiles_itself
        max_cancelled = MAX_LATE if is_late else MAX_CANCELLED
        return self.attempt < attempts and self._cancelled_attempts < max_cancelled

    def _is_trace_missing(
        self, jobs: Sequence[AttachedProcess], whole: Sequence[AttachedProcess]
    ) -> bool:
        """Return whether a process that still runs lacks a trace. If there is any
        trace, only ranks of a job need one."""
        for attached in jobs:
            needs_trace = not whole or bool(attached.process.rank)
            if needs_trace and attached.phase in RETRIED and is_alive(attached.process):
                return True
        return False

    def _is_beginning(self, whole: Sequence[AttachedProcess]) -> bool:
        """Return whether these traces are the first with operations, after attempts
        without any.

        They show how the program begins to compute; another attempt shows it at work.
        `whole` has the processes with a whole trace.
        """
        return self._was_empty and any(is_alive(attached.process) for attached in whole)

    def _is_without_loop(self, whole: Sequence[AttachedProcess]) -> bool:
        """Return whether a trace may show how the program starts or compiles, so that
        another attempt is worthwhile.

        Only some attempts are made for that: a program may compile all the time, or
        have steps longer than the recording.
        """
        running = [attached for attached in whole if is_alive(attached.process)]
        if any(attached.is_compiling for attached in running):
            return self._compiling_attempts + 1 < MAX_COMPILING
        if any(not attached.is_loop for attached in running):
            return self._attempts_without_loop + 1 < MAX_WITHOUT_LOOP
        return False

    def _begin_attempt(self, jobs: Sequence[AttachedProcess]) -> None:
        """Prepare the next attempt for all processes that still run.

        Args:
            jobs: The processes as the last attempt ended for them.
        """
        self._count_attempt(jobs)
        last_rest = len(RESTS_S) - 1
        rest_s = RESTS_S[min(self.attempt - 1, last_rest)]
        self.attempt += 1
        self._rests_until = time.monotonic() + rest_s
        self._begun = time.monotonic()
        self._start = 0.0  # not set yet
        phases = {attached.phase for attached in jobs}
        for attached in jobs:
            has_failed = attached.phase is RecordingPhase.FAILED
            if has_failed or not is_alive(attached.process):
                continue
            because = _explain_next_attempt(attached, phases)
            self.jobs[attached.process.pid] = AttachedProcess(
                process=attached.process,
                has_asked=True,
                profiles_itself=attached.profiles_itself,
                heard_at=attached.heard_at,
                why=f"{because}Attempt {self.attempt} of {self._attempts}",
                before=attached.why if attached.phase in RETRIED else "",
            )

    def _count_attempt(self, jobs: Sequence[AttachedProcess]) -> None:
        """Count how an attempt has ended, because only some of each kind are made.

        Args:
            jobs: The processes as the attempt ended for them.
        """
        phases = {attached.phase for attached in jobs}
        self._was_empty = RecordingPhase.EMPTY in phases
        if self._was_empty:
            self._empty_attempts += 1
        if RecordingPhase.CANCELLED in phases:
            self._cancelled_attempts += 1
        if any(attached.is_compiling for attached in jobs):
            self._compiling_attempts += 1
        elif any(not attached.is_loop for attached in jobs):
            self._attempts_without_loop += 1

    def _give_up(
        self, attached: AttachedProcess, whole: Sequence[AttachedProcess]
    ) -> AttachedProcess:
        """Return the final state of a process without a trace, with the reason. A
        process that only starts others with traces is left out, not failed."""
        if attached.phase is not RecordingPhase.EMPTY:
            why = PROFILES_ITSELF if attached.profiles_itself else attached.why
            return _mark_failed(attached, why)

        starts_others = any(
            is_ancestor(attached.process, other.process) for other in whole
        )
        if starts_others and not attached.process.rank:
            return replace(attached, phase=RecordingPhase.IDLE, why=ONLY_STARTS)
        attempts = self._describe_attempts()
        return _mark_failed(
            attached, f"{attached.why}{attempts}{_because_of_profiler(attached)}"
        )

    def _describe_attempts(self) -> str:
        """Return a clause about the attempts: ` in 3 attempts, and libkineto cancelled
        4`. "" if there was only one."""
        if self.attempt == 1:
            return ""
        cancelled = self._cancelled_attempts
        if cancelled == 0:
            return f" in {self.attempt} attempts"
        other_attempts = plural(self.attempt - cancelled, "attempt")
        return f" in {other_attempts}, and libkineto cancelled {cancelled}"

    def _keep_better(self, whole: list[AttachedProcess]) -> None:
        """Keep the traces of this attempt or of the one before; remove the others.

        The better attempt recorded more processes; of equals it has more traces that
        show a loop; of equals in that too it is the later one.

        Args:
            whole: The processes that were recorded in this attempt.
        """
        is_worse = _rate_attempt(whole) < _rate_attempt(self._previous)
        better = self._previous if is_worse else whole
        worse = whole if is_worse else self._previous
        kept_files = {attached.file for attached in better}
        for attached in worse:
            if attached.file not in kept_files:
                remove_if_own(attached.file)
        self._previous = better

    def _restore_better(self) -> None:
        """End with the processes of the attempt that recorded more.

        A trace of how a program starts is removed if its own profiler kept its loop
        from being recorded.
        """
        whole = [
            attached
            for attached in self.jobs.values()
            if attached.phase is RecordingPhase.WHOLE
        ]
        pids_recorded_last = {attached.process.pid for attached in whole}
        self._keep_better(whole)
        for attached in whole:
            self.jobs[attached.process.pid] = _mark_failed(attached, NOT_TOGETHER)
        better_attempt = self._previous
        for attached in better_attempt:
            pid = attached.process.pid
            last_job = self.jobs[pid]
            was_kept_out = last_job.profiles_itself and pid not in pids_recorded_last
            if was_kept_out and not attached.is_loop:
                remove_if_own(attached.file)
                self.jobs[pid] = _mark_failed(last_job, PROFILES_ITSELF)
            else:
                self.jobs[pid] = attached


NEVER_ASKED = (
    "it never polled: either its torch has no on-demand profiling, or its socket "
    "folder was missing at startup"
)
FORKED = (
    "it is a fork, and a fork has no libkineto thread: start workers with spawn "
    '(multiprocessing.set_start_method("spawn"))'
)
NO_TRACE = "it stopped before its trace was complete"
COMPILING = "It covers a compilation by torch.compile."
NOT_REPEATED = (
    "Its operations do not repeat: it covers only part of a step, or the startup of "
    "the program."
)
NO_OPERATIONS = "it ran no operations in that time"
TOO_LATE = "it polled only after the other recordings had started"
PROFILES_ITSELF = "it uses torch.profiler itself, which cancels other recordings"
WAITS_FOR_PROFILER = "The program uses torch.profiler itself: waiting for it to finish"
CANCELLED = "its own torch.profiler cancelled the recording"
LEFT_EMPTY = (
    "libkineto cancelled the recording and left an empty file: the program may "
    "profile itself, or the machine may be too busy"
)
IGNORED = "libkineto accepted the request but wrote no file"
NOT_TOGETHER = "it was recorded in an attempt that other processes missed"
ONLY_STARTS = "it runs no operations, unlike the processes that it started"


def check_name(folder: Path) -> None:
    """Raise CannotRecordError if libkineto cannot be told the name of this folder. It
    accepts only some characters."""
    if not SAFE.fullmatch(str(folder.absolute())):
        raise CannotRecordError(
            f"Traces cannot be written to {folder}: libkineto accepts only paths of "
            "letters, digits and . _ - + : , @ ~. Choose another --out."
        )


def _explain_next_attempt(
    attached: AttachedProcess, phases: Collection[RecordingPhase]
) -> str:
    """Return a sentence about why a process is recorded again, with a space behind it.
    `phases` has how the attempt ended for all processes."""
    if attached.is_compiling:
        return "torch.compile is compiling: recording again. "
    if not attached.is_loop:
        return "The operations did not repeat: recording again. "
    if attached.phase in RETRIED:
        return f"{with_capital(attached.why)}. "
    if any(phase in RETRIED for phase in phases):
        return "Another process was not recorded: recording all again. "
    return "The program has started to compute: recording again. "


def _mark_failed(attached: AttachedProcess, why: str) -> AttachedProcess:
    """Mark the recording of a process as failed, for the reason `why`."""
    return replace(attached, phase=RecordingPhase.FAILED, why=why)


def _rate_attempt(whole: Sequence[AttachedProcess]) -> tuple[int, int]:
    """Return how many processes an attempt recorded, and how many of their traces show
    a loop. A larger pair is better."""
    return len(whole), sum(attached.is_loop for attached in whole)


def _because_of_profiler(attached: AttachedProcess) -> str:
    """Return a clause to put behind a reason, if the process used torch.profiler
    itself, which explains the rest; otherwise ""."""
    return f"; {PROFILES_ITSELF}" if attached.profiles_itself else ""


def _describe_silence() -> str:
    """Return a clause that says how long ago a process stopped polling."""
    return f"it stopped polling {SILENCE_S:.0f} s ago"


def _folder_identity(folder: Path) -> tuple[int, int]:
    """Return the device and the inode of a folder, which tell it from any other; (0, 0)
    if there is none."""
    with suppress(OSError):
        status = os.stat(folder)
        return status.st_dev, status.st_ino
    return 0, 0
