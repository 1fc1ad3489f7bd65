"""The command line: from the arguments of the process to the exit code of a command."""

from __future__ import annotations

import os
import sys

from fusetui.commands.errors import DONE, guarded
from fusetui.parser import command_parsers, parse
from fusetui.registry import command


def run(arguments: list[str]) -> int:
    """The exit code of one command line."""
    args = parse(arguments)
    if args.command is None:
        command_parsers()[""].print_help()
        return DONE
    if getattr(args, "no_cache", False):
        os.environ["FUSETUI_CACHE"] = "off"
    return command(args.command).run(args)


def main() -> int:
    """The exit code of this process's command line."""
    return guarded(lambda: run(sys.argv[1:]))


def script() -> None:
    """The console script.

    It leaves at once: the system takes the memory of a large trace back faster than Python frees it
    object by object. Torch has to tidy up.
    """
    code = main()
    if "torch" in sys.modules:
        sys.exit(code)
    os._exit(code)
