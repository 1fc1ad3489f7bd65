"""What large traces need where memory is short: seconds, and memory.

    python -P benchmarks/bounded.py trace.json.gz --megabytes 5400 10000 --gigabytes 8

Makes files of these sizes from a real trace (see generate.py). The processes of each
command run in a control group that is held to --gigabytes, the pages of files included;
making one takes root, on Linux. Memory is what belongs to processes alone (RssAnon), at
its peak, and for the app also what it holds at the end, with the pages of the cache
that it looks at. `open` is pressed as in presses.py once the whole trace is there; the
second time everything comes from the cache.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.first_picture import WHOLE, made
from benchmarks.pages import put
from benchmarks.presses import KEYS, OURS, Program, median_ms
from benchmarks.reading import machine

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
GROUPS = Path("/sys/fs/cgroup")
COMMAND = [sys.executable, "-P", "-m", "fusetui"]
PATIENCE = 1200.0  # seconds
POLL = 0.1  # seconds
HEAD = (
    "JSON",
    "command",
    "by the clock",
    "of the processors",
    "private memory, all processes",
)
APP = (
    "JSON",
    "slices",
    "open",
    "first lanes",
    "whole trace",
    *(f"{key}, ms" for key in KEYS),
)
HELD = ("the app's own", "with pages of the cache", "private memory, all processes")


class Group:
    """A control group, and the most private memory (bytes) that its processes held at
    one time."""

    def __init__(self, most: int) -> None:
        """Held to `most` bytes. Raises OSError."""
        is_first = (GROUPS / "memory").is_dir()  # version 1
        self._folder = (
            GROUPS / "memory" if is_first else GROUPS
        ) / f"fusetui-{os.getpid()}"
        self._folder.mkdir()
        limit = "memory.limit_in_bytes" if is_first else "memory.max"
        (self._folder / limit).write_text(str(most))
        self.private = 0

    def enter(self) -> None:
        """Put this process, and all that it starts from now on, into the control group."""
        (self._folder / "cgroup.procs").write_text(str(os.getpid()))

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Within the block, watch the memory of the group; `private` is set to its
        peak."""
        self.private, over = 0, threading.Event()
        thread = threading.Thread(target=self._watch, args=(over,))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _watch(self, over: threading.Event) -> None:
        """Note the private memory of all other processes of the group every POLL
        seconds, until `over` is set."""
        while not over.wait(POLL):
            own = (self._folder / "cgroup.procs").read_text().split()
            held = sum(memory(int(pid))[0] for pid in own if int(pid) != os.getpid())
            self.private = max(self.private, held)


def memory(pid: int) -> tuple[int, int]:
    """Return the bytes that a process holds of its own, and those with the pages of
    files that it looks at. Both are 0 if the process has ended."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        found = {
            line.partition(":")[0]: line.split()[1] for line in lines if "Rss" in line
        }
        if found:
            own, pages = int(found["RssAnon"]), int(found["RssFile"])
            return own * 1024, (own + pages) * 1024
    return 0, 0


def answered(group: Group, command: Sequence[str]) -> list[str]:
    """Run a command that answers and ends. Returns its time by the clock, its processor
    time, and the private memory of all its processes, as texts."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()

    with group.watched():
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    clock, after = (
        time.perf_counter() - start,
        resource.getrusage(resource.RUSAGE_CHILDREN),
    )
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return [f"{clock:.1f} s", f"{used:.1f} s", gigabytes(group.private)]


def opened(group: Group, file: Path) -> list[str]:
    """Open a file in the app. Returns the times until the first lanes and the whole
    trace, the median times of keys, and the memory, as texts."""
    with group.watched():
        start = time.perf_counter()
        program = Program(OURS, str(file), patience=PATIENCE)
        try:
            lanes, written = time.perf_counter() - start, bytearray(program.first)
            while WHOLE not in written:
                more = program.take(0.01)
                if not more and time.perf_counter() - start > PATIENCE:
                    raise TimeoutError(f"{file} is not read")
                written += more

            whole = time.perf_counter() - start
            program.take(2.0)
            times = []

            for key in "jj" + "..":  # a selection, and the first frames
                program.press(key)

            for first, keys in KEYS.values():
                for key in first:
                    program.press(key)
                times.append(median_ms([program.press(key) for key in keys]))

            held = memory(program.pid)
        finally:
            program.close()

    medians = [f"{ms:.1f}" for ms in times]
    return [
        f"{lanes:.1f} s",
        f"{whole:.1f} s",
        *medians,
        *map(gigabytes, (*held, group.private)),
    ]


def gigabytes(amount: int) -> str:
    return f"{amount / 1e9:.2f} GB"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table of these rows; all columns but the first two are aligned
    to the right."""
    lines = [head, ["---"] * 2 + ["---:"] * (len(head) - 2), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Make the large traces, measure all commands and the app within the memory limit,
    and write the tables into docs/benchmarks.md."""
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0] if __doc__ else None
    )
    parser.add_argument("source", type=Path, help="any real trace")
    parser.add_argument("--megabytes", type=int, nargs="+", default=[5400, 10000])
    parser.add_argument("--gigabytes", type=float, default=8)
    args = parser.parse_args()

    answers: list[list[str]] = []
    apps: list[list[str]] = []
    with tempfile.TemporaryDirectory() as name:
        files = [made(args.source, Path(name), size) for size in args.megabytes]
        group = Group(int(args.gigabytes * 1e9))
        group.enter()

        for file in files:
            size = gigabytes(file.stat().st_size)
            for words in (("summary",), ("why", "--no-worth")):
                command = [*COMMAND, *words, str(file), "--no-cache"]
                answers.append([size, " ".join(words), *answered(group, command)])
                print(answers[-1], file=sys.stderr, flush=True)

            os.environ["FUSETUI_CACHE"] = str(file.with_suffix(".cache"))

            for times in ("first time", "from the cache"):
                apps.append([size, times, *opened(group, file)])
                print(apps[-1], file=sys.stderr, flush=True)

            counted = subprocess.check_output(
                [*COMMAND, "summary", "--json", str(file)]
            )
            slices = f"{json.loads(counted)['slices']:,}"
            apps[-2:] = [[row[0], slices, *row[1:]] for row in apps[-2:]]

    text = f"{machine()}\n\nHeld to {args.gigabytes:g} GB:\n\n{markdown(HEAD, answers)}\n\n"
    text += markdown((*APP, *HELD), apps)
    print(text)
    put(PAGE, "bounded", text, __file__)


if __name__ == "__main__":
    main()
