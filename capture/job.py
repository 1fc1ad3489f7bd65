"""The code that a capture runs: the variants of a workload, or functions in the user's
own code, `my_file.py:build` or `my_module:build`.

`build` returns a function or a dict of functions; each is a function without arguments,
or a pair of a function and a tuple of arguments. The parameters of `build` with an
integer default are the shapes, so `--batch 64` and `--sweep batch=...` work. `device`
and `dtype` are passed if it has parameters of these names.
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
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fusetui.kernels import Shapes, Variant, Workload
from fusetui.kernels.model import prepare

from .errors import CaptureError, describe_failure
from .guard import end_forked_children
from .options import Options, choose_variants, expand_dtype_name, parse_shapes
from .provenance import CaptureDevice
from .step import (
    TOLERANCE,
    Answer,
    Step,
    copy_answer,
    forward_step,
    input_copies,
    run_step,
    training_step,
)

SEED = 0
NEEDS_GPU = "it needs a GPU: its Triton kernel does not run on a CPU."


@dataclass(frozen=True)
class Trial:
    """One variant.

    `build` makes the callable. `copies` are equal arguments for it, to be taken in
    turn. `compiles`: its first call compiles something, with torch.compile or Triton.
    `unable` says why it cannot run here, or is None.
    """

    name: str
    build: Callable[[], Callable[..., Any]]
    copies: Sequence[Sequence[Any]] = ((),)
    compiles: bool = False
    unable: str | None = None


@dataclass(frozen=True)
class Job:
    """The trials of one run and what they have in common.

    `label` is the name of a step in the trace. `reference` is the right answer, in
    float32, which every trial must give. Without one, the others are compared with the
    first trial's answer, for information only. `gradient` is that of the result in a
    backward pass; None means ones. `keeps_gradients`: the user's functions decide about
    autograd themselves.
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


def make_workload_job(
    workload: Workload, options: Options, device: CaptureDevice
) -> Job:
    """Return the job of a workload: random weights and inputs from a fixed seed, and a
    float32 reference computed from them.

    The reference uses the weights as rounded to the dtype of the run, so only the error
    of the variant itself is measured. Raises CaptureError for an option that does not
    apply to the workload.
    """
    names = choose_variants(workload.name, workload.variants, options.variants)
    shapes = parse_shapes(options.shapes, workload.shapes(device.kind))
    dtype = expand_dtype_name(options.dtype or workload.dtype_on(device.kind))
    torch_dtype = getattr(torch, dtype)
    torch.manual_seed(SEED)
    model = workload.model(shapes).eval().to(device=device.kind, dtype=torch_dtype)
    inputs = [
        tensor.to(device=device.kind, dtype=torch_dtype)
        for tensor in workload.inputs(shapes)
    ]
    gradient, reference = _compute_reference(model, inputs, options.backward)

    copies = input_copies(inputs, device.cache_bytes, options.backward)
    trials = []
    for name in names:
        variant = workload.variants[name]
        trial = Trial(
            name=name,
            build=partial(prepare, variant, model, options.mode),
            copies=copies,
            compiles=variant.compiled or variant.needs_gpu,
            unable=why_unable(variant, device),
        )
        trials.append(trial)

    return Job(
        workload=workload.name,
        summary=workload.summary,
        shapes=shapes,
        shapes_shrunk=device.kind == "cpu" and is_shrunk(workload, shapes),
        dtype=dtype,
        label=workload.name.replace("-", "_"),
        trials=trials,
        backward=options.backward,
        keeps_gradients=False,
        reference=reference,
        gradient=gradient.to(device=device.kind, dtype=torch_dtype),
    )


def why_unable(variant: Variant, device: CaptureDevice) -> str | None:
    """Return why a variant cannot run on a device, in one sentence; None if it can."""
    if device.kind == "cpu":
        return NEEDS_GPU if variant.needs_gpu else None
    if device.capability is None or device.capability >= variant.capability:
        return None

    needed = _format_capability(variant.capability)
    available = _format_capability(device.capability)

    return (
        f"it needs compute capability {needed}, but this GPU has {available}, whose "
        "tensor cores Triton does not use."
    )


