"""A program in its own terminal: keys go in, and every byte that it writes is kept."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any, Self

from tests.starting import Started, start, start_anew

CONTROL = re.compile(
    r"\x1b\[[0-9;:<=>?$ ]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b."
)
KNOWN = {"TERM": "xterm-256color", "FUSETUI_THEME": "dark", "LC_ALL": "C.UTF-8"}
"""Nobody answers here when a program asks for the color of the background."""
PATIENCE = 60.0  # seconds to wait for something; a hang ends there


ESCAPE = "\x1b"
# seconds after which no terminal program takes Escape for the begin of a sequence
ALONE = 0.3


class Terminal:
    """Use as a context manager: what is still running at its end is killed."""

    def __init__(
        self,
        arguments: Sequence[object],
        *,
        columns: int = 80,
        lines: int = 24,
        environment: Mapping[str, str] | None = None,
        controlling: bool = True,
        change: str = "",
        errors: IO[str] | None = None,
        anew: bool = False,
    ) -> None:
        """Starts fusetui; `controlling`: Ctrl+C and hanging up send signals, as in a
        shell.

        `change` is Python code that runs first, for instance to plant a bug; `errors`
        is another file for standard error; `anew`: in a new process, which is slow.
        """
        self.master, self.slave = pty.openpty()
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, size)
        self.before = self.attributes
        self.output = b""
        self._seen = 0
        hidden = ("NO_COLOR", "COLUMNS", "LINES")
        plain = {
            name: value for name, value in os.environ.items() if name not in hidden
        }
        words = [str(word) for word in arguments]
        streams = (self.slave, self.slave, errors.fileno() if errors else self.slave)
        own = {**plain, **KNOWN, **(environment or {})}
        self.process: Started | subprocess.Popen[bytes] = (
            start_anew(words, streams, own)
            if anew
            else start(words, streams, own, change, controlling)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for end in (self.master, self.slave):
            if end >= 0:
                os.close(end)

    @property
    def attributes(self) -> list[Any]:
        """How the terminal is set: raw or not, with echo or not."""
        return termios.tcgetattr(self.slave)

    @property
    def text(self) -> str:
        """All that was written, without sequences that only move the cursor or set
        colors."""
        return plain(self.output)

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())
        if keys == ESCAPE:
            time.sleep(ALONE)

    def wait_for(self, text: str) -> None:
        """Waits until a text was written after what was seen before, and nothing more
        follows."""
        until = time.monotonic() + PATIENCE
        while text not in (found := plain(self.output[self._seen :])):
            assert time.monotonic() < until, f"{text!r} is not in {found[-800:]!r}"
            assert self._read() or self.process.poll() is None, found[-800:]
        self.rest()

    def rest(self) -> None:
        """Waits until nothing more is written."""
        while self._read():
            pass
        self._seen = len(self.output)

    def wait(self) -> int:
        """The exit code, once it has ended."""
        until = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < until, "it does not end"
            self._read()
        while self._read():
            pass
        return self.process.wait()

    def hang_up(self) -> None:
        """Closes the terminal while the program is running."""
        os.close(self.master)
        self.master = -1

    def _read(self) -> bool:
        """Takes what is available, waiting a little; returns whether there was
        anything."""
        if self.master < 0 or not select.select([self.master], [], [], 0.05)[0]:
            return False
        self.output += os.read(self.master, 1 << 16)
        return True


def plain(output: bytes) -> str:
    """Without the control sequences."""
    return CONTROL.sub("", output.decode("utf-8", "surrogateescape"))
