"""Run folders: written under a temporary name, renamed when whole. Needs no torch."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from .errors import CaptureError
from .record import RunRecord

RECORD_NAME = "run.json"


def default_folder(workload: str, device_kind: str, now: datetime) -> Path:
    """`runs/mlp-cpu-20260131-174500`, with a number behind it if that name is taken."""
    first = Path("runs") / f"{workload}-{device_kind}-{now:%Y%m%d-%H%M%S}"
    path, number = first, 2
    while path.exists():
        path, number = first.with_name(f"{first.name}-{number}"), number + 1
    return path


def file_name(workload: str) -> str:
    """A folder's name for a workload: `my_file-build` for `src/my_file.py:build`."""
    source, _, name = workload.rpartition(":")
    return re.sub(r"[^\w.-]", "-", f"{Path(source).stem}-{name}" if source else workload)


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder to fill, which becomes `out` when the block ends well and vanishes when it does not.

    Raises CaptureError if `out` exists already or cannot be made.
    """
    if out.exists():
        raise CaptureError(f"{out} exists already: give another --out, or move it away.")
    made = [parent for parent in out.parents if not parent.exists()]
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        part.mkdir(parents=True)
    except OSError as error:
        raise CaptureError(f"cannot write to {out.parent}: {error.strerror}.") from error
    try:
        yield part
        part.rename(out)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        with suppress(OSError):
            for parent in made:
                parent.rmdir()
        raise


def write_record(folder: Path, record: RunRecord) -> None:
    """Writes run.json into the folder."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    (folder / RECORD_NAME).write_bytes(orjson.dumps(record, option=options))


def read_record(folder: Path) -> dict[str, Any]:
    """The run.json of a folder. Raises CaptureError if there is none that can be read."""
    path = folder / RECORD_NAME
    try:
        record = orjson.loads(path.read_bytes())
    except OSError as error:
        raise CaptureError(f"cannot read {path}: {error.strerror}.") from error
    except orjson.JSONDecodeError as error:
        raise CaptureError(f"{path} is no JSON: {error}.") from error
    if not isinstance(record, dict) or not isinstance(record.get("variants"), list):
        raise CaptureError(f"{path} is not the record of a fusetui run: it lists no variants.")
    return record


def trace_files(folder: Path) -> list[tuple[str, Path]]:
    """(variant, trace file) of every variant of a run that has a trace, in the run's order.

    Raises CaptureError if the folder has no readable run.json.
    """
    variants = [v for v in read_record(folder)["variants"] if isinstance(v, dict)]
    return [(v.get("name", ""), folder / str(f)) for v in variants for f in v.get("files") or ()]
