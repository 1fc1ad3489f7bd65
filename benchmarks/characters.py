"""How reading depends on what a trace is like: `fusetui summary --json` beside
`orjson.loads`, as whole processes, by the clock, by the processors and by memory.

    python -P benchmarks/characters.py TRACES --megabytes 100 --hta PYTHON

TRACES is a folder with the real traces that SOURCES names. Each is repeated (see
generate.py), some are changed for it: metadata after each event, absolute times with
more digits than a float holds, a thread for each few events. Deep stacks and wide args
are made. The two programs run in turn; times are the least of --repeat runs. Memory is
that of all processes (see reading.py). A .pftrace is compared with orjson.loads of the
JSON of the same events. `--hta` names a Python that has HolisticTraceAnalysis, whose
Trace reads the same JSON, once. The tables go into docs/benchmarks.md and the README.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import generate, generate_pftrace
from benchmarks.pages import put
from benchmarks.reading import (
    ENVIRONMENT,
    LOADS,
    PAGE,
    PYTHON,
    README,
    SUMMARY,
    Rows,
    machine,
    markdown,
    peak,
)

SOURCES = {
    "ordinary": "h100_owlv2",
    "small events": "rtx2080ti_linear",
    "metadata at each event": "mtia_inference",
    "deep stacks": "",
    "CUDA graphs": "mi300_sglang_decode_graph",
    "thousands of threads": "rtx2080ti_linear",
    "wide args": "",
    "inexact floats": "rtx2080ti_linear",
    ".pftrace": "../pftrace/a100_nccl_ddp_full",
}
TS = re.compile(rb'"ts": ?(\d+)(?:\.\d+)?')
TID = re.compile(rb'("tid": ?)(\d+)')
BETWEEN = re.compile(rb"\}\s*,\s*(?=\{\s*\"ph\")")
LABEL = b'{"name":"thread_name","ph":"M","ts":0,"pid":1,"tid":%d,"args":{"name":"thread %d (worker)"}}'
LABELS, THREADS, DEPTH, EPOCH = 22, 4_000, 60, 1_712_195_000_000_000


def with_labels(text: bytes) -> bytes:
    """Return the JSON text of a trace with two metadata events after each event, of
    LABELS different ones."""
    numbers = iter(range(1 << 40))

    def more(_: re.Match[bytes]) -> bytes:
        both = (
            LABEL % (n, n) for n in (next(numbers) % LABELS, next(numbers) * 7 % LABELS)
        )
        return b"},\n" + b",\n".join(both) + b",\n"

    return BETWEEN.sub(more, text)


def inexact(text: bytes) -> bytes:
    """Return the JSON text of a trace with times since 1970 and with nanoseconds, which
    have more digits than a float holds."""
    return TS.sub(
        lambda m: b'"ts": %d.%03d' % (EPOCH + int(m[1]) % 10**12, int(m[1]) % 997), text
    )


def many_threads(text: bytes) -> bytes:
    """Return the JSON text of a trace in which the events of each thread are spread
    over THREADS threads, four in turn on each."""
    numbers = iter(range(1 << 40))
    return TID.sub(
        lambda m: b"%b%d" % (m[1], int(m[2]) + next(numbers) // 4 % THREADS), text
    )


CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "metadata at each event": with_labels,
    "inexact floats": inexact,
    "thousands of threads": many_threads,
}


def deep_stacks() -> Iterator[str]:
    """Yield events without end: Python frames that nest DEPTH deep."""
    for number in range(1 << 40):
        level, stack = number % DEPTH, number // DEPTH
        start, dur = stack * 200 + level, 2 * (DEPTH - level)
        args = f'{{"Python id": {number}, "Python parent id": {number - 1}, "Ev Idx": {number}}}'
        yield (
            f'{{"ph": "X", "cat": "python_function", "name": "model/layers.py({level}): forward", '
            f'"pid": 7, "tid": 7, "ts": {start}.125, "dur": {dur}.250, "args": {args}}}'
        )


def wide_args() -> Iterator[str]:
    """Yield events without end: ops with 3 kB of shapes each."""
    shapes = ", ".join("[32, 1024, 4096]" for _ in range(120))
    kinds = ", ".join('"c10::BFloat16"' for _ in range(60))
    for number in range(1 << 40):
        args = f'{{"External id": {number}, "Input Dims": [{shapes}], "Input type": [{kinds}]}}'
        yield (
            f'{{"ph": "X", "cat": "cpu_op", "name": "aten::cat", "pid": 7, "tid": 7, '
            f'"ts": {number * 10}.125, "dur": 9.250, "args": {args}}}'
        )


MADE: dict[str, Callable[[], Iterator[str]]] = {
    "deep stacks": deep_stacks,
    "wide args": wide_args,
}


def write(path: Path, events: Iterator[str], size: int) -> None:
    """Write events to a trace at `path` until it has more than `size` bytes."""
    with path.open("w") as out:
        out.write('{"traceEvents": [\n')
        for number, event in enumerate(events):
            out.write(",\n" * bool(number) + event)
            if out.tell() > size:
                break
        out.write("\n]}\n")


def files(character: str, traces: Path, size: int, folder: Path) -> tuple[Path, Path]:
    """Make a trace of this character with about `size` bytes. Returns the path of the
    JSON, and the path of the file that fusetui reads, mostly the same."""
    path = folder / f"{character.replace(' ', '_').strip('.')}.json"
    if made := MADE.get(character):
        write(path, made(), size)
        return path, path

    source = traces / f"{SOURCES[character]}.json.gz"
    change = CHANGES.get(character)
    copies = generate.generate(
        source, path, size // 2 if change is with_labels else size
    )

    if change:
        path.write_bytes(change(path.read_bytes()))

    if character != ".pftrace":
        return path, path

    other = path.with_suffix(".pftrace")
    generate_pftrace.generate(
        source.with_suffix("").with_suffix(".pftrace.gz"), other, copies
    )
    return path, other


def used(command: Sequence[str]) -> tuple[float, float, int]:
    """Return the seconds of a process and its children, by the clock and of the
    processors, and the most bytes that one of them held. Raises RuntimeError if it
    fails."""
    start = time.perf_counter()
    environment = {**ENVIRONMENT, "FUSETUI_CACHE": "off"}
    nowhere = subprocess.DEVNULL
    process = subprocess.Popen(command, env=environment, stdout=nowhere, stderr=nowhere)
    _, status, usage = os.wait4(process.pid, 0)

    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command} ended with {process.returncode}")

    return (
        time.perf_counter() - start,
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss * 1024,
    )


HTA = """
import logging, sys
logging.disable(logging.CRITICAL)
from hta.common.trace import Trace
Trace(trace_files={0: sys.argv[1]}).parse_traces(use_multiprocessing=False)
"""


def of_hta(python: str | None, json: Path) -> list[str]:
    """Return the time and the memory that HTA needs to read a trace, as a cell of the
    table. Empty if no Python with HTA is given."""
    if not python:
        return []
    try:
        clock, _, memory = used([python, "-P", "-c", HTA, str(json)])
    except RuntimeError:
        return ["fails"]
    return [f"{clock:.1f} s, {memory / 1e6:.0f} MB"]


def row(character: str, json: Path, file: Path, repeat: int) -> list[str]:
    """Return the cells of a line of the table. Both programs run in turn, and the least
    time of each counts."""
    loads, ours = [*PYTHON, LOADS, str(json)], [*SUMMARY, "--no-cache", str(file)]
    pairs = [(used(loads)[:2], used(ours)[:2]) for _ in range(repeat)]
    (clock, cpu), (our_clock, our_cpu) = (
        map(min, zip(*runs, strict=True)) for runs in zip(*pairs, strict=True)
    )
    memory, our_memory = peak(loads, 2) / 1e6, peak(ours, 2) / 1e6
    size = json.stat().st_size / 1e6

    return [
        character,
        f"{size:.0f} MB",
        f"{clock:.2f} s",
        f"{our_clock:.2f} s ({our_clock / clock:.2f})",
        f"{cpu:.2f} s",
        f"{our_cpu:.2f} s ({our_cpu / cpu:.2f})",
        f"{memory:.0f} MB",
        f"{our_memory:.0f} MB ({our_memory / size:.2f} of the file)",
    ]


def main() -> None:
    """Measure all characters, print the table, and with --put write it into the pages."""
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0] if __doc__ else None
    )
    parser.add_argument("traces", type=Path, help="the folder of real traces")
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--hta", help="a Python that has HolisticTraceAnalysis")
    parser.add_argument(
        "--put", action="store_true", help="write the tables into the pages"
    )
    args = parser.parse_args()
    place = machine()

    rows: Rows = []
    for character in SOURCES:
        with tempfile.TemporaryDirectory() as name:
            paths = files(
                character, args.traces, args.megabytes * 1_000_000, Path(name)
            )
            rows.append(
                [*row(character, *paths, args.repeat), *of_hta(args.hta, paths[0])]
            )
            print(" | ".join(rows[-1]), file=sys.stderr, flush=True)

    head = [
        "trace",
        "JSON",
        "orjson.loads",
        "fusetui",
        "of the processors",
        "fusetui",
        "memory",
    ]
    text = f"{place}\n\n{markdown([*head, 'fusetui', *['HTA'] * bool(args.hta)], rows)}"
    print(text)

    if args.put:
        put(PAGE, "characters", text, __file__)
        short = [[line[n] for n in (0, 1, 4, 5, 7)] for line in rows]
        names = ["trace", "JSON", "orjson.loads", "fusetui", "peak memory"]
        put(README, "characters", markdown(names, short), __file__)


if __name__ == "__main__":
    main()
