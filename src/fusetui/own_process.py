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
STDOUT = 1  # the number of the open file


class ProcessDiedError(Exception):
    """The other process has ended before it answered, or could not be started."""


class CancelledError(Exception):
    """Nobody wants the answer any more."""


def started(code: str, **streams: Any) -> subprocess.Popen[bytes]:
    """Start another Python process that runs some code. Raises OSError.

    Interrupting keys, such as Ctrl+C, reach only this process.

    Args:
        code: The code.
        streams: Arguments of subprocess.Popen, such as `stdin=PIPE`. Streams that are
            not given lead nowhere.
    """
    import subprocess  # rarely needed

    settings: dict[str, Any] = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
    }
    settings.update(streams)
    command = [sys.executable, "-P", "-c", code]
    return subprocess.Popen(command, process_group=0, bufsize=0, **settings)


class OwnProcess:
    """Use as a context manager: the process is killed at the end, whatever it does."""

    def __init__(self, first: str = "", kept_files: Sequence[int] = ()) -> None:
        """Start the process. Raises ProcessDiedError if that fails.

        Args:
            first: Code that it runs before anything is imported.
            kept_files: Numbers of open files of this process, which the other one then
                has under the same numbers.
        """
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
        """Kill the process, from any thread.

        Whoever waits for an answer then gets ProcessDiedError.
        """
        self._process.kill()

    def call(self, function: Callable[..., R], *arguments: object) -> R:
        """Call a function in the other process, and return its result.

        The function must be one of a module. Raises what it raises, and
        ProcessDiedError if the process ends before it answers.
        """
        self._ask(function, arguments)
        result: R = self._answer(None)
        return result

    def stream(
        self,
        function: Callable[..., Iterable[R]],
        *arguments: object,
        cancelled: Callable[[], bool],
    ) -> Iterator[R]:
        """Call a generator function in the other process, and yield its values.

        It works only where one can wait for a pipe (POSIX). Raises what the function
        raises, and ProcessDiedError.

        Args:
            function: The function, which must be one of a module.
            arguments: Its arguments.
            cancelled: Is asked repeatedly; once it returns True, CancelledError is
                raised, and the process is of no more use.
        """
        self._ask(_stream, (function, arguments))
        value = self._answer(cancelled)
        while value is not _End:
            yield value
            value = self._answer(cancelled)

    def _ask(self, function: Callable[..., Any], arguments: Sequence[object]) -> None:
        """Send the other process a function to call. Raises ProcessDiedError."""
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
        """Receive the next result of the other process.

        Raises what its function raised, ProcessDiedError, and CancelledError.
        """
        with _died_if_pipe_breaks():
            is_error, result = _receive(partial(self._take, cancelled=cancelled))
        if is_error:
            raise result
        return result

    def _take(self, size: int, cancelled: Callable[[], bool] | None) -> memoryview:
        """Read the next `size` bytes that the other process has written.

        Raises EOFError if the process has ended, and CancelledError.
        """
        import numpy as np

        pipe: Any = self._process.stdout
        # numpy does not fill the memory with zeros first, as bytearray does
        whole = np.empty(size, dtype=np.uint8).data
        unread = whole
        while unread:
            if cancelled is not None:
                _wait_for(pipe, cancelled)
            read_bytes = pipe.readinto(unread)
            if not read_bytes:
                raise EOFError
            unread = unread[read_bytes:]
        return whole


def _wait_for(pipe: Any, cancelled: Callable[[], bool]) -> None:
    """Wait until a pipe can be read. Raises CancelledError once `cancelled` is True."""
    while True:
        readable, _, _ = select.select([pipe], [], [], POLL_SECONDS)
        if readable:
            return
        if cancelled():
            raise CancelledError


