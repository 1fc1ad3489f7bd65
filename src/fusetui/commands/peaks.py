"""`--peak KIND=FIGURE`: what a device can do, by the word of the user."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from fusetui.commands.errors import CommandError
from fusetui.trace import Trace
from fusetui.trace.roofline.many import Jobs, peaks_of_devices
from fusetui.trace.roofline.peaks import BANDWIDTH, KINDS
from fusetui.trace.text.figures import several

LEAST = 1e9
"""Per second. Less is a figure in TFLOP/s or TB/s, without its exponent."""


def given_peaks(texts: Iterable[str]) -> dict[str, float]:
    """`bf16=800e12` -> {"bf16": 800e12}: FLOP/s, and bytes/s for bandwidth. Raises CommandError."""
    return dict(map(_given, texts))


def _given(text: str) -> tuple[str, float]:
    kind, _, figure = text.partition("=")
    if kind not in (*KINDS, BANDWIDTH):
        raise CommandError(f"--peak {text}: it is none of {', '.join(KINDS)} and {BANDWIDTH}.")
    try:
        value = float(figure)
    except ValueError:
        value = math.nan
    if not LEAST <= value < math.inf:
        unit, example = ("bytes", "3.35e12") if kind == BANDWIDTH else ("FLOP", "989e12")
        raise CommandError(
            f"--peak {text}: the figure must be a number of {unit} per second, as in "
            f"{kind}={example}."
        )
    return kind, value


def notices(trace: Trace, known: Jobs, given: dict[str, float]) -> Iterator[str]:
    """What stands in the way of figures about the work of the kernels."""
    if not known.inputs.distinct:
        yield "No shapes were recorded (record_shapes=True): nothing can be said of FLOP and bytes."
        return
    devices = peaks_of_devices(trace, given)
    unknown = [str(d.name or d.device) for d in devices if d.peak is None]
    if unknown:
        yield (
            f"The peaks of {several(list(dict.fromkeys(unknown)), 3)} are not known: --peak gives "
            "them, as in --peak bf16=989e12 --peak bandwidth=3.35e12."
        )
