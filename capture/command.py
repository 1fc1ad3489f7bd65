"""`fusetui capture`: one run, or with `--sweep` one for every point, and a table, a
chart, JSON and CSV of all of them. Importing this does not need torch.

Each point is a run folder inside the folder of the sweep, which appears when it is
complete. So the same command with the same `--out` continues after Ctrl-C: existing
points are not run again.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from fusetui import kernels
from fusetui.report.output import emit, speaks_unicode
from fusetui.text.printable import printable
from fusetui.trace.new_file import replaced_file

from .errors import CaptureError, Progress, sentence, tell
from .folder import (
    FolderClaim,
    as_json,
    claim_free,
    default_folder,
    file_name,
    filled,
    numbered,
    store,
)
from .guard import same_folder
from .options import (
    Options,
    Point,
    choose,
    declared,
    describe_point,
    describe_shapes,
    option_of,
    parse_shapes,
    parse_sweep,
    validate,
)
from .provenance import (
    CaptureDevice,
    find_device,
    load_torch,
    quiet_torch,
    selected,
    texts,
)
from .record import (
    RECORD_NAME,
    Failed,
    RunOutcome,
    RunRecord,
    SavedRun,
    SavedVariant,
    guess_lines,
    parse,
    parse_for,
    read_json,
    read_run,
)
from .table import closing_table, guesses, sweep_chart, sweep_csv, sweep_table, title

if TYPE_CHECKING:
    from .job import Job

SWEEP_NAME, CSV_NAME = "sweep.json", "sweep.csv"

Runs = Sequence[tuple[Point, SavedRun]]  # what there is of a sweep, in order


def capture(
    workload: str, options: Options, out: Path | None = None, prints_json: bool = False
) -> RunOutcome:
    """Runs the variants of a workload, at every point if there is a sweep.

    `workload` is a name, or the user's own `file.py:build` or `module:build`. Progress
    goes to stderr, tables and the command that opens the result to stdout; with
    `prints_json` what run.json holds, or sweep.json, instead. Raises CaptureError,
    leaving nothing behind, if an option is wrong or no variant could be measured.
    """
    if options.sweep:
        return run_sweep(workload, options, out, prints_json)
    record, folder = measure(workload, options, out, Progress())
    right = all(guess.right for variant in record.measured for guess in variant.guesses)
    outcome = RunOutcome(folder, right, tuple(v.name for v in record.failed))
    if prints_json:
        emit(as_json(record).decode().rstrip("\n"))
        return outcome
    opened = printable(shlex.quote(str(folder)))
    lines = [
        closing_table(record),
        *guesses(record),
        f"\nOpen it with: fusetui open {opened}",
    ]
    if any(folder.glob("*.pickle")):
        lines.append(f"Who held memory: fusetui memory {opened}")
    lines += [f"Compare them with: fusetui diff {opened}"] if options.compare else []
    emit("\n".join(lines))
    return outcome


def measure(
    workload: str, options: Options, out: Path | None, progress: Progress
) -> tuple[RunRecord, Path]:
    """Runs once, without printing the closing table; returns the record and the run
    folder. The name of the folder is reserved before anything is measured: `out`, or
    one that is free."""
    check_request(workload, options)
    with quiet_torch(), same_folder():
        device = find_device(options.device)
        first = default_folder(file_name(workload), device.kind, datetime.now())
        with (
            selected(device),
            filled(lambda: FolderClaim(out) if out else claim_free(first)) as claim,
        ):
            record = _run(workload, options, device, claim.part, progress)
    return record, claim.out


def check_request(workload: str, options: Options) -> None:
    """Raises CaptureError for whatever is wrong with a request and can be seen without
    torch, whose import takes seconds. Of the user's own code that is only what its
    options say by themselves."""
    validate(options)
    for guess in options.expect:
        parse(guess.partition(":")[2] if ":" in guess else guess)
    if ":" in workload:  # the user's own code
        return
    if workload not in kernels.names():
        known = ", ".join(kernels.names())
        raise CaptureError(f"Unknown workload '{workload}': use one of {known}.")
    outline = kernels.outline(workload)
    variants = choose(workload, outline.available, options.variants, outline.missing)
    parse_for(options.expect, variants)
    if options.compare and len(variants) < 2:
        raise CaptureError("--compare needs two variants.")
    parse_shapes(options.shapes, outline.gpu_shapes)
    if options.sweep:
        parse_sweep(options.sweep, list(outline.gpu_shapes), outline.sweeps)


def make_job(workload: str, options: Options, device: CaptureDevice) -> Job:
    """The variants to run, with weights and inputs. Raises CaptureError for an unknown
    workload, an option that does not apply, or if there is not enough memory for
    weights and inputs."""
    load_torch()
    from . import job

    if job.is_target(workload):
        return job.user_job(workload, options, device)
    known = kernels.get(workload)
    try:
        return job.workload_job(known, options, device)
    except (RuntimeError, MemoryError) as error:
        raise CaptureError(f"{workload} cannot be set up: {sentence(error)}") from error


def _run(
    workload: str,
    options: Options,
    device: CaptureDevice,
    folder: Path,
    progress: Progress,
) -> RunRecord:
    """Fills the run folder. Raises CaptureError if no variant was measured."""
    load_torch()
    from .job import folder_of
    from .run import Runner

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
    store(folder / RECORD_NAME, as_json(record))
    return record


def run_sweep(
    workload: str, options: Options, out: Path | None, prints_json: bool = False
) -> RunOutcome:
    """Runs every missing point and prints the result; with `prints_json` what
    sweep.json holds.

    The outcome has the sweep's folder, and is about all points. A point at which no
    variant could be measured is reported and left out. Raises CaptureError for a wrong
    option, if the folder holds another sweep or a point that cannot be read, or,
    leaving nothing behind, if there is no other point.
    """
    check_request(workload, options)
    with same_folder():
        points = _points(workload, options.sweep)
    options = dataclasses.replace(options, sweep=(), seconds=options.timing_seconds)
    kind = find_device(options.device).kind
    asked = _asked(workload, options, kind, points)
    if out is None:
        first = default_folder(f"{file_name(workload)}-sweep", kind, datetime.now())
        folder = next(folder for folder in numbered(first) if _made(folder, asked))
    else:
        folder = _claim(out, asked)
    _saved(folder, points)  # reports an unreadable point before others are run
    progress = Progress()
    try:
        for number, point in enumerate(points, 1):
            _run_point(
                workload, options, point, folder, progress, f"{number} of {len(points)}"
            )
    except KeyboardInterrupt:
        tell(f"Stopped. To continue, run the same command with --out {folder}")
        raise
    finally:
        runs = _saved(folder, points)
        rows = list(_rows(runs))
        _replace(folder / SWEEP_NAME, as_json({"asked": asked, "rows": rows}))
        _replace(folder / CSV_NAME, sweep_csv(rows).encode())
    if not runs:  # what we wrote goes, and the folder if it is empty then
        with suppress(OSError):
            for name in (CSV_NAME, SWEEP_NAME):
                (folder / name).unlink()
            folder.rmdir()
        raise CaptureError("Nothing was captured at any point of the sweep.")
    failed = tuple(_failed(runs, points))
    if prints_json:
        emit((folder / SWEEP_NAME).read_text(encoding="utf-8").rstrip("\n"))
        return RunOutcome(folder, not _wrong_guesses(runs), failed)
    _show(folder, runs)
    return RunOutcome(folder, _show_guesses(runs), failed)


def _points(workload: str, sweep: Sequence[str]) -> tuple[Point, ...]:
    if workload in kernels.names():
        outline = kernels.outline(workload)
        return parse_sweep(sweep, list(outline.gpu_shapes), outline.sweeps)
    load_torch()
    from . import job

    return parse_sweep(sweep, list(job.axes(job.load(workload))), {})


def _asked(
    workload: str, options: Options, kind: str, points: Sequence[Point]
) -> dict[str, Any]:
    """What identifies a sweep: sweeps that agree in it can share a folder."""
    shown = texts().scrub(workload) if options.scrub else workload
    asked = {"workload": shown, "device": kind, **dataclasses.asdict(options)}
    found: dict[str, Any] = orjson.loads(orjson.dumps(asked | {"points": list(points)}))
    return found


def _claim(folder: Path, asked: Mapping[str, Any]) -> Path:
    """Creates the sweep's folder, or checks that it holds a part of this very sweep."""
    if _made(folder, asked):
        return folder
    try:
        there = read_json(folder / SWEEP_NAME)["asked"]
    except (CaptureError, KeyError, TypeError) as error:
        raise CaptureError(
            f"{folder} exists and is not a sweep: give another --out."
        ) from error
    if there != asked:
        differs = _difference(there, asked)
        raise CaptureError(
            f"{folder} holds another sweep, with {differs}: give another --out."
        )
    return folder


