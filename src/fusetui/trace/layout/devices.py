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
    """Return a function that tells the number of the device of GPU work.

    Usually work says its device in `args.device`. Work that does not is on the one
    device that other work of its pid names; else its pid is the number.

    Traces of several ranks that were merged into one file all say device 0. So if two
    pids would have the same number, the pid is the number for all work.

    Args:
        layers: The layer of each lane.
        lanes: The (pid, tid, `args.device` or None) of each lane.

    Returns:
        A function of a pid and of a device, which may be None.
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
    """Return the device of each pid whose work names exactly one.

    (7, 0), (7, None), (8, 1), (8, 2) give {7: 0}: the work of pid 8 names two.
    """
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
    """Return what the file says about each device that has work, by its number.

    It is the entry of `deviceProperties` with that number: name, memory, SMs. On ROCm,
    events may have numbers of agents instead, among which CPUs count; they are numbers
    of devices only if work is on device 0, since agent 0 is a CPU. A device whose entry
    is not known has that of any other device if all are of one model, else {}.
    """
    listed: list[dict[str, Any]] = []
    for properties in _list_or_empty(trace.keys.get("deviceProperties")):
        if isinstance(properties, dict):
            listed.append(properties)
    models = {str(properties.get("name")) for properties in listed}
    if_unknown = listed[0] if len(models) == 1 else {}
    used = device_ids(trace)
    numbers_are_agents = is_rocm(trace) and 0 not in used
    if numbers_are_agents:
        return dict.fromkeys(used, if_unknown)
    by_id: dict[Id, dict[str, Any]] = {}
    for properties in listed:
        if isinstance(properties.get("id"), int | str):
            by_id[properties["id"]] = properties
    return {device: by_id.get(device, if_unknown) for device in used}


def is_rocm(trace: Trace) -> bool:
    """Whether a profiler of ROCm wrote the GPU events, as the file says."""
    return "roctracer_version" in trace.keys or "hip_runtime_version" in trace.keys


def device_ids(trace: Trace) -> list[Id]:
    """Return the numbers of the devices with work, in the order of their tracks."""
    ids: dict[Id, None] = {}  # an ordered set
    for track in trace.tracks:
        if track.layer in GPU_LAYERS and track.layer is not Layer.SYNC:
            ids[track.pid] = None
    return list(ids)


def device_names(trace: Trace) -> list[str]:
    """Return the name of each device with work: ["NVIDIA H100", "NVIDIA H100"].

    Devices that the file does not name are left out.
    """
    names = []
    for properties in device_properties(trace).values():
        name = properties.get("name")
        if isinstance(name, str) and name:
            names.append(name)
    return names


def other_accelerator(trace: Trace) -> tuple[str, int]:
    """Return the name of an accelerator that is no GPU, and the number of its events.

    A chip of Meta gives ("MTIA", 120), from the category `mtia_ccp_events` if the file
    names no device. If there is none, the name is "", and the number counts the device
    events that GPUs have too: ranges of CUPTI's counters.
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
        category_prefix, _, _ = trace.category_of(first_row).partition("_")
        name = category_prefix.upper()
    return name, len(rows_of_others)


def gpu_activity(trace: Trace) -> str:
    """Return what has to be passed to torch's profiler to record the GPU.

    It is "ProfilerActivity.XPU" for a GPU of Intel and "ProfilerActivity.CUDA" for
    others; "" if nothing in the file shows a GPU.
    """
    if any(XPU.match(name) for name in trace.categories):
        return "ProfilerActivity.XPU"
    if len(trace.gpu_rows) or any(CUDA.match(name) for name in trace.categories):
        return "ProfilerActivity.CUDA"
    other_name, _ = other_accelerator(trace)
    if _list_or_empty(trace.keys.get("deviceProperties")) and not other_name:
        return "ProfilerActivity.CUDA"
    return ""


def _list_or_empty(value: object) -> list[Any]:
    """The value if it is a list, else []."""
    return value if isinstance(value, list) else []
