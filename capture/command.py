"""`fusetui capture`: runs one capture, or with `--sweep` one per point, with a table, a
chart, JSON and CSV of all of them. Importing this does not need torch.

The points of a sweep are run folders inside the folder of the sweep. Each appears when
it is complete, so the same command with the same `--out` continues after Ctrl-C: points
that exist are not run again.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from fusetui import kernels
from fusetui.report.output import emit, supports_unicode
from fusetui.text.printable import printable
from fusetui.trace.new_file import replaced_file

from .errors import CaptureError, Progress, describe_failure, print_message
from .folder import (
    FolderClaim,
    claim_free,
    default_folder,
    encode_json,
    folder_to_fill,
    make_folder_name,
    numbered_paths,
    write_file,
)
from .guard import keep_working_directory
from .options import (
    Options,
    Point,
    axis_option,
    check_options,
    choose_variants,
    declared_options,
    describe_point,
    describe_shapes,
    parse_shapes,
    parse_sweep,
)
from .provenance import (
    CaptureDevice,
    find_device,
    load_torch,
    make_scrubber,
    select_gpu,
    silence_known_warnings,
)
from .record import (
    RECORD_NAME,
    Failed,
    RunOutcome,
    RunRecord,
    SavedRun,
    SavedVariant,
    format_guesses,
    guesses_by_variant,
    parse_guess,
    read_json,
    read_run,
)
from .table import (
    draw_sweep_chart,
    format_guess_report,
    format_run,
    format_sweep_csv,
    format_sweep_table,
    title,
)

if TYPE_CHECKING:
    from .job import Job

SWEEP_NAME = "sweep.json"
CSV_NAME = "sweep.csv"


class SweptRun(NamedTuple):
    """A run of a sweep, as it was saved."""

    point: Point
    run: SavedRun


def capture(
    workload: str, options: Options, out: Path | None = None, prints_json: bool = False
) -> RunOutcome:
    """Run the variants of a workload, at every point if there is a sweep. `workload` is
    a name, or the user's own `file.py:build` or `module:build`.

    Progress goes to stderr, and tables go to stdout; with `prints_json`, stdout gets
    the content of run.json or sweep.json instead. Raises CaptureError, leaving nothing
    behind, if an option is wrong or no variant could be measured.
    """
    if options.sweep:
        return run_sweep(workload, options, out, prints_json)

    record, folder = measure(workload, options, out, Progress())
    outcome = RunOutcome(
        folder=folder,
        right=all(
            guess.right for variant in record.measured for guess in variant.guesses
        ),
        failed=tuple(variant.name for variant in record.failed),
    )
    if prints_json:
        emit(encode_json(record).decode().rstrip("\n"))
        return outcome

    shown_folder = printable(shlex.quote(str(folder)))
    lines = [
        format_run(record),
        *format_guess_report(record),
        f"\nOpen it with: fusetui open {shown_folder}",
    ]
    if any(folder.glob("*.pickle")):
        lines.append(f"See what held memory: fusetui memory {shown_folder}")

    if options.compare:
        lines.append(f"Compare them with: fusetui diff {shown_folder}")

    emit("\n".join(lines))
    return outcome


def measure(
    workload: str, options: Options, out: Path | None, progress: Progress
) -> tuple[RunRecord, Path]:
    """Run a workload once, without printing the table, and return its record and its
    folder. The folder is `out`, or a free name, and is reserved before anything is
    measured. Raises CaptureError."""
    check_request(workload, options)

    with silence_known_warnings(), keep_working_directory():
        device = find_device(options.device)

        def claim_folder() -> FolderClaim:
            if out is not None:
                return FolderClaim(out)
            name = make_folder_name(workload)
            return claim_free(default_folder(name, device.kind, datetime.now()))

        with select_gpu(device), folder_to_fill(claim_folder) as claim:
            record = _run_workload(workload, options, device, claim.part, progress)

    return record, claim.out


def check_request(workload: str, options: Options) -> None:
    """Raise CaptureError for whatever is wrong with a request and can be seen without
    torch, whose import takes seconds. Of the user's own code only the options are
    checked, as its shapes and variants are not known yet."""
    check_options(options)

    for guess in options.expect:
        before, colon, after = guess.partition(":")
        parse_guess(after if colon else before)

    if ":" in workload:  # the user's own code
        return

    if workload not in kernels.names():
        workload_names = ", ".join(kernels.names())
        raise CaptureError(
            f"Unknown workload '{workload}': use one of {workload_names}."
        )

    outline = kernels.outline(workload)
    variants = choose_variants(
        workload, outline.available, options.variants, outline.missing
    )

    guesses_by_variant(options.expect, variants)
    if options.compare and len(variants) < 2:
        raise CaptureError("--compare needs two variants.")

    parse_shapes(options.shapes, outline.gpu_shapes)

    if options.sweep:
        parse_sweep(options.sweep, list(outline.gpu_shapes), outline.sweeps)


def make_job(workload: str, options: Options, device: CaptureDevice) -> Job:
    """Return the variants to run, with weights and inputs. Raises CaptureError if an
    option does not apply, if the user's code fails, or if weights and inputs do not fit
    into memory."""
    load_torch()
    from . import job

    if job.is_target(workload):
        return job.make_user_job(workload, options, device)

    definition = kernels.get(workload)
    try:
        return job.make_workload_job(definition, options, device)
    except (RuntimeError, MemoryError) as error:
        raise CaptureError(
            f"{workload} cannot be set up: {describe_failure(error)}"
        ) from error


def _run_workload(
    workload: str,
    options: Options,
    device: CaptureDevice,
    folder: Path,
    progress: Progress,
) -> RunRecord:
    """Runs a workload, writes traces and run.json into the folder, and returns the
    record. Raises CaptureError if no variant was measured."""
    load_torch()
    from .job import find_code_folder
    from .run import Runner

    code_folder = find_code_folder(workload)

    with progress.phase(f"preparing {workload} on {device.kind}"):
        job = make_job(workload, options, device)

    if job.shapes_shrunk:
        shapes = describe_shapes(job.shapes)
        progress.say(f"no GPU in use, so shapes are smaller: {shapes}")

    record = Runner(job, options, device, progress).run(folder, code_folder)
    if not record.measured:
        reasons = [
            f"{variant.name}: {variant.failed}"
            for variant in record.variants
            if isinstance(variant, Failed)
        ]
        raise CaptureError(f"Nothing was captured: {' '.join(reasons)}")

    write_file(folder / RECORD_NAME, encode_json(record))
    return record


def run_sweep(
    workload: str, options: Options, out: Path | None, prints_json: bool = False
) -> RunOutcome:
    """Run the points of a sweep that are missing and print the result, or with
    `prints_json` the content of sweep.json. Returns the folder of the sweep, and what
    failed at any of its points.

    A point at which no variant could be measured is reported and left out. Raises
    CaptureError for a wrong option, and if the folder holds another sweep or a point
    that cannot be read. If nothing could be measured at any point, it raises
    CaptureError too, and leaves nothing behind.
    """
    check_request(workload, options)

    with keep_working_directory():
        points = _parse_points(workload, options.sweep)

    point_options = dataclasses.replace(
        options, sweep=(), seconds=options.timing_seconds
    )
    device_kind = find_device(options.device).kind
    identity = _make_identity(workload, point_options, points)
    folder = _find_sweep_folder(workload, device_kind, out, identity)
    _read_saved_runs(
        folder, points
    )  # reports an unreadable point before others are run

    progress = Progress()
    try:
        for number, point in enumerate(points, 1):
            position = f"{number} of {len(points)}"
            _run_point(workload, point_options, point, folder, progress, position)
    except KeyboardInterrupt:
        print_message(f"Stopped. To continue, run the same command with --out {folder}")
        raise
    finally:
        runs = _read_saved_runs(folder, points)
        rows = list(_make_rows(runs))
        _replace(folder / SWEEP_NAME, encode_json({"asked": identity, "rows": rows}))
        _replace(folder / CSV_NAME, format_sweep_csv(rows).encode())

    if not runs:
        _remove_empty_sweep(folder)
        raise CaptureError("No point of the sweep was captured.")

    wrong_guesses = _find_wrong_guesses(runs)
    if prints_json:
        emit((folder / SWEEP_NAME).read_text(encoding="utf-8").rstrip("\n"))
    else:
        _print_sweep(folder, runs)
        if wrong_guesses:
            emit("\n".join(["", *map(printable, wrong_guesses)]))

    return RunOutcome(
        folder=folder,
        right=not wrong_guesses,
        failed=tuple(_find_failures(runs, points)),
    )


def _parse_points(workload: str, sweep: Sequence[str]) -> tuple[Point, ...]:
    """Return the points of a sweep, each a dict of sizes. Raises CaptureError for a
    wrong sweep, or if the user's code cannot be imported."""
    if workload in kernels.names():
        outline = kernels.outline(workload)
        return parse_sweep(sweep, list(outline.gpu_shapes), outline.sweeps)
    load_torch()
    from . import job

    build = job.load_build_function(workload)
    return parse_sweep(sweep, list(job.find_default_shapes(build)), presets={})


