"""The program of a training on one GPU: what a rank of a small transformer does, step
by step.

It is written in the words of `tests.analysis.replay.programs`, whose simulator runs it.
Durations follow from the shapes, so that no kernel is faster than an A100.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.analysis.replay.programs import (
    MEMCPY,
    MEMSET,
    OP,
    Backward,
    Call,
    Copy,
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
    everywhere,
    frame,
    note,
    numbered,
    on_items,
    op,
    steps,
)

STEPS = 6
BLOCKS = 2
ROWS = 512
DIM = 256
HIDDEN = 1024
COMM_STREAM = 20
GEMM = "ampere_sgemm_128x64_tn"
GEMM_BACKWARD = "ampere_sgemm_128x64_nn"
GELU = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl"
    "(at::TensorIteratorBase&, at::native::GeluType)::{lambda()#1}, "
    "at::detail::Array<char*, 2> >(int, at::native::GeluCUDAKernelImpl)"
)
ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
    "at::detail::Array<char*, 3> >(int, at::native::CUDAFunctor_add<float>, "
    "at::detail::Array<char*, 3>)"
)
NORM = (
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>"
    "(int, float, float const*, float const*, float const*, float*, float*, float*)"
)
ATTENTION = (
    "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::"
    "AttentionKernel<float, cutlass::arch::Sm80, true, 64, 64, 64, true, true>::Params)"
)
TRITON = "triton_poi_fused_add_mul_0"
LOSS = (
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, "
    "at::native::MeanOps<float, float, float, float>, unsigned int, float, 4> >"
)
OPTIMIZER = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<"
    "at::native::(anonymous namespace)::FusedOptimizerTensorListMetadata<3>>(int)"
)
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
TO_DEVICE = "Memcpy HtoD (Pinned -> Device)"
TO_HOST = "Memcpy DtoH (Device -> Pageable)"
SET_TO_ZERO = "Memset (Device)"
LAUNCH_NS = 5_000
OWN_NS = 3_000
PAUSE_NS = 400_000
"""Python works alone, and the GPU is idle."""
WEIGHTS = ((DIM, HIDDEN), (HIDDEN, DIM))
"""Of the two linear layers of a block."""

Dims = Sequence[Sequence[int]]


def _launching(
    name: str,
    kernel: str,
    us: float,
    dims: Dims = (),
    *,
    forward: int = 0,
    stream: int = 7,
    call: str = "cudaLaunchKernel",
) -> Range:
    """An op that launches one kernel of so many us."""
    item = Item(kernel, round(us * 1000), stream)
    launch = Launch(item, LAUNCH_NS, call)
    shapes = tuple(tuple(shape) for shape in dims)
    body = (Own(OWN_NS), launch, Own(OWN_NS))
    return Range(OP, name, body, forward=forward, dims=shapes)


class _Step:
    """Writes a step; every op of forward that autograd follows has a number."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.pair = 100 * number
        self.event = 10 * number
        self.nodes: list[Range] = []
        """What autograd does, in the order of the ops of forward."""

    def body(self) -> tuple[Host, ...]:
        forward = frame("train.py(24): train_step", Own(OWN_NS), *self.forward())
        return (
            Next(60_000),
            frame("train.py(18): to_device", Own(OWN_NS), self.to_device()),
            note("## forward ##", forward),
            frame(
                "torch/autograd/__init__.py(300): backward",
                Own(OWN_NS),
                Backward((*reversed(self.nodes), *self.all_reduce()), 6_000, 9_000),
            ),
            self.loss_on_host(),
            frame("train.py(40): log", Own(PAUSE_NS)),
            frame("torch/optim/adamw.py(80): step", Own(OWN_NS), self.optimizer()),
        )

    def to_device(self) -> Range:
        item = Item(TO_DEVICE, 30_000, kind=MEMCPY, bytes=4 * ROWS * DIM)
        copy = op(
            "aten::copy_", Own(OWN_NS), Copy(item, 2_000), dims=((ROWS, DIM),) * 2
        )
        return op("aten::to", Own(OWN_NS), op("aten::_to_copy", Own(OWN_NS), copy))

    def forward(self) -> tuple[Host, ...]:
        blocks = [self.block(number) for number in range(BLOCKS)]
        inside = frame("model.py(12): forward", Own(OWN_NS), *blocks)
        loss = self.followed("aten::mse_loss", "MseLossBackward0", LOSS, 6.0)
        return frame("nn.Module: Net_0", Own(OWN_NS), inside), loss

    def block(self, number: int) -> Range:
        """A sum, attention, and two linear layers with a pointwise op between them."""
        square = ((ROWS, DIM),)
        parts: list[Host] = [
            self.followed("aten::add", "AddBackward0", ADD, 5.0, square * 2),
            frame(
                f"nn.Module: LayerNorm_{number}",
                Own(OWN_NS),
                self.followed(
                    "aten::native_layer_norm",
                    "NativeLayerNormBackward0",
                    NORM,
                    5.0,
                    square,
                ),
            ),
            self.followed(
                "aten::_efficient_attention_forward",
                "EfficientAttentionBackward0",
                ATTENTION,
                45.0,
                ((8, 64, 4, 64),) * 3,
            ),
            self.linear(2 * number, WEIGHTS[0]),
            self.followed("aten::gelu", "GeluBackward0", GELU, 6.0, ((ROWS, HIDDEN),)),
            self.linear(2 * number + 1, WEIGHTS[1]),
            _launching(TRITON, TRITON, 4.0, square * 2, call="cuLaunchKernel"),
        ]
        inside = frame("model.py(30): forward", Own(OWN_NS), *parts)
        return frame(f"nn.Module: Block_{number}", Own(OWN_NS), inside, Own(OWN_NS))

    def linear(self, number: int, weight: Sequence[int]) -> Range:
        inputs, outputs = weight
        addmm = self.followed(
            "aten::addmm",
            "AddmmBackward0",
            GEMM,
            22.0,
            ((outputs,), (ROWS, inputs), (inputs, outputs)),
        )
        call = Call("cudaOccupancyMaxActiveBlocksPerMultiprocessor", 700)
        around = op("aten::linear", Own(OWN_NS), call, addmm)
        inside = frame("torch/nn/modules/linear.py(130): forward", Own(OWN_NS), around)
        return frame(f"nn.Module: Linear_{number}", Own(OWN_NS), inside)

    def followed(
        self, name: str, node: str, kernel: str, us: float, dims: Dims = ()
    ) -> Range:
        """An op of forward; `node` is that of autograd."""
        self.pair += 1
        work = _launching(
            f"aten::{node.removesuffix('0').lower()}", kernel, 1.5 * us, dims
        )
        if kernel == GEMM:
            inputs, outputs = dims[2]
            shapes = ((ROWS, outputs), (outputs, inputs))
            work = _launching("aten::mm", GEMM_BACKWARD, 22.0, shapes)
        inner = Range(OP, node, (Own(OWN_NS), work), backward=self.pair)
        engine = f"autograd::engine::evaluate_function: {node}"
        self.nodes.append(op(engine, Own(OWN_NS), inner, Own(OWN_NS)))
        return _launching(name, kernel, us, dims, forward=self.pair)

    def all_reduce(self) -> tuple[Host, ...]:
        """Of the gradients, beside what else runs; the compute stream waits for it."""
        gradients = ((sum(rows * columns for rows, columns in WEIGHTS),),)
        begun, ended = self.event + 1, self.event + 2
        reduced = _launching(
            "c10d::allreduce_", ALL_REDUCE, 80.0, gradients, stream=COMM_STREAM
        )
        return (
            note(
                "nccl:all_reduce",
                Record(begun, 7, 1_500),
                WaitEvent(begun, COMM_STREAM, 1_200),
                reduced,
            ),
            Record(ended, COMM_STREAM, 1_500),
            WaitEvent(ended, 7, 1_200),
        )

    def optimizer(self) -> Range:
        zero = Launch(
            Item(SET_TO_ZERO, 2_000, kind=MEMSET, bytes=4 * DIM * HIDDEN),
            LAUNCH_NS,
            "cudaMemsetAsync",
        )
        updates = [
            _launching("aten::_fused_adamw_", OPTIMIZER, 30.0) for _ in range(BLOCKS)
        ]
        return note(
            "Optimizer.step#AdamW.step", *updates, op("aten::zero_", Own(OWN_NS), zero)
        )

    def loss_on_host(self) -> Range:
        copy = Copy(Item(TO_HOST, 2_000, kind=MEMCPY, bytes=4), 2_000)
        inner = op(
            "aten::_local_scalar_dense", Own(OWN_NS), copy, Sync("stream", 2_000)
        )
        return op("aten::item", Own(OWN_NS), inner)


def training(count: int = STEPS, *, gemm_factor: float = 1.0) -> Program:
    """So many steps; `gemm_factor` makes matrix products that much longer."""
    bodies = [_Step(number).body() for number in range(1, count + 1)]
    before = _Step(0).optimizer()  # the GPU works when the first step begins
    loop = frame("train.py(50): main", Own(OWN_NS), before, *steps(*bodies))
    main = frame("train.py(60): <module>", Own(OWN_NS), loop, Own(OWN_NS))

    def slower(item: Item) -> Item:
        if item.name not in (GEMM, GEMM_BACKWARD):
            return item
        return replace(item, ns=round(item.ns * gemm_factor))

    whole = Program((Thread((Own(20_000), main, Sync("device", 4_000))),), Machine())
    return numbered(everywhere(whole, on_items(slower)))
