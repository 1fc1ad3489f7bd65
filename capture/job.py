"""What is run: the variants of a workload, or the user's own code, `my_file.py:build`
or `my_module:build`.

`build` returns a function or a dict of functions; each is a function without arguments,
or a pair of a function and a tuple of arguments. Parameters of `build` with an integer
default are its shapes, so `--batch 64` and `--sweep batch=...` work; `device` and
`dtype` are passed if there are parameters of these names.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from fusetui.kernels import Shapes, Variant, Workload
from fusetui.kernels.model import prepare

from .errors import CaptureError, sentence
from .guard import parent_only
from .options import Options, choose, dtype_name, parse_shapes
from .provenance import CaptureDevice
from .step import (
    TOLERANCE,
    Answer,
    Step,
    answer,
    forward_step,
    rotation,
    run_step,
    training_step,
)

SEED = 0
NEEDS_GPU = "it needs a GPU: its Triton kernel does not run on a CPU."


@dataclass(frozen=True)
class Trial:
    """One variant. `build` makes the callable; `unable` says why it cannot run here, if
    so. `compiles`: its first call compiles something, with torch.compile or Triton."""

    name: str
    build: Callable[[], Callable[..., Any]]
    copies: Sequence[Sequence[Any]] = ((),)
    compiles: bool = False
    unable: str | None = None


@dataclass(frozen=True)
class Job:
    """The trials of one run and what they have in common.

    `reference` is the right answer, in float32, which every trial must give; without
    one, the others are compared with the first trial's answer, for information only.
    `gradient` is that of the result in a backward pass. `keeps_gradients`: the user's
    functions decide about autograd themselves.
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
    """Random weights and inputs from a fixed seed, and the float32 reference computed
    from them. The reference uses the weights as rounded to the run's dtype, so that
    only the variant's own error is measured. Raises CaptureError for an option that
    does not apply to the workload."""
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
    needed = _version(variant.capability)
    return (
        f"it needs compute capability {needed}, and this GPU has "
        f"{_version(device.capability)}: Triton does not use its tensor cores."
    )


def _version(capability: tuple[int, int]) -> str:
    """`8.0`."""
    major, minor = capability
    return f"{major}.{minor}"


def _reference(
    model: nn.Module, inputs: list[Tensor], backward: bool
) -> tuple[Tensor, Answer]:
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
    on_cpu = workload.cpu_shapes
    on_gpu = workload.gpu_shapes
    return any(size == on_cpu[axis] != on_gpu[axis] for axis, size in shapes.items())


def gradient_for(result: Tensor, dtype: torch.dtype) -> Tensor:
    """A random gradient of a result, in float32 but with values that the dtype can
    represent. It is 0 where the result may be 0 within the precision of the dtype:
    there the slope of a relu is undetermined, and so would be the right gradient."""
    allowed = TOLERANCE[str(dtype).removeprefix("torch.")] * float(result.abs().max())
    return (
        torch.randn_like(result)
        .masked_fill(result.abs() <= allowed, 0)
        .to(dtype)
        .float()
    )


Build = Callable[..., object]


def is_target(name: str) -> bool:
    """Whether a name means the user's own code: `file.py:build`, `module:build`."""
    return ":" in name


def folder_of(target: str) -> Path:
    """The folder of the user's code, of a module the working directory. Raises
    CaptureError."""
    source = target.rpartition(":")[0]
    try:
        return Path(source).resolve().parent if source.endswith(".py") else Path.cwd()
    except (OSError, ValueError) as error:
        raise CaptureError(f"{target} is not where code can be: {error}.") from None


