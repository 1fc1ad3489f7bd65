"""Other processes of ours, the one mechanism for work beside a process.

Such a process is started anew, because a copy of one that has threads may hang. It
calls one function after the other and sends back what they return. Its standard input
and output are the pipes; it ends when its standard input does, so it outlives nobody.
Only our own processes write to these pipes, so the bytes can be trusted.
"""

from __future__ import annotations

import os
import pickle
import select
import struct
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from io import BytesIO
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Self, TypeVar

if TYPE_CHECKING:
    import subprocess

    Buffer = bytes | bytearray | memoryview

R = TypeVar("R")

SIZE = struct.Struct("<Q")
LOOK_S = 0.1  # between two looks whether an answer is still wanted
SERVE = "from fusetui.own_process import serve; serve()"
NOT_STARTED = "it could not be started"


class ProcessDiedError(Exception):
    """The other process has ended before it answered, or could not be started."""


class CancelledError(Exception):
    """Nobody wants the answer any more."""


def started(code: str, **streams: Any) -> subprocess.Popen[bytes]:
    """A process of ours that was started anew and runs this code; its streams lead
    nowhere unless they are given. Interrupting keys reach only this process. Raises
    OSError."""
    import subprocess  # rarely needed

    nowhere = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    command = [sys.executable, "-P", "-c", code]
    return subprocess.Popen(
        command, process_group=0, bufsize=0, **{**nowhere, **streams}
    )


class OwnProcess:
    """Use as a context manager: the process is killed at the end, whatever it does."""

    def __init__(self, first: str = "", kept_files: Sequence[int] = ()) -> None:
        """`first`: code that runs before anything is imported; `kept_files`: open files
        of this process that the other one has under the same numbers. Raises
        ProcessDiedError."""
        from subprocess import PIPE

        try:
            self._process = started(
                f"{first}\n{SERVE}", stdin=PIPE, stdout=PIPE, pass_fds=tuple(kept_files)
            )
        except (OSError, RuntimeError, MemoryError) as error:
            raise ProcessDiedError(NOT_STARTED) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._process.communicate()

    def kill(self) -> None:
        """Callable from any thread: whoever waits for an answer then gets
        ProcessDiedError."""
        self._process.kill()

    def call(self, function: Callable[..., R], *arguments: object) -> R:
        """What a function of a module returns. Raises what it raises, and
        ProcessDiedError."""
        self._ask(function, arguments)
        found: R = self._answer(None)
        return found

    def stream(
        self,
        function: Callable[..., Iterable[R]],
        *arguments: object,
        cancelled: Callable[[], bool],
    ) -> Iterator[R]:
        """The values that a function of a module yields. Raises what it raises,
        ProcessDiedError, and CancelledError soon after `cancelled` says so: then the
        process is of no more use. Only where one can wait for a pipe (POSIX)."""
        self._ask(_stream, (function, arguments))
        while (found := self._answer(cancelled)) is not _End:
            yield found

    def _ask(self, function: Callable[..., Any], arguments: Sequence[object]) -> None:
        assert self._process.stdin is not None
        with _died():
            _send((function, tuple(arguments)), self._process.stdin.write)

    def _answer(self, cancelled: Callable[[], bool] | None) -> Any:
        with _died():
            is_error, found = _receive(partial(self._take, cancelled=cancelled))
        if is_error:
            raise found
        return found

    def _take(self, size: int, cancelled: Callable[[], bool] | None) -> memoryview:
        """The next bytes. Raises EOFError when the process has ended, and
        CancelledError."""
        import numpy as np

        pipe: Any = self._process.stdout
        # not filled before it is read
        rest = found = np.empty(size, dtype=np.uint8).data
        while rest:
            while cancelled and not select.select([pipe], [], [], LOOK_S)[0]:
                if cancelled():
                    raise CancelledError
            if not (count := pipe.readinto(rest)):
                raise EOFError
            rest = rest[count:]
        return found


