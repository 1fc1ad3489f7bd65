"""How fast reading is and how much memory it takes, compared with `orjson.loads` in the
same run.

    python -P benchmarks/reading.py trace.json.gz --megabytes 50 250 1000

Makes files of these sizes from a real trace (see generate.py) in a temporary folder,
measures the whole process of each reader in turn, prints the tables and puts them into
docs/benchmarks.md. Times are the best of --repeat runs, with modules compiled before,
as an installation does. Memory is the peak of all processes of a reader together: their
private memory and the files in memory that they share. Pages of the trace itself, which
the system keeps and drops as it likes, are not counted.

Other readers are run once, if they are given; {} stands for the file:

    --beside 'HTA=/path/python -c "from hta.common.trace import *;
    parse_trace_file(\'{}\')"'
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.pages import put

from fusetui.text.figures import percent

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
README = ROOT / "README.md"
PYTHON = [sys.executable, "-P", "-c"]
LOADS = "import orjson, sys; orjson.loads(open(sys.argv[1], 'rb').read())"
OPEN = """
import sys, time
from fusetui.trace import open_trace
start = time.perf_counter()
trace = open_trace(sys.argv[1])
print(time.perf_counter() - start, trace.report.events)
"""
SUMMARY = [str(Path(sys.executable).with_name("fusetui")), "summary", "--json"]
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
LARGEST_BESIDE = 1_100_000_000  # bytes; with larger files other readers take minutes
EVERY = 0.02  # seconds between two samples of the memory

Rows = list[list[str]]


def seconds(
    command: Sequence[str], cores: int, env: Mapping[str, str] | None = None
) -> float:
    """Return the wall time in seconds of a whole process that may use so many cores."""
    start = time.perf_counter()
    _start(command, cores, env).wait()
    return time.perf_counter() - start


def peak(command: Sequence[str], cores: int) -> int:
    """Return the peak bytes of all processes of a command together, sampled every EVERY
    seconds."""
    process = _start(command, cores, None)
    most = 0
    while process.poll() is None:
        most = max(most, _memory(process.pid))
        time.sleep(EVERY)
    return most


def opening(path: Path, env: Mapping[str, str]) -> tuple[float, int]:
    """Return the seconds that open_trace alone takes, and the number of events."""
    command = [*PYTHON, OPEN, str(path)]
    told = subprocess.run(
        command, env={**ENVIRONMENT, **env}, capture_output=True, text=True, check=True
    )
    taken, events = told.stdout.split()
    return float(taken), int(events)


def _start(
    command: Sequence[str], cores: int, env: Mapping[str, str] | None
) -> subprocess.Popen[bytes]:
    """Start a command without output, on so many of the cores that this process may
    use."""
    chosen = sorted(os.sched_getaffinity(0))[:cores]
    return subprocess.Popen(
        command,
        env={**ENVIRONMENT, **(env or {})},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: os.sched_setaffinity(0, chosen),
    )


def _memory(root: int) -> int:
    """Return the private bytes of a process and its children, and of the files in
    memory that they hold. A file that several of them hold counts once."""
    total = 0
    files: dict[int, int] = {}
    for pid in _family(root):
        with suppress(OSError, ValueError):
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += 1024 * int(rollup.split("Pss_Anon:")[1].split()[0])
        with suppress(OSError):
            for file in Path(f"/proc/{pid}/fd").iterdir():
                if os.readlink(file).startswith("/memfd:"):
                    state = file.stat()
                    files[state.st_ino] = state.st_blocks * 512

    return total + sum(files.values())


def _family(root: int) -> Iterator[int]:
    """Yield the PID of a process and of all processes below it."""
    yield root
    with suppress(OSError):
        for child in Path(f"/proc/{root}/task/{root}/children").read_text().split():
            yield from _family(int(child))


def speed_rows(
    files: Iterable[Path], repeat: int, folder: Path, others: Mapping[str, str]
) -> tuple[list[str], Rows]:
    """Return the head and the rows of the table of times. All readers run in turn, so
    that changes of the machine affect all of them."""
    head = ["file", "events", "orjson.loads", "fusetui, 2 cores", "1 core", ".json.gz"]
    head += ["again", "again, whole command", *others]

    rows: Rows = []
    for file in files:
        packed = _packed(file)
        fresh, cache = (
            {"FUSETUI_CACHE": "off"},
            {"FUSETUI_CACHE": str(folder / "cache")},
        )
        size = file.stat().st_size
        times = int(max(2, min(repeat, 3e9 // size)))
        loads, two, one, gz = [
            min(column)
            for column in zip(
                *(
                    (
                        seconds([*PYTHON, LOADS, str(file)], 2),
                        seconds([*SUMMARY, str(file)], 2, fresh),
                        seconds([*SUMMARY, str(file)], 1, fresh),
                        seconds([*SUMMARY, str(packed)], 2, fresh),
                    )
                    for _ in range(times)
                ),
                strict=True,
            )
        ]
        first, events = opening(file, cache)
        again = min(opening(file, cache)[0] for _ in range(3))
        whole = min(seconds([*SUMMARY, str(file)], 2, cache) for _ in range(3))
        rows.append(
            [
                f"{size / 1e6:.0f} MB",
                f"{events:,}",
                f"{loads:.2f} s",
                f"{two:.2f} s ({two / loads:.2f})",
                f"{one:.2f} s ({one / loads:.2f})",
                f"{gz:.2f} s ({gz / two:.2f} of plain)",
                f"{again * 1000:.0f} ms ({percent(again, first, fine=True)} of the first time)",
                f"{whole:.2f} s",
                *(_beside(other, file, loads) for other in others.values()),
            ]
        )
        packed.unlink()
        print(" | ".join(rows[-1]), file=sys.stderr, flush=True)

    return head, rows


def memory_rows(files: Iterable[Path]) -> tuple[list[str], Rows]:
    """Return the head and the rows of the table of memory, with the bound that fusetui
    keeps."""
    rows: Rows = []
    for file in files:
        size = file.stat().st_size / 1e6
        ours = peak([*SUMMARY, "--no-cache", str(file)], 2) / 1e6
        loads = peak([*PYTHON, LOADS, str(file)], 2) / 1e6
        bound = f"{size + 120:.0f} MB"
        rows.append([f"{size:.0f} MB", f"{loads:.0f} MB", f"{ours:.0f} MB", bound])
        print(" | ".join(rows[-1]), file=sys.stderr, flush=True)

    return [
        "file",
        "orjson.loads",
        "fusetui, all processes",
        "bound (file + 120 MB)",
    ], rows


def growth_rows(
    source: Path, folder: Path, counts: Sequence[int]
) -> tuple[list[str], Rows]:
    """Return the head and the rows of the table of time per event of open_trace, for
    growing numbers of events."""
    rows: Rows = []
    probe = _made(source, folder, 50)

    _, events = opening(probe, {"FUSETUI_CACHE": "off"})
    per_event = probe.stat().st_size / events
    for count in counts:
        file = _made(source, folder, int(count * per_event / 1e6))
        tries = [
            opening(file, {"FUSETUI_CACHE": "off"})
            for _ in range(3 if count < 5e6 else 1)
        ]
        taken, events = min(tries)
        rows.append([f"{events:,}", f"{taken:.2f} s", f"{taken / events * 1e6:.2f} us"])
        print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
        file.unlink()

    return ["events", "open_trace", "per event"], rows


def _beside(other: str, file: Path, loads: float) -> str:
    """Return the time of another reader as a cell, or that it failed, as it may run out
    of memory. "" for a file that is too large for it."""
    if file.stat().st_size > LARGEST_BESIDE:
        return ""
    start = time.perf_counter()
    process = _start(
        [part.replace("{}", str(file)) for part in shlex.split(other)], 2, None
    )
    code = process.wait()
    taken = time.perf_counter() - start
    return f"failed ({code})" if code else f"{taken:.2f} s ({taken / loads:.2f})"


def _made(source: Path, folder: Path, megabytes: int) -> Path:
    """Make a trace of so many megabytes from a real one, and return its path."""
    target = folder / f"{megabytes}.json"
    script = str(ROOT / "benchmarks" / "generate.py")
    command = [sys.executable, "-P", script, str(source), str(target)]
    subprocess.run(
        [*command, "--megabytes", str(megabytes)], check=True, stdout=sys.stderr
    )
    return target


def _packed(file: Path) -> Path:
    """Compress a file with gzip, and return the path of the result beside it."""
    from isal import igzip

    target = file.with_suffix(".json.gz")
    with file.open("rb") as plain, igzip.open(target, "wb", compresslevel=3) as out:
        shutil.copyfileobj(plain, out, 1 << 22)
    return target


def markdown(head: Sequence[str], rows: Rows) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def machine() -> str:
    """Return the model of the processor, the version of Python, and the load of the
    machine."""
    model = platform.processor() or platform.machine()
    with suppress(OSError, IndexError):
        model = (
            Path("/proc/cpuinfo").read_text().split("model name\t: ")[1].split("\n")[0]
        )

    loads = ", ".join(f"{load:.1f}" for load in os.getloadavg())

    return (
        f"Measured on {model} with Python {platform.python_version()}; the load average "
        f"before the run was {loads}."
    )


def short_table(head: Sequence[str], rows: Rows, memory: Rows) -> str:
    """Return the most important figures of both tables as Markdown, for the README."""
    wanted = [
        "file",
        "orjson.loads",
        "fusetui, 2 cores",
        "again, whole command",
        *head[8:],
    ]
    places = [head.index(name) for name in wanted]
    names = [*wanted[:2], "fusetui", "opened again", *head[8:], "peak memory"]
    lines = [
        [*(row[n] for n in places), peak[2]]
        for row, peak in zip(rows, memory, strict=True)
    ]
    return markdown(names, lines)


def main() -> None:
    """Measure times, memory and growth, print the tables, and put them into
    docs/benchmarks.md and the README."""
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0] if __doc__ else None
    )
    parser.add_argument("source", type=Path, help="any real trace")
    parser.add_argument(
        "--megabytes", type=int, nargs="+", default=[50, 250, 1000, 2000]
    )
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--beside", metavar="NAME=COMMAND", action="append", default=[])
    parser.add_argument("--events", type=int, nargs="*", default=[10**5, 10**6, 10**7])
    args = parser.parse_args()
    place = machine()

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = [_made(args.source, folder, size) for size in args.megabytes]
        others = dict(other.split("=", 1) for other in args.beside)
        speed = speed_rows(files, args.repeat, folder, others)
        memory = memory_rows(files)
        for file in files:
            file.unlink()
        growth = markdown(*growth_rows(args.source, folder, args.events))

    text = (
        f"{place}\n\nTime of the whole process, in brackets as a share of orjson.loads:\n\n"
        f"{markdown(*speed)}\n\nMemory at the peak:\n\n{markdown(*memory)}\n\nGrowth:\n\n{growth}"
    )
    print(text)
    put(PAGE, "reading", text, __file__)
    put(README, "reading", short_table(*speed, memory[1]), __file__)


if __name__ == "__main__":
    main()
