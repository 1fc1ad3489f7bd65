"""Tells a pipeline what `check` and `diff --fail-over` found: --github, annotations and
a summary in Markdown; --junit, JUnit XML."""

from __future__ import annotations

import os
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum
from html import escape
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from fusetui.commands import errors
from fusetui.commands.errors import CommandError, print_line
from fusetui.text.printable import (
    markdown,
    markdown_table,
    printable,
    without_credentials,
)
from fusetui.trace.new_file import new_file

if TYPE_CHECKING:
    from fusetui.trace import Trace

SUMMARY = "GITHUB_STEP_SUMMARY"
ROOM = 200_000  # characters of a summary, of which GitHub takes one megabyte


class Outcome(Enum):
    """The level of the annotation and the element of JUnit, nothing for what passed;
    and the exit code. The most serious first: a file not fully read, a wrong answer, an
    unclear one."""

    UNUSABLE = "error", "error", errors.UNUSABLE
    FAILED = "error", "failure", errors.NO
    CANNOT_TELL = "warning", "skipped", errors.CANNOT_TELL
    PASSED = "", "", errors.DONE


class Case(msgspec.Struct, frozen=True):
    """What was asked of a trace, and the answer in one sentence; `file` is its path, if
    any."""

    name: str
    outcome: Outcome
    said: str
    file: str = ""


def file_of(trace: Trace) -> str:
    """Its path, to be told; "" where that is no file of the user's."""
    report = trace.report
    return "" if report.named or not os.path.isfile(report.path) else report.path


def unread(name: str) -> Case:
    """The case of a trace that is not whole: whatever it shows, it passes no gate."""
    return Case(name, Outcome.UNUSABLE, f"{name} could not be read in full.", name)


def told(args: Namespace, cases: Sequence[Case], more: Iterable[str]) -> int:
    """Writes what was asked for; the exit code of the cases. `more` is Markdown for the
    summary. Raises CommandError and CannotWriteError for files that cannot be
    written."""
    if args.github:
        for case in cases:
            if case.outcome is not Outcome.PASSED:
                print_line(annotation(args.command, case))
        if path := os.environ.get(SUMMARY):
            try:
                with open(path, "a", encoding="utf-8") as file:
                    file.write(summary(args.command, cases, more))
            except OSError as error:
                raise CommandError(
                    f"{SUMMARY} cannot be written: {error.strerror}."
                ) from None
    if args.junit is not None:
        with new_file(args.junit, replace=True) as file:
            file.write(junit(args.command, cases).encode())
    found = {one.outcome for one in cases}
    return next(
        (outcome.value[2] for outcome in Outcome if outcome in found), errors.DONE
    )


def annotation(command: str, case: Case) -> str:
    """The workflow command that shows a case; a value ends neither its line nor
    itself."""
    level, *_ = case.outcome.value
    file = f"file={_property(case.file)}," if case.file else ""
    return (
        f"::{level} {file}title={_property(f'fusetui {command}')}::{_data(case.said)}"
    )


def _data(text: str) -> str:
    """As @actions/core escapes it; no line ends are left to escape."""
    return printable(without_credentials(text)).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def summary(command: str, cases: Sequence[Case], more: Iterable[str]) -> str:
    """Markdown: a row for each case, then more Markdown, as far as there is room."""
    rows = [
        [
            one.outcome.name.lower().replace("_", " "),
            *(markdown(without_credentials(text)) for text in (one.name, one.said)),
        ]
        for one in cases
    ]
    parts, left = [f"### fusetui {command}", ""], ROOM
    for part in chain(
        markdown_table(["verdict", command, "why"], rows, [0, 1, 2]), [""], more
    ):
        left -= len(part)
        if left < 0:
            parts += ["", "There is more, which this page has no room for."]
            break
        parts.append(part)
    return "\n".join([*parts, ""])


def junit(command: str, cases: Sequence[Case]) -> str:
    """A suite with a test for each case."""
    counted = Counter(one.outcome.value[1] for one in cases)
    counts = f'failures="{counted["failure"]}" errors="{counted["error"]}" '
    counts += f'skipped="{counted["skipped"]}"'
    tests = []
    for one in cases:
        _, element, _ = one.outcome.value
        inside = f'<{element} message="{_xml(one.said)}"/>' if element else ""
        head = f'<testcase classname="fusetui.{command}" name="{_xml(one.name)}">'
        tests.append(f"{head}{inside}</testcase>\n")
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<testsuites>\n<testsuite name="fusetui {command}" tests="{len(cases)}" {counts}>\n'
        f"{''.join(tests)}</testsuite>\n</testsuites>\n"
    )


def _xml(text: str) -> str:
    """A value of an attribute. What is printable is a character of XML 1.0."""
    return escape(printable(without_credentials(text)))
