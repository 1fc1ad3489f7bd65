"""One CPU thread and one CUDA stream: what runs on them, step by step, and what is
recorded.

The thread's clock advances by what each op and frame costs by itself. A kernel starts
when its launch has reached the GPU and the kernel before it has ended: everything else,
the queue and the idle time, follows from that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from docs.lessons import figures
from docs.lessons.device import Launch
from docs.lessons.figures import OWN_TIME, Figure
from docs.lessons.tensors import Allocator, Argument, Tensor, contiguous, described

START_NS = 5_000_000_000_000_000
"""Where the clock of every lesson starts. It was never this time anywhere."""
ADDRESS = 0x7F2000000000
CBID = {
    "cudaDeviceSynchronize": 165,
    "cudaOccupancyMaxActiveBlocksPerMultiprocessor": 210,
    "cudaLaunchKernel": 211,
    "cuLaunchKernel": 307,
}
"""CUPTI's numbers of the calls."""


@dataclass
class Slice:
    """What has a start and a duration; `number` counts the slices of its kind from
    1."""

    name: str
    start: int
    number: int
    dur: int = 0
    args: dict[str, Any] = field(default_factory=dict)


@dataclass
class Call(Slice):
    """A call into CUDA, and the op that made it (0: none)."""

    op: int = 0

    @property
    def is_driver(self) -> bool:
        return self.name.startswith("cu") and not self.name.startswith("cuda")

    @property
    def correlation(self) -> int:
        return self.number


@dataclass(frozen=True)
class Kernel:
    name: str
    start: int
    dur: int
    launch: Launch
    call: Call

    @property
    def end(self) -> int:
        return self.start + self.dur


@dataclass(frozen=True)
class Memory:
    """An allocation, or with negative bytes a free."""

    at: int
    address: int
    nbytes: int
    allocated: int
    reserved: int


@dataclass
class Recorded:
    """What the profiler saw, each kind in the order of its starts."""

    start: int
    end: int = 0
    ops: list[Slice] = field(default_factory=list)
    annotations: list[Slice] = field(default_factory=list)
    frames: list[Slice] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    memory: list[Memory] = field(default_factory=list)


class Machine:
    def __init__(self) -> None:
        self.now = START_NS
        self.recorded = Recorded(self.now)
        self._memory = Allocator(ADDRESS)
        self._gpu_free = self.now
        self._correlation = 0
        self._external = 0
        self._ops: list[int] = []  # External ids of the open ops
        self._frames: list[int] = []

    def start_recording(self) -> None:
        """Forgets what ran until now; ids of ops start anew, correlations do not."""
        self.recorded = Recorded(self.now)
        self._external = 0

    @contextmanager
    def op(self, name: str, *arguments: Argument, **args: object) -> Iterator[None]:
        """An op around what it calls."""
        before, after = OWN_TIME[name]
        found = Slice(name, self.now, self._next_external())
        found.args = {**(described(arguments) if arguments else {}), **args}
        self.recorded.ops.append(found)
        self._ops.append(found.number)
        self.now += before
        yield
        self.now += after
        self._ops.pop()
        found.dur = self.now - found.start

    def leaf(self, name: str, *arguments: Argument) -> None:
        """An op that calls nothing."""
        with self.op(name, *arguments):
            pass

    @contextmanager
    def frame(self, name: str, module: int | None = None) -> Iterator[None]:
        """A Python frame; `module` is the number of the nn.Module that it is the call
        of."""
        found = Slice(name, self.now, len(self.recorded.frames) + 1)
        found.args["Python parent id"] = self._frames[-1] if self._frames else None
        found.args["Python id"] = found.number
        if module is not None:
            found.args["Python module id"] = module
        self.recorded.frames.append(found)
        self._frames.append(found.number)
        self.now += figures.FRAME_IN.ns
        yield
        self.now += figures.FRAME_OUT.ns
        self._frames.pop()
        found.dur = self.now - found.start

    @contextmanager
    def frames(self, *names: str) -> Iterator[None]:
        """Frames, one inside the other."""
        if not names:
            yield
            return
        with self.frame(names[0]), self.frames(*names[1:]):
            yield

    def builtin(self, name: str) -> None:
        """A built-in function that does next to nothing."""
        with self.frame(name):
            pass

    def begin(self, name: str, **args: object) -> Slice:
        """Opens an annotation."""
        found = Slice(name, self.now, self._next_external(), args=args)
        self.recorded.annotations.append(found)
        return found

    def end(self, annotation: Slice) -> None:
        annotation.dur = self.now - annotation.start

    def query_occupancy(self) -> None:
        """What cuBLAS asks before it launches a GEMM."""
        self._call("cudaOccupancyMaxActiveBlocksPerMultiprocessor", figures.OCCUPANCY)
        self.now += figures.BETWEEN_QUERY_AND_LAUNCH

    def launch(
        self, kernel: str, time: Figure, launch: Launch, by_driver: bool = False
    ) -> None:
        """Puts a kernel into the stream's queue."""
        reaches = self.now + figures.LATENCY.ns
        if by_driver:
            call = self._call("cuLaunchKernel", figures.DRIVER_LAUNCH)
        else:
            call = self._call("cudaLaunchKernel", figures.LAUNCH)
        start = max(reaches, self._gpu_free + figures.GAP.ns)
        self.recorded.kernels.append(Kernel(kernel, start, time.ns, launch, call))
        self._gpu_free = start + time.ns

    def synchronize(self) -> None:
        """Waits for the stream."""
        call = self._call("cudaDeviceSynchronize", figures.SYNCHRONIZE)
        self.now = max(self.now, self._gpu_free + figures.AFTER_SYNC.ns)
        call.dur = self.now - call.start

    def empty(self, *shape: int) -> Tensor:
        """A new tensor."""
        tensor = Tensor(shape, contiguous(shape))
        address = self._memory.allocate(tensor.nbytes)
        self._remember(address, tensor.nbytes)
        return Tensor(shape, tensor.strides, address)

    def free(self, tensor: Tensor) -> None:
        self._memory.release(tensor.address, tensor.nbytes)
        self._remember(tensor.address, -tensor.nbytes)

    def _remember(self, address: int, nbytes: int) -> None:
        allocated, reserved = self._memory.allocated, self._memory.reserved
        self.recorded.memory.append(
            Memory(self.now, address, nbytes, allocated, reserved)
        )

    def _call(self, name: str, time: Figure) -> Call:
        self._correlation += 1
        op = self._ops[-1] if self._ops else 0
        call = Call(
            name, self.now, self._correlation, time.ns, {"cbid": CBID[name]}, op
        )
        self.recorded.calls.append(call)
        self.now += time.ns
        return call

    def _next_external(self) -> int:
        self._external += 1
        return self._external
