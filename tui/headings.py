"""What the top line says of a trace, and what a trace is called."""

from __future__ import annotations

from pathlib import Path

from fusetui.trace.columns import Trace
from fusetui.trace.devices import device_names
from fusetui.trace.format import count, duration, joined, percent, plural, printable
from fusetui.trace.steps import steps
from fusetui.trace.summary import gpu_times
from fusetui.tui.view import Side


def heading(side: Side, width: int) -> str:
    """One line that says what is open: as many facts as fit, the warnings first."""
    return joined([printable(side.label), *warnings(side.trace), *facts(side.trace)], width)


def facts(trace: Trace) -> list[str]:
    """What a person wants to know first about a trace, each in a few words."""
    times = gpu_times(trace)
    found = steps(trace)
    share = percent(times.busy_ns, times.busy_ns + times.idle_ns)
    parts = [
        ", ".join(dict.fromkeys(printable(name) for name in device_names(trace))),
        plural(len(found), "step") if found else "",
        duration(trace.end_ns - trace.begin_ns),
        f"{count(len(trace))} slices",
        plural(len(trace.gpu_rows), "GPU event") if len(trace.gpu_rows) else "no GPU events",
        f"GPU busy {share}" if share else "",
    ]
    return [part for part in parts if part]


def warnings(trace: Trace) -> list[str]:
    """What a person must know before trusting the picture."""
    report = trace.report
    found: list[str] = []
    if report.missing:
        found.append(report.missing)
    if report.skipped:
        found.append(f"{plural(len(report.skipped), 'event')} unreadable")
    if report.negative_delays:
        early = plural(report.negative_delays, "kernel")
        found.append(f"{early} before the launch: clocks differ")
    return found


def short_label(path: str) -> str:
    """`runs/mlp/eager.json.gz` -> `mlp/eager`."""
    name = Path(path).name
    for suffix in (".gz", ".zst", ".json", ".trace", ".pt"):
        name = name.removesuffix(suffix)
    return name
