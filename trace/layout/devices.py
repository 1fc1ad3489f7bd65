"""Which device a GPU lane ran on, as far as the file determines it."""

from __future__ import annotations

from typing import Any

from fusetui.trace.model.categories import GPU_LAYERS, Layer
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import Id


def device_properties(trace: Trace) -> dict[Id, dict[str, Any]]:
    """Properties of each device that has events, {} if unknown.

    ROCm writes agent numbers as pid instead of the ids of deviceProperties. An unknown id is
    resolved only if all listed devices are of the same model.
    """
    listed = [d for d in _list(trace.keys.get("deviceProperties")) if isinstance(d, dict)]
    by_id = {d["id"]: d for d in listed if isinstance(d.get("id"), int | str)}
    rocm = is_rocm(trace)
    alike = listed[0] if len({str(d.get("name")) for d in listed}) == 1 else {}
    return {pid: alike if rocm else by_id.get(pid, alike) for pid in device_ids(trace)}


def is_rocm(trace: Trace) -> bool:
    """Whether the file says that a profiler of ROCm wrote its GPU events."""
    return "roctracer_version" in trace.keys or "hip_runtime_version" in trace.keys


def device_ids(trace: Trace) -> list[Id]:
    """The pids of lanes with device work, in lane order."""
    lanes = [t for t in trace.tracks if t.layer in GPU_LAYERS and t.layer is not Layer.SYNC]
    return list(dict.fromkeys(t.pid for t in lanes))


def device_names(trace: Trace) -> list[str]:
    """One name per device used, in order; devices without a name in the file are left out."""
    found = (d.get("name") for d in device_properties(trace).values())
    return [name for name in found if isinstance(name, str) and name]


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
