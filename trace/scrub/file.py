"""The entry point: from one file to another without private data."""

from __future__ import annotations

import getpass
import os
import platform
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from fusetui.trace.model.callbacks import Progress, silent
from fusetui.trace.model.errors import NotATrace
from fusetui.trace.read.source import open_source
from fusetui.trace.scrub.document import Document
from fusetui.trace.scrub.save import check_target, save
from fusetui.trace.scrub.secrets import is_secret
from fusetui.trace.scrub.texts import Machine


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
    document = Document(source, this_machine())
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
