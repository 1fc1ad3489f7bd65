"""The programs of a training job, rank by rank: a transformer by data, tensor and
pipeline parallelism, and what can be planted into one of its ranks. Durations in
microseconds."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from benchmarks.job_maker import (
    Collective,
    Cpu,
    Exchange,
    Group,
    Join,
    Kernel,
    Op,
    Pause,
    Step,
    Sync,
)

GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute"
FLASH = "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>, false>(Flash_fwd_params)"
NORM = "void at::native::vectorized_layer_norm_kernel<c10::BFloat16>(int, float, c10::BFloat16*)"
GELU = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluFunctor>(int, float)"
ADAM = "void at::native::multi_tensor_apply_kernel<at::native::FusedAdamMathFunctor>(float)"
LOADING = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"

WIDTH, TOKENS = 4096, 4096
GRADIENTS, ACTIVATIONS = 20_000_000, 2_097_152  # elements of a collective
NOISE = 0.015  # of each kernel
FORWARD = (
    ("aten::native_layer_norm", NORM, 15.0),
    ("aten::mm", GEMM, 160.0),
    ("aten::_flash_attention_forward", FLASH, 120.0),
    ("aten::mm", GEMM, 90.0),
    ("reduce", "", 0.0),
    ("aten::native_layer_norm", NORM, 15.0),
    ("aten::mm", GEMM, 200.0),
    ("aten::gelu", GELU, 25.0),
    ("aten::mm", GEMM, 200.0),
    ("reduce", "", 0.0),
)


class Fault(NamedTuple):
    """What is planted into a rank: `kind` is gemm, loading, tokens, sync, gc (Python
    pauses before some layer of the forward or backward pass, and nothing of it is
    recorded), or begin (before the window); `amount` is a share of the kernels' time,
    or us: per step, or once."""

    kind: str
    amount: float
    steps: tuple[int, ...] = ()  # in which; in all where empty


class Shape(NamedTuple):
    """A job. Ranks are numbered as Megatron does: tensor first, then data, then
    pipeline."""

    dp: int = 8
    tp: int = 1
    pp: int = 1
    hosts: int = 1
    steps: int = 5
    layers: int = 3
    microbatches: int = 8
    overlap: bool = False  # gradients are reduced during the backward pass, as DDP does
    # tensor parallelism communicates in the forward pass alone
    forward_only: bool = False
    # parameters are gathered, gradients reduce-scattered, as FSDP does
    sharded: bool = False
    batched: bool = False  # sends and receives
    norm: bool = False  # the norm of gradients is reduced over all ranks
    gloo: bool = False
    scale: float = 1.0  # of all kernels
    data_us: float = 260.0  # a reduction of gradients on one host

    @property
    def ranks(self) -> int:
        return self.dp * self.tp * self.pp

    def groups(self) -> list[Group]:
        """The default one first."""
        named = [("default_pg", [tuple(range(self.ranks))])]
        block = self.tp * self.dp
        if self.tp > 1:
            firsts = range(0, self.ranks, self.tp)
            tensor = [tuple(range(first, first + self.tp)) for first in firsts]
            named.append(("TENSOR_MODEL_PARALLEL_GROUP", tensor))
        if self.tp > 1 or self.pp > 1:
            data = [
                tuple(range(stage * block + one, (stage + 1) * block, self.tp))
                for stage in range(self.pp)
                for one in range(self.tp)
            ]
            named.append(("DATA_PARALLEL_GROUP", data if self.dp > 1 else []))
        if self.pp > 1:
            pipes = [tuple(range(one, self.ranks, block)) for one in range(block)]
            named.append(("PIPELINE_MODEL_PARALLEL_GROUP", pipes))
        every = [(about, ranks) for about, lists in named for ranks in lists]
        return [Group(str(n), about, ranks) for n, (about, ranks) in enumerate(every)]


class _Writer:
    """The program of one rank."""

    def __init__(self, shape: Shape, rank: int, seed: int, fault: Fault | None) -> None:
        self.shape, self.rank, self.fault = shape, rank, fault
        self.chance = random.Random(f"{seed} rank {rank}")
        self.pauses = random.Random(f"{seed} pauses of rank {rank}")
        mine = [group for group in shape.groups() if rank in group.ranks]
        self.world = mine[0]
        self.by = {group.about.partition("_")[0]: group for group in mine}
        alone = Group("", "", (rank,))
        self.data = self.by.get("DATA", alone if len(self.by) > 1 else self.world)
        self.stage = rank // (shape.tp * shape.dp)
        self.across = 2.2 if shape.hosts > 1 else 1.0
        self.step = 0

    @property
    def planted(self) -> Fault:
        fault = self.fault
        if fault is None or (fault.steps and self.step not in fault.steps):
            return Fault("", 0.0)
        return fault

    def program(self) -> Iterator[Op]:
        for step in range(self.shape.steps):
            self.step = step
            yield Step()
            extra = self.planted.amount if self.planted.kind == "loading" else 0.0
            yield Cpu(LOADING, 180 * self.noise() + extra)
            yield from self.pipelined() if self.shape.pp > 1 else self.passes()
            yield from self.gradients()
            if self.shape.norm:
                yield Collective("allreduce", self.world, 1, 14 * self.across)
            yield from (
                self.kernel("aten::_fused_adamw_", ADAM, 90, backward=False)
                for _ in range(3)
            )
            yield Sync()
        yield Step()

    def passes(self) -> Iterator[Op]:
        places = 2 * self.shape.layers  # layers of both passes
        pause_at = (
            self.pauses.randrange(places) if self.planted.kind == "gc" else places
        )
        for layer in range(self.shape.layers):
            yield from self.gathered()
            if layer == pause_at:
                yield Pause(self.planted.amount)
            yield from self.layer(backward=False)
        for layer in range(self.shape.layers):
            yield from self.gathered()
            if layer + self.shape.layers == pause_at:
                yield Pause(self.planted.amount)
            yield from self.layer(backward=True)
            if self.shape.sharded:
                yield self.reduced("_reduce_scatter_base", 190, layer)
            elif self.shape.overlap:
                yield self.reduced("allreduce", self.shape.data_us, layer)

    def pipelined(self) -> Iterator[Op]:
        """One forward, one backward, as Megatron's schedule without interleaving."""
        stages, count = self.shape.pp, self.shape.microbatches
        warm = min(stages - self.stage - 1, count)
        for _ in range(warm):
            yield from self.exchange(back=0, receives=True)
            yield from self.layer(backward=False)
            yield from self.exchange(ahead=1, sends=True)
        if warm < count:
            yield from self.exchange(back=0, receives=True)
        for number in range(count - warm):
            yield from self.layer(backward=False)
            yield from self.exchange(ahead=1, sends=True, receives=True)
            yield from self.layer(backward=True)
            last = number == count - warm - 1
            yield from self.exchange(back=0, sends=True, receives=not last)
        for _ in range(warm):
            yield from self.exchange(ahead=1, receives=True)
            yield from self.layer(backward=True)
            yield from self.exchange(back=0, sends=True)

    def exchange(
        self, ahead: int | None = None, back: int | None = None, sends: bool = False,
        receives: bool = False,
    ) -> Iterator[Op]:  # fmt: skip
        """With the next stage or the one before, where there is one."""
        way = 1 if ahead is not None else -1
        if not 0 <= self.stage + way < self.shape.pp:
            return
        peer = self.rank + way * self.shape.tp * self.shape.dp
        yield Exchange(
            self.by["PIPELINE"], peer, sends, receives, ACTIVATIONS,
            (24 if sends != receives else 40) * self.across,
            sends_first=self.stage % 2 == 0, batched=self.shape.batched,
        )  # fmt: skip

    def layer(self, backward: bool) -> Iterator[Op]:
        order = FORWARD[::-1] if backward else FORWARD
        for op, name, us in order:
            if op != "reduce":
                factor = 2 if backward and name == GEMM else 1
                for _ in range(factor):
                    yield self.kernel(
                        op, name, us * (1 if name == GEMM else 1 + backward), backward
                    )
            elif "TENSOR" in self.by and not (backward and self.shape.forward_only):
                tensor = self.by["TENSOR"]
                yield Collective(
                    "allreduce", tensor, ACTIVATIONS, 45.0, backward=backward
                )
                if self.planted.kind == "sync":
                    yield from self.stalled(backward)
            elif self.planted.kind == "sync":
                yield from self.stalled(backward)

    def stalled(self, backward: bool) -> Iterator[Op]:
        """Waits for the GPU, then works on its result, in each of the `reduce`
        places."""
        yield Sync("aten::nonzero", backward)
        yield Cpu("check_overflow", self.planted.amount, backward)

    def kernel(self, op: str, name: str, us: float, backward: bool = False) -> Kernel:
        kind, amount = self.planted.kind, self.planted.amount
        factor, tokens = self.noise() * self.shape.scale, TOKENS
        if kind == "gemm" and name == GEMM:
            factor *= 1 + amount
        if kind == "tokens" and name != ADAM:
            factor *= 1 + amount
            tokens = round(tokens * (1 + amount))
        dims = ((tokens, WIDTH), (WIDTH, WIDTH)) if name == GEMM else ((tokens, WIDTH),)
        return Kernel(op, name, us * factor, dims, backward)

    def noise(self) -> float:
        return max(0.9, self.chance.gauss(1, NOISE * (2 if self.shape.gloo else 1)))

    def gathered(self) -> Iterator[Op]:
        if self.shape.sharded:
            size = GRADIENTS // len(self.data.ranks)
            yield Collective("_allgather_base", self.data, size, 150 * self.across)

    def reduced(self, name: str, us: float, layer: int) -> Collective:
        size = GRADIENTS + layer * WIDTH
        return Collective(
            name, self.data, size, us * self.across, joined=False, backward=True
        )

    def gradients(self) -> Iterator[Op]:
        if len(self.data.ranks) == 1:
            return
        if not (self.shape.overlap or self.shape.sharded):
            for layer in range(self.shape.layers):
                yield self.reduced("allreduce", self.shape.data_us, layer)
        yield Join()


def programs(
    shape: Shape, seed: int, faults: dict[int, Fault]
) -> Sequence[Sequence[Op]]:
    """Of all ranks; without its fault a rank has the same noise."""
    return [
        tuple(_Writer(shape, rank, seed, faults.get(rank)).program())
        for rank in range(shape.ranks)
    ]
