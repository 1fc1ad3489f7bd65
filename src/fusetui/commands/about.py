"""The commands that need no trace: `decode`, `samples`, `schema`, `help`, `completion`,
`mcp`."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from textwrap import wrap

from fusetui.commands.errors import DONE, CommandError
from fusetui.commands.sources import LESSON, SAMPLE
from fusetui.report.output import emit, emit_json, speaks_unicode, width
from fusetui.text.printable import printable

ASCII_UNDERLINE = ("\\", "_", "/")
FILES = frozenset({"TRACE", "OTHER", "A", "B", "OUT", "DIR", "PATH", "FILE", "FOLDER"})
"""The arguments that are files or folders, by what the help calls them."""


def run_decode(args: Namespace) -> int:
    """What the parts of kernel names mean. Raises CommandError if there is no name."""
    wanted = list(_expand(args.names))
    if not wanted:
        raise CommandError("There is no name to decode on standard input.")
    if args.json:
        from fusetui.gpu.kernel_names import decoded
        from fusetui.report.documents import NamesDocument

        emit_json(NamesDocument([decoded(name) for name in wanted]))
    else:
        emit("\n\n".join(_decoded_text(name) for name in wanted))
    return DONE


def _expand(names: Sequence[str]) -> Iterator[str]:
    """Replaces `-` by the lines of standard input."""
    for name in names:
        if name != "-":
            yield name
            continue
        try:
            yield from filter(None, map(str.strip, sys.stdin))
        except OSError as error:
            raise CommandError(
                f"Standard input cannot be read: {error.strerror}."
            ) from None


def _decoded_text(name: str) -> str:
    from fusetui.gpu.kernel_names import decode
    from fusetui.gpu.kernel_names.record import UNDERLINE, annotate

    found = decode(name)
    parts = found.parts if found else ()
    title = (
        f"{found.short}   ({found.family})"
        if found
        else "not of a family that fusetui knows"
    )
    marked = annotate(
        name, parts, width(), UNDERLINE if speaks_unicode() else ASCII_UNDERLINE
    )
    lines = [line for pair in marked.lines for line in pair if line]
    for text in marked.legend:
        lines += wrap(
            printable(text), width(), subsequent_indent="  ", break_on_hyphens=False
        )
    return "\n".join([title, *lines])


def run_samples(args: Namespace) -> int:
    """The traces that ship with fusetui, recorded ones and lessons."""
    from fusetui import sample_traces
    from fusetui.report.documents import SampleDocument, SamplesDocument
    from fusetui.sample_traces import lessons

    samples = [
        SampleDocument(n, sample_traces.describe(n)) for n in sample_traces.names()
    ]
    taught = [SampleDocument(n, lessons.describe(n)) for n in lessons.names()]
    if args.json:
        emit_json(SamplesDocument(samples, taught))
        return DONE
    for kind, some in ((SAMPLE, samples), (LESSON, taught)):
        for one in some:
            emit("\n".join(lines_about(kind + one.name, one.shows)))
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

    known = schemas.names()
    if args.of not in known:
        raise CommandError(
            f"{args.of} has no schema: choose one of {', '.join(known)}."
        )
    emit(schemas.text(args.of).rstrip("\n"))
    return DONE


def run_help(args: Namespace) -> int:
    """A page of the documentation, else the help of a command. Raises CommandError."""
    from fusetui.command_line.parser import command_parsers

    topics = _topics()
    if args.topic is None:
        titles = {
            name: path.read_text("utf-8").partition("\n")[0]
            for name, path in topics.items()
        }
        emit(
            "\n".join(
                f"{name:<{max(map(len, titles))}}  {titles[name][2:]}"
                for name in titles
            )
        )
    elif args.topic in topics:
        emit(topics[args.topic].read_text("utf-8").rstrip("\n"))
    elif args.topic in (parsers := command_parsers(args.topic)):
        emit(parsers[args.topic].format_help().rstrip("\n"))
    else:
        raise CommandError(
            f"{args.topic} is no topic: choose one of {', '.join(topics)}."
        )
    return DONE


def _topics() -> dict[str, Path]:
    """The pages by their names: those of a checkout, or those that were installed."""
    found = [*Path(__file__).resolve().parents[3].glob("docs/*.md")]
    if not found:
        from importlib.metadata import PackageNotFoundError, files

        with suppress(PackageNotFoundError):
            known = (
                one for one in files("fusetui") or () if one.match("doc/fusetui/*.md")
            )
            found = [Path(str(one.locate())) for one in known]
    return {path.stem: path for path in sorted(found) if path.is_file()}


def run_completion(args: Namespace) -> int:
    """A script that has a shell complete commands, options, files and how changes
    begin."""
    import shtab

    from fusetui.analysis.replay.changes import KINDS
    from fusetui.command_line.parser import command_parsers

    parsers = command_parsers()
    for action in (action for parser in parsers.values() for action in parser._actions):
        if action.metavar in FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar == "CHANGE":  # to zsh a colon ends a word
            ends = ":" if args.shell == "zsh" else ""
            action.choices = list(dict.fromkeys(one.rstrip(ends) for one in KINDS))
    emit(shtab.complete(parsers[""], args.shell))
    return DONE


def run_mcp(args: Namespace) -> int:
    """Answers agents, by the Model Context Protocol, until standard input ends. Raises
    CommandError for a folder that is none, and MissingPackageError."""
    from fusetui.tables.files import needed

    for folder in args.allow:
        if not os.path.isdir(folder):
            raise CommandError(f"--allow {folder}: this is no folder.")
    needed("mcp.server", "fusetui mcp", "mcp")
    from fusetui.commands.agents.server import serve

    serve(args.allow or ["."])
    return DONE
