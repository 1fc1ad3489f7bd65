"""`--sweep`: a run for every point, and a table, a chart, JSON and CSV of all of them.

Each point is a run folder of its own inside the sweep's folder, which appears when it is whole. So
the same command with the same `--out` goes on after Ctrl-C: a point that is there is not run again.
"""

from __future__ import annotations

import dataclasses
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from fusetui import kernels

from .command import measure
from .device import find_device, load_torch
from .errors import CaptureError
from .expect import Guess, guess_lines
from .folder import RECORD_NAME, default_folder, file_name, read_record
from .options import Options, validate
from .points import Point, as_arguments, describe_point, parse_sweep
from .progress import Progress
from .scrub import texts
from .shapes import describe_shapes
from .sweep_table import sweep_chart, sweep_csv, sweep_table
from .table import heading

SWEEP_NAME, CSV_NAME = "sweep.json", "sweep.csv"


def run_sweep(
    workload: str, options: Options, sweep: Sequence[str], out: Path | None
) -> tuple[Path, bool]:
    """Runs every point that is not there yet and prints the result.

    Returns the sweep's folder, and whether every guess was right at every point. A point at which
    no variant could be measured is told and left out. Raises CaptureError for a wrong option, if
    the folder holds another sweep, or, with nothing left behind, if there is no other point.
    """
    validate(options)
    points = _points(workload, sweep)
    kind = find_device(options.device).kind
    folder = out or default_folder(f"{file_name(workload)}-sweep", kind, datetime.now())
    _claim(folder, _asked(workload, options, kind, points))
    progress = Progress()
    try:
        for number, point in enumerate(points, 1):
            _run_point(workload, options, point, folder, progress, f"{number} of {len(points)}")
    except KeyboardInterrupt:
        print(f"\nStopped. To go on: the same command with --out {folder}", file=sys.stderr)
        raise
    finally:
        _write_results(folder, points)
    if not any(_variants(folder, point) for point in points):
        shutil.rmtree(folder)
        raise CaptureError("nothing was captured at any point of the sweep.")
    _show(folder, points)
    return folder, _show_guesses(folder, points)


def _points(workload: str, sweep: Sequence[str]) -> tuple[Point, ...]:
    """The points, by the axes of a workload or of the user's build function."""
    load_torch()
    from . import user

    if user.is_target(workload):
        return parse_sweep(sweep, list(user.axes(user.load(workload))), {})
    if workload not in kernels.names():
        known = ", ".join(kernels.names())
        raise CaptureError(f"unknown workload '{workload}': there are {known}.")
    found = kernels.get(workload)
    return parse_sweep(sweep, list(found.gpu_shapes), found.sweeps)


def _asked(workload: str, options: Options, kind: str, points: Sequence[Point]) -> dict[str, Any]:
    """What identifies a sweep: two with the same can share a folder."""
    shown = texts().scrub(workload) if options.recording.scrub else workload
    asked = {"workload": shown, "device": kind, **dataclasses.asdict(options)}
    found: dict[str, Any] = orjson.loads(orjson.dumps(asked | {"points": list(points)}))
    return found


def _claim(folder: Path, asked: Mapping[str, Any]) -> None:
    """Makes the sweep's folder, or checks that it holds a part of this very sweep."""
    path = folder / SWEEP_NAME
    if not folder.exists():
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise CaptureError(f"cannot write to {folder}: {error.strerror}.") from error
        _write_json(path, {"asked": asked, "rows": []})
        return
    try:
        there = orjson.loads(path.read_bytes())["asked"]
    except (OSError, KeyError, TypeError, orjson.JSONDecodeError) as error:
        raise CaptureError(f"{folder} exists and is no sweep: give another --out.") from error
    if there != asked:
        raise CaptureError(f"{folder} holds another sweep: give another --out.")


def _run_point(
    workload: str,
    options: Options,
    point: Point,
    folder: Path,
    progress: Progress,
    number: str,
) -> None:
    place = folder / describe_point(point)
    if place.exists():
        progress.say(f"{describe_point(point)} ({number}): there already")
        return
    progress.say(f"{describe_point(point)} ({number})")
    shapes = [*options.shapes, *as_arguments(point)]
    try:
        measure(workload, dataclasses.replace(options, shapes=shapes), out=place, progress=progress)
    except CaptureError as error:
        progress.say(f"{describe_point(point)}: {error}")


def _rows(folder: Path, points: Sequence[Point]) -> Iterator[dict[str, Any]]:
    """A row for every point and variant that was run: sizes, times in ns, or the failure."""
    for point in points:
        for variant in _variants(folder, point):
            times = variant.get("step_ns") or {}
            yield {
                **point,
                "variant": variant["name"],
                **{f"{key}_ns": times.get(key) for key in ("median", "p10", "p90")},
                "n_samples": times.get("n"),
                "kernels_per_step": variant.get("kernels_per_step"),
                "weight_bytes": variant.get("weight_bytes"),
                "max_error": variant.get("max_error"),
                "compile_ns": variant.get("compile_ns"),
                "failed": variant.get("failed"),
            }


def _write_results(folder: Path, points: Sequence[Point]) -> None:
    rows = list(_rows(folder, points))
    asked = orjson.loads((folder / SWEEP_NAME).read_bytes())["asked"]
    _write_json(folder / SWEEP_NAME, {"asked": asked, "rows": rows})
    _replace(folder / CSV_NAME, sweep_csv(rows).encode())


def _show(folder: Path, points: Sequence[Point]) -> None:
    rows, axes = list(_rows(folder, points)), list(points[0])
    print(f"{_heading(folder, points)}\n")
    print(sweep_table(rows, axes))
    print(f"\n{sweep_chart(rows, axes, ascii_only=not _shows_blocks())}")
    print(f"\nThe figures are in {folder / CSV_NAME} and {SWEEP_NAME}.")
    first = shlex.quote(str(folder / describe_point(points[0])))
    print(f"Each point is a run: fusetui open {first}")


def _heading(folder: Path, points: Sequence[Point]) -> str:
    """What was swept, on which device, and the sizes that stayed the same."""
    found = next(p for p in points if _variants(folder, p))
    record = read_record(folder / describe_point(found))
    fixed = {axis: size for axis, size in record["shapes"].items() if axis not in found}
    return heading(
        f"{record['workload']} on {record['device_kind']} ({record['device']})",
        record["dtype"],
        describe_shapes(fixed),
        "forward and backward" if record["backward"] else "",
        f"mode {record['mode']}" if record["mode"] else "",
    )


def _show_guesses(folder: Path, points: Sequence[Point]) -> bool:
    """Prints the guesses that were wrong, point by point; are there none?"""
    wrong = [
        f"{describe_point(point)}: {line}"
        for point in points
        for variant in _variants(folder, point)
        for line in guess_lines(variant["name"], [Guess(**g) for g in variant.get("guesses", [])])
        if line.startswith("!")
    ]
    print("".join(f"\n{line}" for line in wrong), end="\n" if wrong else "")
    return not wrong


def _variants(folder: Path, point: Point) -> list[dict[str, Any]]:
    """The variants of a point's record; none where nothing could be measured."""
    place = folder / describe_point(point)
    if not (place / RECORD_NAME).exists():
        return []
    variants: list[dict[str, Any]] = read_record(place)["variants"]
    return variants


def _shows_blocks() -> bool:
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    return encoding.lower().replace("-", "").startswith("utf")


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    _replace(path, orjson.dumps(content, option=options))


def _replace(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(content)
    part.replace(path)
