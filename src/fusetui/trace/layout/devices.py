"""Determines on which device a GPU lane ran, if the file shows it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from fusetui.text.patterns import lazy_pattern
from fusetui.trace.model.categories import GPU_LAYERS, Layer, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import Id
from fusetui.trace.model.memo import memo

CUDA = lazy_pattern(r"cuda|hip", re.IGNORECASE)
XPU = lazy_pattern(r"xpu", re.IGNORECASE)
"""How the categories of these devices begin."""

WORK = (Layer.STREAM, Layer.DEVICE)
"""The layers of GPU work."""


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
    work_lanes: set[tuple[Id, int | None]] = set()
    for layer, (pid, _, device) in zip(layers, lanes, strict=True):
        if layer in WORK:
            work_lanes.add((pid, device))
    only_device = _only_devices(work_lanes)

    def number(pid: Id, device: int | None) -> Id:
        if device is not None:
            return device
        return only_device.get(pid, pid)

    def number_by_pid(pid: Id, device: int | None) -> Id:
        return pid

    numbered = {(pid, number(pid, device)) for pid, device in work_lanes}
    distinct_numbers = {number for _, number in numbered}
    two_pids_share_a_number = len(distinct_numbers) < len(numbered)
    return number_by_pid if two_pids_share_a_number else number


def _only_devices(work_lanes: Iterable[tuple[Id, int | None]]) -> dict[Id, Id]:
    """The device of each pid whose work names one and no other."""
    named_devices: dict[Id, set[int]] = {}
    for pid, device in work_lanes:
        if device is not None:
            named_devices.setdefault(pid, set()).add(device)
    only_device: dict[Id, Id] = {}
    for pid, devices in named_devices.items():
        if len(devices) == 1:
            (only_device[pid],) = devices
    return only_device


@memo()
def device_properties(trace: Trace) -> dict[Id, dict[str, Any]]:
    """Properties of each device that has events, {} if unknown.

    ROCm writes agent numbers, and from 0 on the ids of deviceProperties only if a
    device is 0, as agent 0 is a CPU. An unknown id is resolved only if all listed
    devices are of the same model.
    """
    listed: list[dict[str, Any]] = []
    for properties in _list(trace.keys.get("deviceProperties")):
        if isinstance(properties, dict):
            listed.append(properties)
    models = {str(properties.get("name")) for properties in listed}
    of_unknown_id = listed[0] if len(models) == 1 else {}
    used = device_ids(trace)
    if is_rocm(trace) and 0 not in used:  # the numbers are those of agents
        return dict.fromkeys(used, of_unknown_id)
    by_id: dict[Id, dict[str, Any]] = {}
    for properties in listed:
        if isinstance(properties.get("id"), int | str):
            by_id[properties["id"]] = properties
    return {device: by_id.get(device, of_unknown_id) for device in used}


def is_rocm(trace: Trace) -> bool:
    """Whether the file says that a profiler of ROCm wrote its GPU events."""
    return "roctracer_version" in trace.keys or "hip_runtime_version" in trace.keys


def device_ids(trace: Trace) -> list[Id]:
    """The numbers of devices with work, in lane order."""
    ids: dict[Id, None] = {}  # an ordered set
    for track in trace.tracks:
        if track.layer in GPU_LAYERS and track.layer is not Layer.SYNC:
            ids[track.pid] = None
    return list(ids)


def device_names(trace: Trace) -> list[str]:
    """One name per device used, in order; devices without a name in the file are left
    out."""
    names = []
    for properties in device_properties(trace).values():
        name = properties.get("name")
        if isinstance(name, str) and name:
            names.append(name)
    return names


def other_accelerator(trace: Trace) -> tuple[str, int]:
    """What an accelerator that is no GPU is called, and the number of its events.

    `("", n)` if none was used: the n device events are then the ranges of CUPTI's
    counters, which are of a GPU.
    """
    rows = trace.rows_of(Role.DEVICE)
    is_cuda = [bool(CUDA.match(category)) for category in trace.categories]
    is_category_of_gpu = np.array(is_cuda, dtype=np.bool_)
    rows_of_others = rows[~is_category_of_gpu[trace.cat[rows]]]
    if not len(rows_of_others):
        return "", len(rows)
    first_row = int(rows_of_others[0])
    device = trace.track_of(first_row).pid
    name = device_properties(trace).get(device, {}).get("name")
    if not isinstance(name, str) or not name:
        # mtia_ccp_events: MTIA
        beginning, _, _ = trace.category_of(first_row).partition("_")
        name = beginning.upper()
    return name, len(rows_of_others)


def gpu_activity(trace: Trace) -> str:
    """The activity that records GPU events and their launches, "" where nothing shows a
    GPU."""
    if any(XPU.match(name) for name in trace.categories):
        return "ProfilerActivity.XPU"
    if len(trace.gpu_rows) or any(CUDA.match(name) for name in trace.categories):
        return "ProfilerActivity.CUDA"
    other_name, _ = other_accelerator(trace)
    if _list(trace.keys.get("deviceProperties")) and not other_name:
        return "ProfilerActivity.CUDA"
    return ""


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
