"""The commands that need no trace: `decode`, `samples`, `schema`, `help`, `completion`,
`mcp`."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from fusetui.commands.errors import DONE, CommandError, exit_codes_text
from fusetui.commands.sources import LESSON, SAMPLE
from fusetui.report.output import emit, emit_json, speaks_unicode, width
from fusetui.text.printable import printable

if TYPE_CHECKING:
    from fusetui.gpu.kernel_names.record import Part

ASCII_UNDERLINE = ("\\", "_", "/")
FILES = frozenset({"TRACE", "OTHER", "A", "B", "OUT", "DIR", "PATH", "FILE", "FOLDER"})
"""The arguments that are files or folders, by what the help calls them."""


def run_decode(args: Namespace) -> int:
    """What the parts of kernel names mean. Raises CommandError if there is no name."""
    names = list(_names(args.names))
    if not names:
        raise CommandError("No name to decode on standard input.")
    if args.json:
        from fusetui.gpu.kernel_names import decoded
        from fusetui.report.documents import NamesDocument

        emit_json(NamesDocument([decoded(name) for name in names]))
    else:
        emit("\n\n".join(_decoded_text(name) for name in names))
    return DONE


def _names(arguments: Sequence[str]) -> Iterator[str]:
    """The arguments, with the lines of standard input that are not blank for `-`.
    Raises CommandError."""
    for argument in arguments:
        if argument != "-":
            yield argument
            continue
        try:
            for line in sys.stdin:
                name = line.strip()
                if name:
                    yield name
        except OSError as error:
            raise CommandError(
                f"Standard input cannot be read: {error.strerror}."
            ) from None


def _decoded_text(name: str) -> str:
    """What a kernel is; then its name with marks, and what each marked part means."""
    from fusetui.gpu.kernel_names import decode
    from fusetui.gpu.kernel_names.record import UNDERLINE, annotate

    decoded = decode(name)
    if decoded is None:
        title = "Unrecognized kernel name"
        parts: Sequence[Part] = ()
    else:
        title = f"{decoded.short}   ({decoded.family})"
        parts = decoded.parts
    underline = UNDERLINE if speaks_unicode() else ASCII_UNDERLINE
    annotated = annotate(name, parts, width(), underline)
    lines = [title]
    for name_line, marks_line in annotated.lines:
        lines += [line for line in (name_line, marks_line) if line]
    for meaning in annotated.legend:
        lines += wrap(
            printable(meaning), width(), subsequent_indent="  ", break_on_hyphens=False
        )
    return "\n".join(lines)


def run_samples(args: Namespace) -> int:
    """The traces that ship with fusetui, recorded ones and lessons."""
    from fusetui import sample_traces
    from fusetui.report.documents import SampleDocument, SamplesDocument
    from fusetui.sample_traces import lessons

    of_samples = [
        SampleDocument(name, sample_traces.describe(name))
        for name in sample_traces.names()
    ]
    of_lessons = [
        SampleDocument(name, lessons.describe(name)) for name in lessons.names()
    ]
    if args.json:
        emit_json(SamplesDocument(of_samples, of_lessons))
        return DONE
    for sample in of_samples:
        emit("\n".join(lines_about(SAMPLE + sample.name, sample.shows)))
    for lesson in of_lessons:
        emit("\n".join(lines_about(LESSON + lesson.name, lesson.shows)))
    return DONE


def lines_about(name: str, shows: str) -> list[str]:
    """A name, and what it shows below it."""
    indent = "    "
    return [
        name,
        *wrap(shows, width(), initial_indent=indent, subsequent_indent=indent),
    ]


def run_schema(args: Namespace) -> int:
    """The JSON Schema of what a command prints with --json. Raises CommandError if it
    has none."""
    from fusetui import schemas

    commands = schemas.names()
    if args.of not in commands:
        raise CommandError(
            f"No schema of {args.of}: choose one of {', '.join(commands)}."
        )
    emit(schemas.text(args.of).rstrip("\n"))
    return DONE


def run_help(args: Namespace) -> int:
    """A page of the documentation, else the help of a command; without a topic the list
    of pages. Raises CommandError."""
    from fusetui.command_line.parser import command_parsers

    topics = _topics()
    if args.topic is None:
        emit("\n".join(_titles(topics)))
        return DONE
    if args.topic in topics:
        emit(topics[args.topic].read_text("utf-8").rstrip("\n"))
        return DONE
    parsers = command_parsers(args.topic, epilog=exit_codes_text())
    if args.topic not in parsers:
        raise CommandError(
            f"Unknown topic {args.topic}: choose one of {', '.join(topics)}."
        )
    emit(parsers[args.topic].format_help().rstrip("\n"))
    return DONE


def _topics() -> dict[str, Path]:
    """The pages of the documentation by their names: those of a checkout, or those that
    were installed."""
    paths = [*Path(__file__).resolve().parents[3].glob("docs/*.md")]
    if not paths:
        from importlib.metadata import PackageNotFoundError, files

        with suppress(PackageNotFoundError):
            for file in files("fusetui") or ():
                if file.match("doc/fusetui/*.md"):
                    paths.append(Path(str(file.locate())))
    return {path.stem: path for path in sorted(paths) if path.is_file()}


def _titles(topics: Mapping[str, Path]) -> list[str]:
    """Lines of the name of a page and its heading, which is its first line."""
    name_width = max(map(len, topics), default=0)
    lines = []
    for name, path in topics.items():
        first_line = path.read_text("utf-8").partition("\n")[0]
        lines.append(f"{name:<{name_width}}  {first_line.removeprefix('# ')}")
    return lines


def run_completion(args: Namespace) -> int:
    """A script that has a shell complete commands, options, files and how changes
    begin."""
    import shtab

    from fusetui.analysis.replay.changes import KINDS
    from fusetui.command_line.parser import command_parsers

    parsers = command_parsers()
    ends_word = ":" if args.shell == "zsh" else ""  # to zsh a colon ends a word
    beginnings = list(dict.fromkeys(kind.rstrip(ends_word) for kind in KINDS))
    for parser in parsers.values():
        for action in parser._actions:
            if action.metavar in FILES:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
            elif action.metavar == "CHANGE":
                action.choices = beginnings
    emit(shtab.complete(parsers[""], args.shell))
    return DONE


def run_mcp(args: Namespace) -> int:
    """Answers agents, by the Model Context Protocol, until standard input ends. Raises
    CommandError for a folder that is none, and MissingPackageError."""
    from fusetui.tables.files import needed

    for folder in args.allow:
        if not os.path.isdir(folder):
            raise CommandError(f"--allow {folder} is not a folder.")
    needed("mcp.server", "fusetui mcp", "mcp")
    from fusetui.commands.agents.server import serve

    serve(args.allow or ["."])
    return DONE
