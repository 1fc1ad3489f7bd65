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
from fusetui.report.output import emit, emit_json, supports_unicode, width
from fusetui.text.printable import printable

if TYPE_CHECKING:
    from fusetui.gpu.kernel_names.record import Part

ASCII_UNDERLINE = ("\\", "_", "/")
FILES = frozenset({"TRACE", "OTHER", "A", "B", "OUT", "DIR", "PATH", "FILE", "FOLDER"})
"""The arguments that are files or folders, by what the help calls them."""


def run_decode(args: Namespace) -> int:
    """Print what the parts of kernel names mean, as text or as JSON, and return the
    exit code. `-` among `args.names` stands for the lines of standard input. Raises
    CommandError if there is no name."""
    names = list(_read_names(args.names))
    if not names:
        raise CommandError("Standard input contains no name to decode.")
    if args.json:
        from fusetui.gpu.kernel_names import decoded
        from fusetui.report.documents import NamesDocument

        emit_json(NamesDocument([decoded(name) for name in names]))
    else:
        emit("\n\n".join(_format_decoded_name(name) for name in names))
    return DONE


def _read_names(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the names in `arguments`. An argument `-` stands for the lines of standard
    input that are not blank. Raises CommandError if standard input cannot be read."""
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


def _format_decoded_name(name: str) -> str:
    """Return the text that explains one kernel name.

    It begins with what the kernel is, then repeats the name with marks below its parts.
    Last comes what each marked part means. A name of an unknown form is repeated
    without marks.
    """
    from fusetui.gpu.kernel_names import decode
    from fusetui.gpu.kernel_names.record import UNDERLINE, annotate

    decoded = decode(name)
    if decoded is None:
        title = "Unrecognized kernel name"
        parts: Sequence[Part] = ()
    else:
        title = f"{decoded.short}   ({decoded.family})"
        parts = decoded.parts
    underline = UNDERLINE if supports_unicode() else ASCII_UNDERLINE
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
    """Print the traces that ship with fusetui, which are recorded samples and lessons,
    and return the exit code. Each is printed with what it shows."""
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
        emit("\n".join(format_description(SAMPLE + sample.name, sample.shows)))
    for lesson in of_lessons:
        emit("\n".join(format_description(LESSON + lesson.name, lesson.shows)))
    return DONE


def format_description(name: str, shows: str) -> list[str]:
    """Return a name, then below it the text `shows`, wrapped to the width of the
    terminal and indented by four spaces."""
    indent = "    "
    return [
        name,
        *wrap(shows, width(), initial_indent=indent, subsequent_indent=indent),
    ]


def run_schema(args: Namespace) -> int:
    """Print the JSON Schema of what the command `args.of` prints with --json. Returns
    the exit code. Raises CommandError if that command has no schema."""
    from fusetui import schemas

    commands = schemas.names()
    if args.of not in commands:
        raise CommandError(
            f"No schema of {args.of}: choose one of {', '.join(commands)}."
        )
    emit(schemas.text(args.of).rstrip("\n"))
    return DONE


def run_help(args: Namespace) -> int:
    """Print a page of the documentation, or the help of a command, and return the exit
    code. Without a topic, print the names and titles of the pages. Raises CommandError
    if the topic is neither a page nor a command."""
    from fusetui.command_line.parser import command_parsers

    topics = _find_documents()
    if args.topic is None:
        emit("\n".join(_format_titles(topics)))
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


def _find_documents() -> dict[str, Path]:
    """Return the pages of the documentation, as paths by name without suffix. They are
    those of the checkout, or else those that were installed with the package; empty
    where neither exists."""
    paths = [*Path(__file__).resolve().parents[3].glob("docs/*.md")]
    if not paths:
        from importlib.metadata import PackageNotFoundError, files

        # fusetui may be used from a copied folder, without metadata
        with suppress(PackageNotFoundError):
            for file in files("fusetui") or ():
                if file.match("doc/fusetui/*.md"):
                    paths.append(Path(str(file.locate())))
    return {path.stem: path for path in sorted(paths) if path.is_file()}


def _format_titles(topics: Mapping[str, Path]) -> list[str]:
    """Return a line for each page: its name, padded to a column, and its heading. The
    heading is the first line of the file, without `# `."""
    name_width = max(map(len, topics), default=0)
    lines = []
    for name, path in topics.items():
        first_line = path.read_text("utf-8").partition("\n")[0]
        lines.append(f"{name:<{name_width}}  {first_line.removeprefix('# ')}")
    return lines


def run_completion(args: Namespace) -> int:
    """Print a script that makes a shell complete commands, options, files and the kinds
    of changes of `whatif`. Returns the exit code."""
    import shtab

    from fusetui.analysis.replay.changes import KINDS
    from fusetui.command_line.parser import command_parsers

    parsers = command_parsers()
    word_separator = ":" if args.shell == "zsh" else ""  # to zsh a colon ends a word
    change_beginnings = list(
        dict.fromkeys(kind.rstrip(word_separator) for kind in KINDS)
    )
    for parser in parsers.values():
        # argparse has no public list of the actions of a parser
        for action in parser._actions:
            if action.metavar in FILES:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
            elif action.metavar == "CHANGE":
                action.choices = change_beginnings
    emit(shtab.complete(parsers[""], args.shell))
    return DONE


def run_mcp(args: Namespace) -> int:
    """Answer agents by the Model Context Protocol until standard input ends, and return
    the exit code. Raises CommandError if a folder of --allow does not exist, and
    MissingPackageError if the SDK is not installed."""
    from fusetui.tables.files import import_optional

    for folder in args.allow:
        if not os.path.isdir(folder):
            raise CommandError(f"--allow {folder} is not a folder.")
    import_optional("mcp.server", "fusetui mcp", "mcp")
    from fusetui.commands.agents.server import serve

    serve(args.allow or ["."])
    return DONE
