"""`--peak KIND=FIGURE` and `--device NAME`: the peaks of a device, as given by the user."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from fusetui.commands.errors import CommandError
from fusetui.gpu.roofline.many import Jobs, peaks_of_devices
from fusetui.gpu.roofline.peaks import BANDWIDTH, KINDS, PEAKS
from fusetui.text.figures import several
from fusetui.trace import Trace
from fusetui.trace.layout.devices import device_ids, device_names
from fusetui.trace.model.ids import device_label
from fusetui.trace.model.recording import recorded_with

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


def with_device(trace: Trace, name: str | None) -> Trace:
    """The trace with devices of this model, of which the table of peaks has one. Raises
    CommandError, also if the trace says itself what its devices are."""
    if name is None:
        return trace
    if recorded := device_names(trace):
        raise CommandError(
            f"--device {name}: the trace was recorded on {several(recorded, 3)}; --peak gives "
            "other figures."
        )
    found = next((peak for peak in PEAKS if re.search(peak.pattern, name)), None)
    if found is None:
        raise CommandError(
            f"--device {name}: the table of peaks has no such device; give the name that the "
            "driver gives it, as in 'H100 80GB HBM3', or its figures with --peak."
        )
    listed = [{"id": n, "name": name, "numSms": found.sms} for n in device_ids(trace)]
    return replace(trace, keys={**trace.keys, "deviceProperties": listed})


def notices(trace: Trace, known: Jobs, given: dict[str, float]) -> Iterator[str]:
    """Sentences about why FLOP, bytes or shares of peak are missing."""
    if not known.inputs.distinct:
        option = recorded_with("record_shapes=True", trace.report.format)
        yield f"No shapes were recorded ({option}), so FLOP and bytes are not known."
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
