"""How soon `fusetui open` shows something: the bar, the first lanes, the whole trace.

    python -P benchmarks/first_picture.py trace.json.gz --megabytes 50 500 2000

Makes files of these sizes from a real trace (see generate.py), opens each in its own
terminal without the cache, and waits for words that distinguish one picture from the
next; then once more with it. Prints a table and puts it into docs/benchmarks.md. Times
are the median of --repeat runs.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import platform
import pty
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.pages import put

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
COMMAND = [sys.executable, "-P", "-m", "fusetui", "open"]
SIZE = (50, 160)  # lines, columns
PATIENCE = 120  # seconds
SETTINGS = {"TERM": "xterm-256color", "FUSETUI_THEME": "dark"}
"""Nobody answers when the program asks for the color of the background."""

BAR = b"reading "
LANES = b"nothing selected"
WHOLE = b" slices "
PART = b" were read"
ESCAPE = b"\x1b"

HEAD = (
    "file",
    "the bar",
    "first lanes",
    "the whole trace",
    "Esc, with lanes",
    "q, while reading",
)
KEPT = "the whole trace, from the cache"


class Terminal:
    """A program in a terminal, and when it wrote what."""

    def __init__(self, command: Sequence[str], cache: str = "off") -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *SIZE, 0, 0))
        self._written = b""
        self.start = time.perf_counter()
        self._process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, **SETTINGS, "FUSETUI_CACHE": cache},
        )
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._ours)

    def wait_for(self, words: bytes) -> float:
        """Wait until these words were written, and return the seconds from the start.
        Raises TimeoutError after PATIENCE seconds."""
        while words not in self._written:
            if time.perf_counter() - self.start > PATIENCE:
                raise TimeoutError(f"never written: {words.decode()}")
            self._read()
        return time.perf_counter() - self.start

    def press(self, key: bytes) -> float:
        """Press a key, and return the time of the press in seconds from the start."""
        os.write(self._ours, key)
        return time.perf_counter() - self.start

    def wait_for_the_end(self) -> float:
        while self._process.poll() is None:
            self._read()
        return time.perf_counter() - self.start

    def _read(self) -> None:
        if select.select([self._ours], [], [], 0.005)[0]:
            with suppress(OSError):  # closed at its end
                self._written += os.read(self._ours, 1 << 16)


def opening(file: Path, cache: str = "off") -> tuple[float, float, float]:
    """Return the seconds until the bar, the first lanes, and the whole trace are shown."""
    with Terminal([*COMMAND, str(file)], cache) as terminal:
        return tuple(map(terminal.wait_for, (BAR, LANES, WHOLE)))  # type: ignore[return-value]


def stopping(file: Path) -> float | None:
    """Return the seconds from Escape, pressed when there are lanes, to the words that
    say what was read. None if the trace was read before."""
    with Terminal([*COMMAND, str(file)]) as terminal:
        terminal.wait_for(LANES)
        pressed = terminal.press(ESCAPE)
        with suppress(TimeoutError):
            return terminal.wait_for(PART) - pressed
    return None


def leaving(file: Path) -> float:
    """Return the seconds from q, pressed when there is a bar, to the end of the
    program."""
    with Terminal([*COMMAND, str(file)]) as terminal:
        terminal.wait_for(BAR)
        pressed = terminal.press(b"q")
        return terminal.wait_for_the_end() - pressed


def kept(file: Path) -> float:
    """Return the seconds until the whole trace is shown if the cache has it."""
    cache = str(file.with_suffix(".cache"))
    summary = [*COMMAND[:-1], "summary", str(file)]
    subprocess.run(
        summary,
        env={**os.environ, "FUSETUI_CACHE": cache},
        stdout=subprocess.DEVNULL,
        check=True,
    )

    with Terminal([*COMMAND, str(file)], cache) as terminal:
        return terminal.wait_for(WHOLE)


def row(file: Path, repeat: int) -> list[str]:
    """Return the cells of a line of the table, with the median times of `repeat` runs."""
    times = [
        list(column)
        for column in zip(*(opening(file) for _ in range(repeat)), strict=True)
    ]
    has_parts = statistics.median(times[2]) - statistics.median(times[1]) > 0.2
    times.append(
        [t for _ in range(repeat) if has_parts and (t := stopping(file)) is not None]
    )
    times.append([leaving(file) for _ in range(repeat)])
    times.append([kept(file) for _ in range(repeat)])
    shown = [
        f"{statistics.median(column):.2f} s" if column else "-" for column in times
    ]

    return [
        f"{file.stat().st_size / 1e6:.0f} MB{' .gz' * (file.suffix == '.gz')}",
        *shown,
    ]


def made(source: Path, folder: Path, megabytes: int) -> Path:
    """Make a trace of so many megabytes from a real one, and return its path in
    `folder`."""
    target = folder / f"{megabytes}.json"
    script = str(ROOT / "benchmarks" / "generate.py")
    command = [sys.executable, "-P", script, str(source), str(target)]
    subprocess.run(
        [*command, "--megabytes", str(megabytes)], check=True, stdout=sys.stderr
    )
    return target


def markdown(rows: Sequence[Sequence[str]]) -> str:
    lines = [[*HEAD, KEPT], ["---"] + ["---:"] * len(HEAD), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Measure files of all sizes, print the table, and put it into docs/benchmarks.md."""
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0] if __doc__ else None
    )
    parser.add_argument("source", type=Path, help="any real trace")
    parser.add_argument("--megabytes", type=int, nargs="+", default=[50, 500, 2000])
    parser.add_argument("--repeat", type=int, default=3)

    args = parser.parse_args()
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory() as name:
        for size in args.megabytes:
            file = made(args.source, Path(name), size)
            rows.append(row(file, args.repeat))
            print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
            file.unlink()

    loads = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    place = (
        f"Measured on {os.cpu_count()} cores with Python {platform.python_version()}; the "
        f"load average was {loads}."
    )
    text = f"{place}\n\n{markdown(rows)}"
    print(text)
    put(PAGE, "first picture", text, __file__)


if __name__ == "__main__":
    main()
