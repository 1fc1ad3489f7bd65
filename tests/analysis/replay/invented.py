"""Random programs of several kinds, each the same for the same seed.

All of their times are multiples of 100 ns, so that changes of a tenth stay whole.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tests.analysis.replay.programs import (
    MEMCPY,
    OP,
    Backward,
    Call,
    Copy,
    GraphLaunch,
    Host,
    Item,
    Launch,
    Machine,
    Next,
    Own,
    Program,
    Range,
    Record,
    Sync,
    Thread,
    WaitEvent,
    frame,
    mapped,
    note,
    numbered,
    op,
    steps,
)

GEMM = "ampere_sgemm_128x64_nn"
ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
    "at::detail::Array<char*, 3> >(int, at::native::CUDAFunctor_add<float>, "
    "at::detail::Array<char*, 3>)"
)
FLASH = (
    "void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, "
    "cutlass::half_t> >(Flash_fwd_params)"
)
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
TO_HOST, TO_DEVICE = (
    "Memcpy DtoH (Device -> Pageable)",
    "Memcpy HtoD (Pageable -> Device)",
)
WORK = (("aten::mm", GEMM), ("aten::add", ADD), ("flash::fwd", FLASH))
COMM_STREAM, SIDE_STREAM, OTHER_THREAD = 20, 24, 4150
STEPS, WARM_UP = 6, 24
PLAIN, SILENT = Machine(), Machine(records_syncs=False)


@dataclass(frozen=True)
class Sizes:
    """Ranges of times in us: own time of ops, calls, items."""

    own: tuple[int, int] = (3, 25)
    call: tuple[int, int] = (4, 9)
    item: tuple[int, int] = (3, 60)


LONG_STEP_US, HANDING_US = 20_000, (80, 160)
LONG = Sizes(own=(300, 1200), item=(30, 300))
HOST_BOUND = Sizes(own=(10, 40), item=(2, 12))
GPU_BOUND = Sizes(own=(1, 4), item=(30, 120))


class Maker:
    """Makes parts of a program by chance."""

    def __init__(self, seed: str, sizes: Sizes) -> None:
        self.chance, self.sizes = random.Random(seed), sizes
        self.event = self.pair = 0
        self.loaded: set[str] = set()
        loader = random.Random(f"{seed} loader")
        self.workers, self.ahead = loader.randint(1, 4), loader.randint(1, 3)

    def ns(self, between: tuple[int, int]) -> int:
        return self.chance.randrange(between[0] * 1000, between[1] * 1000, 100)

    def own(self) -> Own:
        return Own(self.ns(self.sizes.own))

    def launch(self, name: str, stream: int = 7) -> Launch:
        return Launch(
            Item(name, self.ns(self.sizes.item), stream), self.ns(self.sizes.call)
        )

    def work(self, stream: int = 7) -> Range:
        """An op that launches, often inside another one."""
        name, kernel = self.chance.choice(WORK)
        inner = op(name, self.own(), self.launch(kernel, stream), self.own())
        if self.chance.random() < 0.3:
            return op(
                "aten::linear", self.own(), Call("cudaStreamIsCapturing", 600), inner
            )
        return inner

    def module(self, number: int, stream: int = 7) -> Range:
        works = [self.work(stream) for _ in range(self.chance.randint(2, 4))]
        return frame(f"nn.Module: Block_{number}", self.own(), *works, self.own())

    def forward(self, blocks: int = 3) -> Range:
        modules = [self.module(number) for number in range(blocks)]
        return note(
            "## forward ##", frame("train.py(20): forward", self.own(), *modules)
        )

    def copy(self, name: str = TO_HOST) -> Copy:
        item = Item(name, self.ns((1, 3)), kind=MEMCPY, bytes=4000)
        return Copy(item, self.ns((2, 4)))

    def item(self) -> Range:
        """`.item()` of a tensor."""
        wait = Sync("stream", self.ns((1, 3)))
        inner = op(
            "aten::_local_scalar_dense", self.own(), self.copy(), wait, self.own()
        )
        return op("aten::item", self.own(), inner)

    def after(self, before: int, stream: int) -> tuple[Host, ...]:
        """What `stream` gets from here on waits for what `before` was given so far."""
        self.event += 1
        return Record(self.event, before, 1500), WaitEvent(self.event, stream, 1200)

    def all_reduce(self) -> tuple[Host, ...]:
        launch = self.launch(ALL_REDUCE, COMM_STREAM)
        return (
            note(
                "nccl:all_reduce",
                *self.after(7, COMM_STREAM),
                self.own(),
                launch,
                self.own(),
            ),
        )

    def linked(self) -> tuple[Range, Range]:
        """An op of forward, and what autograd does for it."""
        self.pair += 1
        inner = (self.own(), self.launch(GEMM), self.own())
        forward = Range(OP, "aten::mm", inner, forward=self.pair)
        back = (self.own(), op("aten::mm", self.own(), self.launch(GEMM), self.own()))
        name = "MmBackward0"
        middle = Range(OP, name, back, backward=self.pair)
        outer = f"autograd::engine::evaluate_function: {name}"
        return forward, op(outer, self.own(), middle, self.own())

    def training(self, framed: bool = True) -> tuple[Host, ...]:
        pairs = [self.linked() for _ in range(self.chance.randint(3, 6))]
        forwards, backwards = zip(*pairs, strict=True)
        loop = note("Optimizer.step#SGD.step", *(self.work() for _ in range(3)))
        called = Backward(tuple(reversed(backwards)), 6000, 9000, framed)
        around = frame(
            "torch/autograd/__init__.py(300): backward", self.own(), called, self.own()
        )
        return (
            Next(self.ns((40, 200))),
            note(
                "## forward ##", frame("train.py(20): forward", self.own(), *forwards)
            ),
            around if framed else called,
            frame("torch/optim/sgd.py(80): step", self.own(), loop),
        )


def warm_up(machine: Machine) -> Iterator[Host]:
    """Items that start as soon as they are launched: from them the usual latency is
    known."""
    for _ in range(WARM_UP):
        wait = Own(machine.latency + 2000)
        yield op("aten::zero_", Own(3000), Launch(Item("fill", 1000), 5000), wait)


Body = Callable[[Maker], tuple[Host, ...]]


def _plain(make: Maker) -> tuple[Host, ...]:
    return (make.forward(),)


def _streams(make: Maker) -> tuple[Host, ...]:
    side = [make.work(SIDE_STREAM) for _ in range(3)]
    begun, ended = make.after(7, SIDE_STREAM), make.after(SIDE_STREAM, 7)
    before, last = ([make.work() for _ in range(3)] for _ in range(2))
    return (*before, *begun, *side, *ended, *last)


def _waits(make: Maker, events: bool = True) -> tuple[Host, ...]:
    """Work between two waits of any kind."""
    make.event += 1
    waits: list[tuple[Host, ...]] = [
        (Sync("stream", make.ns((1, 4))),),
        (Sync("device", make.ns((1, 4))),),
        (make.item(),),
        (Sync("device", make.ns((20, 60)), name="cudaFree"),),
        (op("aten::copy_", make.own(), make.copy(TO_DEVICE)),),
    ]
    if events:
        recorded = Record(make.event, 7, 1500)
        waits.append((recorded, make.work(), Sync("event", 2500, on=make.event)))
    parts = [make.work() for _ in range(4)]
    return (
        *parts[:2],
        *make.chance.choice(waits),
        *parts[2:],
        *make.chance.choice(waits),
    )


def _collectives(make: Maker) -> tuple[Host, ...]:
    blocks = [(make.work(), make.work(), *make.all_reduce()) for _ in range(3)]
    joined = make.after(COMM_STREAM, 7)
    return (
        *(host for block in blocks for host in block),
        *joined,
        make.work(),
        make.item(),
    )


def _graphs(make: Maker) -> tuple[Host, ...]:
    names = [make.chance.choice(WORK)[1] for _ in range(make.chance.randint(4, 12))]
    items = tuple(Item(name, make.ns(make.sizes.item)) for name in names)
    return (
        make.work(),
        make.forward(1),
        GraphLaunch(items, 12_000),
        make.work(),
        make.item(),
    )


def _workers(make: Maker) -> tuple[Host, ...]:
    """Two workers make batches, mostly slower than they are taken."""
    return Next(make.ns((800, 2500)), workers=2, delay=3000), *make.training()[1:]


def _batches(make: Maker, slowest: float) -> tuple[Host, ...]:
    """Workers make batches. Each takes up to `slowest` times as long as it may so that
    the thread waits for none; to take one over, the thread needs up to twice as long as
    at least."""
    batch_us = int(slowest * make.workers * LONG_STEP_US)
    batch = Next(
        ns=make.ns((LONG_STEP_US // 4, batch_us)),
        workers=make.workers,
        ahead=make.ahead,
        delay=make.ns(HANDING_US),
    )
    return batch, *make.training()[1:], make.item()


def _chains(make: Maker) -> tuple[Host, ...]:
    """Products, and modules of pointwise ops that hand large tensors on."""

    def pointwise(inputs: int, ns: int) -> Range:
        launch = Launch(Item(ADD, (inputs + 1) * ns), make.ns(make.sizes.call))
        return op(
            "aten::add", make.own(), launch, make.own(), dims=((4096, 4096),) * inputs
        )

    modules = []
    for number in range(3):
        ns = make.ns((40, 90))  # to read or write a tensor of 67 MB
        inputs = [make.chance.randint(1, 2)]
        for _ in range(make.chance.randint(1, 3)):  # not twice the same to one tensor
            inputs.append(2 if inputs[-1] == 1 else make.chance.randint(1, 2))
        ops = [pointwise(one, ns) for one in inputs]
        modules += [frame(f"nn.Module: Gate_{number}", *ops), make.work()]
    return tuple(modules)


def _slow_loader(make: Maker) -> tuple[Host, ...]:
    """Batches take longer than all else."""
    return Next(make.ns((1000, 2000))), *make.training()[1:]


def _loading(make: Maker) -> tuple[Host, ...]:
    """The first launch of each kernel loads its module."""
    works = [make.work() for _ in range(8)]

    def edit(host: Host) -> tuple[Host, ...]:
        if isinstance(host, Launch) and host.item.name not in make.loaded:
            make.loaded.add(host.item.name)
            return (replace(host, ns=host.ns + make.ns((300, 1500))),)
        return (host,)

    return mapped(tuple(works), edit)


def _full(make: Maker) -> tuple[Host, ...]:
    """The host runs ahead until the queue is full; then it has work of its own."""
    return (*(make.work() for _ in range(16)), Own(make.ns((300, 900))), make.work())


@dataclass(frozen=True)
class Kind:
    """A kind of program. `settled`: the definition of the graph fixes what changes do
    to it."""

    body: Body
    sizes: Sizes
    machine: Machine = PLAIN
    settled: bool = True
    other_thread: bool = False


KINDS = {
    "host-bound": Kind(_plain, HOST_BOUND),
    "GPU-bound": Kind(_plain, GPU_BOUND),
    "mixed": Kind(_plain, Sizes()),
    "switches": Kind(_plain, Sizes(), Machine(switch=1200)),
    "modules loaded": Kind(_loading, Sizes()),
    "streams": Kind(_streams, Sizes()),
    "waits": Kind(_waits, Sizes()),
    "waits, not recorded": Kind(lambda make: _waits(make, False), Sizes(), SILENT),
    "collectives": Kind(_collectives, Sizes()),
    "graphs": Kind(_graphs, Sizes()),
    "full queue": Kind(_full, Sizes(own=(1, 6), item=(10, 60)), Machine(depth=8)),
    "training": Kind(lambda make: (*make.training(), make.item()), Sizes()),
    "chains": Kind(_chains, GPU_BOUND),
    "threads": Kind(_plain, Sizes(), other_thread=True),
    "training, no stacks": Kind(
        lambda make: make.training(False), Sizes(), settled=False
    ),
    "overlapping": Kind(_plain, GPU_BOUND, Machine(switch=-900), settled=False),
    "slow loader": Kind(_slow_loader, Sizes(), settled=False),
    "workers": Kind(_workers, Sizes(), settled=False),
    "batches ready": Kind(lambda make: _batches(make, 0.5), LONG, settled=False),
    "batches waited for": Kind(lambda make: _batches(make, 3.0), LONG, settled=False),
    "some batches waited for": Kind(
        lambda make: _batches(make, 1.5), LONG, settled=False
    ),
    "events, not recorded": Kind(_waits, Sizes(), SILENT, settled=False),
    "streams, not recorded": Kind(_streams, Sizes(), SILENT, settled=False),
}


def invented(kind: str, seed: int, sizes: Sizes | None = None) -> Program:
    """A random program of a kind, with numbered items."""
    chosen = KINDS[kind]
    make = Maker(f"{kind} {seed}", sizes or chosen.sizes)
    bodies = tuple(chosen.body(make) for _ in range(STEPS))
    warm = note("warm-up", *warm_up(chosen.machine))
    threads = [Thread((warm, Own(5000), *steps(*bodies)))]
    if chosen.other_thread:
        works = tuple(make.work(SIDE_STREAM) for _ in range(30))
        threads.append(Thread(works, start=make.ns((300, 500)), number=OTHER_THREAD))
    return numbered(Program(tuple(threads), chosen.machine))
