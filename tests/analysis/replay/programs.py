"""Invented programs as data: what host threads do, call by call, and the machine that
they run on.

All times are whole nanoseconds. Nothing here knows how fusetui reads traces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count

OP, FRAME, NOTE = "cpu_op", "python_function", "user_annotation"
KERNEL, MEMCPY, MEMSET = "kernel", "gpu_memcpy", "gpu_memset"
MAIN, ENGINE, DEFAULT_STREAM = 4100, 4190, 7


@dataclass(frozen=True)
class Own:
    """The thread works by itself."""

    ns: int


@dataclass(frozen=True)
class Call:
    """A runtime call that neither launches nor waits."""

    name: str
    ns: int


@dataclass(frozen=True)
class Item:
    """Work of the GPU. `key` names it in every version of a program: its residuals hang
    on it."""

    name: str
    ns: int
    stream: int = DEFAULT_STREAM
    kind: str = KERNEL
    bytes: int = 0
    key: int = 0


@dataclass(frozen=True)
class Launch:
    """A call that gives one item to its stream: its own time is `ns`, beside waiting
    for room."""

    item: Item
    ns: int
    name: str = "cudaLaunchKernel"


@dataclass(frozen=True)
class GraphLaunch:
    """One call that gives all its items, each to its stream, in this order."""

    items: tuple[Item, ...]
    ns: int
    name: str = "cudaGraphLaunch"


@dataclass(frozen=True)
class Copy:
    """A copy for which its call waits; `ns` from the end of the copy until the call
    returns."""

    item: Item
    ns: int
    name: str = "cudaMemcpyAsync"


@dataclass(frozen=True)
class Record:
    """An event is recorded in a stream."""

    event: int
    stream: int
    ns: int


@dataclass(frozen=True)
class WaitEvent:
    """What this stream gets from here on waits for the event."""

    event: int
    stream: int
    ns: int


@dataclass(frozen=True)
class Sync:
    """The thread waits for a stream, an event (`on` is its number) or the device; `ns`
    from the end of what it waits for until the call returns."""

    what: str  # stream, event, device
    ns: int
    on: int = DEFAULT_STREAM
    name: str = ""

    @property
    def call(self) -> str:
        return self.name or f"cuda{self.what.title()}Synchronize"


@dataclass(frozen=True)
class Next:
    """The next batch of a DataLoader. Without workers the thread makes it in `ns`; with
    workers it waits for the one that makes it in `ns` each, `ahead` batches at most
    before they are taken, and `delay` until it has it."""

    ns: int
    workers: int = 0
    ahead: int = 2
    delay: int = 0


@dataclass(frozen=True)
class Range:
    """An op, an annotation or a Python frame around what it does. `forward` and
    `backward` number a pair of ops that autograd links."""

    kind: str
    name: str
    body: tuple[Host, ...]
    forward: int = 0
    backward: int = 0
    dims: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class Backward:
    """The thread calls autograd's engine: `enter` until its thread begins, `leave`
    until the call returns after it has ended."""

    body: tuple[Host, ...]
    enter: int
    leave: int
    framed: bool = True  # a Python frame shows the call
    thread: int = ENGINE


Host = (
    Own
    | Call
    | Launch
    | GraphLaunch
    | Copy
    | Record
    | WaitEvent
    | Sync
    | Next
    | Range
    | Backward
)


@dataclass(frozen=True)
class Machine:
    """`latency`: from the start of a launch call until its item may start. `switch`:
    from the end of an item until the next one of its stream may start; below 0 they
    overlap. `depth`: as many items are in flight at most, from their launch to their
    end; a launch call waits for room."""

    latency: int = 4000
    switch: int = 0
    depth: int = 1024
    records_syncs: bool = True  # cuda_sync events name streams and events


@dataclass(frozen=True)
class Thread:
    body: tuple[Host, ...]
    start: int = 0
    number: int = MAIN


@dataclass(frozen=True)
class Program:
    threads: tuple[Thread, ...]
    machine: Machine = Machine()


def op(name: str, *body: Host, dims: tuple[tuple[int, ...], ...] = ()) -> Range:
    return Range(OP, name, body, dims=dims)


def frame(name: str, *body: Host) -> Range:
    return Range(FRAME, name, body)


def note(name: str, *body: Host) -> Range:
    return Range(NOTE, name, body)


def steps(*bodies: tuple[Host, ...]) -> tuple[Host, ...]:
    """Each body in a step of the profiler."""
    return tuple(
        note(f"ProfilerStep#{number}", *body) for number, body in enumerate(bodies, 3)
    )


def program(*body: Host, machine: Machine | None = None) -> Program:
    """One thread does all, with numbered items."""
    return numbered(Program((Thread(body),), machine or Machine()))


Edit = Callable[[Host], tuple[Host, ...]]


def mapped(body: tuple[Host, ...], edit: Edit) -> tuple[Host, ...]:
    """What `edit` makes of each thing done, from the innermost out."""
    return tuple(_edited(body, edit))


def _edited(body: tuple[Host, ...], edit: Edit) -> Iterator[Host]:
    for host in body:
        if isinstance(host, Range | Backward):
            host = replace(host, body=mapped(host.body, edit))
        yield from edit(host)


def everywhere(whole: Program, edit: Edit) -> Program:
    """The program with `edit` applied in all threads."""
    threads = tuple(replace(one, body=mapped(one.body, edit)) for one in whole.threads)
    return replace(whole, threads=threads)


def on_items(edit: Callable[[Item], Item]) -> Edit:
    """The edit that changes each item where it is launched."""

    def apply(host: Host) -> tuple[Host, ...]:
        if isinstance(host, Launch | Copy):
            return (replace(host, item=edit(host.item)),)
        if isinstance(host, GraphLaunch):
            return (replace(host, items=tuple(edit(item) for item in host.items)),)
        return (host,)

    return apply


def numbered(whole: Program) -> Program:
    """The program whose items have keys of their own, to be given before anything is
    changed."""
    keys = count(1)
    return everywhere(whole, on_items(lambda item: replace(item, key=next(keys))))
