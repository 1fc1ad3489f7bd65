"""Makes traces that are extreme in one respect, and measures what commands about them
cost.

    python -P benchmarks/extremes.py make devices 10000 devices.json
    python -P benchmarks/extremes.py measure kernels 1000000 --commands summary gaps why
    python -P benchmarks/extremes.py grow devices threads --count 5000 --commands why

`measure` prints the peak of the resident memory and the processor time of each command,
`grow` how much more processor time twice the count takes: 2 is linear, 4 quadratic.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

Event = dict[str, Any]
Maker = Callable[[int], Iterator[Event]]
"""Makes about as many events, or groups of events, as it is asked for."""

MAX_LEVELS = 1_000
"""How deep the ops of `depth` nest."""


def make_slice(
    cat: str, name: str, ts: float, dur: float, tid: int, pid: int = 1, **args: Any
) -> Event:
    """Return an event of a trace with a start and a duration in us. `args` are its
    args."""
    event: Event = {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": ts,
        "dur": dur,
    }
    if args:
        event["args"] = args

    return event


def launched(
    n: int,
    device: int = 0,
    stream: int = 7,
    pid: int = 1,
    tid: int = 1,
    op: str = "aten::add",
    kernel: str = "add_kernel",
    correlation: int | None = None,
    args: Mapping[str, Any] | None = None,
) -> Iterator[Event]:
    """Yield an op, its launch call, and the kernel that it launches, 10 us after those
    of n - 1. `args` are more args of the kernel."""
    ts = 10 * n

    if correlation is None:
        correlation = n + 1

    yield make_slice("cpu_op", op, ts, 4, tid, pid=pid)
    yield make_slice(
        "cuda_runtime",
        "cudaLaunchKernel",
        ts + 1,
        2,
        tid,
        pid=pid,
        correlation=correlation,
    )
    kernel_args = {
        "device": device,
        "stream": stream,
        "correlation": correlation,
        **(args or {}),
    }
    yield make_slice("kernel", kernel, ts + 5, 3, stream, pid=device, **kernel_args)


def kernels(count: int) -> Iterator[Event]:
    """Yield kernels of 1 ns on one stream, one each 2 ns, without launches."""
    for n in range(count):
        yield make_slice("kernel", "k", n * 0.002, 0.001, 7, pid=0, device=0, stream=7)


def name_kernels(names: int) -> Maker:
    """Return a maker of kernels without launches, with a gap after each, that share
    `names` names of 25 characters."""

    def events(count: int) -> Iterator[Event]:
        for n in range(count):
            name = f"kernel_of_its_own_{n % names:07}"
            yield make_slice(
                "kernel", name, n * 0.002, 0.001, 7, pid=0, device=0, stream=7
            )

    return events


def depth(count: int) -> Iterator[Event]:
    """Yield ops that nest 1,000 deep, or as deep as `count`; the innermost one launches
    a kernel."""
    for n in range(count):
        level = n % MAX_LEVELS
        ts = 2 * MAX_LEVELS * 10 * (n // MAX_LEVELS) + level
        yield make_slice("cpu_op", f"op{level}", ts, 2 * (MAX_LEVELS - level), 1)
        if level == MAX_LEVELS - 1:
            yield from launched(n)


def deep(count: int) -> Iterator[Event]:
    """Yield Python frames, each inside the one before, and then a launch."""
    for n in range(count):
        ids: dict[str, Any] = {"Python id": n + 1, "Python parent id": n or None}
        name = f"f.py({n % 97}): f"
        yield make_slice("python_function", name, n, 2 * (count - n), 1, **ids)
    yield from launched(count // 10)


def modules(count: int) -> Iterator[Event]:
    """Yield calls of `count` modules, one after another, each with a kernel."""
    for n in range(count):
        ids: dict[str, Any] = {
            "Python id": n + 1,
            "Python parent id": None,
            "Python module id": n,
        }
        yield make_slice(
            "python_function", f"nn.Module: Linear_{n}", 10 * n, 9, 1, **ids
        )
        yield from launched(n)


def annotated(count: int) -> Iterator[Event]:
    """Yield `count` annotations with names of their own, each around a kernel."""
    for n in range(count):
        yield make_slice("user_annotation", f"part {n}", 10 * n, 9, 1)
        yield from launched(n)


def steps(count: int) -> Iterator[Event]:
    """Yield `count` steps of the profiler, each around a kernel."""
    for n in range(count):
        yield make_slice("user_annotation", f"ProfilerStep#{n}", 10 * n, 9.5, 1)
        yield from launched(n)


def vary_launches(**varied: Callable[[int], Any]) -> Maker:
    """Return a maker of kernels with calls and ops. Each argument of `launched` that is
    named here is computed from the number of the kernel."""

    def events(count: int) -> Iterator[Event]:
        for n in range(count):
            arguments = {name: value(n) for name, value in varied.items()}
            yield from launched(n, **arguments)

    return events


def make_two_on_each_device(count: int) -> Iterator[Event]:
    """Yield two kernels on each of `count` devices."""
    for n in range(2 * count):
        yield from launched(n, device=n % count)


KINDS: dict[str, Maker] = {
    "kernels": kernels,
    "hundred_names": name_kernels(100),
    "kernel_names": name_kernels(10**7),
    "devices": vary_launches(device=lambda n: n),
    "two_each": make_two_on_each_device,
    "streams": vary_launches(stream=lambda n: n + 7),
    "threads": vary_launches(tid=lambda n: n + 1),
    "processes": vary_launches(pid=lambda n: n + 100_000),
    "one_correlation": vary_launches(correlation=lambda _: 1),
    "names": vary_launches(kernel=lambda n: f"kernel_{n}", op=lambda n: f"aten::op{n}"),
    "args": vary_launches(args=lambda n: {"grid": [n + 1, 1, 1], "block": [32, 1, 1]}),
    "plain": vary_launches(),
    "depth": depth,
    "deep": deep,
    "modules": modules,
    "annotations": annotated,
    "steps": steps,
}


class Cost(NamedTuple):
    """Of a command: the peak of the resident memory of its largest process, and the
    processor time of all."""

    peak_bytes: int
    cpu_seconds: float


def make(kind: str, count: int, target: Path) -> int:
    """Write a trace of this kind to `target` and return the number of its events."""
    events = 0
    with target.open("wb") as out:
        out.write(b'{"traceEvents": [')
        for event in KINDS[kind](count):
            out.write(b",\n" if events else b"\n")
            out.write(orjson.dumps(event))
            events += 1
        out.write(b"\n]}")
    return events


def cost(command: str, trace: Path) -> Cost:
    """Run a command about a trace and return its cost. It must be the only child of
    this process so far, because the system adds up all children."""
    arguments = ["-m", "fusetui", command, str(trace), "--json", "--no-cache"]
    subprocess.run(
        [sys.executable, "-P", *arguments], stdout=subprocess.DEVNULL, check=True
    )
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(
        peak_bytes=used.ru_maxrss * 1024,
        cpu_seconds=used.ru_utime + used.ru_stime,
    )


def measured(command: str, trace: Path) -> Cost:
    """Return the cost of a command about a trace, measured by a process of its own."""
    printed = subprocess.run(
        [sys.executable, "-P", __file__, "cost", command, str(trace)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    peak_bytes, cpu_seconds = printed.split()
    return Cost(peak_bytes=int(peak_bytes), cpu_seconds=float(cpu_seconds))


def measure(kind: str, count: int, command_names: Sequence[str], folder: Path) -> None:
    """Print what each command costs for a trace of this kind, and its memory for each
    event. The memory for a trace with hardly any events is subtracted."""
    tiny = folder / "few.json"
    make(kind, 2, tiny)
    trace = folder / f"{kind}.json"
    events = make(kind, count, trace)
    print(f"{kind}: {events:,} events, {trace.stat().st_size / 1e6:.0f} MB")

    for command in command_names:
        tiny_bytes = measured(command, tiny).peak_bytes
        peak_bytes, cpu_seconds = measured(command, trace)
        bytes_per_event = (peak_bytes - tiny_bytes) / events
        print(
            f"  {command:8} {peak_bytes / 1e6:7.0f} MB, {bytes_per_event:5.0f} B an event, "
            f"{cpu_seconds:6.1f} s of CPU"
        )


def grow(
    kinds: Sequence[str], count: int, command_names: Sequence[str], folder: Path
) -> None:
    """Print how much more processor time each command takes for twice the count."""
    trace = folder / "1.json"
    twice_trace = folder / "2.json"
    for kind in kinds:
        make(kind, count, trace)
        make(kind, 2 * count, twice_trace)
        for command in command_names:
            once = measured(command, trace).cpu_seconds
            twice = measured(command, twice_trace).cpu_seconds
            grown = f"{once:6.1f} s -> {twice:6.1f} s  {twice / once:.1f}"
            print(f"{kind:16} {command:8} {grown}", flush=True)


def main() -> None:
    """Make a trace, measure commands about one, or print how their cost grows, as the
    command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    tasks = parser.add_subparsers(dest="task", required=True)
    making = tasks.add_parser("make")
    making.add_argument("kind", choices=KINDS)
    making.add_argument("count", type=int)
    making.add_argument("target", type=Path)
    measuring = tasks.add_parser("measure")
    measuring.add_argument("kind", choices=KINDS)
    measuring.add_argument("count", type=int)
    growing = tasks.add_parser("grow")
    growing.add_argument("kinds", nargs="*", choices=[*KINDS, []], default=list(KINDS))
    growing.add_argument("--count", type=int, default=5_000)

    for task in (measuring, growing):
        task.add_argument("--commands", nargs="+", default=["summary", "gaps", "why"])

    costing = tasks.add_parser("cost")
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
