"""Reads the results of a capture. They may come from anybody, so nothing in them is trusted."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import orjson

from fusetui.text.cutting import clip

from .errors import CaptureError
from .expect import Guess
from .record import StepTime

RECORD_NAME = "run.json"
LARGEST = 16 << 20
"""The most bytes of one of our JSON files; a run of a hundred variants takes 100 kB."""
_LONGEST = 60
"""Characters of a name in a message."""

T = TypeVar("T")


class ListedVariant(msgspec.Struct, frozen=True):
    """The fields of a variant that are needed to open its traces."""

    name: str = ""
    files: tuple[str, ...] | None = ()


class Traces(msgspec.Struct, frozen=True):
    """The traces listed in run.json: (variant, file); and a sentence for each that is ignored."""

    found: tuple[tuple[str, Path], ...]
    ignored: tuple[str, ...]


class SavedVariant(msgspec.Struct, frozen=True):
    """A variant of a run, with the fields that are shown again. See `record.Measured` and
    `Failed`."""

    name: str
    step_ns: StepTime | None = None
    kernels_per_step: float | None = None
    weight_bytes: int | None = None
    max_error: float | None = None
    compile_ns: int | None = None
    guesses: tuple[Guess, ...] = ()
    failed: str | None = None
    skipped: bool = False


class SavedRun(msgspec.Struct, frozen=True):
    """A run, with the fields that are shown again. See `record.RunRecord`."""

    workload: str
    shapes: dict[str, int]
    dtype: str
    device: str
    device_kind: str
    variants: Annotated[tuple[SavedVariant, ...], msgspec.Meta(min_length=1)]
    backward: bool = False
    mode: str | None = None


class _Listing(msgspec.Struct, frozen=True):
    variants: tuple[ListedVariant, ...]


def read_run(folder: Path) -> SavedRun:
    """Reads run.json. Raises CaptureError if it is missing or does not have our form."""
    return _read(folder, SavedRun)


def trace_files(folder: Path) -> Traces:
    """The trace files of a run that lie in its folder, in the order of the run.

    Raises CaptureError if the folder has no run.json that lists variants.
    """
    listed = [
        (variant.name, name)
        for variant in _read(folder, _Listing).variants
        for name in variant.files or ()
    ]
    wrong = {name: reason for _, name in listed if (reason := why_not(folder, name))}
    return Traces(
        found=tuple((variant, folder / name) for variant, name in listed if name not in wrong),
        ignored=tuple(_told(folder, name, reason) for name, reason in wrong.items()),
    )


def why_not(folder: Path, name: str) -> str | None:
    """Why a file listed in a folder must not be opened, or None.

    It must be a regular file inside the folder after following all links.
    """
    try:
        if not _leads_into(folder, name):
            return "leads out of the folder"
        regular = stat.S_ISREG(os.stat(folder / name).st_mode)
    except OSError as error:
        return f"cannot be opened ({(error.strerror or str(error)).lower()})"
    except ValueError:
        return "is not a file name"
    return None if regular else "is no regular file"


def read_json(path: Path) -> Any:
    """The content of a JSON file. Raises CaptureError."""
    try:
        content = _content(path)
    except OSError as error:
        raise CaptureError(f"Cannot read {path}: {error.strerror or error}.") from error
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise CaptureError(f"{path} is not JSON: {error}.") from error


def _read(folder: Path, kind: type[T]) -> T:
    path = folder / RECORD_NAME
    try:
        return msgspec.convert(read_json(path), kind)
    except msgspec.ValidationError as error:
        raise CaptureError(f"{path} is not the record of a fusetui run: {error}.") from error


def _content(path: Path) -> bytes:
    """The content of a file. Raises OSError, also if it is not a regular file or too large."""
    if not stat.S_ISREG(os.stat(path).st_mode):  # not even opened: that could block
        raise OSError("it is no regular file")
    with open(path, "rb", opener=_without_waiting) as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise OSError(f"it is larger than {LARGEST >> 20} MiB")
    return content


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _leads_into(folder: Path, name: str) -> bool:
    """Whether a file is inside the folder. Raises ValueError for an impossible file name."""
    real = Path(os.path.realpath(folder / name))
    return real.is_relative_to(os.path.realpath(folder))


def _told(folder: Path, name: str, reason: str) -> str:
    shown = clip(name, _LONGEST, "...")
    return f"{folder / RECORD_NAME} lists '{shown}', which {reason}: it is ignored."
