"""The same change at several factors: from where on it no longer helps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from fusetui.analysis.replay.changes import WrongChange
from fusetui.analysis.replay.whatif import whatif
from fusetui.analysis.why.model import DeviceResidual
from fusetui.trace.model.columns import Trace

RANGE = re.compile(r"(?P<head>.*\S)\s+x(?P<low>\d*\.?\d+)\.\.(?P<high>\d*\.?\d+)", re.DOTALL)
POINTS = 10
NEARLY = 0.01  # of all that the change gains: less is no help


class SweepPoint(msgspec.Struct, frozen=True):
    """The change at one factor."""

    factor: float
    after_ns: int


class Sweep(msgspec.Struct, frozen=True):
    """`before_ns` and `after_ns` are of the median step, or of all: see `of`. No points where too
    little is understood. `knee`: the factor below which nearly nothing is gained, None if all of
    them gain."""

    change: str
    of: Literal["step", "span"]
    devices: tuple[DeviceResidual, ...]
    before_ns: int
    residual_share: float
    points: tuple[SweepPoint, ...]  # from the smallest factor on
    knee: float | None


def sweep(trace: Trace, text: str, step: int | None = None) -> Sweep:
    """`kernel:attn x0.1..1` at ten factors. Raises WrongChange."""
    found = RANGE.fullmatch(text.strip())
    low, high = (float(found[key]) for key in ("low", "high")) if found else (0.0, 0.0)
    if found is None or not low < high:
        raise WrongChange(f"{text} is no sweep: kernel:PATTERN x0.1..1 is one.")
    points = []
    for number in range(POINTS):
        factor = round(low + (high - low) * number / (POINTS - 1), 6)
        one = whatif(trace, [f"{found['head']} x{factor:.6g}"], step)
        if one.after_ns is None:
            break
        points.append(SweepPoint(factor, one.after_ns))
    return Sweep(
        change=found["head"],
        of=one.of,
        devices=one.devices,
        before_ns=one.before_ns,
        residual_share=one.residual_share,
        points=tuple(points),
        knee=knee_of(points),
    )


def knee_of(points: Sequence[SweepPoint]) -> float | None:
    """The largest factor up to which nearly all is gained; None if there is none, or no gain."""
    times = [point.after_ns for point in points]
    if not times or max(times) == min(times):
        return None
    enough = min(times) + NEARLY * (max(times) - min(times))
    last = max(n for n, ns in enumerate(times) if all(one <= enough for one in times[: n + 1]))
    return points[last].factor if last else None
