"""What a key costs in the real program, and what it sends, in a pseudo-terminal of
200x50.

    python -P benchmarks/screen.py trace.json.gz larger.json

For each trace: the time from a key to the last byte of the new frame, and the bytes of
it in 256 colors; then what a key sends that changes nothing; 100 keys typed at once,
whose last frame is compared with that after the same keys one by one; how many frames
of the past a terminal still gets after the last key, when it takes 500 kB/s; and what
the program does while nobody presses a key. The program is measured once the answer
stands below the lanes, and from its first frame on, where only the frame counts that
shows the new window of time: answers arrive at the same time.

Where the larger trace repeats the smaller one (benchmarks/generate.py), its first step
is the same picture, so that the ratio of both says what the size of a trace costs; the
whole traces are different pictures. For the ratio, both programs get the keys in turn.
The tables are printed, and with --put stand in docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import select
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import fill
from typing import NamedTuple

from fusetui.text.figures import plural

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.emulated import Screen  # noqa: E402
from benchmarks.pages import put  # noqa: E402
from benchmarks.presses import FRAME, OURS, SIZE, Press, Program, median_ms  # noqa: E402

PAGE = ROOT / "docs" / "benchmarks.md"
STEP = ":step 1\r"
KEYS = {
    "zoom, a step": (STEP, "wwwwwwssssss" * 4),
    "pan, a step": (f"{STEP}www", "ddddddaaaaaa" * 4),
    "select, a slice": (f"{STEP}jJJ", "........,,,,,,,," * 3),
    "select, out of sight": (f"{STEP}wwjj", "....,,,," * 5),
    "select, a line": (STEP, "jjjjkkkk" * 5),
    "gap": ("0", "eeeeEEEE" * 5),
    "tree": ("2", "jj jjj kk kkkk  " * 3),
    "tree of each op": ("2tt", "jj  jj kk kkkk  " * 3),
    "zoom, whole trace": ("0", "wwwwwwssssss" * 4),
    "pan, whole trace": ("0wwww", "ddddddaaaaaa" * 4),
}
"""What is pressed first, and what is measured."""
FOLLOWED = "select, out of sight"
"""Where the window follows the selection, all lanes change, as if a person had moved
it."""
ALIKE = ("zoom, a step", "pan, a step", "select, a slice", "select, a line", "tree")
"""The same picture in both traces; the larger one has more gaps, and other ones."""
SETTLED = "idle because:"
ANSWER = 120.0  # seconds that the answer may take
BURST = "d" * 60 + "w" * 20 + "a" * 20
RATE = 500_000  # bytes a second
HELD = 60  # keys a second
IDLE = 5.0  # seconds
FIRST_KEYS = "wwwwddddaaaassss"
STARTS = 5
REST = 0.02  # seconds without a byte: the first frame is there to its end
PIECE = 2048  # bytes that the slow terminal takes at a time


class Typed(NamedTuple):
    """What 100 keys typed at once cause."""

    frames: int
    is_right: bool  # the last one


def settled(trace: str) -> Program:
    """Start the program, and return it once the answer is on the screen."""
    program = Program(OURS, trace, SETTLED, ANSWER)
    program.first += program.take(1.0)
    return program


def walks(program: Program) -> Iterator[tuple[str, Sequence[Press]]]:
    """Yield each kind of keys with its presses. Where the window follows the selection,
    only presses that moved it count."""
    for kind, (first, keys) in KEYS.items():
        for key in first:
            program.press(key)
        presses = [program.press(key) for key in keys]
        yield kind, [press for press in presses if press.moved or kind != FOLLOWED]
        program.press("1")
        program.press("\x1b")


def at_once(trace: str) -> Iterator[Press]:
    """Yield the presses of keys from the first lanes on, while the program still works
    on other things. It is started STARTS times."""
    for _ in range(STARTS):
        program = Program(OURS, trace)
        program.first += program.take(REST)
        try:
            yield from [program.move(key) for key in FIRST_KEYS]
        finally:
            program.close()


def idle(program: Program) -> tuple[float, int]:
    """Return the CPU time in ms per second, and the bytes written, while nobody presses
    a key."""
    before = cpu_ns(program.pid)
    written = len(program.take(IDLE))
    return (cpu_ns(program.pid) - before) / IDLE / 1e6, written


def cpu_ns(pid: int) -> int:
    """Return the CPU time in ns of all threads of a process that are alive."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads)


def typed(trace: str) -> Typed:
    """Return how many frames a burst of keys causes, and whether the last one equals
    that after the same keys one by one."""
    screens = []
    for keys in ([BURST], BURST):
        program = settled(trace)
        try:
            program.press("0")
            screen, frames = Screen(SIZE, program.first), 0
            for key in keys:
                os.write(program.master, key.encode())
                written = program.take(0.5 if len(key) > 1 else 0.06)
                frames += written.count(FRAME)
                screen.feed(written)
            screen.feed(program.take(0.5))
            screens.append((frames, screen.text))
        finally:
            program.close()

    (frames, once), (_, apart) = screens
    return Typed(frames, once == apart)


