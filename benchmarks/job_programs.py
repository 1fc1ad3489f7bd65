"""The programs of a training job, rank by rank: a transformer with data, tensor and
pipeline parallelism, and the faults that can be planted into its ranks. Durations are
in microseconds."""

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

WIDTH = 4096
TOKENS = 4096
GRADIENT_ELEMENTS = 20_000_000  # of a layer
ACTIVATION_ELEMENTS = 2_097_152
KERNEL_NOISE = 0.015
"""The standard deviation of a kernel's duration, as a share."""
LOADING_US = 180
REDUCE_US = 45.0
"""A reduction of activations in a group of tensor parallelism."""
ACROSS_HOSTS_FACTOR = 2.2
"""How much longer a collective takes across hosts."""


class _LayerOp(NamedTuple):
    """An op of a layer, and how long its kernel takes in the forward pass; or without a
    kernel the place where activations are reduced."""

    op: str
    kernel: str = ""
    us: float = 0.0


REDUCE = _LayerOp("reduce")
FORWARD = (
    _LayerOp("aten::native_layer_norm", NORM, 15.0),
    _LayerOp("aten::mm", GEMM, 160.0),
    _LayerOp("aten::_flash_attention_forward", FLASH, 120.0),
    _LayerOp("aten::mm", GEMM, 90.0),
    REDUCE,
    _LayerOp("aten::native_layer_norm", NORM, 15.0),
    _LayerOp("aten::mm", GEMM, 200.0),
    _LayerOp("aten::gelu", GELU, 25.0),
    _LayerOp("aten::mm", GEMM, 200.0),
    REDUCE,
)


class Fault(NamedTuple):
    """What is planted into a rank. `kind` is one of:

    - gemm: the matrix products take longer, by the share `amount`.
    - tokens: all kernels of the layers take longer, by the share `amount`.
    - loading: loading a batch takes `amount` us longer.
    - sync: the thread waits for the GPU in each layer, then works for `amount` us.
    - gc: Python pauses for `amount` us before some layer of the forward or backward
      pass, and nothing of it is recorded.
    - begin: the rank begins `amount` us later, before the window.

    `steps` are those with the fault, from 0; () means all.
    """

    kind: str
    amount: float
    steps: tuple[int, ...] = ()


NO_FAULT = Fault("", 0.0)


class Shape(NamedTuple):
    """A job. Ranks are numbered as Megatron does: tensor first, then data, then
    pipeline.

    `dp`, `tp` and `pp` are the sizes of data, tensor and pipeline parallelism.

    - `overlap`: gradients are reduced during the backward pass, as DDP does.
    - `forward_only`: tensor parallelism communicates in the forward pass alone.
    - `sharded`: parameters are gathered and gradients reduce-scattered, as FSDP does.
    - `batched`: neighbors of a pipeline send and receive in one kernel.
    - `norm`: the norm of gradients is reduced over all ranks.
    - `gloo`: everything runs on the CPU.
    - `scale`: a factor of the durations of all kernels.
    - `data_us`: a reduction of gradients on one host.
    """

    dp: int = 8
    tp: int = 1
    pp: int = 1
    hosts: int = 1
    steps: int = 5
    layers: int = 3
    microbatches: int = 8
    overlap: bool = False
    forward_only: bool = False
    sharded: bool = False
    batched: bool = False
    norm: bool = False
    gloo: bool = False
    scale: float = 1.0
    data_us: float = 260.0

    @property
    def ranks(self) -> int:
        return self.dp * self.tp * self.pp

    def groups(self) -> list[Group]:
        """Return the process groups of the job, the default one first, numbered as they
        are listed."""
        ranks_of_stage = self.tp * self.dp

        groups: list[tuple[str, Sequence[int]]] = [("default_pg", range(self.ranks))]
        if self.tp > 1:
            for first in range(0, self.ranks, self.tp):
                members = range(first, first + self.tp)
                groups.append(("TENSOR_MODEL_PARALLEL_GROUP", members))

        if self.dp > 1 and (self.tp > 1 or self.pp > 1):
            for stage_begin in range(0, self.ranks, ranks_of_stage):
                stage_end = stage_begin + ranks_of_stage
                for tensor_rank in range(self.tp):
                    members = range(stage_begin + tensor_rank, stage_end, self.tp)
                    groups.append(("DATA_PARALLEL_GROUP", members))

        if self.pp > 1:
            for first in range(ranks_of_stage):
                members = range(first, self.ranks, ranks_of_stage)
                groups.append(("PIPELINE_MODEL_PARALLEL_GROUP", members))

        return [
            Group(name=str(number), about=about, ranks=tuple(members))
            for number, (about, members) in enumerate(groups)
        ]


