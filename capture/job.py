"""What is run: the variants of a workload or of the user's build function, ready to run."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fusetui.kernels import Shapes, Variant, Workload
from fusetui.kernels.variants import prepare

from .device import CaptureDevice
from .options import Options, choose, dtype_name
from .shapes import parse_shapes
from .step import TOLERANCE, Answer, Step, answer, forward_step, rotation, run_step, training_step

SEED = 0
NEEDS_GPU = "it needs a GPU: its Triton kernel does not run on a CPU."


@dataclass(frozen=True)
class Trial:
    """One variant. `build` makes the callable; `unable` says why it cannot run here, if so.
    `compiles`: its first call compiles something, with torch.compile or Triton."""

    name: str
    build: Callable[[], Callable[..., Any]]
    copies: Sequence[Sequence[Any]] = ((),)
    compiles: bool = False
    unable: str | None = None


@dataclass(frozen=True)
class Job:
    """The trials of one run and what they have in common.

    `reference` is the right answer, in float32, which every trial must give; without one, the
    others are compared with the first trial's answer, for information only. `gradient` is that of
    the result in a backward pass. `keeps_gradients`: the user's functions decide about autograd
    themselves.
    """

    workload: str
    summary: str
    shapes: Mapping[str, int]
    shapes_shrunk: bool
    dtype: str
    label: str
    trials: Sequence[Trial]
    backward: bool
    keeps_gradients: bool
    reference: Answer | None = None
    gradient: Any = None


def workload_job(workload: Workload, options: Options, device: CaptureDevice) -> Job:
    """Random weights and inputs from a fixed seed, and the float32 reference computed from them.

    The reference uses the weights as rounded to the run's dtype, so that only the variant's own
    error is measured. Raises CaptureError for an option that does not apply to the workload.
    """
    names = choose(workload.name, workload.variants, options.variants)
    shapes = parse_shapes(options.shapes, workload.shapes(device.kind))
    dtype = dtype_name(options.dtype or workload.dtype_on(device.kind))
    torch.manual_seed(SEED)
    to = {"device": device.kind, "dtype": getattr(torch, dtype)}
    model = workload.model(shapes).eval().to(**to)
    inputs = [tensor.to(**to) for tensor in workload.inputs(shapes)]
    gradient, reference = _reference(model, inputs, options.backward)
    copies = rotation(inputs, device.cache_bytes, options.backward)

    def trial(name: str) -> Trial:
        variant = workload.variants[name]
        return Trial(
            name=name,
            build=partial(prepare, variant, model, options.mode),
            copies=copies,
            compiles=variant.compiled or variant.needs_gpu,
            unable=unable(variant, device),
        )

    return Job(
        workload=workload.name,
        summary=workload.summary,
        shapes=shapes,
        shapes_shrunk=device.kind == "cpu" and is_shrunk(workload, shapes),
        dtype=dtype,
        label=workload.name.replace("-", "_"),
        trials=[trial(name) for name in names],
        backward=options.backward,
        keeps_gradients=False,
        reference=reference,
        gradient=gradient.to(**to),
    )


def unable(variant: Variant, device: CaptureDevice) -> str | None:
    """Why a variant cannot run on a device, in one sentence, or None."""
    if device.kind == "cpu":
        return NEEDS_GPU if variant.needs_gpu else None
    if device.capability is None or device.capability >= variant.capability:
        return None
    least, found = (f"{major}.{minor}" for major, minor in (variant.capability, device.capability))
    return (
        f"it needs compute capability {least}, and this GPU has {found}: Triton does not use its "
        "tensor cores."
    )


def _reference(model: nn.Module, inputs: list[Tensor], backward: bool) -> tuple[Tensor, Answer]:
    """A random gradient for the result, and the answer in float32."""
    exact = copy.deepcopy(model).float()
    copies = rotation([tensor.float() for tensor in inputs], 0, backward)
    dtype = next(model.parameters()).dtype
    with torch.no_grad():
        gradient = gradient_for(exact(*copies[0]), dtype)
    step: Step = forward_step(exact, "reference", copies)
    if backward:
        step = training_step(exact, "reference", copies, gradient)
    with torch.set_grad_enabled(backward):
        return gradient, answer(run_step(step), copies[0], exact)


def is_shrunk(workload: Workload, shapes: Shapes) -> bool:
    """Whether any axis has the default for a CPU where that for a GPU differs."""
    cpu, gpu = workload.cpu_shapes, workload.gpu_shapes
    return any(size == cpu[axis] != gpu[axis] for axis, size in shapes.items())


def gradient_for(result: Tensor, dtype: torch.dtype) -> Tensor:
    """A random gradient of a result, in float32 but with values that the dtype can represent.

    It is 0 where the result may be 0 within the precision of the dtype: there the slope of a relu
    is undetermined, and so would be the right gradient.
    """
    allowed = TOLERANCE[str(dtype).removeprefix("torch.")] * float(result.abs().max())
    return torch.randn_like(result).masked_fill(result.abs() <= allowed, 0).to(dtype).float()
