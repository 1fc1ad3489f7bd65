"""`--peak KIND=FIGURE`: the peaks of a device, as given by the user."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from fusetui.commands.errors import CommandError
from fusetui.trace import Trace
from fusetui.trace.model.ids import device_label
from fusetui.trace.roofline.many import Jobs, peaks_of_devices
from fusetui.trace.roofline.peaks import BANDWIDTH, KINDS
from fusetui.trace.text.figures import several

LEAST = 1e9
"""Per second. A smaller figure is taken for TFLOP/s or TB/s without the exponent, and rejected."""


def given_peaks(texts: Iterable[str]) -> dict[str, float]:
    """`bf16=800e12` -> {"bf16": 800e12}: FLOP/s, and bytes/s for bandwidth. Raises CommandError."""
    return dict(map(_given, texts))


def _given(text: str) -> tuple[str, float]:
    kind, _, figure = text.partition("=")
    if kind not in (*KINDS, BANDWIDTH):
        raise CommandError(
            f"--peak {text}: the kind must be one of {', '.join(KINDS)} and {BANDWIDTH}."
        )
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
    """Sentences about why FLOP, bytes or shares of peak are missing."""
    if not known.inputs.distinct:
        yield "No shapes were recorded (record_shapes=True), so FLOP and bytes are not known."
        return
    devices = peaks_of_devices(trace, given)
    unknown = [d.name or _the(device_label(d.device)) for d in devices if d.peak is None]
    if unknown:
        yield (
            f"The peaks of {several(list(dict.fromkeys(unknown)), 3)} are not known: give them "
            "with --peak, as in --peak bf16=989e12 --peak bandwidth=3.35e12."
        )


def _the(label: str) -> str:
    """With an article, unless a number tells which device it is."""
    return label if label[-1:].isdigit() else f"the {label}"
