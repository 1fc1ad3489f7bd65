"""`fusetui capture`: from the options to a run folder. Importing this needs no torch."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fusetui import kernels
from fusetui.trace.text.printable import printable

from .defaults import STEPS
from .device import Device, find_device, load_torch, quiet_torch
from .errors import CaptureError
from .expect import guess_lines
from .folder import (
    default_folder,
    file_name,
    new_folder,
    new_numbered_folder,
    write_record,
)
from .guard import same_folder
from .options import Options, Recording, validate
from .progress import Progress
from .record import Failed, RunRecord
from .shapes import describe_shapes
from .table import closing_table
from .telling import show

if TYPE_CHECKING:
    from .job import Job


@dataclass(frozen=True)
class Outcome:
    """The folder that was written, whether every guess was right, and what failed.

    `failed` names variants, and in a sweep the point before each.
    """

    folder: Path
    right: bool
    failed: tuple[str, ...] = ()


def capture(
    workload: str,
    *,
    variants: Sequence[str] = (),
    device: str = "auto",
    dtype: str | None = None,
    out: Path | None = None,
    shapes: Sequence[str] = (),
    steps: int = STEPS,
    backward: bool = False,
    mode: str | None = None,
    stack: bool = False,
    record_shapes: bool = True,
    memory: bool = False,
    scrub: bool = False,
    expect: Sequence[str] = (),
    sweep: Sequence[str] = (),
    seconds: float | None = None,
) -> Path:
    """Runs a workload's variants (all of them by default) and returns the run folder.

    `workload` is a name, or the user's own `file.py:build` or `module:build`. The other arguments
    are those of `Options` and `Recording`; `sweep` makes a run of each point of a sweep. Progress
    goes to stderr, tables and the command that opens the result to stdout. Raises CaptureError,
    with nothing left behind, if an option is wrong or no variant could be measured.
    """
    recording = Recording(steps, stack, record_shapes, memory, scrub)
    options = Options(
        variants=variants,
        device=device,
        dtype=dtype,
        shapes=shapes,
        backward=backward,
        mode=mode,
        expect=expect,
        seconds=seconds if seconds is not None else 0.3 if sweep else 1.0,
        recording=recording,
    )
    return run_capture(workload, options, out=out, sweep=sweep).folder


def run_capture(
    workload: str, options: Options, *, out: Path | None = None, sweep: Sequence[str] = ()
) -> Outcome:
    """What `capture` does, and how it went."""
    if sweep:
        from .sweep import run_sweep

        return run_sweep(workload, options, sweep, out)
    record, folder = measure(workload, options, out=out, progress=Progress())
    opened = printable(shlex.quote(str(folder)))
    open_it = f"\nOpen it with: fusetui open {opened}"
    show("\n".join([closing_table(record), *guesses(record), open_it]))
    return Outcome(folder, record.guessed_right, tuple(v.name for v in record.failed))


def guesses(record: RunRecord) -> list[str]:
    """A line for every guess and variant, under an empty one; nothing without guesses."""
    lines = [line for v in record.measured for line in guess_lines(v.name, v.guesses)]
    return ["", *lines] if lines else []


def measure(
    workload: str, options: Options, *, out: Path | None = None, progress: Progress
) -> tuple[RunRecord, Path]:
    """One run without the closing table: the record and the run folder.

    Its name is taken before anything is measured: `out`, or one that nobody has.
    """
    validate(options)
    with quiet_torch(), same_folder():
        device = find_device(options.device)
        with _folder_for(workload, device, out) as (part, folder):
            record = _run(workload, options, device, part, progress)
    return record, folder


@contextmanager
def _folder_for(workload: str, device: Device, out: Path | None) -> Iterator[tuple[Path, Path]]:
    """The folder to fill, and what it will be called."""
    if out is None:
        first = default_folder(file_name(workload), device.kind, datetime.now())
        with new_numbered_folder(first) as found:
            yield found
    else:
        with new_folder(out) as part:
            yield part, out


def make_job(workload: str, options: Options, device: Device) -> Job:
    """The variants to run, with weights and inputs.

    Raises CaptureError for an unknown workload, an option that does not fit, or when there is not
    enough memory for weights and inputs.
    """
    load_torch()
    from . import failure, user, workload_job

    if user.is_target(workload):
        return user.user_job(workload, options, device)
    if workload not in kernels.names():
        known = ", ".join(kernels.names())
        raise CaptureError(f"unknown workload '{workload}': there are {known}.")
    try:
        return workload_job.workload_job(kernels.get(workload), options, device)
    except (RuntimeError, MemoryError) as error:
        raise CaptureError(f"{workload} cannot be set up: {failure.sentence(error)}") from error


def _run(
    workload: str, options: Options, device: Device, folder: Path, progress: Progress
) -> RunRecord:
    """Fills the run folder. Raises CaptureError if no variant was measured."""
    load_torch()
    from .run import Runner
    from .user import folder_of

    code = folder_of(workload)
    with progress.phase(f"preparing {workload} on {device.kind}"):
        job = make_job(workload, options, device)
    if job.shapes_shrunk:
        shapes = describe_shapes(job.shapes)
        progress.say(f"no GPU in use, so the shapes are smaller: {shapes}")
    record = Runner(job, options, device, progress).run(folder, code)
    if not record.measured:
        raise CaptureError(f"nothing was captured: {_reasons(record)}")
    write_record(folder, record)
    return record


def _reasons(record: RunRecord) -> str:
    failed = [variant for variant in record.variants if isinstance(variant, Failed)]
    return " ".join(f"{variant.name}: {variant.failed}" for variant in failed)
