"""Run folders: written under a temporary name, renamed when complete. Does not need torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import orjson

from .claim import FolderClaim, claim_free, release_all
from .errors import CaptureError
from .guard import tidied
from .record import RunRecord
from .saved import RECORD_NAME


def default_folder(workload: str, device_kind: str, now: datetime) -> Path:
    """`runs/mlp-cpu-20260131-174500`; the name may be taken."""
    return Path("runs") / f"{workload}-{device_kind}-{now:%Y%m%d-%H%M%S}"


def file_name(workload: str) -> str:
    """A folder's name for a workload: `my_file-build` for `src/my_file.py:build`."""
    source, _, name = workload.rpartition(":")
    return re.sub(r"[^\w.-]", "-", f"{Path(source).stem}-{name}" if source else workload)


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder to fill, which becomes `out` if the block succeeds and is removed if it does not.

    It is also removed if a signal ends the process; see `claim` for what happens if it is killed.
    Raises CaptureError if `out` already exists or cannot be created.
    """
    with _filled(lambda: FolderClaim(out)) as claim:
        yield claim.part


@contextmanager
def new_numbered_folder(first: Path) -> Iterator[tuple[Path, Path]]:
    """The same with a number appended if the name is taken: the folder to fill, and its final
    name."""
    with _filled(lambda: claim_free(first)) as claim:
        yield claim.part, claim.out


@contextmanager
def _filled(take: Callable[[], FolderClaim]) -> Iterator[FolderClaim]:
    with tidied(release_all):
        claim = take()
        try:
            yield claim
            claim.keep()
        except BaseException:
            claim.release()
            raise


def write_record(folder: Path, record: RunRecord) -> None:
    """Writes run.json into the folder. Raises CaptureError."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    store(folder / RECORD_NAME, orjson.dumps(record, option=options))


def store(path: Path, content: bytes) -> None:
    """Writes a file. Raises CaptureError."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise CaptureError(f"Cannot write {path.name}: {error.strerror}.") from error
