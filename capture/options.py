"""The options of a capture, and the sizes of its shapes and sweeps. Does not need torch.

Each option is declared once, as a field of `Options` made by `declare_option`. The parser
of the command line, its help, the table in the documentation and the checks follow from
these declarations. run.json records the options as they were given.
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
ALLOWED_VALUES = {
    "dtype": DTYPES,
    "mode": (
        "default",
        "reduce-overhead",
        "max-autotune",
        "max-autotune-no-cudagraphs",
    ),
}
"""All values of an option that has few, by the name of the option."""
DEVICES = ("auto", "cuda", "cpu")
RENAMED_AXES = {"in": "in_features", "out": "out_features"}
"""New names by old ones, which are still accepted: `--out` had two meanings."""
LOOP_OPTIONS = (
    "device",
    "steps",
    "stack",
    "record_shapes",
    "memory",
    "compile_log",
    "expect",
    "scrub",
)
"""The options that also apply to a training loop of the user."""
DEFAULT_STEPS = 7
"""Profiled steps by default: a verdict of the diff needs five, and two more leave room
for outliers."""
ROUNDS = 30
"""Profiled steps of each variant by default where variants take turns: enough to show a
difference of 10 % on a busy machine."""
TIMING_SECONDS = 1.0
SWEEP_TIMING_SECONDS = 0.3
"""Seconds to time a variant at one point of a sweep: fewer, as a sweep has many
points."""


class DeclaredOption(NamedTuple):
    """An option: a field of `Options`.

    `flag` is its name on the command line, `--dtype`, or "" if it has none; `metavar`
    stands for its value in the help. `kind` is the type of one value; `many`: the
    option may be repeated, and the field holds a sequence of values.
    """

    name: str
    kind: type
    many: bool
    default: Any
    flag: str
    metavar: str
    help: str


def declare_option(usage: str, text: str, default: Any = None) -> Any:
    """Return a field of `Options` with what the command line needs of it. `usage` is
    `--flag METAVAR`, or "" for a field without a flag, and `text` is its help."""
    flag, _, metavar = usage.partition(" ")
    metadata = {"flag": flag, "metavar": metavar, "help": text}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Options:
    """The options of one capture, as the user gave them."""

    variants: Sequence[str] = declare_option(
        "--variant V", "Profile only this variant; may be repeated.", ()
    )
    device: str = declare_option(
        "--device WHERE",
        "The device: cuda, cuda:1 or cpu. The default, auto, uses a GPU if there is one.",
        "auto",
    )
    dtype: str | None = declare_option(
        "--dtype D", f"The data type: {', '.join(DTYPES[:-1])} or {DTYPES[-1]}."
    )
    shapes: Sequence[str] = declare_option("", "Sizes by name, such as --batch 32.", ())
    backward: bool = declare_option(
        "--backward",
        "Measure the forward and backward pass, without an optimizer.",
        False,
    )
    mode: str | None = declare_option(
        "--mode M", "The mode of torch.compile, such as reduce-overhead."
    )
    steps: int | None = declare_option(
        "--steps N",
        f"Profile this many steps: {DEFAULT_STEPS} by default, {ROUNDS} with --compare. A verdict of "
        "diff needs five, or six with --compare.",
    )
    compare: bool = declare_option(
        "--compare",
        "Alternate between the variants, one step at a time, so that a diff is reliable.",
        False,
    )
    stack: bool = declare_option("--stack", "Record Python frames.", False)
    record_shapes: bool = declare_option(
        "--shapes", "Record the shapes of inputs; on by default.", True
    )
    memory: bool = declare_option(
        "--memory",
        "Record allocations and, on a GPU, also a memory snapshot for fusetui memory.",
        False,
    )
    compile_log: bool = declare_option(
        "--compile-log",
        "Write the torch.compile log next to the trace of each compiled variant, for fusetui "
        "compile. On by default, except with --scrub.",
        True,
    )
    seconds: float | None = declare_option(
        "--seconds S",
        f"Time each variant for this long: {TIMING_SECONDS:g} by default, {SWEEP_TIMING_SECONDS:g} in a "
        "sweep.",
    )
    expect: Sequence[str] = declare_option(
        "--expect GUESS",
        'The expected numbers of kernels, such as "kernels=5 gemm=3". If they differ, the '
        "command exits with 1.",
        (),
    )
    sweep: Sequence[str] = declare_option(
        "--sweep SIZES", "Profile each of these sizes, as in batch=1,2,4.", ()
    )
    scrub: bool = declare_option(
        "--scrub",
        "Remove private data from the traces and run.json, as fusetui scrub does.",
        False,
    )

    @property
    def profiled_steps(self) -> int:
        """Steps to record of each variant."""
        if self.steps:
            return self.steps
        return ROUNDS if self.compare else DEFAULT_STEPS

    @property
    def timing_seconds(self) -> float:
        """Seconds to time each variant for, with the profiler off."""
        if self.seconds:
            return self.seconds
        return SWEEP_TIMING_SECONDS if self.sweep else TIMING_SECONDS


@cache
def declared_options() -> Mapping[str, DeclaredOption]:
    """Return all options by name, in the order of declaration."""
    hints = get_type_hints(Options)
    options = {}
    for option in fields(Options):
        hint = hints[option.name]
        # `str | None` and `Sequence[str]` have the type of a value as an argument
        # a plain type such as bool has no arguments
        types = get_args(hint) or (hint,)
        options[option.name] = DeclaredOption(
            name=option.name,
            kind=next(kind for kind in types if kind is not NoneType),
            many=get_origin(hint) is Sequence,
            default=option.default,
            flag=option.metadata["flag"],
            metavar=option.metadata["metavar"],
            help=option.metadata["help"],
        )

    return options


def check_options(options: Options) -> None:
    """Raise CaptureError if any option has a value that is not allowed."""
    check_device(options.device)

    for name in ALLOWED_VALUES:
        value = getattr(options, name)
        if value is not None:
            check_value(name, value)

    if options.steps is not None and options.steps < 1:
        raise CaptureError(f"--steps must be at least 1, not {options.steps}.")
    # nan is refused too
    if options.seconds is not None and not options.seconds > 0:
        raise CaptureError(f"--seconds must be more than 0, not {options.seconds:g}.")


def check_device(device: str) -> None:
    """Raise CaptureError unless a device is `auto`, `cpu`, `cuda`, or a GPU by its
    number, such as `cuda:1`."""
    if device in DEVICES:
        return
    kind, _, number = device.partition(":")
    if kind == "cuda" and number.isascii() and number.isdecimal():
        return
    raise CaptureError(
        f"Unknown device '{device}': use one of {', '.join(DEVICES)}, cuda:1."
    )


def check_value(name: str, value: str) -> None:
    """Raise CaptureError if a value is not allowed for the option `name`, a key of
    ALLOWED_VALUES. Short names of dtypes, such as `bf16`, are allowed."""
    allowed = ALLOWED_VALUES[name]
    if SHORT_NAMES.get(value, value) not in allowed:
        raise CaptureError(
            f"Unknown {name} '{value}': use one of {', '.join(allowed)}."
        )


def expand_dtype_name(dtype: str) -> str:
    """Return torch's name of a dtype: `bfloat16` for both `bf16` and `bfloat16`. Raises
    CaptureError for a dtype that captures do not use."""
    check_value("dtype", dtype)
    return SHORT_NAMES.get(dtype, dtype)


def scrub_options(options: Options, scrub: Callable[[str], str]) -> Options:
    """Return the options with `scrub` applied to those that hold free text. These are
    the options that may be repeated."""
    scrubbed: dict[str, Any] = {}
    for name, option in declared_options().items():
        if option.many:
            scrubbed[name] = tuple(scrub(text) for text in getattr(options, name))
    return replace(options, **scrubbed)


def choose_variants(
    owner: str,
    known: Collection[str],
    wanted: Sequence[str],
    missing: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Return the variants to run: the wanted ones without duplicates, or all known ones
    if none is wanted.

    `owner` is the workload. `missing` has the package that a variant would need, by the
    name of the variant. Raises CaptureError for the first variant that is unknown or
    missing.
    """
    for name in wanted:
        if name in known:
            continue
        if missing and name in missing:
            package = missing[name]
            raise CaptureError(
                f"The variant '{name}' of {owner} needs the package {package}: "
                f"install it with pip install {package}."
            )
        raise CaptureError(f"{owner} has no variant '{name}', only {', '.join(known)}.")

    return tuple(dict.fromkeys(wanted or known))


