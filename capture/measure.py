"""One run, from its options to its folder. Importing this does not need torch."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fusetui import kernels

from .device import CaptureDevice, find_device, load_torch, quiet_torch
from .errors import CaptureError, sentence
from .folder import FolderClaim, claim_free, default_folder, file_name, filled, write_record
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
        first = default_folder(file_name(workload), device.kind, datetime.now())
        with filled(lambda: FolderClaim(out) if out else claim_free(first)) as claim:
            record = _run(workload, options, device, claim.part, progress)
    return record, claim.out


def make_job(workload: str, options: Options, device: CaptureDevice) -> Job:
    """The variants to run, with weights and inputs.

    Raises CaptureError for an unknown workload, an option that does not apply, or if there is not
    enough memory for weights and inputs.
    """
    load_torch()
    from . import job, user

    if user.is_target(workload):
        return user.user_job(workload, options, device)
    if workload not in kernels.names():
        known = ", ".join(kernels.names())
        raise CaptureError(f"Unknown workload '{workload}': use one of {known}.")
    try:
        return job.workload_job(kernels.get(workload), options, device)
    except (RuntimeError, MemoryError) as error:
        raise CaptureError(f"{workload} cannot be set up: {sentence(error)}") from error


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
        failed = (v for v in record.variants if isinstance(v, Failed))
        reasons = " ".join(f"{variant.name}: {variant.failed}" for variant in failed)
        raise CaptureError(f"Nothing was captured: {reasons}")
    write_record(folder, record)
    return record
