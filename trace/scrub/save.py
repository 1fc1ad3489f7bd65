"""A scrubbed document -> a file, plain or compressed, which appears when it is complete."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from isal import igzip_threaded

from fusetui.trace.model.errors import TraceError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ENDINGS = (".json", ".json.gz", ".json.zst")
LEVEL = 3  # of isal's 0 to 3


class CannotWrite(TraceError):  # noqa: N818
    """The file to be written exists, has an unknown extension, or there is no space for it."""


def check_target(out: str) -> None:
    """Raises CannotWrite unless a file of this name can be created."""
    if not out.endswith(ENDINGS):
        raise CannotWrite(
            f"{out} is not a name for a trace: it must end in .json, .json.gz or .json.zst."
        )
    if os.path.lexists(out):
        raise CannotWrite(f"{out} exists already: give another name, or move it away.")
    if not os.path.isdir(os.path.dirname(out) or "."):
        raise CannotWrite(f"{out} cannot be written: there is no such folder.")


def save(out: str, texts: Iterator[bytes]) -> None:
    """Writes the texts to a new file. Raises CannotWrite, leaving nothing behind."""
    check_target(out)
    part = Path(f"{out}.{os.getpid()}.part")
    try:
        with part.open("xb") as file:
            with _packed(out, file) as write:
                for text in texts:
                    write(text)
            file.flush()
        _name(part, out)
    except OSError as error:
        raise CannotWrite(f"{out} cannot be written: {_reason(error)}.") from None
    finally:
        with suppress(OSError):
            part.unlink()


@contextmanager
def _packed(out: str, file: IO[bytes]) -> Iterator[Callable[[Any], Any]]:
    """A function that writes into a file, compressed according to its name; a compressed file does
    not contain the temporary name."""
    if out.endswith(".gz"):
        with igzip_threaded.open(file, "wb", LEVEL, threads=1) as packed:
            yield packed.write
    elif out.endswith(".zst"):
        with zstd.ZstdFile(file, "w") as packed:
            yield packed.write
    else:
        yield file.write


def _name(part: Path, out: str) -> None:
    """Gives a file its name, unless that was taken meanwhile."""
    try:
        os.link(part, out)
    except FileExistsError:
        raise CannotWrite(f"{out} exists already: give another name, or move it away.") from None
    except OSError:  # a file system without hard links
        part.rename(out)


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
