"""Descriptions of the work of a kernel, for users."""

from __future__ import annotations

import math
from typing import Any, Final

from fusetui.gpu.kernel_names import decode
from fusetui.gpu.kernel_names.record import KernelName
from fusetui.gpu.kernel_names.vocabulary import from_capability
from fusetui.gpu.roofline.model import KernelWork
from fusetui.gpu.roofline.row import properties_of, work_of
from fusetui.text.figures import count, percent, plural, quantity, significant
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace

DIGITS: Final = 3  # of figures that are based on estimates
_BETWEEN: Final = {"matmul": " x ", "conv": " * "}  # shapes; commas elsewhere
_NOTABLE: Final = 0.05  # share of the device's time that is lost to an unfilled last wave


def describe(trace: Trace, row: int) -> str:
    """`[8192, 768] x [768, 3072] 38.7 GFLOP 204 TFLOP/s 65 % of peak 1,536 tiles, ...`. One line;
    unknown figures are left out, "" if nothing is known."""
    work = work_of(trace, row)
    if work is None:
        return ""
    share, of = work.share_of_peak, " bandwidth" if work.bound == "memory" else ""
    of_peak = "" if share is None else f"{percent(share, 1)} of peak{of}"
    shapes = _BETWEEN.get(work.kind, ", ").join(str(list(shape)) for shape in work.shapes)
    parts = (shapes, *_rates(work), of_peak, tiles_text(work))
    return "   ".join(filter(None, parts))


def remarks(trace: Trace, row: int) -> tuple[str, ...]:
    """What is unusual about a kernel, in words; () for most."""
    if trace.role[row] != Role.KERNEL:
        return ()
    properties = properties_of(trace, row)
    kernel, unit = decode(trace.name_of(row)), "CU" if _is_amd(properties) else "SM"
    found = (_generations(kernel, properties), _last_wave(work_of(trace, row), unit))
    return tuple(filter(None, found))


def tiles_text(work: KernelWork) -> str:
    """`1,536 tiles, 14.2 waves, the last 22 % full`."""
    if work.tiles is None:
        return ""
    text = plural(work.tiles, "tile")
    if work.waves is None or work.last_wave_empty is None:
        return text
    full = percent(1 - work.last_wave_empty, 1)
    if not work.last_wave_empty:
        return f"{text}, {plural(round(work.waves), 'full wave')}"
    if work.waves < 1:
        return f"{text}, one wave, {full} full"
    waves = count(round(work.waves)) if work.waves >= 999.5 else significant(work.waves, DIGITS)
    return f"{text}, {waves} waves, the last {full} full"


def _rates(work: KernelWork) -> tuple[str, ...]:
    """Operations and their rate; bytes and theirs if memory is the limit or nothing else is
    known."""
    operations = _pair(work.flop, work.flop_per_s, "FLOP")
    if operations and work.bound != "memory":
        return operations
    return (*operations, *_pair(work.bytes, work.bytes_per_s, "B"))


def _pair(number: int | None, rate: float | None, unit: str) -> tuple[str, ...]:
    if not number:
        return ()
    text = quantity(number, unit, DIGITS)
    return (text, quantity(rate, f"{unit}/s", DIGITS)) if rate else (text,)


def _last_wave(work: KernelWork | None, unit: str) -> str:
    """Idle multiprocessors, or a last wave that is so empty that it costs a notable share of
    time."""
    if work is None or work.tiles is None or work.waves is None or not work.sms:
        return ""
    idle = work.sms - work.tiles
    if idle > _NOTABLE * work.sms:
        tiles, of = plural(work.tiles, "tile"), plural(work.sms, unit)
        return f"{tiles} {'leaves' if work.tiles == 1 else 'leave'} {count(idle)} of {of} idle"
    unused = (work.last_wave_empty or 0.0) / math.ceil(work.waves)
    if work.waves <= 1 or unused < _NOTABLE:
        return ""
    return f"the last wave leaves {percent(unused, 1)} of the {unit}s' time unused"


def _generations(kernel: KernelName | None, properties: dict[str, Any]) -> str:
    """`an Ampere kernel on a Hopper GPU`, if the name and the device differ."""
    device = device_generation(properties)
    named = kernel.arch_name if kernel else None
    if named is None or device is None or named == device:
        return ""
    return f"{_article(named)} {named} kernel on {_article(device)} {device} GPU"


def device_generation(properties: dict[str, Any]) -> str | None:
    """The generation of a device by its compute capability; None if that is ambiguous. AMD writes
    9.0 for several generations, which is Hopper's number too."""
    version = f"{properties.get('computeMajor')}{properties.get('computeMinor')}"
    if _is_amd(properties):
        return {"94": "CDNA3", "95": "CDNA4"}.get(version)
    if "sharedMemPerMultiprocessor" not in properties:
        return None
    return from_capability(version).get("arch_name")


def _is_amd(properties: dict[str, Any]) -> bool:
    """Known from a property that only ROCm writes; names may be empty."""
    return "maxSharedMemoryPerMultiProcessor" in properties


def _article(noun: str) -> str:
    return "an" if noun[0] in "AEIOU" else "a"