def _format_capability(capability: tuple[int, int]) -> str:
    """Return a compute capability as text, such as `8.0`."""
    major, minor = capability
    return f"{major}.{minor}"


def _compute_reference(
    model: nn.Module, inputs: list[Tensor], backward: bool
) -> tuple[Tensor, Answer]:
    """Return a random gradient for the result of the model and the answer of the model,
    both in float32. With `backward`, the answer includes gradients."""
    exact = copy.deepcopy(model).float()
    exact_inputs = [tensor.float() for tensor in inputs]

    copies = input_copies(exact_inputs, cache_bytes=0, backward=backward)
    dtype = next(model.parameters()).dtype
    with torch.no_grad():
        gradient = gradient_for(exact(*copies[0]), dtype)

    step: Step
    if backward:
        step = training_step(exact, "reference", copies, gradient)
    else:
        step = forward_step(exact, "reference", copies)

    with torch.set_grad_enabled(backward):
        result = run_step(step)
        return gradient, copy_answer(result, copies[0], exact)


def is_shrunk(workload: Workload, shapes: Shapes) -> bool:
    """Return whether any axis has the default size for a CPU, where that for a GPU is
    larger or otherwise different."""
    for axis, size in shapes.items():
        cpu_size = workload.cpu_shapes[axis]
        if size == cpu_size and cpu_size != workload.gpu_shapes[axis]:
            return True
    return False


