"""`decode`: what the parts of kernel names mean."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Any

from fusetui.commands.errors import DONE, CommandError
from fusetui.gpu.kernel_names import decode, short_name
from fusetui.gpu.kernel_names.annotate import UNDERLINE, annotate
from fusetui.report.output import emit, emit_json, speaks_unicode, width
from fusetui.text.printable import printable

ASCII_UNDERLINE = ("\\", "_", "/", "|")


def run(args: Namespace) -> int:
    """Raises CommandError if there is no name."""
    wanted = list(_expand(args.names))
    if not wanted:
        raise CommandError("There is no name to decode on standard input.")
    if args.json:
        emit_json({"names": [_record(name) for name in wanted]})
    else:
        emit("\n\n".join(_text(name) for name in wanted))
    return DONE


def _expand(names: Sequence[str]) -> Iterator[str]:
    """Replaces `-` by the lines of standard input."""
    for name in names:
        if name == "-":
            yield from _names_on_stdin()
        else:
            yield name


def _names_on_stdin() -> list[str]:
    try:
        return [line.strip() for line in sys.stdin if line.strip()]
    except OSError as error:
        raise CommandError(f"Standard input cannot be read: {error.strerror}.") from None


def _record(name: str) -> dict[str, Any]:
    found = decode(name)
    if found:
        return found.to_json()
    return {"name": name, "short": short_name(name), "family": None, "parts": []}


def _text(name: str) -> str:
    found = decode(name)
    parts = found.parts if found else ()
    title = f"{found.short}   ({found.family})" if found else "not of a family that fusetui knows"
    shown = annotate(name, parts, width(), UNDERLINE if speaks_unicode() else ASCII_UNDERLINE)
    lines = [line for pair in shown.lines for line in pair if line]
    legend = [line for text in shown.legend for line in _folded(text)]
    return "\n".join([title, *lines, *legend])


def _folded(text: str) -> list[str]:
    return wrap(printable(text), width(), subsequent_indent="  ", break_on_hyphens=False)
