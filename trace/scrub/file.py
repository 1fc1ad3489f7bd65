"""The entry point: from one file to another without private data."""

from __future__ import annotations

import getpass
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import msgspec
from isal import igzip_threaded

from fusetui.trace.formats import format_of
from fusetui.trace.model.errors import NotATrace, TraceError
from fusetui.trace.model.report import Progress, silent
from fusetui.trace.read.foreign import HEAD
from fusetui.trace.read.source import open_source, reason
from fusetui.trace.scrub.document import ScrubbedDocument
from fusetui.trace.scrub.secrets import is_secret
from fusetui.trace.scrub.texts import Machine

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
        raise CannotWrite(f"{out} cannot be written: {reason(error)}.") from None
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


class Scrubbed(msgspec.Struct, frozen=True):
    """What was written, and what could not be."""

    path: str  # of the trace that was read
    events: int
    counts: Mapping[str, int]  # number of distinct texts that were removed, by kind
    lost: tuple[tuple[int, str], ...]  # byte and reason of events that could not be read
    lost_in_all: int  # their number; not all are listed
    keys_lost: bool  # some around the events could not be read
    ends_early: bool  # the file was truncated
    cut: str | None  # how a compressed file ended too early


def scrub_file(path: str, out: str, progress: Progress = silent) -> Scrubbed:
    """Writes the trace at `path` (`-` is standard input) to `out`, which must not exist.

    Only what could be read is written, so that nothing gets through unchanged. Raises TraceError
    with one plain sentence, leaving nothing behind.
    """
    check_target(out)
    source = open_source(path)
    if format_of(source.document[:HEAD]) != "json":
        raise NotATrace(
            f"{source.path} is not JSON: write it as JSON with fusetui convert, and scrub that."
        )
    document = ScrubbedDocument(source, this_machine())
    document.learn(progress)
    if not document.events:
        raise NotATrace(f"{source.path} contains no readable event, so there is nothing to write.")
    save(out, document.text(progress))
    return Scrubbed(
        path=source.path,
        events=document.events,
        counts=document.counts(),
        lost=tuple(document.lost),
        lost_in_all=document.lost_in_all,
        keys_lost=document.keys_lost,
        ends_early=document.ends_early,
        cut=source.cut,
    )


def this_machine() -> Machine:
    """Names of this machine: traces are often shared from the machine that recorded them."""
    users = {os.path.basename(os.path.expanduser("~"))}
    with suppress(OSError, KeyError):  # an account without a name
        users.add(getpass.getuser())
    secrets = {value for name, value in os.environ.items() if is_secret(name, value)}
    hosts = {platform.node()}
    return Machine(*(tuple(sorted(filter(None, names))) for names in (users, hosts, secrets)))
