"""The user's own code as a job: `my_file.py:build` or `my_module:build`.

`build` returns a function or a dict of functions; each is a function without arguments, or a pair
of a function and a tuple of arguments. Parameters of `build` with an integer default are its
shapes, so `--batch 64` and `--sweep batch=...` work; `device` and `dtype` are passed if there are
parameters of these names.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from .device import CaptureDevice
from .errors import CaptureError, sentence
from .guard import parent_only
from .job import SEED, Job, Trial
from .options import Options, choose, dtype_name
from .shapes import parse_shapes

Build = Callable[..., object]


def is_target(name: str) -> bool:
    """Whether a name means the user's own code: `file.py:build`, `module:build`."""
    return ":" in name


def folder_of(target: str) -> Path:
    """The folder of the user's code: that of the file, or the working directory for a module.
    Raises CaptureError if it is not a valid path."""
    source = target.rpartition(":")[0]
    try:
        return Path(source).resolve().parent if source.endswith(".py") else Path.cwd()
    except (OSError, ValueError) as error:
        raise CaptureError(f"{target} is not where code can be: {error}.") from None


def user_job(target: str, options: Options, device: CaptureDevice) -> Job:
    """Builds the user's functions. Raises CaptureError with one sentence if that fails."""
    if options.mode is not None:
        raise CaptureError("--mode is for the built-in workloads: give the mode to torch.compile.")
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
    return Job(
        workload=target,
        summary=(inspect.getdoc(build) or target).splitlines()[0],
        shapes=shapes,
        shapes_shrunk=False,
        dtype=dtype if "dtype" in context else "",
        label=build.__name__,
        trials=[_trial(name, *functions[name]) for name in names],
        backward=options.backward,
        keeps_gradients=True,
    )


def load(target: str) -> Build:
    """The build function named by `file.py:name` or `module:name`. Raises CaptureError."""
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
    """(function, arguments) by name, from what `build` returned. Raises CaptureError."""
    named = built if isinstance(built, Mapping) else {_name_of(built): built}
    if not named:
        raise CaptureError(f"{target} returned an empty dict: there is nothing to capture.")
    return {_file_name(str(name), target): _pair(item, target) for name, item in named.items()}


def _pair(item: object, target: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    function, arguments = item if isinstance(item, tuple) and len(item) == 2 else (item, ())
    if not callable(function) or not isinstance(arguments, tuple | list):
        raise CaptureError(
            f"{target} returned {type(item).__name__}: it must return a function, a pair of a "
            "function and the tuple of its arguments, or a dict of these."
        )
    return function, tuple(arguments)


def _trial(name: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Trial:
    """A trial; a compiled function is recognized by the attributes that torch.compile sets."""
    compiles = hasattr(function, "_torchdynamo_orig_callable") or hasattr(function, "_orig_mod")
    return Trial(name, lambda: function, (arguments,), compiles)


def _context(build: Build, device: CaptureDevice, dtype: str, options: Options) -> dict[str, Any]:
    """`device` and `dtype` for a build function that has parameters of these names."""
    known = inspect.signature(build).parameters
    if options.dtype and "dtype" not in known:
        raise CaptureError("--dtype has no effect here: the build function has no such parameter.")
    values = {"device": device.kind, "dtype": getattr(torch, dtype)}
    return {name: value for name, value in values.items() if name in known}


def _from_file(path: Path) -> ModuleType:
    """Runs a file as a module; it can import what is next to it, like a script."""
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


def _name_of(built: object) -> str:
    function = built[0] if isinstance(built, tuple) and built else built
    name = str(getattr(function, "__name__", type(function).__name__))
    return name.strip("<>")


def _file_name(name: str, target: str) -> str:
    """Checks that a variant's name is valid as a file name. Raises CaptureError."""
    if not name or name.startswith(".") or not all(c.isalnum() or c in "-_.+" for c in name):
        raise CaptureError(f"{target} names a function '{name}': use letters, digits, - _ . +.")
    return name
