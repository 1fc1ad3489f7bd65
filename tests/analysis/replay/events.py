"""Events of hand-made traces: what one can replay in one's head. Times are in us."""

from __future__ import annotations

from typing import Any

Event = dict[str, Any]


def host(name: str, ts: float, dur: float, cat: str = "cpu_op", **more: Any) -> Event:
    """A slice of a CPU thread."""
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 1,
        "tid": 1,
        "ts": ts,
        "dur": dur,
    } | more


def call(name: str, ts: float, dur: float, number: int = 0, **more: Any) -> Event:
    """A runtime call with its correlation."""
    return host(name, ts, dur, "cuda_runtime", args={"correlation": number}) | more


def kernel(ts: float, dur: float, number: int, name: str = "k", **more: Any) -> Event:
    """A kernel of the call with this number, on stream 7."""
    args = {"correlation": number, "device": 0, "stream": more.get("tid", 7)}
    return host(name, ts, dur, "kernel", pid=0, tid=7, args=args) | more


def launched(
    ts: float, start: float, dur: float, number: int, **more: Any
) -> list[Event]:
    """A launch call of 2 us, and its kernel."""
    return [call("cudaLaunchKernel", ts, 2, number), kernel(start, dur, number, **more)]


def step(number: int, ts: float, dur: float) -> Event:
    return host(f"ProfilerStep#{number}", ts, dur, "user_annotation")