def parse_shapes(args: Sequence[str], defaults: Mapping[str, int]) -> dict[str, int]:
    """Return the size of each axis: `defaults`, with those replaced that `args` give as
    `--batch 32` or `--batch=32`. Raises CaptureError for an unknown axis, and for a
    size that is not a positive whole number."""
    shapes = dict(defaults)
    for typed, size in _split_axis_arguments(args):
        axis = resolve_axis(typed, defaults)
        if axis not in defaults:
            option_names = ", ".join(axis_option(axis) for axis in defaults)
            raise CaptureError(
                f"Unknown option --{typed}: this workload has {option_names}."
            )
        if not _is_positive_number(size):
            raise CaptureError(
                f"--{typed} needs a positive whole number, not '{size}'."
            )
        shapes[axis] = int(size)

    return shapes


def resolve_axis(typed: str, axes: Collection[str]) -> str:
    """Return the axis that a user means: `in_features` for `in-features`, as options
    are spelled, and for its former name `in`. A word that means none of the axes is
    returned as it is."""
    spellings = (typed, typed.replace("-", "_"), RENAMED_AXES.get(typed, typed))
    for axis in spellings:
        if axis in axes:
            return axis
    return typed


def axis_option(axis: str) -> str:
    """Return an axis as an option of the command line: `--in-features` for
    `in_features`."""
    return f"--{axis.replace('_', '-')}"


