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
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Self, TypeVar

from fusetui.debug_log import debug, start_from_environment

if TYPE_CHECKING:
    import subprocess

    Buffer = bytes | bytearray | memoryview

R = TypeVar("R")

SIZE = struct.Struct("<Q")
POLL_SECONDS = 0.1  # between two looks whether an answer is still wanted
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

    nowhere: Any = subprocess.DEVNULL
    all_streams: dict[str, Any] = {
        "stdin": nowhere,
        "stdout": nowhere,
        "stderr": nowhere,
    } | streams
    command = [sys.executable, "-P", "-c", code]
    return subprocess.Popen(command, process_group=0, bufsize=0, **all_streams)


class OwnProcess:
    """Use as a context manager: the process is killed at the end, whatever it does."""

    def __init__(self, first: str = "", kept_files: Sequence[int] = ()) -> None:
        """`first`: code that runs before anything is imported; `kept_files`: open files
        of this process that the other one has under the same numbers. Raises ProcessDiedError."""
        from subprocess import PIPE

        try:
            self._process = started(
                f"{first}\n{SERVE}", stdin=PIPE, stdout=PIPE, pass_fds=tuple(kept_files)
            )
        except (OSError, RuntimeError, MemoryError) as error:
            debug("another process could not be started: %s", error)
            raise ProcessDiedError(NOT_STARTED) from error
        debug("process %d was started", self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._process.communicate()

    def kill(self) -> None:
        """Callable from any thread: whoever waits for an answer then gets ProcessDiedError."""
        self._process.kill()

    def call(self, function: Callable[..., R], *arguments: object) -> R:
        """What a function of a module returns. Raises what it raises, and ProcessDiedError."""
        self._ask(function, arguments)
        result: R = self._answer(None)
        return result

    def stream(
        self,
        function: Callable[..., Iterable[R]],
        *arguments: object,
        cancelled: Callable[[], bool],
    ) -> Iterator[R]:
        """The values that a function of a module yields. Raises what it raises, ProcessDiedError, and
        CancelledError soon after `cancelled` says so: then the process is of no more use.
        Only where one can wait for a pipe (POSIX)."""
        self._ask(_stream, (function, arguments))
        while (value := self._answer(cancelled)) is not _End:
            yield value

    def _ask(self, function: Callable[..., Any], arguments: Sequence[object]) -> None:
        """Sends a request. Raises ProcessDiedError."""
        assert self._process.stdin is not None
        debug(
            "process %d calls %s.%s",
            self._process.pid,
            getattr(function, "__module__", ""),
            getattr(function, "__name__", function),
        )
        with _died_if_pipe_breaks():
            _send((function, tuple(arguments)), self._process.stdin.write)

    def _answer(self, cancelled: Callable[[], bool] | None) -> Any:
        """The next result. Raises what the function raised, ProcessDiedError, and CancelledError."""
        with _died_if_pipe_breaks():
            is_error, result = _receive(partial(self._take, cancelled=cancelled))
        if is_error:
            raise result
        return result

    def _take(self, size: int, cancelled: Callable[[], bool] | None) -> memoryview:
        """The next bytes. Raises EOFError when the process has ended, and CancelledError."""
        import numpy as np

        pipe: Any = self._process.stdout
        # numpy does not fill the memory with zeros first, as bytearray does
        taken = np.empty(size, dtype=np.uint8).data
        missing = taken
        while missing:
            if cancelled:
                _wait_for(pipe, cancelled)
            count = pipe.readinto(missing)
            if not count:
                raise EOFError
            missing = missing[count:]
        return taken


def _wait_for(pipe: Any, cancelled: Callable[[], bool]) -> None:
    """Returns once the pipe can be read. Raises CancelledError."""
    while not select.select([pipe], [], [], POLL_SECONDS)[0]:
        if cancelled():
            raise CancelledError


def calls(
    function: Callable[..., R], arguments: Sequence[tuple[Any, ...]], processes: int
) -> Iterator[tuple[int, R]]:
    """What a function of a module returns for each of several arguments, with their
    number, as soon as it is there, from so many processes. None comes of arguments
    whose process died, or of those that are left when no process can be started; the
    others are called in another process. Raises what the function raises."""
    crew = _Crew(function, arguments)
    threads = [threading.Thread(target=crew.work) for _ in range(processes)]
    debug("%d processes share %d calls", processes, len(arguments))
    for thread in threads:
        thread.start()
    try:
        running = len(threads)
        while running:
            result = crew.finished.get()
            if result is None:
                running -= 1
            elif isinstance(result, Exception):
                raise result
            else:
                yield result
    finally:
        crew.halt()
        for thread in threads:
            thread.join()


class _Crew:
    """Threads that have a process each, which take the next arguments in turn."""

    def __init__(
        self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]
    ) -> None:
        self._function = function
        self._arguments = arguments
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
    with suppress(OSError):
        start_from_environment()
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
                generator_function, its_arguments = arguments
                for value in generator_function(*its_arguments):
                    _send((NO_ERROR, value), out.write)
                _send((NO_ERROR, _End), out.write)
            else:
                _send((NO_ERROR, function(*arguments)), out.write)
        except BrokenPipeError:
            os._exit(0)
        except Exception as error:
            _send((IS_ERROR, error), out.write)


def _stream() -> None:
    """Stands for a function whose values are sent one by one."""


class _End:
    """Follows the last value of a stream."""


def _exactly(size: int) -> bytes:
    """So many bytes of standard input. Raises EOFError."""
    data = sys.stdin.buffer.read(size)
    if len(data) < size:
        raise EOFError
    return data


# Messages: the number of their parts, the size of each part, and the parts. The first
# part is a pickle, the others are large arrays in it.

NO_ERROR, IS_ERROR = False, True  # the first value of an answer; the second is a result


@contextmanager
def _died_if_pipe_breaks() -> Iterator[None]:
    """Has what a broken pipe raises mean that the process has died."""
    try:
        yield
    except (OSError, EOFError, ValueError) as error:
        raise ProcessDiedError(str(error)) from error


def _send(message: object, write: Callable[[Any], int | None]) -> None:
    """Writes a message; large arrays in it are written as they are. Raises OSError."""
    arrays: list[pickle.PickleBuffer] = []
    body = pickle.dumps(message, protocol=5, buffer_callback=arrays.append)
    parts = [memoryview(body), *(array.raw() for array in arrays)]
    header = SIZE.pack(len(parts))
    for part in parts:
        header += SIZE.pack(part.nbytes)
    for unwritten in (memoryview(header), *parts):
        while unwritten:  # the pipe may take less than all
            unwritten = unwritten[write(unwritten) :]


def _receive(take: Callable[[int], Buffer]) -> Any:
    """The next message. Raises EOFError."""
    (count,) = SIZE.unpack(take(SIZE.size))
    sizes = [SIZE.unpack(take(SIZE.size))[0] for _ in range(count)]
    body, *arrays = [take(size) for size in sizes]
    return pickle.loads(body, buffers=arrays)