def _make_identity(
    workload: str, options: Options, points: Sequence[Point]
) -> dict[str, Any]:
    """Return what identifies a sweep, as sweep.json stores it. A later command
    continues the sweep only if it agrees in all of that."""
    identity = {
        "workload": make_scrubber().scrub(workload) if options.scrub else workload,
        "device": options.device,  # in sweep.json it comes before the other options
        **dataclasses.asdict(options),
        "points": list(points),
    }
    as_saved: dict[str, Any] = orjson.loads(orjson.dumps(identity))
    return as_saved


def _find_sweep_folder(
    workload: str, device_kind: str, out: Path | None, identity: Mapping[str, Any]
) -> Path:
    """Return the folder of a sweep: a new one, or `out` if it holds a part of this very
    sweep. Raises CaptureError if `out` holds anything else."""
    if out is None:
        name = f"{make_folder_name(workload)}-sweep"
        first_folder = default_folder(name, device_kind, datetime.now())
        return next(
            folder
            for folder in numbered_paths(first_folder)
            if _make_sweep_folder(folder, identity)
        )

    if _make_sweep_folder(out, identity):
        return out

    try:
        saved_identity = read_json(out / SWEEP_NAME)["asked"]
    except (CaptureError, KeyError, TypeError) as error:
        raise CaptureError(
            f"{out} exists and is not a sweep: choose another --out."
        ) from error

    if saved_identity != identity:
        difference = _describe_difference(saved_identity, identity)
        raise CaptureError(
            f"{out} contains another sweep, with {difference}: choose another --out."
        )

    return out


