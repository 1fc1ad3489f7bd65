"""The programs of the source: a linear layer and a gated MLP, eager, compiled and with
Liger.

The frames are those of PyTorch 2.13, the longest chains of them; the scripts' line
numbers and the names of files that torch.compile generates are made up.
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
    """A script of the source, and how its model is set up: that gives a step."""

    script: str
    label: str
    prepare: Callable[[Machine], Step]


@contextmanager
def _module(m: Machine, name: str, number: int, forward: str) -> Iterator[None]:
    """The frames of a call of an nn.Module."""
    with m.frame(f"nn.Module: {name}", module=number), m.frames(_CALL, forward):
        yield


def _linear(
    m: Machine, number: int, x: Tensor, weight: Tensor, bias: Tensor | None
) -> Tensor:
    name = f"Linear_{number}"
    with (
        _module(m, name, number, _LINEAR_FORWARD),
        m.frame("<built-in function linear>"),
    ):
        return aten.linear(m, x, weight, bias)


def _linear_eager(m: Machine) -> Step:
    x, weight, bias = _linear_parts(m)

    def step(m: Machine) -> None:
        m.free(_linear(m, 0, x, weight, bias))

    return step


def _linear_compiled(m: Machine) -> Step:
    x, weight, bias = _linear_parts(m)

    def step(m: Machine) -> None:
        with _compiled(m, "Linear_0", _LINEAR_FORWARD, "f3jlinearlesson"):
            out = _empty_strided(m, LINEAR_ROWS, LINEAR_OUT)
            m.builtin("<built-in function _reinterpret_tensor>")
            with m.frame(_ADDMM):
                aten.addmm_out(m, bias, x, weight.t(), out)
        m.free(out)

    return step


def _mlp_eager(m: Machine) -> Step:
    x, gate, up, down = _mlp_parts(m)

    def step(m: Machine) -> None:
        with _module(m, "GeGLUMLP_0", 3, "03_simple_mlp.py(24): forward"):
            projected = _linear(m, 0, x, gate, None)
            upward = _linear(m, 1, x, up, None)
            with m.frame("<built-in function gelu>"):
                gated = aten.gelu(m, projected)
            m.free(projected)
            hidden = aten.mul(m, gated, upward)
            m.free(upward)
            out = _linear(m, 2, hidden, down, None)
            m.free(hidden)
            m.free(gated)
        m.free(out)

    return step


def _mlp_compiled(m: Machine) -> Step:
    x, gate, up, down = _mlp_parts(m)
    flat = x.view(ROWS, DIM)

    def step(m: Machine) -> None:
        forward = "03_simple_mlp.py(24): forward"
        with _compiled(m, "GeGLUMLP_0", forward, "f4kmlplesson"):
            projected = _mm(m, flat, gate)
            upward = _mm(m, flat, up)
            hidden = projected.view(BATCH, SEQUENCE, HIDDEN)
            _triton_fused(m, hidden, upward)
            m.free(upward)
            out = _mm(m, projected, down)
            m.free(projected)
        m.free(out)

    return step


def _mlp_liger(m: Machine) -> Step:
    x, gate, up, down = _mlp_parts(m)

    def step(m: Machine) -> None:
        with _module(
            m, "LigerGEGLUMLP_0", 3, "liger_kernel/transformers/geglu.py(30): forward"
        ):
            projected = _linear(m, 0, x, gate, None)
            upward = _linear(m, 1, x, up, None)
            hidden = _liger(m, projected, upward)
            m.free(projected)
            m.free(upward)
            out = _linear(m, 2, hidden, down, None)
            m.free(hidden)
        m.free(out)

    return step


@contextmanager
def _compiled(m: Machine, module: str, forward: str, graph: str) -> Iterator[None]:
    """A call of a module that torch.compile compiled, down to the generated `call`."""
    around = ("nn.Module: OptimizedModule_0", 0), (f"nn.Module: {module}", 1)
    generated = f"torchinductor/{graph[1:3]}/{graph}.py(46): call"
    with (
        m.frame("torch/_dynamo/eval_frame.py(499): __call__"),
        m.frame(*around[0]),
        m.frames(_CALL, "torch/_dynamo/eval_frame.py(1076): compile_wrapper"),
        m.frame(*around[1]),
        m.frame(_CALL),
    ):
        m.leaf("TorchDynamo Cache Lookup")
        with m.op("Torch-Compiled Region: 0/0"), m.frame(forward):
            m.leaf("Pregraph bytecode")
            with m.frames(*_TO_COMPILED):
                m.leaf("AOTDispatcher Runtime Wrapper Prologue")
                with m.frames(*_TO_CALL):
                    note = m.begin(
                        f"## Call CompiledFxGraph {graph} ##", scope="user_scope"
                    )
                    with m.frame(generated):
                        m.builtin("<built-in function assert_size_stride>")
                        yield
                    m.end(note)


def _empty_strided(m: Machine, *shape: int) -> Tensor:
    with m.frame("<built-in function _empty_strided_cuda>"):
        return m.empty(*shape)


def _mm(m: Machine, x: Tensor, weight: Tensor) -> Tensor:
    out = _empty_strided(m, x.shape[0], weight.shape[0])
    m.builtin("<built-in function _reinterpret_tensor>")
    with m.frame(_MM):
        aten.mm_out(m, x, weight.t(), out)
    return out


def _triton_fused(m: Machine, gate: Tensor, up: Tensor) -> None:
    """Writes gelu(gate) * up over gate."""
    numel, block = ROWS * HIDDEN, 1024
    about: dict[str, object] = {
        "kernel_file": f"torchinductor/{FUSED_NAME}.py",
        "kernel_hash": "lesson",
        "kernel_backend": "triton",
        "stream": 0,
        "num_warps": 4,
        "num_stages": 1,
        "kernel_kwargs": f"XBLOCK={block}",
        "kernel_name": FUSED_NAME,
    }
    with (
        m.frame("torch/_inductor/runtime/triton_heuristics.py(2059): run"),
        m.op(FUSED_NAME, gate, up, numel, **about),
        m.frame("torch/_inductor/runtime/static_triton_launcher.py(250): run"),
    ):
        launch = Launch((numel // block, 1, 1), (128, 1, 1), 32)
        m.launch(FUSED_NAME, FUSED, launch, by_driver=True)


def _liger(m: Machine, gate: Tensor, up: Tensor) -> Tensor:
    """One block a row, as Liger launches it."""
    shape = gate.shape
    frames = (
        "<built-in method apply of FunctionMeta object at 0x7f2100000100>",
        "liger_kernel/ops/geglu.py(117): forward",
        "liger_kernel/ops/geglu.py(82): geglu_forward",
    )
    with (
        m.frame(frames[0]),
        m.op("LigerGELUMulFunction", gate, up),
        m.frames(*frames[1:]),
    ):
        flat = [aten.view(m, tensor, ROWS, HIDDEN) for tensor in (gate, up)]
        with m.op("aten::empty_like", flat[0], None, None, None, None, None):
            out = _new(m, ROWS, HIDDEN)
        with m.frame("triton/runtime/jit.py(700): run"):
            launch = Launch((ROWS, 1, 1), (256, 1, 1), 40)
            m.launch(LIGER_NAME, LIGER, launch, by_driver=True)
        return aten.view(m, out, *shape)


def _new(m: Machine, *shape: int) -> Tensor:
    strides = (shape[1], 1)
    with m.op("aten::empty_strided", shape, strides, None, None, None, None):
        return m.empty(*shape)


def _linear_parts(m: Machine) -> tuple[Tensor, Tensor, Tensor]:
    weight, bias = m.empty(LINEAR_OUT, LINEAR_IN), m.empty(LINEAR_OUT)
    return m.empty(LINEAR_ROWS, LINEAR_IN), weight, bias


def _mlp_parts(m: Machine) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    gate, up = m.empty(HIDDEN, DIM), m.empty(HIDDEN, DIM)
    return m.empty(BATCH, SEQUENCE, DIM), gate, up, m.empty(DIM, HIDDEN)


PROGRAMS = {
    "linear-eager": Program("02_linear.py", "linear_fwd", _linear_eager),
    "linear-compiled": Program("02_linear.py", "linear_fwd", _linear_compiled),
    "mlp-eager": Program("03_simple_mlp.py", "mlp_fwd", _mlp_eager),
    "mlp-compiled": Program("03_simple_mlp.py", "mlp_fwd", _mlp_compiled),
    "mlp-liger": Program("03_kernels_mlp.py", "mlp_fwd", _mlp_liger),
}
"""By the name of the lesson."""
