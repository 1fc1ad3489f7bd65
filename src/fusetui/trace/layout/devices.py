"""Which device a GPU lane ran on, as far as the file determines it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fusetui.text.patterns import late
from fusetui.trace.model.categories import GPU_LAYERS, Layer, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.grouping import by_key
from fusetui.trace.model.ids import Id
from fusetui.trace.model.memo import memo

CUDA, XPU = late(r"cuda|hip", re.IGNORECASE), late(r"xpu", re.IGNORECASE)
"""How their categories begin."""

WORK = (Layer.STREAM, Layer.DEVICE)


def device_numbers(
    layers: Sequence[Layer], lanes: Sequence[tuple[Id, Id, int | None]]
) -> Callable[[Id, int | None], Id]:
    """From the pid of GPU work, and the device that it names if any, to the number of
    its device.

    `lanes` are (pid, tid, `args.device`). Work that names none is on the one device
    that other work of its pid names, else its pid is the number. So it is for all where
    two pids name the same device: those are ranks in one file, each of which counts
    from 0.
    """
    both = zip(layers, lanes, strict=True)
    work = {(pid, device) for layer, (pid, _, device) in both if layer in WORK}
    named = by_key((one for one in work if one[1] is not None), lambda one: one[0])
    only: dict[Id, Id] = {
        pid: those[0][1] for pid, those in named.items() if len(those) == 1
    }

    def number(pid: Id, device: int | None) -> Id:
        return only.get(pid, pid) if device is None else device

    distinct = {(pid, number(pid, device)) for pid, device in work}
    ambiguous = len({device for _, device in distinct}) < len(distinct)
    return (lambda pid, device: pid) if ambiguous else number


@memo()
def device_properties(trace: Trace) -> dict[Id, dict[str, Any]]:
    """Properties of each device that has events, {} if unknown.

    ROCm writes agent numbers, and from 0 on the ids of deviceProperties only if a
    device is 0, as agent 0 is a CPU. An unknown id is resolved only if all listed
    devices are of the same model.
    """
    listed = [
        d for d in _list(trace.keys.get("deviceProperties")) if isinstance(d, dict)
    ]
    by_id = {d["id"]: d for d in listed if isinstance(d.get("id"), int | str)}
    alike = listed[0] if len({str(d.get("name")) for d in listed}) == 1 else {}
    used = device_ids(trace)
    agents = is_rocm(trace) and 0 not in used
    return {number: alike if agents else by_id.get(number, alike) for number in used}


def is_rocm(trace: Trace) -> bool:
    """Whether the file says that a profiler of ROCm wrote its GPU events."""
    return "roctracer_version" in trace.keys or "hip_runtime_version" in trace.keys


def device_ids(trace: Trace) -> list[Id]:
    """The numbers of devices with work, in lane order."""
    lanes = [
        t for t in trace.tracks if t.layer in GPU_LAYERS and t.layer is not Layer.SYNC
    ]
    return list(dict.fromkeys(t.pid for t in lanes))


def device_names(trace: Trace) -> list[str]:
    """One name per device used, in order; devices without a name in the file are left
    out."""
    found = (d.get("name") for d in device_properties(trace).values())
    return [name for name in found if isinstance(name, str) and name]


def other_accelerator(trace: Trace) -> tuple[str, int]:
    """What an accelerator that is no GPU is called, "" if none was used, and the number
    of its events. The ranges of CUPTI's counters are of a GPU: of them there is only
    the number."""
    rows = trace.rows_of(Role.DEVICE)
    of_gpu = np.array(
        [bool(CUDA.match(name)) for name in trace.categories], dtype=np.bool_
    )
    other = rows[~of_gpu[trace.cat[rows]]]
    if not len(other):
        return "", len(rows)
    name = (
        device_properties(trace).get(trace.track_of(int(other[0])).pid, {}).get("name")
    )
    known = name if isinstance(name, str) else ""
    return known or trace.category_of(int(other[0])).partition("_")[0].upper(), len(
        other
    )


def gpu_activity(trace: Trace) -> str:
    """The activity that records GPU events and their launches, "" where nothing shows a
    GPU."""
    if any(XPU.match(name) for name in trace.categories):
        return "ProfilerActivity.XPU"
    listed = (
        bool(_list(trace.keys.get("deviceProperties")))
        and not other_accelerator(trace)[0]
    )
    used = len(trace.gpu_rows) or any(CUDA.match(name) for name in trace.categories)
    return "ProfilerActivity.CUDA" if listed or used else ""


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
