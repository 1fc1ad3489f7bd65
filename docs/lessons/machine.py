"""A simulated machine with one CPU thread and one CUDA stream, and its recording.

The clock of the thread advances by the self time of each op and frame. A kernel
starts when its launch has reached the GPU and the previous kernel has ended. The
queue and the idle time follow from these rules. All times are in ns.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from docs.lessons import figures
from docs.lessons.device import Launch
from docs.lessons.figures import OWN_TIME, Figure
from docs.lessons.tensors import (
    Allocator,
    Argument,
    Tensor,
    contiguous,
    described,
    nbytes_of,
)

START_NS = 5_000_000_000_000_000
"""Where the clock of every lesson starts; not the time of any real run."""
FIRST_ADDRESS = 0x7F2000000000
CBID = {
    "cudaDeviceSynchronize": 165,
    "cudaOccupancyMaxActiveBlocksPerMultiprocessor": 210,
    "cudaLaunchKernel": 211,
    "cuLaunchKernel": 307,
}
"""CUPTI's numbers of the calls."""


@dataclass
class Slice:
    """An op, annotation, frame or call. `number` identifies it among the slices of
    the same kind, starting from 1."""

    name: str
    start: int
    number: int
    dur: int = 0
    args: dict[str, Any] = field(default_factory=dict)


@dataclass
class Call(Slice):
    """A call into CUDA, and the External id of its op (0: none)."""

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
    """An allocation, or a free if the number of bytes is negative."""

    at: int
    address: int
    nbytes: int
    allocated: int
    reserved: int


@dataclass
class Recorded:
    """The recorded slices of each kind, ordered by their start."""

    start: int
    end: int = 0
    ops: list[Slice] = field(default_factory=list)
    annotations: list[Slice] = field(default_factory=list)
    frames: list[Slice] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    memory: list[Memory] = field(default_factory=list)


class Machine:
    """A simulated machine. Its methods run an operation, advance `now`, and record
    it."""

    def __init__(self) -> None:
        self.now = START_NS
        self.recorded = Recorded(self.now)
        self._allocator = Allocator(FIRST_ADDRESS)
        self._gpu_free_at = self.now
        self._last_correlation = 0
        self._last_external_id = 0
        self._open_ops: list[int] = []  # their External ids, the innermost last
        self._open_frames: list[int] = []  # their numbers, the innermost last

    def start_recording(self) -> None:
        """Discard everything recorded so far. External ids restart at 1;
        correlations continue."""
        self.recorded = Recorded(self.now)
        self._last_external_id = 0

    @contextmanager
    def op(self, name: str, *arguments: Argument, **args: object) -> Iterator[None]:
        """Record an op around the block. `args` are additional args of its event."""
        before_ns, after_ns = OWN_TIME[name]
        op = Slice(name=name, start=self.now, number=self._next_external_id())
        if arguments:
            op.args |= described(arguments)
        op.args |= args
        self.recorded.ops.append(op)
        self._open_ops.append(op.number)
        self.now += before_ns
        yield
        self.now += after_ns
        self._open_ops.pop()
        op.dur = self.now - op.start

    def leaf(self, name: str, *arguments: Argument) -> None:
        """Record an op without children."""
        with self.op(name, *arguments):
            pass

    @contextmanager
    def frame(self, name: str, module: int | None = None) -> Iterator[None]:
        """Record a Python frame around the block. For the call of an nn.Module,
        `module` is the number of the module."""
        number = len(self.recorded.frames) + 1
        frame = Slice(name=name, start=self.now, number=number)
        parent = self._open_frames[-1] if self._open_frames else None
        frame.args["Python parent id"] = parent
        frame.args["Python id"] = number
        if module is not None:
            frame.args["Python module id"] = module
        self.recorded.frames.append(frame)
        self._open_frames.append(number)
        self.now += figures.FRAME_IN.ns
        yield
        self.now += figures.FRAME_OUT.ns
        self._open_frames.pop()
        frame.dur = self.now - frame.start

    @contextmanager
    def frames(self, *names: str) -> Iterator[None]:
        """Record nested frames around the block."""
        if not names:
            yield
            return
        with self.frame(names[0]), self.frames(*names[1:]):
            yield

    def builtin(self, name: str) -> None:
        """Record a frame of a built-in function without children."""
        with self.frame(name):
            pass

    def begin(self, name: str, **args: object) -> Slice:
        """Begin an annotation; `end` ends it."""
        annotation = Slice(
            name=name, start=self.now, number=self._next_external_id(), args=args
        )
        self.recorded.annotations.append(annotation)
        return annotation

    def end(self, annotation: Slice) -> None:
        annotation.dur = self.now - annotation.start

    def query_occupancy(self) -> None:
        """Record the occupancy query that cuBLAS makes before it launches a GEMM."""
        self._call("cudaOccupancyMaxActiveBlocksPerMultiprocessor", figures.OCCUPANCY)
        self.now += figures.BETWEEN_QUERY_AND_LAUNCH

    def launch(
        self, kernel: str, time: Figure, launch: Launch, by_driver: bool = False
    ) -> None:
        """Launch a kernel that takes `time` on the GPU, with a driver call if
        `by_driver` is set and a runtime call otherwise."""
        reaches_gpu_at = self.now + figures.LATENCY.ns
        if by_driver:
            call = self._call("cuLaunchKernel", figures.DRIVER_LAUNCH)
        else:
            call = self._call("cudaLaunchKernel", figures.LAUNCH)
        start = max(reaches_gpu_at, self._gpu_free_at + figures.GAP.ns)
        run = Kernel(name=kernel, start=start, dur=time.ns, launch=launch, call=call)
        self.recorded.kernels.append(run)
        self._gpu_free_at = run.end

    def synchronize(self) -> None:
        """Wait until all kernels have ended."""
        call = self._call("cudaDeviceSynchronize", figures.SYNCHRONIZE)
        self.now = max(self.now, self._gpu_free_at + figures.AFTER_SYNC.ns)
        call.dur = self.now - call.start

    def empty(self, *shape: int) -> Tensor:
        """Allocate a contiguous tensor."""
        address = self._allocator.allocate(nbytes_of(shape))
        tensor = Tensor(shape=shape, strides=contiguous(shape), address=address)
        self._record_memory(address, tensor.nbytes)
        return tensor

    def free(self, tensor: Tensor) -> None:
        self._allocator.release(tensor.address, tensor.nbytes)
        self._record_memory(tensor.address, -tensor.nbytes)

    def _record_memory(self, address: int, nbytes: int) -> None:
        self.recorded.memory.append(
            Memory(
                at=self.now,
                address=address,
                nbytes=nbytes,
                allocated=self._allocator.allocated,
                reserved=self._allocator.reserved,
            )
        )

    def _call(self, name: str, time: Figure) -> Call:
        """Record a CUDA call by the innermost op."""
        self._last_correlation += 1
        call = Call(
            name=name,
            start=self.now,
            number=self._last_correlation,
            dur=time.ns,
            args={"cbid": CBID[name]},
            op=self._open_ops[-1] if self._open_ops else 0,
        )
        self.recorded.calls.append(call)
        self.now += time.ns
        return call

    def _next_external_id(self) -> int:
        self._last_external_id += 1
        return self._last_external_id
