"""Inputs tried in processes of their own: what raises, hangs or kills its process has
failed."""

from __future__ import annotations

import json
import os
import select
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import IO, NamedTuple, NoReturn

from fuzz.checks import WrongError
from fuzz.limits import limit_space

Try = Callable[[int], str]
"""Tries the input with a number; the result is what became of it. What fails raises."""

OURS = ("/trace/", "/tui/", "/src/fusetui/", "/capture/")
LONGEST = 3000  # characters of what is told about a failure


class Outcome(NamedTuple):
    number: int
    # what became of it; of a failure: its name, the same for those that are alike
    what: str
    text: str = ""  # of a failure: everything that is known about it

    @property
    def failed(self) -> bool:
        return bool(self.text)


class Worker:
    """A process that tries inputs one after the other."""

    def __init__(self, numbers: Sequence[int], tried: Try) -> None:
        self.left = list(numbers)  # those that were not tried yet
        self.ended = False
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._text = b""
        self.pipe, write = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            os.close(self.pipe)
            os.dup2(self._errors.fileno(), 2)
            _work(numbers, tried, write)
        os.close(write)

    def new(self) -> Iterator[Outcome]:
        """What is known since the last time; waits until something is, or the process
        has ended."""
        piece = os.read(self.pipe, 1 << 16)
        *lines, self._text = (self._text + piece).split(b"\n")
        for line in lines:
            self.left.pop(0)
            yield Outcome(*json.loads(line))
        if not piece:
            self.ended = True
            if (code := self._code()) or self.left:
                yield self._death(code)

    def kill(self) -> None:
        if not self.ended:
            os.kill(self._pid, signal.SIGKILL)
            self._code()

    def _code(self) -> int:
        os.close(self.pipe)
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def _death(self, code: int) -> Outcome:
        self._errors.seek(0)
        said = self._errors.read().decode("utf-8", "replace")
        frames = [
            line.strip()
            for line in said.splitlines()
            if any(our in line for our in OURS)
        ]
        where = frames[0].replace('"', "") if frames else ""
        number = self.left.pop(0) if self.left else -1
        return Outcome(
            number, f"ended with {code} {where}".strip(), said[:LONGEST] or "no word"
        )


def outcomes(
    numbers: Iterable[int], tried: Try, jobs: int, batch: int
) -> Iterator[Outcome]:
    """Of all inputs; so many processes at once, each of which tries so many inputs."""
    numbers = iter(numbers)
    running: dict[int, Worker] = {}
    try:
        while True:
            while len(running) < jobs and (some := list(islice(numbers, batch))):
                worker = Worker(some, tried)
                running[worker.pipe] = worker
            if not running:
                return
            for pipe in select.select(list(running), [], [])[0]:
                worker = running[pipe]
                yield from worker.new()
                if worker.ended:
                    del running[pipe]
                    if worker.left:
                        worker = Worker(worker.left, tried)
                        running[worker.pipe] = worker
    finally:
        for worker in running.values():
            worker.kill()


def alone(tried: Callable[[], str]) -> Outcome:
    """The outcome of one input, in a process of its own."""
    return next(outcomes([0], lambda _: tried(), 1, 1))


def failure(error: BaseException) -> tuple[str, str]:
    """The name of a failure, and everything about it."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if any(our in frame.filename for our in OURS)]
    where = (
        f" in {ours[-1].filename.rpartition('/')[2]} {ours[-1].name}" if ours else ""
    )
    name = (
        error.name
        if isinstance(error, WrongError)
        else f"{type(error).__name__}{where}"
    )
    text = "".join(traceback.format_exception(error))
    return name, text if len(
        text
    ) <= LONGEST else f"{text[:500]}\n...\n{text[-LONGEST + 500 :]}"


def _work(numbers: Sequence[int], tried: Try, pipe: int) -> NoReturn:
    code = 1
    try:
        limit_space()
        for number in numbers:
            outcome = _tried(number, tried)
            os.write(pipe, json.dumps(outcome).encode() + b"\n")
            if outcome.what == "memory":
                break
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _tried(number: int, tried: Try) -> Outcome:
    try:
        return Outcome(number, tried(number))
    except Exception as error:
        return Outcome(number, *failure(error))
