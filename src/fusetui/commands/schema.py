"""`schema`: the JSON Schema of what a command prints with --json."""

from __future__ import annotations

from argparse import Namespace

from fusetui.commands.errors import DONE, CommandError
from fusetui.report.output import emit


def run(args: Namespace) -> int:
    """Raises CommandError if the command has no --json."""
    from fusetui import schemas

    known = schemas.names()
    if args.of not in known:
        raise CommandError(f"{args.of} has no schema: choose one of {', '.join(known)}.")
    emit(schemas.text(args.of).rstrip("\n"))
    return DONE
