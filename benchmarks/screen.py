"""What a key costs in the real program, and what it sends, in a pseudo-terminal of 200x50.

    python -P benchmarks/screen.py trace.json.gz larger.json ...

For each trace: the time from a key to the last byte of the new frame, and the bytes of it in 256
colors; then what a key sends that changes nothing; 100 keys typed at once, whose last frame is
compared with that after the same keys one by one; how many frames of the past a terminal still gets
after the last key, when it takes 500 kB/s; and what the program does while nobody presses a key.
The table is printed, and with --put stands in docs/benchmarks.md. The program is measured once the
answer stands below the lanes, and once more from the first frame on.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import select
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import fill
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.pages import put  # noqa: E402
from benchmarks.presses import FRAME, OURS, SIZE, Press, Program  # noqa: E402

PAGE = ROOT / "docs" / "benchmarks.md"
KEYS = {
    "zoom": ("jj0", "wwwwwwssssss" * 4),
    "pan": ("0wwww", "ddddddaaaaaa" * 4),
    "select, a slice": ("0wwwwjj", "....,,,," * 5),
    "select, a line": ("0", "jjjjkkkk" * 5),
    "gap": ("0", "eeeeEEEE" * 5),
    "tree": ("2", "jj jjj kk kkkk  " * 3),
    "tree of each op": ("2tt", "jj  jj kk kkkk  " * 3),
}
"""What is pressed first, and what is measured."""
SETTLED = "idle because:"
ANSWER = 120.0  # seconds that the answer may take
BURST = "d" * 60 + "w" * 20 + "a" * 20
RATE = 500_000  # bytes a second
HELD = 60  # keys a second
IDLE = 5.0  # seconds
TICKS = os.sysconf("SC_CLK_TCK")
MOVE = re.compile(r"\x1b\[(\d+);(\d+)H")
CONTROL = re.compile(r"\x1b\[[0-9;:<=>?$ ]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b.")
FIRST_KEYS = "wwwwddddaaaassss"
REST = 0.02  # seconds without a byte: the first frame is there to its end
PIECE = 2048  # bytes that the slow terminal takes at a time


class Walk(NamedTuple):
    """The presses of one kind."""

    kind: str
    presses: Sequence[Press]


class Typed(NamedTuple):
    """What 100 keys typed at once cause."""

    frames: int
    is_right: bool  # the last one


def settled(trace: str) -> Program:
    """The program, once the answer is on the screen."""
    program = Program(OURS, trace, SETTLED, ANSWER)
    program.first += program.take(1.0)
    return program


def walks(program: Program) -> Iterator[Walk]:
    """All kinds of keys."""
    for kind, (first, keys) in KEYS.items():
        for key in first:
            program.press(key)
        yield Walk(kind, [program.press(key) for key in keys])
        program.press("1")
        program.press("\x1b")


def at_once(trace: str) -> Walk:
    """From the first lanes on, while other things are still worked out."""
    program = Program(OURS, trace)
    program.first += program.take(REST)
    try:
        return Walk("zoom and pan, at first", [program.press(key) for key in FIRST_KEYS])
    finally:
        program.close()


def idle(program: Program) -> tuple[float, int]:
    """CPU time in ms a second, and bytes, while nobody presses a key."""
    before = cpu_seconds(program.pid)
    written = len(program.take(IDLE))
    return 1000 * (cpu_seconds(program.pid) - before) / IDLE, written


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def typed(trace: str) -> Typed:
    """A burst of keys, beside the same keys one by one."""
    screens = []
    for keys in ([BURST], BURST):
        program = settled(trace)
        try:
            program.press("0")
            screen, frames = Screen(program.first), 0
            for key in keys:
                os.write(program.master, key.encode())
                written = program.take(0.5 if len(key) > 1 else 0.06)
                frames += written.count(FRAME)
                screen.feed(written)
            screens.append((frames, screen.text))
        finally:
            program.close()
    (frames, once), (_, apart) = screens
    return Typed(frames, once == apart)


def late(trace: str) -> int:
    """How many frames begin after the last key, other than that of this key, while the terminal
    takes RATE bytes a second and a key is held."""
    program = settled(trace)
    try:
        for key in "0wwww":
            program.press(key)
        keys = "dddddddddaaaaaaaaa" * 10
        began = time.perf_counter()
        taken = pressed = 0
        while pressed < len(keys):
            now = time.perf_counter() - began
            if now * HELD > pressed:
                os.write(program.master, keys[pressed].encode())
                pressed += 1
            if now * RATE > taken and select.select([program.master], [], [], 0)[0]:
                taken += len(os.read(program.master, PIECE))
            time.sleep(0.0005)
        rest = b""
        while select.select([program.master], [], [], 0.3)[0]:
            rest += os.read(program.master, PIECE)
            time.sleep(PIECE / RATE)
        return max(0, rest.count(FRAME) - 1)
    finally:
        program.close()


class Screen:
    """What stands on a terminal: only the sequences that Textual sends for a frame."""

    def __init__(self, written: bytes = b"") -> None:
        self._lines = [[" "] * SIZE[0] for _ in range(SIZE[1])]
        self._x = self._y = 0
        self._rest = b""
        self.feed(written)

    def feed(self, written: bytes) -> None:
        text = (self._rest + written).decode("utf-8", "ignore")
        self._rest = b""
        at = 0
        for found in CONTROL.finditer(text):
            self._put(text[at : found.start()])
            at = found.end()
            if moved := MOVE.fullmatch(found[0]):
                self._y, self._x = int(moved[1]) - 1, int(moved[2]) - 1
        self._put(text[at:])

    @property
    def text(self) -> str:
        return "\n".join("".join(line) for line in self._lines)

    def _put(self, text: str) -> None:
        for character in text:
            if character == "\r":
                self._x = 0
            elif character == "\n":
                self._y += 1
            elif self._y < SIZE[1] and self._x < SIZE[0]:
                self._lines[self._y][self._x] = character
                self._x += 1


HEAD = ("key", "median ms", "95 %", "worst", "bytes, median", "95 %", "worst")


def row(walk: Walk) -> list[str]:
    """The figures of the presses that changed anything."""
    changed = [press for press in walk.presses if press.bytes]
    if not changed:
        return [walk.kind, "changes nothing", *[""] * 5]
    times, sizes = sorted(p.ms for p in changed), sorted(p.bytes for p in changed)
    late = min(len(changed) - 1, int(0.95 * len(changed)))
    found = statistics.median(times), times[late], times[-1]
    figures = statistics.median(sizes), sizes[late], sizes[-1]
    return [walk.kind, *(f"{ms:.1f}" for ms in found), *(f"{size:,.0f}" for size in figures)]


def measured(trace: str) -> str:
    """The part of the page about one trace."""
    program = settled(trace)
    try:
        rows = [row(walk) for walk in walks(program)]
        for _ in range(2):
            program.press("0")
        nothing = sum(program.press("0").bytes for _ in range(5))
        cpu, written = idle(program)
    finally:
        program.close()
    rows.append(row(at_once(trace)))
    burst = typed(trace)
    right = "is" if burst.is_right else "is NOT"
    said = (
        f"A key that changes nothing sends {nothing} bytes. {len(BURST)} keys typed at once cause "
        f"{burst.frames} frames, the last of which {right} that of the same keys one by one. A "
        f"terminal that takes {RATE // 1000} kB/s gets {late(trace)} stale frames after the last "
        f"of {HELD} keys a second. Idle: {cpu:.1f} ms of CPU time a second, {written} bytes."
    )
    return f"`{Path(trace).name}`:\n\n{markdown(rows)}\n\n{fill(said, 100)}"


def markdown(rows: Sequence[Sequence[str]]) -> str:
    lines = [HEAD, ["---"] + ["---:"] * (len(HEAD) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("traces", nargs="+")
    parser.add_argument("--put", action="store_true", help="write the tables into the page")
    args = parser.parse_args()
    os.environ["FUSETUI_KEPT"] = "off"
    parts = [measured(trace) for trace in args.traces]
    loads = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    place = f"{os.cpu_count()} cores, Python {platform.python_version()}, load {loads}."
    text = "\n\n".join((place, *parts))
    print(text)
    if args.put:
        put(PAGE, "screen", text)


if __name__ == "__main__":
    main()
