"""One run, from its options to its folder. Importing this does not need torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fusetui import kernels

from .device import CaptureDevice, find_device, load_torch, quiet_torch
from .errors import CaptureError
from .folder import (
    default_folder,
    file_name,
    new_folder,
    new_numbered_folder,
    write_record,
)
from .guard import same_folder
from .options import Options, validate
from .record import Failed, RunRecord
from .shapes import describe_shapes
from .telling import Progress

if TYPE_CHECKING:
    from .job import Job


def measure(
    workload: str, options: Options, *, out: Path | None = None, progress: Progress
) -> tuple[RunRecord, Path]:
    """Runs once, without printing the closing table; returns the record and the run folder.

    The name of the folder is reserved before anything is measured: `out`, or one that is free.
    """
    validate(options)
    with quiet_torch(), same_folder():
        device = find_device(options.device)
        with _folder_for(workload, device, out) as (part, folder):
            record = _run(workload, options, device, part, progress)
    return record, folder


@contextmanager
def _folder_for(
    workload: str, device: CaptureDevice, out: Path | None
) -> Iterator[tuple[Path, Path]]:
    """The folder to fill, and its final name."""
    if out is None:
        first = default_folder(file_name(workload), device.kind, datetime.now())
        with new_numbered_folder(first) as found:
            yield found
    else:
        with new_folder(out) as part:
            yield part, out


def make_job(workload: str, options: Options, device: CaptureDevice) -> Job:
    """The variants to run, with weights and inputs.

    Raises CaptureError for an unknown workload, an option that does not apply, or if there is not
    enough memory for weights and inputs.
    """
    load_torch()
    from . import failure, user, workload_job

    if user.is_target(workload):
        return user.user_job(workload, options, device)
    if workload not in kernels.names():
        known = ", ".join(kernels.names())
        raise CaptureError(f"Unknown workload '{workload}': use one of {known}.")
    try:
        return workload_job.workload_job(kernels.get(workload), options, device)
    except (RuntimeError, MemoryError) as error:
        raise CaptureError(f"{workload} cannot be set up: {failure.sentence(error)}") from error


def _run(
    workload: str, options: Options, device: CaptureDevice, folder: Path, progress: Progress
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
        raise CaptureError(f"Nothing was captured: {_reasons(record)}")
    write_record(folder, record)
    return record


def _reasons(record: RunRecord) -> str:
    failed = [variant for variant in record.variants if isinstance(variant, Failed)]
    return " ".join(f"{variant.name}: {variant.failed}" for variant in failed)
