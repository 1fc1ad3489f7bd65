"""Reports the results of `check` and `diff --fail-over` to a pipeline: --github writes
annotations and a summary in Markdown, and --junit writes JUnit XML."""

from __future__ import annotations

import os
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum
from html import escape
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

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

SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
"""The environment variable with the file that GitHub shows as the summary of a job."""

MAX_SUMMARY_CHARACTERS = 200_000
"""Of what a command adds to it; GitHub takes one megabyte."""


class _Forms(NamedTuple):
    """What becomes of an outcome."""

    exit_code: int
    level: str = ""  # of the annotation; "" for none
    element: str = ""  # of JUnit, inside the test case; "" for none


class Outcome(Enum):
    """The most serious first: a file that was not fully read, a wrong answer, an
    unclear one."""

    UNUSABLE = _Forms(errors.UNUSABLE, level="error", element="error")
    FAILED = _Forms(errors.NO, level="error", element="failure")
    CANNOT_TELL = _Forms(errors.CANNOT_TELL, level="warning", element="skipped")
    PASSED = _Forms(errors.DONE)

    @property
    def is_told(self) -> bool:
        """Whether a person has to read about it."""
        return bool(self.value.level)


class Case(msgspec.Struct, frozen=True):
    """What was asked of a trace, and the answer in one sentence; `file` is its path, if
    any."""

    name: str
    outcome: Outcome
    said: str
    file: str = ""


def reported_path(trace: Trace) -> str:
    """Return the path of a trace as it is reported, or "" if it is no file of the
    user's, such as a sample."""
    report = trace.report
    return "" if report.named or not os.path.isfile(report.path) else report.path


def unread(name: str) -> Case:
    """Return the case of a trace that could not be read completely. It passes no gate,
    whatever it shows."""
    return Case(
        name=name,
        outcome=Outcome.UNUSABLE,
        said=f"{name} could not be read in full.",
        file=name,
    )


def told(args: Namespace, cases: Sequence[Case], more: Iterable[str]) -> int:
    """Write what --github and --junit ask for, and return the exit code of the most
    serious case. `more` is Markdown lines for the summary. Raises CommandError and
    CannotWriteError if a file cannot be written."""
    if args.github:
        for case in cases:
            if case.outcome.is_told:
                print_line(annotation(args.command, case))
        path = os.environ.get(SUMMARY_VARIABLE)
        if path:
            _append_summary(path, summary(args.command, cases, more))
    if args.junit is not None:
        with new_file(args.junit, replace=True) as file:
            file.write(junit(args.command, cases).encode())
    outcomes = {case.outcome for case in cases}
    # members are in order, with the most serious first
    for outcome in Outcome:
        if outcome in outcomes:
            return outcome.value.exit_code
    return errors.DONE


def _append_summary(path: str, text: str) -> None:
    """Append text to the file for the summary of a GitHub job. Raises CommandError if
    it cannot be written."""
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise CommandError(
            f"{SUMMARY_VARIABLE} cannot be written: {error.strerror}."
        ) from None


def annotation(command: str, case: Case) -> str:
    """Return the workflow command of GitHub that shows a case beside its file. Values
    are escaped, so that none ends the line or itself early."""
    level = case.outcome.value.level
    properties = f"title={_escape_property(f'fusetui {command}')}"
    if case.file:
        properties = f"file={_escape_property(case.file)},{properties}"
    return f"::{level} {properties}::{_escape_data(case.said)}"


def _escape_data(text: str) -> str:
    """Return a text escaped as the message of a workflow command, as @actions/core
    does. Line ends are gone already."""
    return printable(without_credentials(text)).replace("%", "%25")


def _escape_property(text: str) -> str:
    """Return a text escaped as a property of a workflow command, where colons and
    commas have a meaning too."""
    return _escape_data(text).replace(":", "%3A").replace(",", "%2C")


def summary(command: str, cases: Sequence[Case], more: Iterable[str]) -> str:
    """Return Markdown with a table of the cases, followed by `more`. It is cut after
    MAX_SUMMARY_CHARACTERS, with a note, because GitHub limits the size."""
    rows = []
    for case in cases:
        verdict = case.outcome.name.lower().replace("_", " ")
        name = markdown(without_credentials(case.name))
        sentence = markdown(without_credentials(case.said))
        rows.append([verdict, name, sentence])
    table = markdown_table(["verdict", command, "why"], rows, [0, 1, 2])
    lines = [f"### fusetui {command}", ""]
    characters_left = MAX_SUMMARY_CHARACTERS
    for line in chain(table, [""], more):
        characters_left -= len(line)
        if characters_left < 0:
            lines += ["", "More results do not fit on this page."]
            break
        lines.append(line)
    return "\n".join([*lines, ""])


def junit(command: str, cases: Sequence[Case]) -> str:
    """Return JUnit XML with one suite, and in it a test for each case."""
    counts = Counter(case.outcome.value.element for case in cases)
    tests = []
    for case in cases:
        element = case.outcome.value.element
        inside = f'<{element} message="{_escape_xml(case.said)}"/>' if element else ""
        tests.append(
            f'<testcase classname="fusetui.{command}" name="{_escape_xml(case.name)}">'
            f"{inside}</testcase>\n"
        )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        "<testsuites>\n"
        f'<testsuite name="fusetui {command}" tests="{len(cases)}" '
        f'failures="{counts["failure"]}" errors="{counts["error"]}" '
        f'skipped="{counts["skipped"]}">\n'
        f"{''.join(tests)}</testsuite>\n"
        "</testsuites>\n"
    )


def _escape_xml(text: str) -> str:
    """Return a text as a value of an attribute of XML. Control characters are escaped,
    so all that is left is valid in XML 1.0."""
    return escape(printable(without_credentials(text)))
