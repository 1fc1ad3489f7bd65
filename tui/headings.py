"""What the top line says of a trace, and what a trace is called."""

from __future__ import annotations

from pathlib import Path

from fusetui.trace.columns import Trace
from fusetui.trace.devices import device_names
from fusetui.trace.format import clip, count, duration, joined, percent, plural, printable, several
from fusetui.trace.steps import steps
from fusetui.trace.summary import gpu_times
from fusetui.tui.glyphs import Glyphs
from fusetui.tui.view import Side

BAR = 30  # cells of the progress bar
ROOMY = 110  # cells of a screen; with fewer the bar is short


def heading(side: Side, width: int) -> str:
    """One line that says what is open: as many facts as fit, the warnings first."""
    return joined([printable(side.label), *warnings(side.trace), *facts(side.trace)], width)


def facts(trace: Trace) -> list[str]:
    """What a person wants to know first about a trace, each in a few words.

    Of a part of a trace nothing is said that the rest would change into its contrary.
    """
    whole = trace.report.part is None
    times = gpu_times(trace)
    found = steps(trace)
    share = percent(times.busy_ns, times.busy_ns + times.idle_ns)
    parts = [
        ", ".join(dict.fromkeys(printable(name) for name in device_names(trace))),
        plural(len(found), "step") if found else "",
        duration(trace.end_ns - trace.begin_ns),
        f"{count(len(trace))} slices",
        plural(len(trace.gpu_rows), "GPU event") if len(trace.gpu_rows) else _no_gpu(whole),
        f"GPU busy {share}" if share and whole else "",
    ]
    return [part for part in parts if part]


def _no_gpu(whole: bool) -> str:
    return "no GPU events" if whole else ""


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
    if trace.secrets:
        found.append(f"looks like a secret: {printable(several(trace.secrets, 2))}")
    return found


def reading_line(
    path: str, done: int, total: int, width: int, glyphs: Glyphs, shown: bool = False
) -> str:
    """`reading big.json  ###.......  34 % of 1007 MB`; and what is shown, when lanes are there."""
    size = BAR if width >= ROOMY else BAR // 3
    full = size * done // max(1, total)
    figures = f"{100 * done // total} % of {total / 1e6:.0f} MB" if total else ""
    said = f"{figures}, shown: what was read so far" if shown else figures
    bar = f"  {glyphs.full * full}{'.' * (size - full)}  {said}".rstrip()
    name = printable(Path(path).name)
    return f"reading {clip(name, max(8, width - len(bar) - 8), glyphs.ellipsis)}{bar}"


def short_label(path: str) -> str:
    """`runs/mlp/eager.json.gz` -> `mlp/eager`."""
    name = Path(path).name
    for suffix in (".gz", ".zst", ".json", ".trace", ".pt"):
        name = name.removesuffix(suffix)
    return name
