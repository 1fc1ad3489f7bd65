"""Makes traces that are extreme in one respect, and measures what questions about them
cost.

    python -P benchmarks/extremes.py make devices 10000 devices.json python -P
    benchmarks/extremes.py measure kernels 1000000 --commands summary gaps why python -P
    benchmarks/extremes.py grow devices threads --count 5000 --commands gaps why

`measure` prints the peak of the resident memory and the processor time of each command,
`grow` how much more processor time twice the count takes: 2 is linear, 4 quadratic.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Event = dict[str, Any]

LEVELS = 1_000  # of `depth`: how deep the ops of one thread nest


def slice_of(
    cat: str, name: str, ts: float, dur: float, tid: int, **args: Any
) -> Event:
    pid = args.pop("pid", 1)
    event = {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": ts,
        "dur": dur,
    }
    return {**event, "args": args} if args else event


def launched(n: int, device: int = 0, stream: int = 7, **where: Any) -> Iterator[Event]:
    """An op, its launch call, and the kernel that it launches; 10 us for each."""
    at, tid, pid = 10 * n, where.get("tid", 1), where.get("pid", 1)
    number = where.get("correlation", n + 1)
    yield slice_of("cpu_op", where.get("op", "aten::add"), at, 4, tid, pid=pid)
    yield slice_of(
        "cuda_runtime", "cudaLaunchKernel", at + 1, 2, tid, pid=pid, correlation=number
    )
    args = {
        "device": device,
        "stream": stream,
        "correlation": number,
        **where.get("args", {}),
    }
    name = where.get("kernel", "add_kernel")
    yield slice_of("kernel", name, at + 5, 3, stream, pid=device, **args)


def kernels(count: int) -> Iterator[Event]:
    """Kernels of 1 ns on one stream, one each 2 ns, without launches."""
    for n in range(count):
        yield slice_of("kernel", "k", n * 0.002, 0.001, 7, pid=0, device=0, stream=7)


def kernels_named(names: int) -> Callable[[int], Iterator[Event]]:
    """Kernels without launches, a gap after each, that share so many names of 25
    characters."""

    def events(count: int) -> Iterator[Event]:
        for n in range(count):
            name = f"kernel_of_its_own_{n % names:07}"
            yield slice_of(
                "kernel", name, n * 0.002, 0.001, 7, pid=0, device=0, stream=7
            )

    return events


def depth(count: int) -> Iterator[Event]:
    """Ops that nest as deep as LEVELS, or as `count`."""
    for n in range(count):
        level = n % LEVELS
        at = 2 * LEVELS * 10 * (n // LEVELS) + level
        yield slice_of("cpu_op", f"op{level}", at, 2 * (LEVELS - level), 1)
        yield from launched(n) if level == LEVELS - 1 else ()


def deep(count: int) -> Iterator[Event]:
    """Python frames, each inside the one before."""
    for n in range(count):
        yield slice_of(
            "python_function", f"f.py({n % 97}): f", n, 2 * (count - n), 1,
            **{"Python id": n + 1, "Python parent id": n or None},
        )  # fmt: skip
    yield from launched(count // 10)


def modules(count: int) -> Iterator[Event]:
    """Calls of as many modules, one after another, each with a kernel."""
    for n in range(count):
        yield slice_of(
            "python_function", f"nn.Module: Linear_{n}", 10 * n, 9, 1,
            **{"Python id": n + 1, "Python parent id": None, "Python module id": n},
        )  # fmt: skip
        yield from launched(n)


def annotated(count: int) -> Iterator[Event]:
    """Annotations with names of their own, each around a kernel."""
    for n in range(count):
        yield slice_of("user_annotation", f"part {n}", 10 * n, 9, 1)
        yield from launched(n)


def steps(count: int) -> Iterator[Event]:
    for n in range(count):
        yield slice_of("user_annotation", f"ProfilerStep#{n}", 10 * n, 9.5, 1)
        yield from launched(n)


def each_launched(**varied: Callable[[int], Any]) -> Callable[[int], Iterator[Event]]:
    """Kernels with calls and ops, of which something is another in each."""

    def events(count: int) -> Iterator[Event]:
        for n in range(count):
            yield from launched(n, **{name: value(n) for name, value in varied.items()})

    return events


KINDS: dict[str, Callable[[int], Iterator[Event]]] = {
    "kernels": kernels,
    "hundred_names": kernels_named(100),
    "kernel_names": kernels_named(10**7),
    "devices": each_launched(device=lambda n: n),
    "two_each": lambda count: (
        event for n in range(2 * count) for event in launched(n, device=n % count)
    ),
    "streams": each_launched(stream=lambda n: n + 7),
    "threads": each_launched(tid=lambda n: n + 1),
    "processes": each_launched(pid=lambda n: n + 100_000),
    "one_correlation": each_launched(correlation=lambda _: 1),
    "names": each_launched(kernel=lambda n: f"kernel_{n}", op=lambda n: f"aten::op{n}"),
    "args": each_launched(args=lambda n: {"grid": [n + 1, 1, 1], "block": [32, 1, 1]}),
    "plain": each_launched(),
    "depth": depth,
    "deep": deep,
    "modules": modules,
    "annotations": annotated,
    "steps": steps,
}


def make(kind: str, count: int, target: Path) -> int:
    """Writes a trace; returns the number of its events."""
    events = 0
    with target.open("w") as out:
        out.write('{"traceEvents": [')
        for event in KINDS[kind](count):
            out.write((",\n" if events else "\n") + json.dumps(event))
            events += 1
        out.write("\n]}")
    return events


def cost(command: str, trace: Path) -> tuple[int, float]:
    """The peak of the resident memory (bytes, of the largest process) and the processor
    time (s) of one command, which is the only child of this process."""
    program = [
        sys.executable,
        "-P",
        "-m",
        "fusetui",
        command,
        str(trace),
        "--json",
        "--no-cache",
    ]
    with Path(os.devnull).open("w") as nothing:
        subprocess.run(program, stdout=nothing, check=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_maxrss * 1024, used.ru_utime + used.ru_stime


def measured(command: str, trace: Path) -> tuple[int, float]:
    """The same, by a process of its own."""
    again = [sys.executable, "-P", __file__, "cost", command, str(trace)]
    said = subprocess.run(
        again, capture_output=True, text=True, check=True
    ).stdout.split()
    return int(said[0]), float(said[1])


def measure(kind: str, count: int, commands: list[str], folder: Path) -> None:
    empty, trace = folder / "few.json", folder / f"{kind}.json"
    make(kind, 2, empty)
    events = make(kind, count, trace)
    print(f"{kind}: {events:,} events, {trace.stat().st_size / 1e6:.0f} MB")
    for command in commands:
        base, _ = measured(command, empty)
        peak, seconds = measured(command, trace)
        each = (peak - base) / events
        print(
            f"  {command:8} {peak / 1e6:7.0f} MB, {each:5.0f} B an event, {seconds:6.1f} s of CPU"
        )


def grow(kinds: list[str], count: int, commands: list[str], folder: Path) -> None:
    for kind in kinds:
        traces = [folder / f"{times}.json" for times in (1, 2)]
        for times, trace in enumerate(traces, 1):
            make(kind, times * count, trace)
        for command in commands:
            once, twice = (measured(command, trace)[1] for trace in traces)
            grown = f"{once:6.1f} s -> {twice:6.1f} s  {twice / once:.1f}"
            print(f"{kind:16} {command:8} {grown}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parsers = parser.add_subparsers(dest="task", required=True)
    for task in ("make", "measure"):
        own = parsers.add_parser(task)
        own.add_argument("kind", choices=KINDS)
        own.add_argument("count", type=int)
    parsers.choices["make"].add_argument("target", type=Path)
    growing = parsers.add_parser("grow")
    growing.add_argument("kinds", nargs="*", choices=[*KINDS, []], default=list(KINDS))
    growing.add_argument("--count", type=int, default=5_000)
    for task in ("measure", "grow"):
        asked = parsers.choices[task]
        asked.add_argument("--commands", nargs="+", default=["summary", "gaps", "why"])
    costing = parsers.add_parser("cost")
    costing.add_argument("command")
    costing.add_argument("trace", type=Path)
    args = parser.parse_args()
    if args.task == "make":
        print(f"{make(args.kind, args.count, args.target):,} events")
    elif args.task == "cost":
        print(*cost(args.command, args.trace))
    else:
        with tempfile.TemporaryDirectory() as folder:
            if args.task == "measure":
                measure(args.kind, args.count, args.commands, Path(folder))
            else:
                grow(args.kinds or list(KINDS), args.count, args.commands, Path(folder))


if __name__ == "__main__":
    main()