class _Writer:
    """Writes the program of one rank."""

    def __init__(self, shape: Shape, rank: int, seed: int, fault: Fault | None) -> None:
        self.shape = shape
        self.rank = rank
        self.fault = fault
        # Apart, so that pauses do not change the noise of kernels.
        self.noise_generator = random.Random(f"{seed} rank {rank}")
        self.pause_generator = random.Random(f"{seed} pauses of rank {rank}")
        groups = [group for group in shape.groups() if rank in group.ranks]
        self.world = groups[0]
        self.group_of = {group.about.partition("_")[0]: group for group in groups}
        """By kind: TENSOR, DATA, PIPELINE."""
        has_only_world = len(self.group_of) == 1
        alone = Group("", "", (rank,))
        self.data = self.group_of.get("DATA", self.world if has_only_world else alone)
        self.stage = rank // (shape.tp * shape.dp)
        self.across = ACROSS_HOSTS_FACTOR if shape.hosts > 1 else 1.0
        self.step = 0

    @property
    def planted(self) -> Fault:
        """The fault of the rank in this step."""
        if self.fault is None:
            return NO_FAULT
        if self.fault.steps and self.step not in self.fault.steps:
            return NO_FAULT
        return self.fault

    def program(self) -> Iterator[Op]:
        """Yield all ops of the program of this rank, step by step."""
        for step in range(self.shape.steps):
            self.step = step
            yield Step()
            extra_us = self.planted.amount if self.planted.kind == "loading" else 0.0
            yield Cpu(LOADING, LOADING_US * self.noise() + extra_us)

            if self.shape.pp > 1:
                yield from self.pipelined()
            else:
                yield from self.passes()

            yield from self.gradients()

            if self.shape.norm:
                yield Collective("allreduce", self.world, 1, 14 * self.across)

            for _ in range(3):
                yield self.kernel("aten::_fused_adamw_", ADAM, 90, backward=False)

            yield Sync()

        yield Step()

    def passes(self) -> Iterator[Op]:
        """Yield the forward and the backward pass through all layers. A pause of the
        garbage collector is before one of the layers, drawn at random."""
        layers = self.shape.layers
        pause_at = None  # a layer of both passes
        if self.planted.kind == "gc":
            pause_at = self.pause_generator.randrange(2 * layers)

        for layer in range(layers):
            yield from self.gathered()
            if layer == pause_at:
                yield Pause(self.planted.amount)
            yield from self.layer(backward=False)

        for layer in range(layers):
            yield from self.gathered()
            if layers + layer == pause_at:
                yield Pause(self.planted.amount)
            yield from self.layer(backward=True)
            if self.shape.sharded:
                yield self.reduced("_reduce_scatter_base", 190, layer)
            elif self.shape.overlap:
                yield self.reduced("allreduce", self.shape.data_us, layer)

    def pipelined(self) -> Iterator[Op]:
        """Yield the passes of a pipeline stage, which alternate forward and backward,
        as in Megatron's schedule without interleaving. The first stages do more forward
        passes at the start."""
        microbatches = self.shape.microbatches
        stages_behind = self.shape.pp - self.stage - 1
        warm_up = min(stages_behind, microbatches)
        steady = microbatches - warm_up

        for _ in range(warm_up):
            yield from self.with_previous(receives=True)
            yield from self.layer(backward=False)
            yield from self.with_next(sends=True)

        if steady:
            yield from self.with_previous(receives=True)

        for number in range(steady):
            yield from self.layer(backward=False)
            yield from self.with_next(sends=True, receives=True)
            yield from self.layer(backward=True)
            is_last = number == steady - 1
            yield from self.with_previous(sends=True, receives=not is_last)

        for _ in range(warm_up):
            yield from self.with_next(receives=True)
            yield from self.layer(backward=True)
            yield from self.with_previous(sends=True)

    def with_next(self, sends: bool = False, receives: bool = False) -> Iterator[Op]:
        """An exchange with the next stage, if there is one."""
        if self.stage + 1 < self.shape.pp:
            peer = self.rank + self.shape.tp * self.shape.dp
            yield self.exchange(peer, sends, receives)

    def with_previous(
        self, sends: bool = False, receives: bool = False
    ) -> Iterator[Op]:
        """An exchange with the stage before, if there is one."""
        if self.stage > 0:
            peer = self.rank - self.shape.tp * self.shape.dp
            yield self.exchange(peer, sends, receives)

    def exchange(self, peer: int, sends: bool, receives: bool) -> Exchange:
        """Return an exchange with a neighboring stage of the pipeline. Even stages send
        first and odd ones receive first, so that no pair waits for itself."""
        is_both = sends and receives
        return Exchange(
            group=self.group_of["PIPELINE"],
            peer=peer,
            sends=sends,
            receives=receives,
            elements=ACTIVATION_ELEMENTS,
            us=(40 if is_both else 24) * self.across,
            sends_first=self.stage % 2 == 0,
            batched=self.shape.batched,
        )

    def layer(self, backward: bool) -> Iterator[Op]:
        """Yield the ops of a layer. In the backward pass they come in reverse order,
        and each takes twice as long; a matrix product is two kernels there."""
        for layer_op in FORWARD[::-1] if backward else FORWARD:
            if layer_op == REDUCE:
                yield from self.reduced_activations(backward)
                continue
            runs = 1
            us = layer_op.us
            if backward and layer_op.kernel == GEMM:
                runs = 2
            elif backward:
                us *= 2
            for _ in range(runs):
                yield self.kernel(layer_op.op, layer_op.kernel, us, backward)

    def reduced_activations(self, backward: bool) -> Iterator[Op]:
        """Yield the reduction of activations in the tensor-parallel group, if there is
        one, and the planted wait for the GPU."""
        tensor = self.group_of.get("TENSOR")
        if tensor is not None and not (backward and self.shape.forward_only):
            yield Collective(
                "allreduce", tensor, ACTIVATION_ELEMENTS, REDUCE_US, backward=backward
            )
        if self.planted.kind == "sync":
            yield Sync("aten::nonzero", backward)
            yield Cpu("check_overflow", self.planted.amount, backward)

    def kernel(self, op: str, name: str, us: float, backward: bool = False) -> Kernel:
        """Return a kernel with noise, and with the fault if that is about kernels. `us`
        is its duration without both."""
        kind = self.planted.kind
        amount = self.planted.amount
        factor = self.noise() * self.shape.scale
        tokens = TOKENS

        if kind == "gemm" and name == GEMM:
            factor *= 1 + amount

        if kind == "tokens" and name != ADAM:
            factor *= 1 + amount
            tokens = round(tokens * (1 + amount))

        dims: tuple[tuple[int, ...], ...] = ((tokens, WIDTH),)
        if name == GEMM:
            dims += ((WIDTH, WIDTH),)

        return Kernel(op, name, us * factor, dims, backward)

    def noise(self) -> float:
        """Return a random factor around 1 for the next duration, at least 0.9."""
        deviation = KERNEL_NOISE * (2 if self.shape.gloo else 1)
        return max(0.9, self.noise_generator.gauss(1, deviation))

    def gathered(self) -> Iterator[Op]:
        """Yield the collective that gathers the parameters of a layer, if they are
        sharded."""
        if self.shape.sharded:
            elements = GRADIENT_ELEMENTS // len(self.data.ranks)
            yield Collective("_allgather_base", self.data, elements, 150 * self.across)

    def reduced(self, name: str, us: float, layer: int) -> Collective:
        """Return the collective that reduces the gradients of a layer. Later kernels do
        not wait for it until the next Join."""
        return Collective(
            name,
            self.data,
            elements=GRADIENT_ELEMENTS + layer * WIDTH,
            us=us * self.across,
            joined=False,
            backward=True,
        )

    def gradients(self) -> Iterator[Op]:
        """Yield what remains of the reduction of gradients after the backward pass.
        Nothing if there is no data parallelism."""
        if len(self.data.ranks) == 1:
            return
        if not self.shape.overlap and not self.shape.sharded:
            for layer in range(self.shape.layers):
                yield self.reduced("allreduce", self.shape.data_us, layer)
        yield Join()


def programs(
    shape: Shape, seed: int, faults: dict[int, Fault]
) -> Sequence[Sequence[Op]]:
    """Return the program of each rank; `faults` are by rank. The noise of a rank is the
    same with and without its fault."""
    return [
        tuple(_Writer(shape, rank, seed, faults.get(rank)).program())
        for rank in range(shape.ranks)
    ]
