"""How long a key takes in the real program, from the press to the last byte of the new
frame.

    python -P benchmarks/presses.py trace.json.gz [--put]
    python -P benchmarks/presses.py trace.json.gz --beside SOURCE --pairs 20

The program runs in a pseudo-terminal of 200x50 cells; a frame has ended when nothing
was written for QUIET seconds. `--beside` names the source folder (src) of another
version: both run in turn, so that a change of the machine meets both, and the ratio of
their medians has a 95 % confidence interval over the pairs (Student's t of the
logarithms). `--put` places the table without `--beside` into docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import fcntl
import math
import os
import pty
import re
import select
import statistics
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.pages import put

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
OURS = Path(__file__).parents[1] / "src"
SIZE = (200, 50)
QUIET = 0.12  # seconds
PATIENCE = 60.0  # seconds
KEYS = {
    "zoom": ("", "wwwwssss"),
    "pan": ("www", "ddddaaaa"),
    "next slice": ("ssskkkkjjjjjjj", "....,,,,"),
    "next line": ("", "jjjjkkkk"),
}
"""What is pressed first, and what is measured."""
TERMINAL = {"TERM": "xterm-256color", "FUSETUI_THEME": "dark"}
"""Nobody answers when the program asks for the color of the background."""
SYNC_ASKED, SYNC_KNOWN = b"\x1b[?2026$p", b"\x1b[?2026;2$y"
FRAME, FRAME_END = b"\x1b[?2026h", b"\x1b[?2026l"
"""Asked whether it can show a frame at once, the terminal says yes; this is how a frame
begins."""
RULER_LINE = re.compile(rb"\x1b\[5;1H")
"""The line that changes with the window of time, and with nothing else."""
RULER = "├"
"""Is on the screen once there are lanes."""
START = "from fusetui.cli import script; script()"
T95 = {5: 2.776, 10: 2.262, 20: 2.093}
"""Student's t, two-sided, by the number of pairs."""


class Press(NamedTuple):
    """From the key to the last byte of what it caused."""

    ms: float
    bytes: int
    moved: bool = False  # the window of time


class Program:
    """fusetui open in a terminal of its own."""

    def __init__(
        self, source: Path, trace: str, until: str = RULER, patience: float = PATIENCE
    ) -> None:
        """Returns once a text is on the screen; `first` is all that was written by
        then."""
        self.master, slave = pty.openpty()
        fcntl.ioctl(
            slave, termios.TIOCSWINSZ, struct.pack("HHHH", SIZE[1], SIZE[0], 0, 0)
        )
        environment = {**os.environ, **TERMINAL, "PYTHONPATH": str(source)}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", START, "open", trace],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
        )
        os.close(slave)
        self.first = b""

        while until.encode() not in self.first and (more := self._read(patience)):
            self.first += more

    @property
    def pid(self) -> int:
        return self._process.pid

    def press(self, key: str) -> Press:
        """Press a key, and return the time until nothing more is written, with the
        number of bytes."""
        start = last = time.perf_counter()
        os.write(self.master, key.encode())

        written = b""
        while found := self._read(QUIET):
            written += found
            last = time.perf_counter()
            if last - start > PATIENCE:
                break

        moved = RULER_LINE.search(written) is not None
        return Press((last - start) * 1000, len(written), moved)

    def move(self, key: str) -> Press:
        """Press a key that moves the window of time, and return the time until the end
        of the frame that shows it. Other frames may come before and after. Without such
        a frame nothing was moved."""
        start = time.perf_counter()
        os.write(self.master, key.encode())

        written = b""
        while found := self._read(QUIET):
            written += found
            now = time.perf_counter()
            begin = 0
            while (end := written.find(FRAME_END, begin)) >= 0:
                if RULER_LINE.search(written, begin, end):
                    self.take(QUIET)
                    return Press((now - start) * 1000, end - begin, moved=True)
                begin = end + len(FRAME_END)

        return Press(0.0, 0)

    def take(self, quiet: float) -> bytes:
        """Return what is written until nothing more comes for `quiet` seconds."""
        found = bytearray()
        while more := self._read(quiet):
            found += more
        return bytes(found)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self.master)

    def _read(self, seconds: float) -> bytes:
        """Return what the program writes within `seconds`, or b"". Its question whether
        the terminal shows frames at once is answered."""
        ready, _, _ = select.select([self.master], [], [], seconds)
        if not ready:
            return b""
        found = os.read(self.master, 1 << 16)
        if SYNC_ASKED in found:
            os.write(self.master, SYNC_KNOWN)
        return found


