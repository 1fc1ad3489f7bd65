"""Tells a pipeline what `check` and `diff --fail-over` found: --github and --junit."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fusetui.commands.errors import CANNOT_TELL, DONE, NO, UNUSABLE, CommandError, say
from fusetui.report.verdicts import Case, Outcome, annotation, junit, summary
from fusetui.trace.new_file import new_file

if TYPE_CHECKING:
    from fusetui.trace import Trace

# The most serious first: a file not fully read, then a wrong answer, then an unclear one.
CODES = {
    Outcome.UNUSABLE: UNUSABLE,
    Outcome.FAILED: NO,
    Outcome.CANNOT_TELL: CANNOT_TELL,
    Outcome.PASSED: DONE,
}
SUMMARY = "GITHUB_STEP_SUMMARY"


def file_of(trace: Trace) -> str:
    """Its path, to be told; "" where that is no file of the user's."""
    report = trace.report
    return "" if report.named or not os.path.isfile(report.path) else report.path


def unread(name: str) -> Case:
    """The case of a trace that is not whole: whatever it shows, it passes no gate."""
    return Case(name, Outcome.UNUSABLE, f"{name} could not be read in full.", name)


def told(args: Namespace, cases: Sequence[Case], more: Iterable[str]) -> int:
    """Writes what was asked for; the exit code of the cases. `more` is Markdown for the summary.
    Raises CommandError and CannotWrite for files that cannot be written."""
    if args.github:
        for one in cases:
            if one.outcome is not Outcome.PASSED:
                say(annotation(args.command, one))
        if path := os.environ.get(SUMMARY):
            _append(path, summary(args.command, cases, more))
    if args.junit is not None:
        with new_file(args.junit, replace=True) as part:
            part.write_text(junit(args.command, cases), encoding="utf-8")
    found = {one.outcome for one in cases}
    return next((code for outcome, code in CODES.items() if outcome in found), DONE)


def _append(path: str, text: str) -> None:
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise CommandError(f"{SUMMARY} cannot be written: {error.strerror}.") from None
