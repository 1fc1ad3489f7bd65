"""The options of a capture. Importing this does not need torch.

Each option is declared once, as a field of `Options`: the command line, its help, the table in the
documentation and the checks are derived from the declarations. run.json records the given values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from types import NoneType
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

from .errors import CaptureError

DEVICES = ("auto", "cuda", "cpu")
DTYPES = ("float32", "bfloat16", "float16")
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
"""The modes of torch.compile."""
SHORT_NAMES = {
    "fp32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
}
STEPS = 7
"""A verdict of the diff needs five; two more leave room for outliers."""
ROUNDS = 30
"""Steps of each variant where they take turns: enough for a tenth to show on a busy machine."""
SECONDS = 1.0
SECONDS_OF_A_POINT = 0.3
"""Less than for a single capture, because a sweep has many points."""


class Asked(NamedTuple):
    """The name, help and allowed values of an option.

    `flag` is its name on the command line, or "" if it is given in another way. `least` and `above`
    are bounds of a number. `in_loop`: whether it also applies to a training loop of the user.
    """

    flag: str
    metavar: str
    help: str
    among: tuple[str, ...] = ()
    short: Mapping[str, str] = {}
    least: int | None = None
    above: float | None = None
    in_loop: bool = False


@dataclass(frozen=True)
class Options:
    """The options of one capture, as the user gave them."""

    variants: Annotated[
        Sequence[str], Asked("--variant", "V", "Only this variant; may be repeated.")
    ] = ()
    device: Annotated[
        str,
        Asked(
            "--device",
            "WHERE",
            "cuda or cpu; auto, the default, uses a GPU if there is one.",
            among=DEVICES,
            in_loop=True,
        ),
    ] = "auto"
    dtype: Annotated[
        str | None,
        Asked(
            "--dtype",
            "D",
            f"{', '.join(DTYPES[:-1])} or {DTYPES[-1]}.",
            among=DTYPES,
            short=SHORT_NAMES,
        ),
    ] = None
    shapes: Annotated[Sequence[str], Asked("", "", "Sizes by name, such as --batch 32.")] = ()
    backward: Annotated[
        bool,
        Asked("--backward", "", "Measure forward and backward pass, without an optimizer."),
    ] = False
    mode: Annotated[
        str | None,
        Asked("--mode", "M", "The mode of torch.compile, such as reduce-overhead.", among=MODES),
    ] = None
    steps: Annotated[
        int | None,
        Asked(
            "--steps",
            "N",
            f"Number of profiled steps: {STEPS} by default, {ROUNDS} with --compare; a verdict of "
            "diff needs five, with --compare six.",
            least=1,
            in_loop=True,
        ),
    ] = None
    compare: Annotated[
        bool,
        Asked(
            "--compare",
            "",
            "Profile all variants in turns, one step of each at a time, for a diff to be trusted.",
        ),
    ] = False
    stack: Annotated[bool, Asked("--stack", "", "Record Python frames.", in_loop=True)] = False
    record_shapes: Annotated[
        bool, Asked("--shapes", "", "Record the shapes of inputs; on by default.", in_loop=True)
    ] = True
    memory: Annotated[bool, Asked("--memory", "", "Record allocations.", in_loop=True)] = False
    seconds: Annotated[
        float | None,
        Asked(
            "--seconds",
            "S",
            f"Seconds to time each variant for: {SECONDS:g} by default, {SECONDS_OF_A_POINT:g} in "
            "a sweep.",
            above=0,
        ),
    ] = None
    expect: Annotated[
        Sequence[str],
        Asked(
            "--expect",
            "GUESS",
            'A guess about the kernels, such as "kernels=5 gemm=3": exit with 1 if it is wrong.',
            in_loop=True,
        ),
    ] = ()
    sweep: Annotated[
        Sequence[str], Asked("--sweep", "SIZES", "Run once for each size, as in batch=1,2,4.")
    ] = ()
    scrub: Annotated[
        bool,
        Asked(
            "--scrub",
            "",
            "Remove private data from the traces and run.json, as fusetui scrub does.",
            in_loop=True,
        ),
    ] = False

    @property
    def profiled_steps(self) -> int:
        """How many steps of each variant to profile."""
        return self.steps or (ROUNDS if self.compare else STEPS)

    @property
    def timing_seconds(self) -> float:
        """How long to time each variant, in seconds."""
        return self.seconds or (SECONDS_OF_A_POINT if self.sweep else SECONDS)


class Declared(NamedTuple):
    """A field of `Options`: `kind` is the type of one value, `many` whether it may be repeated."""

    name: str
    kind: type
    many: bool
    default: Any
    asked: Asked


@cache
def declared() -> Mapping[str, Declared]:
    """The options by name, in the order of declaration."""
    hints = get_type_hints(Options, include_extras=True)
    return {one.name: _declared(one.name, hints[one.name], one.default) for one in fields(Options)}


def _declared(name: str, hint: Any, default: Any) -> Declared:
    plain, asked = get_args(hint)
    if many := get_origin(plain) is Sequence:
        (plain,) = get_args(plain)
    kinds = [kind for kind in get_args(plain) or (plain,) if kind is not NoneType]
    return Declared(name, kinds[0], many, default, asked)


def validate(options: Options) -> None:
    """Raises CaptureError if any option has a value that is not allowed."""
    for name in declared():
        if getattr(options, name) is not None:
            check(name, getattr(options, name))


def check(name: str, value: Any) -> None:
    """Raises CaptureError if the value is not allowed for the option of this name."""
    asked = declared()[name].asked
    if asked.least is not None and not value >= asked.least:
        raise CaptureError(f"{asked.flag} must be at least {asked.least}, not {value}.")
    if asked.above is not None and not value > asked.above:
        raise CaptureError(f"{asked.flag} must be more than {asked.above:g}, not {value:g}.")
    if asked.among and asked.short.get(value, value) not in asked.among:
        raise CaptureError(f"Unknown {name} '{value}': use one of {', '.join(asked.among)}.")


def dtype_name(dtype: str) -> str:
    """torch's name of a dtype; `bf16`, `fp16` and `fp32` are accepted. Raises CaptureError."""
    check("dtype", dtype)
    return SHORT_NAMES.get(dtype, dtype)


def loop_options(given: Mapping[str, Any]) -> Options:
    """Options for a training loop of the user. Raises TypeError for one that does not apply."""
    known = [name for name, one in declared().items() if one.asked.in_loop]
    if unknown := [name for name in given if name not in known]:
        raise TypeError(f"there is no option {unknown[0]!r} here, only {', '.join(known)}")
    return Options(**given)


def public(options: Options, scrub: Callable[[str], str]) -> Options:
    """The options with free text scrubbed."""
    free = [name for name, one in declared().items() if one.many]
    texts: dict[str, Any] = {name: tuple(map(scrub, getattr(options, name))) for name in free}
    return replace(options, **texts)


def choose(owner: str, known: Collection[str], wanted: Sequence[str]) -> tuple[str, ...]:
    """The requested variants without duplicates, or all. Raises CaptureError for an unknown one."""
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise CaptureError(f"{owner} has no variant '{unknown[0]}', only {', '.join(known)}.")
    return tuple(dict.fromkeys(wanted or known))
