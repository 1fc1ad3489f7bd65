"""Records a variant's steps with torch.profiler and writes them as a gzipped Chrome trace."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

from torch.profiler import ProfilerActivity, profile, record_function, schedule

from fusetui.analysis.questions.tally import Tallies, tallies
from fusetui.trace import open_trace

from .errors import CaptureError
from .folder import store
from .guard import leave_if_forked
from .options import Options
from .scrub import scrubbed, set_trace_name
from .step import Step
from .timing import synchronizer

TAIL = 64  # bytes in which the last bracket of a trace stands
WAIT, WARM_UP = 1, 1
"""Steps before the recorded ones: one with the profiler off, one that it discards."""


def record(step: Step, options: Options, device_kind: str, path: Path) -> None:
    """Profiles steps into `path` (.json.gz).

    Every step is one `ProfilerStep#N` around the labels of its parts, and waits for the device, so
    that the kernels of a step run within it.
    """
    plain, parent = path.with_suffix(""), os.getpid()

    def export(profiler: Any) -> None:
        leave_if_forked(parent)
        profiler.export_chrome_trace(str(plain))

    plan = schedule(wait=WAIT, warmup=WARM_UP, active=options.profiled_steps, repeat=1)
    synchronize = synchronizer(device_kind)
    with profile(
        **settings(options, device_kind),
        schedule=plan,
        on_trace_ready=export,
    ) as profiler:
        for _ in range(WAIT + WARM_UP + options.profiled_steps):
            run_labeled(step)
            synchronize()
            profiler.step()
    compress(plain, path, options.scrub)


def settings(options: Options, device_kind: str) -> dict[str, Any]:
    """The arguments of torch.profiler.profile for these options."""
    activities = [ProfilerActivity.CPU]
    if device_kind == "cuda":
        activities.append(ProfilerActivity.CUDA)
    return {
        "activities": activities,
        "record_shapes": options.record_shapes,
        "profile_memory": options.memory,
        "with_stack": options.stack,
    }


def compress(plain: Path, path: Path, scrub: bool) -> None:
    """Moves a trace into its gzip file, replacing the path in it by the file's name.

    With `scrub` all other private data is removed as well. Raises CaptureError if the profiler did
    not write all of it, or there is no room.
    """
    check_written(plain)
    if scrub:
        text = scrubbed(plain, plain.name)
    else:
        text = plain.read_text(encoding="utf-8", errors="surrogateescape")
        text = set_trace_name(text, plain.name)
    store(path, gzip.compress(text.encode(errors="surrogateescape"), mtime=0))
    plain.unlink()


def check_written(plain: Path) -> None:
    """Raises CaptureError unless the profiler wrote a trace up to its end."""
    if not plain.exists():
        raise CaptureError("The profiler could not write its trace: is the disk full?")
    with plain.open("rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - TAIL, 0))
        if not file.read().rstrip().endswith(b"}"):
            raise CaptureError("The profiler did not write its whole trace: is the disk full?")


def counted(path: Path) -> Tallies:
    """What ran in a trace just written. Raises CaptureError if only part of it was."""
    trace = open_trace(str(path), cached=False)
    if missing := trace.report.missing:
        raise CaptureError(f"The profiler did not write its whole trace ({missing}).")
    return tallies(trace)


def run_labeled(step: Step) -> None:
    """Runs a step, each of its parts inside of its label."""
    value = None
    for part in step:
        with record_function(part.label):
            value = part.run(value)