def late(trace: str) -> int:
    """Return how many stale frames a slow terminal gets after the last key, while a key
    is held. The terminal takes RATE bytes a second; the frame of the last key itself
    does not count."""
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


HEAD = (
    "key",
    "presses",
    "median ms",
    "95 %",
    "worst",
    "bytes, median",
    "95 %",
    "worst",
)


def row(kind: str, presses: Sequence[Press]) -> list[str]:
    """Return the cells of a line of the table, with the figures of the presses that
    changed anything."""
    changed = [press for press in presses if press.bytes]
    if not changed:
        return [kind, "0", *[""] * 6]
    times, sizes = sorted(p.ms for p in changed), sorted(p.bytes for p in changed)
    late = min(len(changed) - 1, int(0.95 * len(changed)))
    found = statistics.median(times), times[late], times[-1]
    figures = statistics.median(sizes), sizes[late], sizes[-1]
    texts = [*(f"{ms:.1f}" for ms in found), *(f"{size:,.0f}" for size in figures)]
    return [kind, str(len(changed)), *texts]


def measured(trace: str) -> str:
    """Return the part of the page about one trace: a table of all keys, and a
    paragraph."""
    program = settled(trace)
    try:
        found = dict(walks(program))
        for _ in range(2):
            program.press("0")
        nothing = sum(program.press("0").bytes for _ in range(5))
        cpu, written = idle(program)
    finally:
        program.close()

    first = list(at_once(trace))
    rows = [row(*walk) for walk in (*found.items(), ("zoom and pan, at first", first))]
    burst = typed(trace)
    right = "is" if burst.is_right else "is NOT"
    said = (
        f"A key that changes nothing sends {plural(nothing, 'byte')}. Typing {len(BURST)} keys at "
        f"once causes {plural(burst.frames, 'frame')}, and the last frame {right} that of the same "
        f"keys one by one. A terminal that takes {RATE // 1000} kB/s gets "
        f"{plural(late(trace), 'stale frame')} after the last of {HELD} keys per second. While idle, "
        f"the app uses {cpu:.1f} ms of CPU time per second and sends {plural(written, 'byte')}."
    )
    return f"`{Path(trace).name}`:\n\n{markdown([HEAD, *rows])}\n\n{fill(said, 100)}"


def ratios(smaller: str, larger: str) -> str:
    """Return a Markdown table of what the size of a trace costs. Both programs get the
    keys in turn, so that a change of the machine meets both."""
    programs = [settled(trace) for trace in (smaller, larger)]
    rows: list[list[str]] = []
    try:
        for kind in ALIKE:
            times = [median_ms(presses) for presses in in_turn(programs, *KEYS[kind])]
            rows.append(
                [kind, *(f"{ms:.1f}" for ms in times), f"{times[1] / times[0]:.2f}"]
            )
    finally:
        for program in programs:
            program.close()

    return markdown(
        [("the same picture", "median ms, smaller", "larger", "ratio"), *rows]
    )


def in_turn(
    programs: Sequence[Program], first: str, keys: str
) -> Sequence[Sequence[Press]]:
    """Press the keys in all programs in turn, and return the presses of each program.
    Only keys that changed something in all of them count."""
    for program in programs:
        for key in f"1\x1b{first}":
            program.press(key)
    presses = [[program.press(key) for program in programs] for key in keys]
    return list(
        zip(*(both for both in presses if all(one.bytes for one in both)), strict=True)
    )


def markdown(lines: Sequence[Sequence[str]]) -> str:
    head, *rows = lines
    texts = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(text)} |" for text in texts)


def main() -> None:
    """Measure all keys in each trace, compare the first two traces, and print the
    tables; with --put they are put into docs/benchmarks.md."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "traces", nargs="+", help="the second: a larger one, with the same steps"
    )
    parser.add_argument(
        "--put", action="store_true", help="write the tables into the page"
    )
    args = parser.parse_args()
    os.environ["FUSETUI_KEPT"] = "off"
    parts = [measured(trace) for trace in args.traces]
    loads = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    place = (
        f"Measured on {os.cpu_count()} cores with Python {platform.python_version()}; the "
        f"load average was {loads}."
    )
    compared = [ratios(*args.traces[:2])] if len(parts) > 1 else []
    text = "\n\n".join((place, *parts, *compared))
    print(text)

    if args.put:
        put(PAGE, "screen", text, __file__)


if __name__ == "__main__":
    main()
