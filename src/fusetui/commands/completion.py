"""`completion`: a script that has a shell complete commands, options and files."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable
from typing import Any

from fusetui.commands.errors import DONE
from fusetui.parser import Parser, command_parsers
from fusetui.report.output import emit

FILES = frozenset({"TRACE", "OTHER", "A", "B", "OUT", "DIR", "PATH"})
"""The arguments that are files or folders, by what the help calls them."""


def run(args: Namespace) -> int:
    import shtab

    parsers = command_parsers()
    for action in _actions(parsers.values()):
        if action.metavar in FILES:
            action.complete = shtab.FILE
    emit(shtab.complete(parsers[""], args.shell))
    return DONE


def _actions(parsers: Iterable[Parser]) -> Iterable[Any]:
    return (action for parser in parsers for action in parser._actions)
