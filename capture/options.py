"""The options of a capture, sizes and sweeps of sizes among them. Importing this needs
no torch.

Each option is declared once, as a field of `Options`: the command line, its help, the
table in the documentation and the checks are derived from the declarations. run.json
records the given values.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from types import NoneType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from .errors import CaptureError

DTYPES = ("float32", "bfloat16", "float16")
SHORT_NAMES = {
    "fp32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
}
AMONG = {
    "dtype": DTYPES,
    "mode": (
        "default",
        "reduce-overhead",
        "max-autotune",
        "max-autotune-no-cudagraphs",
    ),
}
"""The values of options that take no others."""
DEVICES = ("auto", "cuda", "cpu")
LONG_AXES = {"in": "in_features", "out": "out_features"}
"""What an axis was called before; `--out` is the folder."""
IN_LOOP = ("device", "steps", "stack", "record_shapes", "memory", "expect", "scrub")
"""The options that also apply to a training loop of the user."""
STEPS = 7  # a verdict of the diff needs five; two more leave room for outliers
ROUNDS = 30
"""Steps of each variant where they take turns: enough for a tenth to show on a busy
machine."""
SECONDS = 1.0
# less than for a single capture, because a sweep has many points
SECONDS_OF_A_POINT = 0.3


class Declared(NamedTuple):
    """An option: a field of `Options`. `flag` is its name on the command line, or "" if
    it is given in another way; `kind` is the type of one value, `many` whether it may
    be repeated."""

    name: str
    kind: type
    many: bool
    default: Any
    flag: str
    metavar: str
    help: str


def asked(usage: str, text: str, default: Any = None) -> Any:
    """A field of `Options`; `usage` is its flag and what stands for its value, `text`
    its help."""
    flag, _, metavar = usage.partition(" ")
    return field(
        default=default, metadata={"flag": flag, "metavar": metavar, "help": text}
    )


@dataclass(frozen=True)
class Options:
    """The options of one capture, as the user gave them."""

    variants: Sequence[str] = asked(
        "--variant V", "Only this variant; may be repeated.", ()
    )
    device: str = asked(
        "--device WHERE",
        "cuda, cuda:1 or cpu; auto, the default, uses a GPU if there is one.",
        "auto",
    )
    dtype: str | None = asked("--dtype D", f"{', '.join(DTYPES[:-1])} or {DTYPES[-1]}.")
    shapes: Sequence[str] = asked("", "Sizes by name, such as --batch 32.", ())
    backward: bool = asked(
        "--backward", "Measure forward and backward pass, without an optimizer.", False
    )
    mode: str | None = asked(
        "--mode M", "The mode of torch.compile, such as reduce-overhead."
    )
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
    record_shapes: bool = asked(
        "--shapes", "Record the shapes of inputs; on by default.", True
    )
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
    sweep: Sequence[str] = asked(
        "--sweep SIZES", "Run once for each size, as in batch=1,2,4.", ()
    )
    scrub: bool = asked(
        "--scrub",
        "Remove private data from the traces and run.json, as fusetui scrub does.",
        False,
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
    hints = get_type_hints(Options)
    found = {}
    for one in fields(Options):
        hint = hints[one.name]
        kind = next(kind for kind in get_args(hint) or (hint,) if kind is not NoneType)
        many = get_origin(hint) is Sequence
        found[one.name] = Declared(one.name, kind, many, one.default, **one.metadata)
    return found


def validate(options: Options) -> None:
    """Raises CaptureError if any option has a value that is not allowed."""
    check_device(options.device)
    for name in AMONG:
        if (value := getattr(options, name)) is not None:
            check(name, value)
    if options.steps is not None and options.steps < 1:
        raise CaptureError(f"--steps must be at least 1, not {options.steps}.")
    if options.seconds is not None and not options.seconds > 0:
        raise CaptureError(f"--seconds must be more than 0, not {options.seconds:g}.")


def check_device(device: str) -> None:
    """Raises CaptureError unless it is `auto`, `cpu`, `cuda` or a GPU by its number:
    `cuda:1`."""
    kind, colon, number = device.partition(":")
    is_numbered_gpu = kind == "cuda" and number.isascii() and number.isdecimal()
    if device not in DEVICES and not (colon and is_numbered_gpu):
        raise CaptureError(
            f"Unknown device '{device}': use one of {', '.join(DEVICES)}, cuda:1."
        )


def check(name: str, value: str) -> None:
    """Raises CaptureError if the value is not allowed for the option of this name."""
    if SHORT_NAMES.get(value, value) not in AMONG[name]:
        raise CaptureError(
            f"Unknown {name} '{value}': use one of {', '.join(AMONG[name])}."
        )


def dtype_name(dtype: str) -> str:
    """torch's name of a dtype; `bf16`, `fp16` and `fp32` are accepted. Raises
    CaptureError."""
    check("dtype", dtype)
    return SHORT_NAMES.get(dtype, dtype)


def public(options: Options, scrub: Callable[[str], str]) -> Options:
    free = [name for name, one in declared().items() if one.many]
    texts: dict[str, Any] = {
        name: tuple(map(scrub, getattr(options, name))) for name in free
    }
    return replace(options, **texts)


def choose(
    owner: str,
    known: Collection[str],
    wanted: Sequence[str],
    missing: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """The requested variants without duplicates, or all. `missing` says what to install
    for those whose package is missing. Raises CaptureError for an unknown or a missing
    one."""
    unknown = [name for name in wanted if name not in known]
    if unknown and missing and unknown[0] in missing:
        package = missing[unknown[0]]
        raise CaptureError(
            f"The variant '{unknown[0]}' of {owner} needs the package {package}: "
            f"install it with pip install {package}."
        )
    if unknown:
        raise CaptureError(
            f"{owner} has no variant '{unknown[0]}', only {', '.join(known)}."
        )
    return tuple(dict.fromkeys(wanted or known))


SWEEP = "sweep "  # before the axis, in sentences about the points of a sweep


def parse_shapes(args: Sequence[str], defaults: Mapping[str, int]) -> dict[str, int]:
    """The defaults, updated with the sizes that are given. Raises CaptureError for a
    wrong one."""
    shapes = dict(defaults)
    for typed, size in _pairs(args):
        axis = axis_named(typed, defaults)
        if axis not in defaults:
            known = ", ".join(map(option_of, defaults))
            raise CaptureError(f"Unknown option --{typed}: this workload has {known}.")
        shapes[axis] = _size(typed, size)
    return shapes


def axis_named(typed: str, axes: Collection[str]) -> str:
    """The axis that is typed: `in-features` as an option is spelled, `in` as it was
    called before. What is none of the axes is returned as it is."""
    if typed in axes:
        return typed
    for axis in (typed.replace("-", "_"), LONG_AXES.get(typed, typed)):
        if axis in axes:
            return axis
    return typed


def option_of(axis: str) -> str:
    """`--in-features`."""
    return f"--{axis.replace('_', '-')}"


def describe_shapes(shapes: Mapping[str, int]) -> str:
    """`batch=4 seq=128`."""
    return " ".join(f"{axis}={size}" for axis, size in shapes.items())


def _pairs(args: Sequence[str]) -> Iterator[tuple[str, str]]:
    rest = iter(args)
    for arg in rest:
        if not arg.startswith("--"):
            raise CaptureError(
                f"Unexpected argument '{arg}': shapes are given as --axis SIZE."
            )
        axis, equals, size = arg[2:].partition("=")
        yield axis, size if equals else next(rest, "")


def _size(axis: str, text: str, option: str = "") -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        what = "positive whole numbers" if option else "a positive whole number"
        raise CaptureError(f"--{option}{axis} needs {what}, not '{text}'.")
    return int(text)


Point = Mapping[str, int]
MOST_POINTS = 1000


def parse_sweep(
    texts: Sequence[str], axes: Sequence[str], presets: Mapping[str, str]
) -> tuple[Point, ...]:
    """Every combination of the sizes of all named axes, the last one changing fastest.

    A text is `batch=64,128 n=2,4`, or the name of a preset; `in=1024/n` gives each n a
    size of its own. Raises CaptureError for an unknown axis or preset, an axis that is
    named twice, or invalid sizes.
    """
    ranges: dict[str, tuple[int, ...]] = {}
    shares: dict[str, tuple[int, str]] = {}
    for word in " ".join(texts).split():
        for term in presets.get(word, word).split():
            axis, text = _parse_term(term, axes, presets)
            if axis in ranges or axis in shares:
                raise CaptureError(f"--sweep names {axis} twice.")
            if "/" in text:  # `1024/n`: a total and the axis that it is divided by
                total, _, by = text.partition("/")
                shares[axis] = _size(axis, total, SWEEP), axis_named(by, axes)
            else:
                ranges[axis] = parse_sizes(axis, text)
    points = [
        _with_shares(dict(zip(ranges, sizes, strict=True)), shares)
        for sizes in itertools.product(*ranges.values())
    ]
    if not ranges or len(points) > MOST_POINTS:
        raise CaptureError(
            f"--sweep needs between 1 and {MOST_POINTS} points, not {len(points)}."
        )
    return tuple(points)


def parse_sizes(axis: str, text: str) -> tuple[int, ...]:
    """`64,128,...,2048`: sizes, where `...` continues the progression of the two before
    it. The factor is kept if that reaches the last size exactly, otherwise the
    difference. Raises CaptureError."""
    words = text.split(",")
    sizes: list[int] = []
    for index, word in enumerate(words):
        if word != "...":
            sizes.append(_size(axis, word, SWEEP))
            continue
        if len(sizes) < 2 or index + 2 != len(words):
            raise CaptureError(
                f"--sweep {axis}: two sizes come before ... and one behind it."
            )
        sizes += _between(axis, sizes[-2], sizes[-1], _size(axis, words[-1], SWEEP))
    return tuple(dict.fromkeys(sizes))


def describe_point(point: Point) -> str:
    """`batch=64,n=4`: also the name of the point's folder."""
    return ",".join(f"{axis}={size}" for axis, size in point.items())