def gradient_for(result: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a random gradient of a result, in float32 with values that the dtype can
    represent.

    It is 0 where the result may be 0 within the precision of the dtype. There the slope
    of a relu is undetermined, and so would be the right gradient.
    """
    tolerance = TOLERANCE[str(dtype).removeprefix("torch.")]
    error = tolerance * float(result.abs().max())
    gradient = torch.randn_like(result).masked_fill(result.abs() <= error, 0)
    return gradient.to(dtype).float()


Build = Callable[..., object]
"""The user's function that returns the functions to run."""


class BoundFunction(NamedTuple):
    """A function of the user and the arguments to call it with."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


def is_target(name: str) -> bool:
    """Whether a name means the user's own code: `file.py:build`, `module:build`."""
    return ":" in name


def find_code_folder(target: str) -> Path:
    """Return the folder of the user's code: that of the file, or the working directory
    for a module. Raises CaptureError if it cannot be determined."""
    source = target.rpartition(":")[0]
    try:
        return Path(source).resolve().parent if source.endswith(".py") else Path.cwd()
    except (OSError, ValueError) as error:
        raise CaptureError(f"{target} cannot contain code: {error}.") from None


def make_user_job(target: str, options: Options, device: CaptureDevice) -> Job:
    """Return the job of the user's own functions, which this builds. Raises
    CaptureError with one sentence if that fails, or if an option does not apply."""
    if options.mode is not None:
        raise CaptureError(
            "--mode applies only to built-in workloads: pass the mode to torch.compile."
        )

    build = load_build_function(target)
    shapes = parse_shapes(options.shapes, find_default_shapes(build))
    dtype = expand_dtype_name(options.dtype or "float32")
    context = _make_context(build, device, dtype, options)
    torch.manual_seed(SEED)

    try:
        with end_forked_children():
            built = build(**shapes, **context)
    except (Exception, SystemExit) as error:
        raise CaptureError(f"{target} failed: {describe_failure(error)}") from error

    functions = functions_of(built, target)
    names = choose_variants(target, functions, options.variants)

    return Job(
        workload=target,
        summary=(inspect.getdoc(build) or target).splitlines()[0],
        shapes=shapes,
        shapes_shrunk=False,
        dtype=dtype if "dtype" in context else "",
        label=build.__name__,
        trials=[_make_user_trial(name, functions[name]) for name in names],
        backward=options.backward,
        keeps_gradients=True,
    )


def _make_user_trial(name: str, bound: BoundFunction) -> Trial:
    """Return the trial of a function of the user, with its arguments. It counts as
    compiled if torch.compile made it."""
    function, arguments = bound
    # torch.compile sets these attributes, the first on functions, the other on modules.
    compiles = hasattr(function, "_torchdynamo_orig_callable")
    compiles = compiles or hasattr(function, "_orig_mod")

    return Trial(
        name=name,
        build=lambda: function,
        copies=(arguments,),
        compiles=compiles,
    )


def load_build_function(target: str) -> Build:
    """The build function that `file.py:name` or `module:name` names. Raises
    CaptureError if it cannot be imported or there is no such function."""
    source, _, name = target.rpartition(":")
    try:
        with end_forked_children():
            if source.endswith(".py"):
                module = _import_file(Path(source))
            else:
                _add_to_import_path(Path.cwd())
                module = importlib.import_module(source)
    except CaptureError:
        raise
    except (Exception, SystemExit) as error:
        raise CaptureError(
            f"{source} cannot be imported: {describe_failure(error)}"
        ) from error

    build: Build | None = getattr(module, name, None)
    if build is None or not callable(build):
        raise CaptureError(f"{source} has no function '{name}'.")

    return build


def find_default_shapes(build: Build) -> dict[str, int]:
    """Return the shapes of a build function with their default sizes. They are its
    parameters whose default is an integer."""
    parameters = inspect.signature(build).parameters.values()
    return {
        parameter.name: parameter.default
        for parameter in parameters
        if type(parameter.default) is int  # not a bool
    }


def functions_of(built: object, target: str) -> dict[str, BoundFunction]:
    """Return the functions to run by the names of their variants, from what `build`
    returned. A single function has its own name.

    Raises CaptureError for an empty dict, for what is not a function, and for a name
    that cannot be that of a file.
    """
    if isinstance(built, Mapping):
        built_by_name = built
        if not built_by_name:
            raise CaptureError(
                f"{target} returned an empty dict: there is nothing to capture."
            )
    else:
        function = built[0] if isinstance(built, tuple) and built else built
        name = getattr(function, "__name__", type(function).__name__)
        built_by_name = {str(name).strip("<>"): built}  # `lambda` for `<lambda>`

    return {
        _check_name(str(name), target): _bind_arguments(item, target)
        for name, item in built_by_name.items()
    }


def _bind_arguments(item: object, target: str) -> BoundFunction:
    """Return a function with its arguments, from a function without arguments or a pair
    of both. Raises CaptureError for anything else."""
    function: object = item
    arguments: object = ()
    if isinstance(item, tuple) and len(item) == 2:
        function, arguments = item

    if not callable(function) or not isinstance(arguments, tuple | list):
        raise CaptureError(
            f"{target} returned {type(item).__name__}: it must return a function, a pair of a "
            "function and the tuple of its arguments, or a dict of these."
        )

    return BoundFunction(function=function, arguments=tuple(arguments))


def _make_context(
    build: Build, device: CaptureDevice, dtype: str, options: Options
) -> dict[str, Any]:
    """Return `device` and `dtype` for a build function, as far as it has parameters of
    these names. Raises CaptureError if a dtype was asked for and it has none."""
    parameters = inspect.signature(build).parameters
    if options.dtype and "dtype" not in parameters:
        raise CaptureError(
            "--dtype has no effect here: the build function has no such parameter."
        )

    context: dict[str, Any] = {}
    if "device" in parameters:
        context["device"] = device.kind

    if "dtype" in parameters:
        context["dtype"] = getattr(torch, dtype)

    return context


def _import_file(path: Path) -> ModuleType:
    """Run a file as a module and return it; it can import the modules beside it. Raises
    CaptureError if it is not a Python file, and what the file raises."""
    if not path.is_file():
        raise CaptureError(f"There is no file {path}.")

    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise CaptureError(f"{path} is not a Python file.")

    _add_to_import_path(path.resolve().parent)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _add_to_import_path(folder: Path) -> None:
    """Appends the folder to sys.path, last so that it shadows no installed package."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _check_name(name: str, target: str) -> str:
    """Return the name of a variant, which is also that of its files. Raises
    CaptureError if it has characters that are not safe in file names."""
    has_only_safe_chars = all(char.isalnum() or char in "-_.+" for char in name)
    if not name or name.startswith(".") or not has_only_safe_chars:
        raise CaptureError(
            f"{target} names a function '{name}': use letters, digits, - _ . +."
        )
    return name
