"""The messages that a capture prints on stderr, and the texts of its errors.

`CaptureError` is an error of the user's request, and `describe_failure` describes any
other error in one line. `print_message` prints a message, and `Progress` the phases of
a capture. Whatever is printed is escaped, so that no text controls the terminal.
"""

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

_MAX_SENTENCE_CHARS = 300
_CAPTURE_FOLDER = Path(__file__).resolve().parent
_KERNELS_FOLDER = _CAPTURE_FOLDER.parent / "kernels"
_COMPILER_PACKAGES = ("torch._dynamo", "torch._inductor", "triton")


class CaptureError(Error):
    """One plain sentence for the user: what is wrong and what to do."""


def describe_failure(error: BaseException) -> str:
    """Return one line that says why a variant failed.

    Missing memory, a missing C++ compiler and a `CaptureError` anywhere in the chain of
    causes have sentences of their own. Otherwise it is the innermost cause, with the
    line of the user's code that raised it, or with the note that the variant could not
    be compiled. That text is cut to 300 characters.
    """
    import torch

    causes = list(_iterate_causes(error))
    if any(isinstance(cause, torch.cuda.OutOfMemoryError) for cause in causes):
        return "it ran out of GPU memory: use smaller shapes."
    if any(_is_out_of_cpu_memory(cause) for cause in causes):
        return "it ran out of memory: use smaller shapes."
    if any(type(cause).__name__ == "InvalidCxxCompiler" for cause in causes):
        return "torch.compile found no C++ compiler: install g++ or clang, or set CXX."

    for cause in causes:
        if isinstance(cause, CaptureError):
            return str(cause)

    innermost = causes[-1]
    text = _format_error(innermost)
    if any(type(cause).__module__.startswith(_COMPILER_PACKAGES) for cause in causes):
        text = f"it could not be compiled: {text}"
    else:
        text += _find_user_line(innermost)

    return clip(text, _MAX_SENTENCE_CHARS, "...")


def _is_out_of_cpu_memory(error: BaseException) -> bool:
    """Return whether an error means that the memory of the CPU ran out. Python raises
    MemoryError then, and torch a plain RuntimeError."""
    return isinstance(error, MemoryError) or "can't allocate memory" in str(error)


def _iterate_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, its cause, the cause of that, and so on. torch.compile keeps the
    cause in `inner_exception`. A cause that comes again ends the chain."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = getattr(cause, "inner_exception", None) or cause.__cause__


def _format_error(error: BaseException) -> str:
    """Return the type of an error and the first line of its message, such as
    `ValueError: dim must be even`."""
    name = type(error).__name__
    lines = str(error).strip().splitlines()
    return f"{name}: {lines[0]}" if lines else name


def _find_user_line(error: BaseException) -> str:
    """Return the innermost line of the traceback that is neither in torch nor in
    fusetui, such as ` (train.py, line 12)`. "" if there is none."""
    import torch

    torch_folder = Path(torch.__file__).resolve().parent

    not_the_users = (_CAPTURE_FOLDER, _KERNELS_FOLDER, torch_folder)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename).resolve()
        if not path.is_file():
            continue
        if not any(path.is_relative_to(folder) for folder in not_the_users):
            return f" ({path.name}, line {frame.lineno})"

    return ""


def print_message(line: str) -> None:
    """Prints a message on stderr. A stderr that cannot be written is ignored."""
    with suppress(OSError):
        print(printable(line), file=sys.stderr, flush=True)


_REDRAW_SECONDS = 0.5


class Progress:
    """Prints a line for each phase, with the seconds that it took; on a terminal, also
    those that have passed so far."""

    def __init__(self, stream: TextIO | None = None) -> None:
        """`stream` is stderr unless it is given."""
        self._stream = stream if stream is not None else sys.stderr

    def say(self, line: str) -> None:
        self._write(f"{printable(line)}\n")

    @contextmanager
    def phase(self, title: str) -> Iterator[None]:
        """Print `title ... ` when the block begins, and the seconds that it took when
        it ends, or `stopped` if it raises. On a terminal, a thread updates the seconds
        twice a second."""
        begin = perf_counter()
        title = printable(title)
        is_terminal = self._stream.isatty()
        has_ended = threading.Event()

        def redraw() -> None:
            while not has_ended.wait(_REDRAW_SECONDS):
                self._write(f"\r{title} ... {perf_counter() - begin:.0f} s ")

        thread = threading.Thread(target=redraw, name="fusetui progress", daemon=True)
        self._write(f"{title} ... ")

        if is_terminal:
            thread.start()

        outcome = "stopped"
        try:
            yield
            outcome = f"{perf_counter() - begin:.1f} s"
            if is_terminal:  # over what the thread wrote
                outcome = f"\r{title} ... {outcome}"
        finally:
            has_ended.set()
            if is_terminal:
                thread.join()
            self._write(f"{outcome}\n")

    def _write(self, text: str) -> None:
        with suppress(OSError):
            self._stream.write(text)
            self._stream.flush()