def calls(
    function: Callable[..., R], arguments: Sequence[tuple[Any, ...]], processes: int
) -> Iterator[tuple[int, R]]:
    """Call a function with each of several arguments, in several processes.

    Yields each result as soon as it is there, with the index of its arguments. There is
    no result for arguments whose process died, nor for those that are left when no
    process can be started. Raises what the function raises.

    Args:
        function: The function, which must be one of a module.
        arguments: The arguments of each call.
        processes: How many processes share the calls.
    """
    crew = _Crew(function, arguments)
    threads = [threading.Thread(target=crew.work) for _ in range(processes)]
    debug("%d processes share %d calls", processes, len(arguments))
    for thread in threads:
        thread.start()
    try:
        running_threads = len(threads)
        while running_threads > 0:
            result = crew.finished.get()
            if result is None:  # a thread has ended
                running_threads -= 1
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
        """Queue the indices of the arguments; `work` is what each thread then does."""
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
        """Make calls in a process until none are left, as one of the threads.

        If the process dies, another one is started for the calls that are left.
        """
        try:
            while not self._numbers.empty() and not self._is_halted:
                with OwnProcess() as process:
                    self._running.append(process)
                    self._call_in(process)
        except ProcessDiedError:  # it could not be started
            pass
        except Exception as error:
            self.finished.put(error)
        finally:
            self.finished.put(None)

    def halt(self) -> None:
        """Make all threads end soon, by killing their processes."""
        self._is_halted = True
        for process in self._running:
            process.kill()

    def _call_in(self, process: OwnProcess) -> None:
        """Make one call after the other in a process.

        Ends when no call is left, and when the process has died.
        """
        with suppress(ProcessDiedError, Empty):
            while not self._is_halted:
                number = self._numbers.get_nowait()
                result = process.call(self._function, *self._arguments[number])
                self.finished.put((number, result))


# In the other process


def serve() -> None:
    """Call the functions that the other side sends, until it is gone.

    What the functions print leads nowhere. Interrupting keys are for the other side.
    """
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError):
        start_from_environment()
    # Answers go where standard output led; printing leads nowhere from now on.
    out = os.fdopen(os.dup(STDOUT), "wb", buffering=0)
    os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)
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
            for result in _results_of(function, arguments):
                _send((NO_ERROR, result), out.write)
        except BrokenPipeError:
            os._exit(0)
        except Exception as error:
            _send((IS_ERROR, error), out.write)


def _results_of(
    function: Callable[..., Any], arguments: tuple[Any, ...]
) -> Iterator[Any]:
    """Yield what the other side wants of one request.

    This is the result of a function; or, for `_stream`, all values of a generator
    function and then `_End`.
    """
    if function is not _stream:
        yield function(*arguments)
        return
    generator_function, its_arguments = arguments
    yield from generator_function(*its_arguments)
    yield _End


def _stream() -> None:
    """Stands for a function whose values are sent one by one."""


class _End:
    """Follows the last value of a stream."""


def _exactly(size: int) -> bytes:
    """Read `size` bytes of standard input. Raises EOFError if it ends before."""
    data = sys.stdin.buffer.read(size)
    if len(data) < size:
        raise EOFError
    return data


# Messages: the number of their parts, the size of each part, and the parts. The first
# part is a pickle, the others are large arrays in it.

NO_ERROR, IS_ERROR = False, True  # the first value of an answer; the second is a result


@contextmanager
def _died_if_pipe_breaks() -> Iterator[None]:
    """Turn errors of a broken pipe into ProcessDiedError, within the block."""
    try:
        yield
    except (OSError, EOFError, ValueError) as error:
        raise ProcessDiedError(str(error)) from error


def _send(message: object, write: Callable[[Any], int | None]) -> None:
    """Write a message; large arrays in it are written without a copy. Raises OSError.

    Args:
        message: What is sent.
        write: Writes some bytes, and returns how many of them it has written.
    """
    arrays: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(message, protocol=5, buffer_callback=arrays.append)
    parts = [memoryview(pickled)]
    for array in arrays:
        parts.append(array.raw())

    header = SIZE.pack(len(parts))
    for part in parts:
        header += SIZE.pack(part.nbytes)
    for unwritten in (memoryview(header), *parts):
        while unwritten:  # the pipe may take less than all
            written_bytes = write(unwritten)
            unwritten = unwritten[written_bytes:]


def _receive(take: Callable[[int], Buffer]) -> Any:
    """Read the next message that `_send` has written. Raises EOFError.

    Args:
        take: Reads as many bytes as it is told.
    """
    (part_count,) = SIZE.unpack(take(SIZE.size))
    part_sizes = []
    for _ in range(part_count):
        (part_size,) = SIZE.unpack(take(SIZE.size))
        part_sizes.append(part_size)
    pickled, *arrays = [take(part_size) for part_size in part_sizes]
    return pickle.loads(pickled, buffers=arrays)
