"""Opens the trace that a user names, with a progress bar, and says what could not be read."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import msgspec

from fusetui.commands.errors import DONE, UNUSABLE, say
from fusetui.commands.sources import one_trace
from fusetui.render.progress import Bar
from fusetui.trace import Trace, open_trace
from fusetui.trace.columns import Report
from fusetui.trace.format import printable, several


class Loaded(msgspec.Struct, frozen=True, eq=False):
    """A trace and the exit code that reading it earned."""

    trace: Trace
    code: int


def load(name: str) -> Loaded:
    """Raises TraceError or CommandError; what is missing from the trace is told on stderr."""
    with Bar(f"reading {name}", sys.stderr) as bar:
        trace = open_trace(one_trace(name), bar.update)
    for sentence in notices(trace.report):
        say(sentence)
    return Loaded(trace, UNUSABLE if trace.report.cut else DONE)


def notices(report: Report) -> Iterator[str]:
    """A sentence for each way in which the file is not whole."""
    skipped = list(report.skipped)
    if report.part:
        yield f"{report.path}: {report.missing}."
    elif report.cut:
        yield f"{report.path}: {report.cut}, so it cannot be verified; shown is what was unpacked."
    elif not report.complete:
        where = f" in the event at byte {skipped[-1].byte}" if skipped else ""
        yield f"{report.path} ends early{where}: {_read(report)} could be read."
    if not report.complete and not report.part:
        del skipped[-1:]  # the event that was cut: told already
    if skipped:
        first = skipped[0]
        yield (
            f"{report.path}: {len(skipped)} of {report.events} events could not be read; the first "
            f"is at byte {first.byte} ({first.reason})."
        )


def secret_notices(trace: Trace) -> Iterator[str]:
    """A sentence when the trace holds what looks like a secret; its value is not in it."""
    if trace.secrets:
        named = printable(several(trace.secrets, 4))
        yield (
            f"{trace.report.path} holds what looks like a secret ({named}): before you share it, "
            "fusetui scrub takes it out."
        )


def _read(report: Report) -> str:
    count = report.events - len(report.skipped)
    return f"{count} event{'' if count == 1 else 's'}"
