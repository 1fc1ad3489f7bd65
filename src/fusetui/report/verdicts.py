"""Verdicts in the forms of pipelines: annotations and a summary of GitHub, JUnit XML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum
from html import escape
from itertools import chain

import msgspec

from fusetui.text.printable import markdown, markdown_table, printable, without_credentials

ROOM = 200_000  # characters of a summary, of which GitHub takes one megabyte


class Outcome(Enum):
    """The level of the annotation and the element of JUnit; nothing for what passed."""

    PASSED = "", ""
    FAILED = "error", "failure"
    CANNOT_TELL = "warning", "skipped"
    UNUSABLE = "error", "error"


class Case(msgspec.Struct, frozen=True):
    """What was asked of a trace, and the answer in one sentence; `file` is its path, if any."""

    name: str
    outcome: Outcome
    said: str
    file: str = ""


def annotation(command: str, case: Case) -> str:
    """The workflow command that shows a case; a value ends neither its line nor itself."""
    level, _ = case.outcome.value
    file = f"file={_property(case.file)}," if case.file else ""
    return f"::{level} {file}title={_property(f'fusetui {command}')}::{_data(case.said)}"


def _data(text: str) -> str:
    """As @actions/core escapes it; no line ends are left to escape."""
    return printable(without_credentials(text)).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def summary(command: str, cases: Sequence[Case], more: Iterable[str]) -> str:
    """Markdown: a row for each case, then more Markdown, as far as there is room."""
    rows = [
        [one.outcome.name.lower().replace("_", " "), *map(_markdown, (one.name, one.said))]
        for one in cases
    ]
    table = markdown_table(["verdict", command, "why"], rows, [0, 1, 2])
    parts, left = [f"### fusetui {command}", ""], ROOM
    for part in chain(table, [""], more):
        left -= len(part)
        if left < 0:
            parts += ["", "There is more, which this page has no room for."]
            break
        parts.append(part)
    return "\n".join([*parts, ""])


def _markdown(text: str) -> str:
    return markdown(without_credentials(text))


def junit(command: str, cases: Sequence[Case]) -> str:
    """A suite with a test for each case."""
    counted = Counter(one.outcome.value[1] for one in cases)
    counts = f'failures="{counted["failure"]}" errors="{counted["error"]}" '
    counts += f'skipped="{counted["skipped"]}"'
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<testsuites>\n<testsuite name="fusetui {command}" tests="{len(cases)}" {counts}>\n'
        f"{''.join(_test(command, one) for one in cases)}</testsuite>\n</testsuites>\n"
    )


def _test(command: str, case: Case) -> str:
    _, element = case.outcome.value
    inside = f'<{element} message="{_xml(case.said)}"/>' if element else ""
    return f'<testcase classname="fusetui.{command}" name="{_xml(case.name)}">{inside}</testcase>\n'


def _xml(text: str) -> str:
    """A value of an attribute. What is printable is a character of XML 1.0."""
    return escape(printable(without_credentials(text)))