def user_job(target: str, options: Options, device: CaptureDevice) -> Job:
    """Builds the user's functions. Raises CaptureError with one sentence if that
    fails."""
    if options.mode is not None:
        raise CaptureError(
            "--mode is for the built-in workloads: give the mode to torch.compile."
        )
    build = load(target)
    shapes = parse_shapes(options.shapes, axes(build))
    dtype = dtype_name(options.dtype or "float32")
    context = _context(build, device, dtype, options)
    torch.manual_seed(SEED)
    try:
        with parent_only():
            built = build(**shapes, **context)
    except (Exception, SystemExit) as error:
        raise CaptureError(f"{target} failed: {sentence(error)}") from error
    functions = functions_of(built, target)
    names = choose(target, functions, options.variants)

    def trial(name: str) -> Trial:
        function, arguments = functions[name]
        # torch.compile sets these attributes.
        compiled = hasattr(function, "_torchdynamo_orig_callable") or hasattr(
            function, "_orig_mod"
        )
        return Trial(name, lambda: function, (arguments,), compiled)

    return Job(
        workload=target,
        summary=(inspect.getdoc(build) or target).splitlines()[0],
        shapes=shapes,
        shapes_shrunk=False,
        dtype=dtype if "dtype" in context else "",
        label=build.__name__,
        trials=[trial(name) for name in names],
        backward=options.backward,
        keeps_gradients=True,
    )


def load(target: str) -> Build:
    """The build function named by `file.py:name` or `module:name`. Raises
    CaptureError."""
    source, _, name = target.rpartition(":")
    try:
        with parent_only():
            if source.endswith(".py"):
                module = _from_file(Path(source))
            else:
                _import_from(Path.cwd())
                module = importlib.import_module(source)
    except CaptureError:
        raise
    except (Exception, SystemExit) as error:
        raise CaptureError(f"{source} cannot be imported: {sentence(error)}") from error
    build = getattr(module, name, None)
    if not callable(build):
        raise CaptureError(f"{source} has no function '{name}'.")
    found: Build = build
    return found


def axes(build: Build) -> dict[str, int]:
    """The shapes of a build function: its parameters with an integer default."""
    parameters = inspect.signature(build).parameters.values()
    return {p.name: p.default for p in parameters if type(p.default) is int}


def functions_of(
    built: object, target: str
) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """(function, arguments) by name, from what `build` returned. Raises
    CaptureError."""
    function = built[0] if isinstance(built, tuple) and built else built
    own = str(getattr(function, "__name__", type(function).__name__)).strip("<>")
    named = built if isinstance(built, Mapping) else {own: built}
    if not named:
        raise CaptureError(
            f"{target} returned an empty dict: there is nothing to capture."
        )
    return {
        _file_name(str(name), target): _pair(item, target)
        for name, item in named.items()
    }


def _pair(item: object, target: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    function: object = item
    arguments: object = ()
    if isinstance(item, tuple) and len(item) == 2:
        function, arguments = item
    if not callable(function) or not isinstance(arguments, tuple | list):
        raise CaptureError(
            f"{target} returned {type(item).__name__}: it must return a function, a pair of a "
            "function and the tuple of its arguments, or a dict of these."
        )
    return function, tuple(arguments)


def _context(
    build: Build, device: CaptureDevice, dtype: str, options: Options
) -> dict[str, Any]:
    """`device` and `dtype` for a build function that has parameters of these names."""
    known = inspect.signature(build).parameters
    if options.dtype and "dtype" not in known:
        raise CaptureError(
            "--dtype has no effect here: the build function has no such parameter."
        )
    values = {"device": device.kind, "dtype": getattr(torch, dtype)}
    return {name: value for name, value in values.items() if name in known}


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise CaptureError(f"There is no file {path}.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise CaptureError(f"{path} is not a Python file.")
    _import_from(path.resolve().parent)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _import_from(folder: Path) -> None:
    """Appends the folder to sys.path, last so that it shadows no installed package."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _file_name(name: str, target: str) -> str:
    if (
        not name
        or name.startswith(".")
        or not all(c.isalnum() or c in "-_.+" for c in name)
    ):
        raise CaptureError(
            f"{target} names a function '{name}': use letters, digits, - _ . +."
        )
    return name