def _describe_difference(saved: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Return the first difference between the identities of two sweeps, such as
    `--dtype float32 instead of float16`. They must differ."""
    names = {**wanted, **saved}
    name = next(name for name in names if saved.get(name) != wanted.get(name))
    if name == "points":
        return "other sizes"
    option = declared_options().get(name)
    flag = (option.flag if option else "") or name
    saved_text = _format_option(saved.get(name))
    wanted_text = _format_option(wanted.get(name))
    return printable(f"{flag} {saved_text} instead of {wanted_text}")


def _format_option(value: object) -> str:
    """The value of an option as JSON, a text without its quotes."""
    return orjson.dumps(value).decode().strip('"')


def _make_sweep_folder(folder: Path, identity: Mapping[str, Any]) -> bool:
    """Make the folder of a sweep, with a sweep.json without rows, and return True.
    Returns False if the folder exists. Raises CaptureError if it cannot be written."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        return False
    except OSError as error:
        raise CaptureError(f"Cannot write to {folder}: {error.strerror}.") from error

    try:
        _replace(folder / SWEEP_NAME, encode_json({"asked": identity, "rows": []}))
    except CaptureError:
        folder.rmdir()
        raise

    return True


def _remove_empty_sweep(folder: Path) -> None:
    """Removes the files that belong to no point, and the folder if it is empty then."""
    # rmdir fails where the folder holds points, which must stay
    with suppress(OSError):
        (folder / CSV_NAME).unlink()
        (folder / SWEEP_NAME).unlink()
        folder.rmdir()


def _run_point(
    workload: str,
    options: Options,
    point: Point,
    folder: Path,
    progress: Progress,
    position: str,
) -> None:
    """Run one point of a sweep, unless its folder exists already. `position` says which
    of how many it is, such as `2 of 5`. An error is reported, and the sweep continues.
    """
    name = describe_point(point)
    point_folder = folder / name
    if os.path.lexists(point_folder):
        progress.say(f"{name} ({position}): already captured")
        return

    progress.say(f"{name} ({position})")
    sizes = [f"{axis_option(axis)}={size}" for axis, size in point.items()]

    point_options = dataclasses.replace(options, shapes=[*options.shapes, *sizes])
    try:
        measure(workload, point_options, out=point_folder, progress=progress)
    except CaptureError as error:
        progress.say(f"{name}: {error}")


def _read_saved_runs(folder: Path, points: Sequence[Point]) -> list[SweptRun]:
    """Return the runs that the folder of a sweep holds, in the order of the points.
    Raises CaptureError if one of them cannot be read."""
    runs = []
    for point in points:
        point_folder = folder / describe_point(point)
        if not os.path.lexists(point_folder):
            continue
        try:
            runs.append(SweptRun(point=point, run=read_run(point_folder)))
        except CaptureError as error:
            raise CaptureError(
                f"{error} To run the point again, move its folder."
            ) from error

    return runs


ROW_FIELDS = ("kernels_per_step", "weight_bytes", "max_error", "compile_ns", "failed")
"""The fields of a variant that a row of a sweep has under the same names."""


def _make_rows(runs: Sequence[SweptRun]) -> Iterator[dict[str, Any]]:
    """Yield a row for every point and variant of a sweep: sizes, times in ns, and the
    fields of ROW_FIELDS. What was not measured is None."""
    for point, variant in _iterate_variants(runs):
        step_ns = variant.step_ns

        row: dict[str, Any] = {
            **point,
            "variant": variant.name,
            "median_ns": step_ns.median if step_ns else None,
            "p10_ns": step_ns.p10 if step_ns else None,
            "p90_ns": step_ns.p90 if step_ns else None,
            "n_samples": step_ns.n if step_ns else None,
        }
        for name in ROW_FIELDS:
            row[name] = getattr(variant, name)

        yield row


def _iterate_variants(runs: Sequence[SweptRun]) -> Iterator[tuple[Point, SavedVariant]]:
    """Each variant of each run, with the point of the run."""
    for swept in runs:
        for variant in swept.run.variants:
            yield swept.point, variant


def _find_failures(runs: Sequence[SweptRun], points: Sequence[Point]) -> Iterator[str]:
    """Yield the points at which nothing was measured (`batch=64`), then the variants
    that failed at other points (`batch=128 eager`)."""
    measured_points = [swept.point for swept in runs]
    for point in points:
        if point not in measured_points:
            yield describe_point(point)
    for point, variant in _iterate_variants(runs):
        if variant.failed and not variant.skipped:
            yield f"{describe_point(point)} {variant.name}"


def _print_sweep(folder: Path, runs: Sequence[SweptRun]) -> None:
    """Print the title, the table and the chart of a sweep, and where its files are.
    There must be at least one run."""
    first = runs[0]
    rows = list(_make_rows(runs))
    axes = list(first.point)
    constant_sizes = {
        axis: size for axis, size in first.run.shapes.items() if axis not in axes
    }
    csv_path = printable(str(folder / CSV_NAME))
    example = printable(shlex.quote(str(folder / describe_point(first.point))))
    sections = (
        title(first.run, constant_sizes),
        format_sweep_table(rows, axes),
        draw_sweep_chart(rows, axes, ascii_only=not supports_unicode()),
        f"The figures are in {csv_path} and {SWEEP_NAME}.\n"
        f"Each point is a run: fusetui open {example}",
    )
    emit("\n\n".join(sections))


def _find_wrong_guesses(runs: Sequence[SweptRun]) -> list[str]:
    """Return a line for each wrong guess of a sweep, such as `batch=64: ! eager gemm:
    guess 3, found 2`."""
    lines = []
    for point, variant in _iterate_variants(runs):
        for line in format_guesses(variant.name, variant.guesses):
            if line.startswith("!"):
                lines.append(f"{describe_point(point)}: {line}")
    return lines


def _replace(path: Path, content: bytes) -> None:
    """Write a file completely or not at all, in place of an older one. Raises
    CaptureError if it cannot be written."""
    try:
        with replaced_file(path) as file:
            file.write(content)
    except OSError as error:
        raise CaptureError(f"Cannot write {path}: {error.strerror}.") from error