def _with_shares(point: Point, shares: Mapping[str, tuple[int, str]]) -> Point:
    """The point with the sizes that follow from others."""
    found = dict(point)
    for axis, (total, by) in shares.items():
        if by not in point:
            raise CaptureError(
                f"--sweep {axis}={total}/{by} needs {by} in the sweep as well."
            )
        if total % point[by]:
            raise CaptureError(
                f"--sweep {axis}: {total} is no multiple of {by}={point[by]}."
            )
        found[axis] = total // point[by]
    return found


def _parse_term(
    term: str, axes: Sequence[str], presets: Mapping[str, str]
) -> tuple[str, str]:
    axis, equals, sizes = term.partition("=")
    if not equals:
        known = (
            f"its presets are {', '.join(presets)}" if presets else "it has no presets"
        )
        raise CaptureError(
            f"--sweep '{term}' is neither axis=sizes nor a preset: {known}."
        )
    axis = axis_named(axis, axes)
    if axis not in axes:
        raise CaptureError(
            f"--sweep: unknown axis '{axis}': there are {', '.join(axes)}."
        )
    return axis, sizes


def _between(axis: str, before: int, first: int, last: int) -> list[int]:
    """The sizes between `first` and `last`, excluding both."""
    factor, rest = divmod(first, before)
    if rest == 0 and factor > 1:
        sizes = []
        size = first * factor
        while size < last:
            sizes.append(size)
            size *= factor
        if last in (first, size):
            return sizes
    difference = first - before
    if difference > 0 and last > first and (last - first) % difference == 0:
        return list(range(first + difference, last, difference))
    raise CaptureError(f"--sweep {axis}: {before},{first},... never comes to {last}.")
