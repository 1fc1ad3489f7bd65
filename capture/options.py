"""The options of a capture. Importing this does not need torch.

Each option is declared once, as a field of `Options`: the command line, its help, the table in the
documentation and the checks are derived from the declarations. run.json records the given values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from types import NoneType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from .errors import CaptureError

DTYPES = ("float32", "bfloat16", "float16")
SHORT_NAMES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "half": "float16"}
AMONG = {
    "device": ("auto", "cuda", "cpu"),
    "dtype": DTYPES,
    "mode": ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"),
}
"""The values of options that take no others."""
IN_LOOP = ("device", "steps", "stack", "record_shapes", "memory", "expect", "scrub")
"""The options that also apply to a training loop of the user."""
STEPS = 7  # a verdict of the diff needs five; two more leave room for outliers
ROUNDS = 30
"""Steps of each variant where they take turns: enough for a tenth to show on a busy machine."""
SECONDS = 1.0
SECONDS_OF_A_POINT = 0.3  # less than for a single capture, because a sweep has many points


class Declared(NamedTuple):
    """An option: a field of `Options`. `flag` is its name on the command line, or "" if it is given
    in another way; `kind` is the type of one value, `many` whether it may be repeated."""

    name: str
    kind: type
    many: bool
    default: Any
    flag: str
    metavar: str
    help: str


def asked(usage: str, text: str, default: Any = None) -> Any:
    """A field of `Options`; `usage` is its flag and what stands for its value, `text` its help."""
    flag, _, metavar = usage.partition(" ")
    return field(default=default, metadata={"flag": flag, "metavar": metavar, "help": text})


@dataclass(frozen=True)
class Options:
    """The options of one capture, as the user gave them."""

    variants: Sequence[str] = asked("--variant V", "Only this variant; may be repeated.", ())
    device: str = asked(
        "--device WHERE", "cuda or cpu; auto, the default, uses a GPU if there is one.", "auto"
    )
    dtype: str | None = asked("--dtype D", f"{', '.join(DTYPES[:-1])} or {DTYPES[-1]}.")
    shapes: Sequence[str] = asked("", "Sizes by name, such as --batch 32.", ())
    backward: bool = asked(
        "--backward", "Measure forward and backward pass, without an optimizer.", False
    )
    mode: str | None = asked("--mode M", "The mode of torch.compile, such as reduce-overhead.")
    steps: int | None = asked(
        "--steps N",
        f"Number of profiled steps: {STEPS} by default, {ROUNDS} with --compare; a verdict of "
        "diff needs five, with --compare six.",
    )
    compare: bool = asked(
        "--compare",
        "Profile all variants in turns, one step of each at a time, for a diff to be trusted.",
        False,
    )
    stack: bool = asked("--stack", "Record Python frames.", False)
    record_shapes: bool = asked("--shapes", "Record the shapes of inputs; on by default.", True)
    memory: bool = asked(
        "--memory",
        "Record allocations, on a GPU also a snapshot of memory for fusetui memory.",
        False,
    )
    seconds: float | None = asked(
        "--seconds S",
        f"Seconds to time each variant for: {SECONDS:g} by default, {SECONDS_OF_A_POINT:g} in a "
        "sweep.",
    )
    expect: Sequence[str] = asked(
        "--expect GUESS",
        'A guess about the kernels, such as "kernels=5 gemm=3": exit with 1 if it is wrong.',
        (),
    )
    sweep: Sequence[str] = asked("--sweep SIZES", "Run once for each size, as in batch=1,2,4.", ())
    scrub: bool = asked(
        "--scrub", "Remove private data from the traces and run.json, as fusetui scrub does.", False
    )

    @property
    def profiled_steps(self) -> int:
        return self.steps or (ROUNDS if self.compare else STEPS)

    @property
    def timing_seconds(self) -> float:
        return self.seconds or (SECONDS_OF_A_POINT if self.sweep else SECONDS)


@cache
def declared() -> Mapping[str, Declared]:
    """The options by name, in the order of declaration."""
    hints, found = get_type_hints(Options), {}
    for one in fields(Options):
        hint = hints[one.name]
        kind = next(kind for kind in get_args(hint) or (hint,) if kind is not NoneType)
        many = get_origin(hint) is Sequence
        found[one.name] = Declared(one.name, kind, many, one.default, **one.metadata)
    return found


def validate(options: Options) -> None:
    """Raises CaptureError if any option has a value that is not allowed."""
    for name in AMONG:
        if (value := getattr(options, name)) is not None:
            check(name, value)
    if options.steps is not None and options.steps < 1:
        raise CaptureError(f"--steps must be at least 1, not {options.steps}.")
    if options.seconds is not None and not options.seconds > 0:
        raise CaptureError(f"--seconds must be more than 0, not {options.seconds:g}.")


def check(name: str, value: str) -> None:
    """Raises CaptureError if the value is not allowed for the option of this name."""
    if SHORT_NAMES.get(value, value) not in AMONG[name]:
        raise CaptureError(f"Unknown {name} '{value}': use one of {', '.join(AMONG[name])}.")


def dtype_name(dtype: str) -> str:
    """torch's name of a dtype; `bf16`, `fp16` and `fp32` are accepted. Raises CaptureError."""
    check("dtype", dtype)
    return SHORT_NAMES.get(dtype, dtype)


def loop_options(given: Mapping[str, Any]) -> Options:
    """Options for a training loop of the user. Raises TypeError for one that does not apply."""
    if unknown := [name for name in given if name not in IN_LOOP]:
        raise TypeError(f"there is no option {unknown[0]!r} here, only {', '.join(IN_LOOP)}")
    return Options(**given)


def public(options: Options, scrub: Callable[[str], str]) -> Options:
    free = [name for name, one in declared().items() if one.many]
    texts: dict[str, Any] = {name: tuple(map(scrub, getattr(options, name))) for name in free}
    return replace(options, **texts)


def choose(owner: str, known: Collection[str], wanted: Sequence[str]) -> tuple[str, ...]:
    """The requested variants without duplicates, or all. Raises CaptureError for an unknown one."""
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise CaptureError(f"{owner} has no variant '{unknown[0]}', only {', '.join(known)}.")
    return tuple(dict.fromkeys(wanted or known))