def calls(
    function: Callable[..., R], arguments: Sequence[tuple[Any, ...]], processes: int
) -> Iterator[tuple[int, R]]:
    """What a function of a module returns for each of several arguments, with their
    number, as soon as it is there, from so many processes. None comes of arguments
    whose process died, or of those that are left when no process can be started; the
    others are called in another process. Raises what the function raises."""
    crew = _Crew(function, arguments)
    threads = [threading.Thread(target=crew.work) for _ in range(processes)]
    for thread in threads:
        thread.start()
    try:
        for _ in threads:
            while (found := crew.finished.get()) is not None:
                if isinstance(found, Exception):
                    raise found
                yield found
    finally:
        crew.halt()
        for thread in threads:
            thread.join()


class _Crew:
    """Threads that have a process each, which take the next arguments in turn."""

    def __init__(
        self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]
    ) -> None:
        self._function, self._arguments = function, arguments
        self._numbers: SimpleQueue[int] = SimpleQueue()
        for number in range(len(arguments)):
            self._numbers.put(number)
        self._running: list[OwnProcess] = []
        self._is_halted = False
        self.finished: SimpleQueue[tuple[int, Any] | Exception | None] = SimpleQueue()
        """Numbers with results, or what a function raised; None: a thread has ended."""

    def work(self) -> None:
        """What a thread does."""
        try:
            while not self._numbers.empty() and not self._is_halted:
                with OwnProcess() as process:
                    self._running.append(process)
                    self._use(process)
        except ProcessDiedError:  # not started
            pass
        except Exception as error:
            self.finished.put(error)
        finally:
            self.finished.put(None)

    def halt(self) -> None:
        self._is_halted = True
        for process in self._running:
            process.kill()

    def _use(self, process: OwnProcess) -> None:
        """Until the process dies, or nothing is left."""
        with suppress(ProcessDiedError, Empty):
            while not self._is_halted:
                number = self._numbers.get_nowait()
                result = process.call(self._function, *self._arguments[number])
                self.finished.put((number, result))


# In the other process


def serve() -> None:
    """Calls what the other side asks for, until nobody is there any more. What the
    functions print leads nowhere; interrupting keys are for the other side."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    requests: SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...]]] = SimpleQueue()

    def listen() -> None:
        with suppress(EOFError, OSError):
            while True:
                requests.put(_receive(_exactly))
        os._exit(0)  # also while a function is running

    threading.Thread(target=listen, daemon=True).start()
    while True:
        function, arguments = requests.get()
        try:
            if function is _stream:
                for found in arguments[0](*arguments[1]):
                    _send((False, found), out.write)
                _send((False, _End), out.write)
            else:
                _send((False, function(*arguments)), out.write)
        except BrokenPipeError:
            os._exit(0)
        except Exception as error:
            _send((True, error), out.write)


def _stream() -> None:
    """Stands for a function whose values are sent one by one."""


class _End:
    """Follows the last value of a stream."""


def _exactly(size: int) -> bytes:
    """So many bytes of standard input. Raises EOFError."""
    found = sys.stdin.buffer.read(size)
    if len(found) < size:
        raise EOFError
    return found


# Messages


@contextmanager
def _died() -> Iterator[None]:
    """Has what a broken pipe raises mean that the process has died."""
    try:
        yield
    except (OSError, EOFError, ValueError) as error:
        raise ProcessDiedError(str(error)) from error


def _send(message: object, write: Callable[[Any], int | None]) -> None:
    """Writes a message; large arrays in it are written as they are. Raises OSError."""
    columns: list[pickle.PickleBuffer] = []
    body = BytesIO()
    pickle.Pickler(body, protocol=5, buffer_callback=columns.append).dump(message)
    parts = [body.getbuffer(), *(column.raw() for column in columns)]
    sizes = [SIZE.pack(len(parts)), *(SIZE.pack(part.nbytes) for part in parts)]
    for left in (memoryview(b"".join(sizes)), *parts):
        while left:  # the pipe may take a part only
            left = left[write(left) :]


def _receive(take: Callable[[int], Buffer]) -> Any:
    """The next message. Raises EOFError."""
    (count,) = SIZE.unpack(take(SIZE.size))
    sizes = [SIZE.unpack(take(SIZE.size))[0] for _ in range(count)]
    body, *columns = [take(size) for size in sizes]
    return pickle.loads(body, buffers=columns)
