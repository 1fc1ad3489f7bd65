"""The sizes of a workload's axes: `--batch 32 --seq=256`, and the points of `--sweep n=1,2,4`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, takewhile

from .errors import CaptureError

SWEEP = "sweep "  # before the axis, in sentences about the points of a sweep


def parse_shapes(args: Sequence[str], defaults: Mapping[str, int]) -> dict[str, int]:
    """The defaults, updated with the sizes that the arguments name. Raises CaptureError for an
    unknown axis, or a missing or non-positive size."""
    shapes = dict(defaults)
    for axis, size in _pairs(args):
        if axis not in defaults:
            known = ", ".join(f"--{name}" for name in defaults)
            raise CaptureError(f"Unknown option --{axis}: this workload has {known}.")
        shapes[axis] = _size(axis, size)
    return shapes


def describe_shapes(shapes: Mapping[str, int]) -> str:
    """`batch=4 seq=128`."""
    return " ".join(f"{axis}={size}" for axis, size in shapes.items())


def _pairs(args: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(axis, size) from `--axis size` and `--axis=size`."""
    rest = iter(args)
    for arg in rest:
        if not arg.startswith("--"):
            raise CaptureError(f"Unexpected argument '{arg}': shapes are given as --axis SIZE.")
        axis, equals, size = arg[2:].partition("=")
        yield axis, size if equals else next(rest, "")


def _size(axis: str, text: str, option: str = "") -> int:
    """Raises CaptureError unless the text is a positive whole number."""
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

    A text is `batch=64,128 n=2,4`, or the name of a preset; `in=1024/n` gives each n a size of its
    own. Raises CaptureError for an unknown axis or preset, an axis that is named twice, or invalid
    sizes.
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
                shares[axis] = _size(axis, total, SWEEP), by
            else:
                ranges[axis] = parse_sizes(axis, text)
    points = [
        _with_shares(dict(zip(ranges, sizes, strict=True)), shares)
        for sizes in itertools.product(*ranges.values())
    ]
    if not ranges or len(points) > MOST_POINTS:
        raise CaptureError(f"--sweep needs between 1 and {MOST_POINTS} points, not {len(points)}.")
    return tuple(points)


def parse_sizes(axis: str, text: str) -> tuple[int, ...]:
    """`64,128,...,2048`: sizes, where `...` continues the progression of the two before it.

    The factor is kept if that reaches the last size exactly, otherwise the difference. Raises
    CaptureError.
    """
    words = text.split(",")
    sizes: list[int] = []
    for index, word in enumerate(words):
        if word != "...":
            sizes.append(_size(axis, word, SWEEP))
            continue
        if len(sizes) < 2 or index + 2 != len(words):
            raise CaptureError(f"--sweep {axis}: two sizes come before ... and one behind it.")
        sizes += _between(axis, sizes[-2], sizes[-1], _size(axis, words[-1], SWEEP))
    return tuple(dict.fromkeys(sizes))


def describe_point(point: Point) -> str:
    """`batch=64,n=4`: also the name of the point's folder."""
    return ",".join(f"{axis}={size}" for axis, size in point.items())


def as_arguments(point: Point) -> list[str]:
    """The point as shape options: `--batch=64`."""
    return [f"--{axis}={size}" for axis, size in point.items()]


def _with_shares(point: Point, shares: Mapping[str, tuple[int, str]]) -> Point:
    """The point with the sizes that follow from others."""
    found = dict(point)
    for axis, (total, by) in shares.items():
        if by not in point:
            raise CaptureError(f"--sweep {axis}={total}/{by} needs {by} in the sweep as well.")
        if total % point[by]:
            raise CaptureError(f"--sweep {axis}: {total} is no multiple of {by}={point[by]}.")
        found[axis] = total // point[by]
    return found


def _parse_term(term: str, axes: Sequence[str], presets: Mapping[str, str]) -> tuple[str, str]:
    axis, equals, sizes = term.partition("=")
    if not equals:
        known = f"its presets are {', '.join(presets)}" if presets else "it has no presets"
        raise CaptureError(f"--sweep '{term}' is neither axis=sizes nor a preset: {known}.")
    if axis not in axes:
        raise CaptureError(f"--sweep: unknown axis '{axis}': there are {', '.join(axes)}.")
    return axis, sizes


def _between(axis: str, before: int, first: int, last: int) -> list[int]:
    """The sizes between `first` and `last`, excluding both."""
    factor, rest = divmod(first, before)
    if rest == 0 and factor > 1:
        sizes = list(takewhile(lambda n: n < last, (first * factor**n for n in count(1))))
        if last in (first, [first, *sizes][-1] * factor):
            return sizes
    difference = first - before
    if difference > 0 and last > first and (last - first) % difference == 0:
        return list(range(first + difference, last, difference))
    raise CaptureError(f"--sweep {axis}: {before},{first},... never comes to {last}.")
