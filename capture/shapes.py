"""The shape options of a workload: `--batch 32 --seq=256`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from .errors import CaptureError


def parse_shapes(args: Sequence[str], defaults: Mapping[str, int]) -> dict[str, int]:
    """The defaults, updated with the sizes that the arguments name.

    Raises CaptureError for an unknown axis, or a missing or non-positive size.
    """
    shapes = dict(defaults)
    for axis, size in _pairs(args):
        if axis not in defaults:
            raise CaptureError(f"Unknown option --{axis}: this workload has {_options(defaults)}.")
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


def _size(axis: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise CaptureError(f"--{axis} needs a positive whole number, not '{text}'.")
    return int(text)


def _options(defaults: Mapping[str, int]) -> str:
    return ", ".join(f"--{axis}" for axis in defaults)