def walk(source: Path, trace: str) -> dict[str, list[Press]]:
    """Return the presses of all kinds of keys in one run of the program."""
    program = Program(source, trace)
    program.take(2.0)

    try:
        for key in "jj" + "..":  # a selection, and the first frames
            program.press(key)
        found = {}
        for kind, (first, keys) in KEYS.items():
            for key in first:
                program.press(key)
            found[kind] = [program.press(key) for key in keys]
        return found
    finally:
        program.close()


def median_ms(presses: Sequence[Press]) -> float:
    """Return the median time of the presses that changed anything, or nan if none did."""
    changed = [press.ms for press in presses if press.bytes]
    return statistics.median(changed) if changed else math.nan


def row(kind: str, presses: Sequence[Press]) -> str:
    """Return a line of the table for one kind of key: the median, the 95th percentile,
    and the bytes of a frame."""
    changed = sorted(press.ms for press in presses if press.bytes)
    if not changed:
        return f"| {kind} | changes nothing | | 0 |"
    late = changed[min(len(changed) - 1, int(0.95 * len(changed)))]
    size = statistics.median(press.bytes for press in presses if press.bytes)
    return f"| {kind} | {median_ms(presses):.1f} | {late:.1f} | {size:,.0f} |"


def interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Return the geometric mean of ratios with its 95 % confidence interval, by
    Student's t of the logarithms."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.fmean(logs)
    half = T95[len(logs)] * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def compare(trace: str, other: Path, pairs: int) -> None:
    """Run both versions in turn, and print the ratio of their medians with its interval
    for each kind of key."""
    ratios: dict[str, list[float]] = {kind: [] for kind in KEYS}
    for number in range(pairs):
        order = (OURS, other) if number % 2 else (other, OURS)
        found = {source: walk(source, trace) for source in order}
        for kind in KEYS:
            ratio = median_ms(found[OURS][kind]) / median_ms(found[other][kind])
            if not math.isnan(ratio):
                ratios[kind].append(ratio)

    print("| key | ratio of medians | 95 % CI |\n|---|---:|---:|")

    for kind, own in ratios.items():
        if len(own) == pairs:
            mean, low, high = interval(own)
            print(f"| {kind} | {mean:.2f} | {low:.2f} to {high:.2f} |")
        else:
            print(
                f"| {kind} | changed nothing in {pairs - len(own)} of {pairs} pairs | |"
            )


def main() -> None:
    """Measure all kinds of keys and print the table, or compare with another version.
    With --put, the table is put into docs/benchmarks.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace")
    parser.add_argument("--beside", type=Path, help="the src folder of another version")
    parser.add_argument("--pairs", type=int, choices=T95, default=20)
    parser.add_argument(
        "--put", action="store_true", help="put the table into the page"
    )

    args = parser.parse_args()
    if args.beside:
        compare(args.trace, args.beside, args.pairs)
        return

    rows = [row(kind, presses) for kind, presses in walk(OURS, args.trace).items()]
    text = "\n".join(
        ["| key | median ms | 95 % | bytes |", "|---|---:|---:|---:|", *rows]
    )
    print(text)

    if args.put:
        put(PAGE, "presses", text, __file__)


if __name__ == "__main__":
    main()
