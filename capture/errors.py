"""What a capture says: its error, any other error as one sentence, and while it runs
messages and progress on stderr, escaped."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import TextIO

from fusetui import Error
from fusetui.text.cutting import clip
from fusetui.text.printable import printable

_LONGEST = 300
_HERE = Path(__file__).resolve().parent
_COMPILERS = ("torch._dynamo", "torch._inductor", "triton")


class CaptureError(Error):
    """One plain sentence for the user: what is wrong and what to do."""


def sentence(error: BaseException) -> str:
    """Why a variant failed, in one line: memory, compiler, or the innermost error
    itself."""
    import torch

    chain = list(_causes(error))
    if any(isinstance(cause, torch.cuda.OutOfMemoryError) for cause in chain):
        return "it ran out of GPU memory: use smaller shapes."
    # Python's own error, or the plain RuntimeError that torch raises on a CPU.
    if any(
        isinstance(c, MemoryError) or "can't allocate memory" in str(c) for c in chain
    ):
        return "it ran out of memory: use smaller shapes."
    if any(type(cause).__name__ == "InvalidCxxCompiler" for cause in chain):
        return "torch.compile found no C++ compiler: install g++ or clang, or set CXX."
    if ours := next(
        (cause for cause in chain if isinstance(cause, CaptureError)), None
    ):
        return str(ours)
    cause = chain[-1]
    if any(type(link).__module__.startswith(_COMPILERS) for link in chain):
        return clip(f"it could not be compiled: {_one_line(cause)}", _LONGEST, "...")
    return clip(_one_line(cause) + _place(cause), _LONGEST, "...")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what it wraps: torch.compile hides the real one in
    `inner_exception`."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = getattr(cause, "inner_exception", None) or cause.__cause__


def _one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _place(error: BaseException) -> str:
    """` (train.py, line 12)`: the innermost line of the user's own code, if there is
    one."""
    import torch

    others = (_HERE, _HERE.parent / "kernels", Path(torch.__file__).resolve().parent)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename).resolve()
        if path.is_file() and not any(map(path.is_relative_to, others)):
            return f" ({path.name}, line {frame.lineno})"
    return ""


def tell(line: str) -> None:
    """Prints one message; it is not an error if that fails."""
    with suppress(OSError):
        print(printable(line), file=sys.stderr, flush=True)


_REDRAW_SECONDS = 0.5


class Progress:
    """One line per phase with its time. On a terminal the elapsed time is updated."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream if stream is not None else sys.stderr

    def say(self, line: str) -> None:
        self._write(f"{printable(line)}\n")

    @contextmanager
    def phase(self, title: str) -> Iterator[None]:
        """Shows `title ...` while the block runs, then its duration in seconds. On a
        terminal a thread writes the line twice a second."""
        begin = perf_counter()
        title = printable(title)
        is_live = self._stream.isatty()
        done = threading.Event()
        end = "stopped"

        def redraw() -> None:
            while not done.wait(_REDRAW_SECONDS):
                self._write(f"\r{title} ... {perf_counter() - begin:.0f} s ")

        thread = threading.Thread(target=redraw, name="fusetui progress", daemon=True)
        self._write(f"{title} ... ")
        if is_live:
            thread.start()
        try:
            yield
            again = f"\r{title} ... " if is_live else ""
            end = f"{again}{perf_counter() - begin:.1f} s"
        finally:
            done.set()
            if is_live:
                thread.join()
            self._write(f"{end}\n")

    def _write(self, text: str) -> None:
        with suppress(OSError):
            self._stream.write(text)
            self._stream.flush()