def _difference(there: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """Where two sweeps first differ: `--dtype float32 instead of float16`."""
    names = {**asked, **there}
    name = next(name for name in names if there.get(name) != asked.get(name))
    if name == "points":
        return "other sizes"
    known = declared()
    option = (known[name].flag if name in known else "") or name
    old = orjson.dumps(there.get(name)).decode().strip('"')
    new = orjson.dumps(asked.get(name)).decode().strip('"')
    return printable(f"{option} {old} instead of {new}")


def _made(folder: Path, asked: Mapping[str, Any]) -> bool:
    """Creates the sweep's folder unless it exists; returns whether it did. Raises
    CaptureError."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        return False
    except OSError as error:
        raise CaptureError(f"Cannot write to {folder}: {error.strerror}.") from error
    try:
        _replace(folder / SWEEP_NAME, as_json({"asked": asked, "rows": []}))
    except CaptureError:
        folder.rmdir()
        raise
    return True


def _run_point(
    workload: str,
    options: Options,
    point: Point,
    folder: Path,
    progress: Progress,
    number: str,
) -> None:
    name = describe_point(point)
    place = folder / name
    if os.path.lexists(place):
        progress.say(f"{name} ({number}): there already")
        return
    progress.say(f"{name} ({number})")
    shapes = [
        *options.shapes,
        *(f"{option_of(axis)}={size}" for axis, size in point.items()),
    ]
    try:
        measure(
            workload,
            dataclasses.replace(options, shapes=shapes),
            out=place,
            progress=progress,
        )
    except CaptureError as error:
        progress.say(f"{name}: {error}")


def _saved(folder: Path, points: Sequence[Point]) -> Runs:
    places = [(point, folder / describe_point(point)) for point in points]
    try:
        return [
            (point, read_run(place))
            for point, place in places
            if os.path.lexists(place)
        ]
    except CaptureError as error:
        raise CaptureError(
            f"{error} Move its folder away to run the point again."
        ) from error


SHOWN = ("kernels_per_step", "weight_bytes", "max_error", "compile_ns", "failed")
"""The fields of a variant that a row of a sweep has."""
TIMES = {"median_ns": "median", "p10_ns": "p10", "p90_ns": "p90", "n_samples": "n"}


def _rows(runs: Runs) -> Iterator[dict[str, Any]]:
    """A row for every point and variant that ran: sizes, times in ns, or the
    failure."""
    for point, variant in _variants(runs):
        times = {
            name: getattr(variant.step_ns, field, None) for name, field in TIMES.items()
        }
        others = {name: getattr(variant, name) for name in SHOWN}
        yield {**point, "variant": variant.name, **times, **others}


def _variants(runs: Runs) -> Iterator[tuple[Point, SavedVariant]]:
    return ((point, variant) for point, run in runs for variant in run.variants)


def _failed(runs: Runs, points: Sequence[Point]) -> Iterator[str]:
    there = [point for point, _ in runs]
    yield from (describe_point(point) for point in points if point not in there)
    for point, variant in _variants(runs):
        if variant.failed and not variant.skipped:
            yield f"{describe_point(point)} {variant.name}"


def _show(folder: Path, runs: Runs) -> None:
    point, run = runs[0]
    rows = list(_rows(runs))
    axes = list(point)
    constant = {axis: size for axis, size in run.shapes.items() if axis not in axes}
    chart = sweep_chart(rows, axes, ascii_only=not speaks_unicode())
    figures = (
        f"The figures are in {printable(str(folder / CSV_NAME))} and {SWEEP_NAME}."
    )
    place = printable(shlex.quote(str(folder / describe_point(point))))
    each = f"Each point is a run: fusetui open {place}"
    parts = (title(run, constant), sweep_table(rows, axes), chart, f"{figures}\n{each}")
    emit("\n\n".join(parts))


def _show_guesses(runs: Runs) -> bool:
    """Prints the wrong guesses, point by point; returns whether there are none."""
    wrong = _wrong_guesses(runs)
    if wrong:
        emit("\n".join(["", *map(printable, wrong)]))
    return not wrong


def _wrong_guesses(runs: Runs) -> list[str]:
    return [
        f"{describe_point(point)}: {line}"
        for point, variant in _variants(runs)
        for line in guess_lines(variant.name, variant.guesses)
        if line.startswith("!")
    ]


def _replace(path: Path, content: bytes) -> None:
    """Writes a file completely or not at all. Raises CaptureError."""
    try:
        with replaced_file(path) as file:
            file.write(content)
    except OSError as error:
        raise CaptureError(f"Cannot write {path}: {error.strerror}.") from error
