"""The programs of the source: a linear layer and a gated MLP, eager, compiled and
with Liger.

The frames are the longest call chains of PyTorch 2.13. The line numbers of the
scripts and the names of generated files are invented.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from docs.lessons import torch_ops as aten
from docs.lessons.device import Launch
from docs.lessons.figures import (
    BATCH,
    DIM,
    FUSED,
    HIDDEN,
    LIGER,
    LINEAR_IN,
    LINEAR_OUT,
    LINEAR_ROWS,
    ROWS,
    SEQUENCE,
)
from docs.lessons.machine import Machine
from docs.lessons.tensors import Tensor

_CALL = "torch/nn/modules/module.py(1782): _call_impl"
_LINEAR_FORWARD = "torch/nn/modules/linear.py(130): forward"
_TO_COMPILED = (
    "torch/_dynamo/eval_frame.py(1423): _fn",
    "torch/_functorch/aot_autograd.py(1269): forward",
    "torch/_functorch/_aot_autograd/runtime_wrappers.py(1129): runtime_wrapper",
)
_TO_CALL = (
    "torch/_functorch/_aot_autograd/runtime_wrappers.py(2547): __call__",
    "torch/_inductor/output_code.py(721): __call__",
)
_MM = "<built-in method mm of type object at 0x7f2100000000>"
_ADDMM = "<built-in method addmm of type object at 0x7f2100000000>"
FUSED_NAME = "triton_poi_fused__unsafe_view_gelu_mul_0"
LIGER_NAME = "_geglu_tanh_forward_kernel"

Step = Callable[[Machine], None]


@dataclass(frozen=True)
class Program:
    """A script of the source: its file, the label of a step in the trace, and
    `prepare`, which allocates the tensors and returns the step."""

    script: str
    label: str
    prepare: Callable[[Machine], Step]


@contextmanager
def _module(machine: Machine, name: str, number: int, forward: str) -> Iterator[None]:
    """Record the frames of a call of an nn.Module."""
    with (
        machine.frame(f"nn.Module: {name}", module=number),
        machine.frames(_CALL, forward),
    ):
        yield


def _linear(
    machine: Machine, number: int, x: Tensor, weight: Tensor, bias: Tensor | None
) -> Tensor:
    """Call nn.Linear; `number` is the number of the module."""
    with (
        _module(machine, f"Linear_{number}", number, _LINEAR_FORWARD),
        machine.frame("<built-in function linear>"),
    ):
        return aten.linear(machine, x, weight, bias)


def _linear_eager(machine: Machine) -> Step:
    x, weight, bias = _linear_tensors(machine)

    def step(machine: Machine) -> None:
        machine.free(_linear(machine, 0, x, weight, bias))

    return step


def _linear_compiled(machine: Machine) -> Step:
    x, weight, bias = _linear_tensors(machine)

    def step(machine: Machine) -> None:
        with _compiled(machine, "Linear_0", _LINEAR_FORWARD, "f3jlinearlesson"):
            out = _empty_strided(machine, LINEAR_ROWS, LINEAR_OUT)
            machine.builtin("<built-in function _reinterpret_tensor>")
            with machine.frame(_ADDMM):
                aten.addmm_out(machine, bias, x, weight.t(), out)
        machine.free(out)

    return step


def _mlp_eager(machine: Machine) -> Step:
    x, gate, up, down = _mlp_tensors(machine)

    def step(machine: Machine) -> None:
        with _module(machine, "GeGLUMLP_0", 3, "03_simple_mlp.py(24): forward"):
            projected = _linear(machine, 0, x, gate, None)
            upward = _linear(machine, 1, x, up, None)
            with machine.frame("<built-in function gelu>"):
                gated = aten.gelu(machine, projected)
            machine.free(projected)
            hidden = aten.mul(machine, gated, upward)
            machine.free(upward)
            out = _linear(machine, 2, hidden, down, None)
            machine.free(hidden)
            machine.free(gated)
        machine.free(out)

    return step


def _mlp_compiled(machine: Machine) -> Step:
    x, gate, up, down = _mlp_tensors(machine)
    flat = x.view(ROWS, DIM)

    def step(machine: Machine) -> None:
        forward = "03_simple_mlp.py(24): forward"
        with _compiled(machine, "GeGLUMLP_0", forward, "f4kmlplesson"):
            projected = _mm(machine, flat, gate)
            upward = _mm(machine, flat, up)
            hidden = projected.view(BATCH, SEQUENCE, HIDDEN)
            _triton_fused(machine, hidden, upward)
            machine.free(upward)
            out = _mm(machine, projected, down)
            machine.free(projected)
        machine.free(out)

    return step


def _mlp_liger(machine: Machine) -> Step:
    x, gate, up, down = _mlp_tensors(machine)

    def step(machine: Machine) -> None:
        with _module(
            machine,
            "LigerGEGLUMLP_0",
            3,
            "liger_kernel/transformers/geglu.py(30): forward",
        ):
            projected = _linear(machine, 0, x, gate, None)
            upward = _linear(machine, 1, x, up, None)
            hidden = _liger(machine, projected, upward)
            machine.free(projected)
            machine.free(upward)
            out = _linear(machine, 2, hidden, down, None)
            machine.free(hidden)
        machine.free(out)

    return step


@contextmanager
def _compiled(
    machine: Machine, module: str, forward: str, graph: str
) -> Iterator[None]:
    """Record the call of a compiled module, down to the generated function `call`.
    The block does the work of that function, and `graph` names the generated file."""
    generated = f"torchinductor/{graph[1:3]}/{graph}.py(46): call"
    with (
        machine.frame("torch/_dynamo/eval_frame.py(499): __call__"),
        machine.frame("nn.Module: OptimizedModule_0", module=0),
        machine.frames(_CALL, "torch/_dynamo/eval_frame.py(1076): compile_wrapper"),
        machine.frame(f"nn.Module: {module}", module=1),
        machine.frame(_CALL),
    ):
        machine.leaf("TorchDynamo Cache Lookup")
        with machine.op("Torch-Compiled Region: 0/0"), machine.frame(forward):
            machine.leaf("Pregraph bytecode")
            with machine.frames(*_TO_COMPILED):
                machine.leaf("AOTDispatcher Runtime Wrapper Prologue")
                with machine.frames(*_TO_CALL):
                    annotation = machine.begin(
                        f"## Call CompiledFxGraph {graph} ##", scope="user_scope"
                    )
                    with machine.frame(generated):
                        machine.builtin("<built-in function assert_size_stride>")
                        yield
                    machine.end(annotation)


def _empty_strided(machine: Machine, *shape: int) -> Tensor:
    with machine.frame("<built-in function _empty_strided_cuda>"):
        return machine.empty(*shape)


def _mm(machine: Machine, x: Tensor, weight: Tensor) -> Tensor:
    """Compute x @ weight.T as compiled code does; `weight` is [out, in]."""
    out = _empty_strided(machine, x.shape[0], weight.shape[0])
    machine.builtin("<built-in function _reinterpret_tensor>")
    with machine.frame(_MM):
        aten.mm_out(machine, x, weight.t(), out)
    return out


def _triton_fused(machine: Machine, gate: Tensor, up: Tensor) -> None:
    """Launch torch.compile's kernel, which overwrites gate with gelu(gate) * up."""
    numel = ROWS * HIDDEN
    block_elements = 1024
    kernel_args: dict[str, object] = {
        "kernel_file": f"torchinductor/{FUSED_NAME}.py",
        "kernel_hash": "lesson",
        "kernel_backend": "triton",
        "stream": 0,
        "num_warps": 4,
        "num_stages": 1,
        "kernel_kwargs": f"XBLOCK={block_elements}",
        "kernel_name": FUSED_NAME,
    }
    with (
        machine.frame("torch/_inductor/runtime/triton_heuristics.py(2059): run"),
        machine.op(FUSED_NAME, gate, up, numel, **kernel_args),
        machine.frame("torch/_inductor/runtime/static_triton_launcher.py(250): run"),
    ):
        launch = Launch(
            grid=(numel // block_elements, 1, 1), block=(128, 1, 1), registers=32
        )
        machine.launch(FUSED_NAME, FUSED, launch, by_driver=True)


def _liger(machine: Machine, gate: Tensor, up: Tensor) -> Tensor:
    """Launch Liger's kernel for gelu(gate) * up, with one block per row."""
    with (
        machine.frame(
            "<built-in method apply of FunctionMeta object at 0x7f2100000100>"
        ),
        machine.op("LigerGELUMulFunction", gate, up),
        machine.frames(
            "liger_kernel/ops/geglu.py(117): forward",
            "liger_kernel/ops/geglu.py(82): geglu_forward",
        ),
    ):
        flat_gate = aten.view(machine, gate, ROWS, HIDDEN)
        aten.view(machine, up, ROWS, HIDDEN)
        with machine.op("aten::empty_like", flat_gate, None, None, None, None, None):
            out = _new_matrix(machine, ROWS, HIDDEN)
        with machine.frame("triton/runtime/jit.py(700): run"):
            launch = Launch(grid=(ROWS, 1, 1), block=(256, 1, 1), registers=40)
            machine.launch(LIGER_NAME, LIGER, launch, by_driver=True)
        return aten.view(machine, out, *gate.shape)


def _new_matrix(machine: Machine, rows: int, columns: int) -> Tensor:
    shape = (rows, columns)
    strides = (columns, 1)
    with machine.op("aten::empty_strided", shape, strides, None, None, None, None):
        return machine.empty(rows, columns)


def _linear_tensors(machine: Machine) -> tuple[Tensor, Tensor, Tensor]:
    """Allocate the input, the weight and the bias."""
    weight = machine.empty(LINEAR_OUT, LINEAR_IN)
    bias = machine.empty(LINEAR_OUT)
    x = machine.empty(LINEAR_ROWS, LINEAR_IN)
    return x, weight, bias


def _mlp_tensors(machine: Machine) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Allocate the input, and the weights of gate, up and down."""
    gate = machine.empty(HIDDEN, DIM)
    up = machine.empty(HIDDEN, DIM)
    x = machine.empty(BATCH, SEQUENCE, DIM)
    down = machine.empty(DIM, HIDDEN)
    return x, gate, up, down


PROGRAMS = {
    "linear-eager": Program("02_linear.py", "linear_fwd", _linear_eager),
    "linear-compiled": Program("02_linear.py", "linear_fwd", _linear_compiled),
    "mlp-eager": Program("03_simple_mlp.py", "mlp_fwd", _mlp_eager),
    "mlp-compiled": Program("03_simple_mlp.py", "mlp_fwd", _mlp_compiled),
    "mlp-liger": Program("03_kernels_mlp.py", "mlp_fwd", _mlp_liger),
}
"""By the name of the lesson."""
