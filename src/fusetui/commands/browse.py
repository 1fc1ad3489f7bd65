"""`open` and `samples`: from what the user names to the app."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap

from fusetui.commands.errors import CommandError, say
from fusetui.commands.sources import LESSON, SAMPLE, is_run, traces
from fusetui.render.output import emit, emit_json, width


def browse(names: Sequence[str], ascii_only: bool, mouse: bool) -> int:
    """Raises CommandError without a terminal, or when a name leads to no trace."""
    if not has_terminal():
        raise CommandError("fusetui open needs a terminal: use fusetui summary or diff instead.")
    paths = [path for name in names for path in _found(name, len(names) == 1)]
    for path in paths:
        if path == "-" or not Path(path).is_file():
            raise CommandError(f"{path} cannot be opened: there is no such file.")
    from fusetui.tui.app import run

    ranks = len(names) == 1 and len(paths) > 1 and not is_run(names[0])
    return run(paths, opened=0 if ranks else 2, ascii_only=ascii_only, mouse=mouse)


def has_terminal() -> bool:
    """The app reads keys from standard input and draws on standard error."""
    return all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def list_samples(as_json: bool) -> int:
    from fusetui import sample_traces
    from fusetui.sample_traces import lessons

    samples = [(name, sample_traces.describe(name)) for name in sample_traces.names()]
    taught = [(name, lessons.describe(name)) for name in lessons.names()]
    if as_json:
        emit_json({"samples": _named(samples), "lessons": _named(taught)})
    else:
        lines = [line for name, shows in samples for line in _shown(SAMPLE + name, shows)]
        lines += [line for name, shows in taught for line in _shown(LESSON + name, shows)]
        emit("\n".join(lines))
    return 0


def _named(found: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"name": name, "shows": shows} for name, shows in found]


def _shown(name: str, shows: str) -> list[str]:
    indent = "    "
    return [name, *wrap(shows, width(), initial_indent=indent, subsequent_indent=indent)]


def _found(name: str, alone: bool) -> list[str]:
    """All traces of a folder when it stands alone; beside another trace, the first of them."""
    found = traces(name)
    if alone:
        return found
    if len(found) > 1:
        say(f"{name} holds {len(found)} traces; open is {found[0]}.")
    return found[:1]