def describe_shapes(shapes: Mapping[str, int]) -> str:
    """Return shapes as text, such as `batch=4 seq=128`."""
    return " ".join(f"{axis}={size}" for axis, size in shapes.items())


def _split_axis_arguments(args: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the axis and the size of each `--axis SIZE` or `--axis=SIZE`, as they are
    written. A size that is missing at the end is "". Raises CaptureError for any other
    argument."""
    remaining = iter(args)
    for arg in remaining:
        if not arg.startswith("--"):
            raise CaptureError(
                f"Unexpected argument '{arg}': shapes are given as --axis SIZE."
            )
        axis, equals, size = arg.removeprefix("--").partition("=")
        if not equals:
            size = next(remaining, "")
        yield axis, size


def _is_positive_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) > 0


Point = Mapping[str, int]
"""The sizes of one point of a sweep, by axis."""
MAX_SWEEP_POINTS = 1000


class _Share(NamedTuple):
    """The size of an axis that is a total divided by the size of another axis."""

    total: int
    divided_by: str


def parse_sweep(
    texts: Sequence[str], axes: Sequence[str], presets: Mapping[str, str]
) -> tuple[Point, ...]:
    """Return the points of a sweep: every combination of the sizes of all named axes,
    the last one changing fastest.

    A text is `batch=64,128 n=2,4`, or the name of a preset; `in=1024/n` gives each n a
    size of its own. Raises CaptureError for an unknown axis or preset, an axis that is
    named twice, invalid sizes, no point, or more than 1000.
    """
    ranges: dict[str, tuple[int, ...]] = {}
    shares: dict[str, _Share] = {}
    for axis, sizes in _split_sweep_terms(texts, axes, presets):
        if axis in ranges or axis in shares:
            raise CaptureError(f"--sweep names {axis} twice.")
        total, slash, divided_by = sizes.partition("/")
        if slash:
            shares[axis] = _Share(
                total=_parse_swept_size(axis, total),
                divided_by=resolve_axis(divided_by, axes),
            )
        else:
            ranges[axis] = parse_sizes(axis, sizes)

    points = []
    for combination in itertools.product(*ranges.values()):
        point = dict(zip(ranges, combination, strict=True))
        points.append(_add_shares(point, shares))

    if not ranges or len(points) > MAX_SWEEP_POINTS:
        raise CaptureError(
            f"--sweep needs between 1 and {MAX_SWEEP_POINTS} points, not {len(points)}."
        )

    return tuple(points)


def _split_sweep_terms(
    texts: Sequence[str], axes: Sequence[str], presets: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield the axis and the sizes of each `axis=sizes`, also of those in presets.
    Raises CaptureError for what is neither a preset nor such a term with a known axis.
    """
    for word in " ".join(texts).split():
        for term in presets.get(word, word).split():
            typed, equals, sizes = term.partition("=")
            if not equals:
                preset_names = "it has no presets"
                if presets:
                    preset_names = f"its presets are {', '.join(presets)}"
                raise CaptureError(
                    f"--sweep '{term}' is neither axis=sizes nor a preset: {preset_names}."
                )

            axis = resolve_axis(typed, axes)
            if axis not in axes:
                raise CaptureError(
                    f"--sweep: unknown axis '{axis}': there are {', '.join(axes)}."
                )

            yield axis, sizes


def parse_sizes(axis: str, text: str) -> tuple[int, ...]:
    """Return the sizes of `64,128,192`, or of `64,128,...,2048`, where `...` continues
    the progression of the two sizes before it.

    The progression is geometric if that reaches the last size exactly, otherwise
    arithmetic. So `32,64,...,96` is 32, 64, 96. Raises CaptureError for what is no
    size, and if neither reaches the last one.
    """
    words = text.split(",")
    sizes: list[int] = []
    for index, word in enumerate(words):
        if word != "...":
            sizes.append(_parse_swept_size(axis, word))
            continue
        is_second_to_last = index == len(words) - 2
        if len(sizes) < 2 or not is_second_to_last:
            raise CaptureError(
                f"--sweep {axis}: write two sizes before ... and one after it."
            )
        last = _parse_swept_size(axis, words[-1])
        sizes += _continue_progression(axis, sizes[-2], sizes[-1], last)

    return tuple(dict.fromkeys(sizes))


def describe_point(point: Point) -> str:
    """Return a point of a sweep as text, such as `batch=64,n=4`. It is also the name of
    the folder of the point."""
    return ",".join(f"{axis}={size}" for axis, size in point.items())


def _parse_swept_size(axis: str, text: str) -> int:
    """Return the size that a text of --sweep names. Raises CaptureError unless it is a
    positive whole number."""
    if not _is_positive_number(text):
        raise CaptureError(
            f"--sweep {axis} needs positive whole numbers, not '{text}'."
        )
    return int(text)


def _add_shares(point: Point, shares: Mapping[str, _Share]) -> Point:
    """Return the point with the sizes that are a share of a total, such as 1024 divided
    by n. Raises CaptureError if the axis to divide by is not in the point, or its size
    does not divide the total."""
    sizes = dict(point)
    for axis, share in shares.items():
        total, divided_by = share
        if divided_by not in point:
            raise CaptureError(
                f"--sweep {axis}={total}/{divided_by} needs {divided_by} in the sweep as well."
            )
        if total % point[divided_by]:
            raise CaptureError(
                f"--sweep {axis}: {total} is not a multiple of "
                f"{divided_by}={point[divided_by]}."
            )
        sizes[axis] = total // point[divided_by]

    return sizes


def _continue_progression(axis: str, first: int, second: int, last: int) -> list[int]:
    """Return the sizes after `second` and before `last` of the progression that begins
    with `first` and `second`. Raises CaptureError if neither a geometric nor an
    arithmetic one reaches `last`."""
    factor, remainder = divmod(second, first)
    if remainder == 0 and factor > 1:
        sizes = []
        size = second * factor
        while size < last:
            sizes.append(size)
            size *= factor
        if last in (second, size):
            return sizes

    difference = second - first
    if difference > 0 and last > second and (last - second) % difference == 0:
        return list(range(second + difference, last, difference))

    raise CaptureError(f"--sweep {axis}: {first},{second},... never reaches {last}.")
