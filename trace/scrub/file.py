"""The entry point: from one file to another without private data."""

from __future__ import annotations

import getpass
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from isal import igzip_threaded

from fusetui.trace.formats import format_of
from fusetui.trace.model.errors import NotATrace
from fusetui.trace.model.report import Progress, silent
from fusetui.trace.new_file import CannotWrite, check_new, new_file
from fusetui.trace.read.foreign import HEAD
from fusetui.trace.read.source import open_source
from fusetui.trace.scrub.document import ScrubbedDocument
from fusetui.trace.scrub.secrets import is_secret
from fusetui.trace.scrub.texts import Machine

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ENDINGS = (".json", ".json.gz", ".json.zst")
LEVEL = 3  # of isal's 0 to 3


def check_target(out: str) -> None:
    """Raises CannotWrite unless a file of this name can be created."""
    if not out.endswith(ENDINGS):
        raise CannotWrite(
            f"{out} is not a name for a trace: it must end in .json, .json.gz or .json.zst."
        )
    check_new(out)


def save(out: str, texts: Iterator[bytes]) -> None:
    """Writes the texts to a new file, compressed as its name says. Raises CannotWrite, leaving
    nothing behind."""
    check_target(out)
    with new_file(out) as part, part.open("xb") as file:
        packed: Any = file  # not given by name, which it would contain
        if out.endswith(".gz"):
            packed = igzip_threaded.open(file, "wb", LEVEL, threads=1)
        elif out.endswith(".zst"):
            packed = zstd.ZstdFile(file, "w")
        with packed:
            packed.writelines(texts)


def scrub_file(path: str, out: str, progress: Progress = silent) -> ScrubbedDocument:
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
        path = document.source.path
        raise NotATrace(f"{path} contains no readable event, so there is nothing to write.")
    save(out, document.text(progress))
    return document


def this_machine() -> Machine:
    """Names of this machine: traces are often shared from the machine that recorded them."""
    users = {os.path.basename(os.path.expanduser("~"))}
    with suppress(OSError, KeyError):  # an account without a name
        users.add(getpass.getuser())
    secrets = {value for name, value in os.environ.items() if is_secret(name, value)}
    hosts = {platform.node()}
    return Machine(*(tuple(sorted(filter(None, names))) for names in (users, hosts, secrets)))
