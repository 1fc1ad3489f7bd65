"""The command line: from the arguments of the process to an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping

from fusetui import Error, __version__
from fusetui.commands.errors import DONE, exit_codes_text, run_guarded, say
from fusetui.report.streams import write

UNITS_OF_VARIABLES = {
    "FUSETUI_CACHE_MB": "megabytes",
    "FUSETUI_UNPACK_LIMIT": "GiB",
}
"""Variables of the environment that hold a number, and what it counts."""


def run(arguments: list[str]) -> int:
    """Carry out one command line, given without the name of the program.

    Returns the exit code.
    """
    if arguments == ["--version"]:
        write(f"fusetui {__version__}\n")  # without parsers
        return DONE
    if sorted(arguments) == ["--verbose", "--version"]:
        from fusetui.commands.version import format_version  # rarely needed

        write(format_version())
        return DONE
    from fusetui.command_line.parser import parse
    from fusetui.command_line.registry import command

    args = parse(arguments, epilog=exit_codes_text())
    _start_debug_log(args.debug)
    if args.command is None:
        from fusetui.commands.open import start  # only when nothing is named

        return start()
    for sentence in ignored(os.environ):
        say(sentence)
    is_measured = args.command == "capture"  # its workloads keep their threads
    if not is_measured:
        # numpy's OpenBLAS would start threads that stay idle
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if getattr(args, "no_cache", False):
        os.environ["FUSETUI_CACHE"] = "off"
    return command(args.command).run(args)


def _start_debug_log(is_asked_for: bool) -> None:
    """Begin to log if --debug was given, or if FUSETUI_DEBUG says so.

    That variable may name a file. Raises Error if the file cannot be written.
    """
    from fusetui import debug_log  # --version does without it

    destination = os.environ.get(debug_log.VARIABLE, "")
    if is_asked_for and destination in debug_log.OFF:
        destination = debug_log.STDERR
    try:
        debug_log.start(destination)
    except OSError as error:
        reason = error.strerror or str(error)
        raise Error(
            f"{debug_log.VARIABLE} names {destination}, which cannot be written: {reason}."
        ) from None


def ignored(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each variable of fusetui whose value is no number."""
    for name, unit in UNITS_OF_VARIABLES.items():
        text = environment.get(name, "")
        if text and not _is_number(text):
            yield f"{name} is {text!r} and is ignored: set it to a number of {unit}."


def _is_number(text: str) -> bool:
    """Return whether a text is a finite number that is not negative."""
    from fusetui.text.figures import amount  # only where a variable is set

    return amount(text) is not None


def main() -> int:
    """Carry out the command line of this process, and return its exit code."""
    return run_guarded(lambda: run(sys.argv[1:]))


def script() -> None:
    """Run as the console script, and end the process."""
    from fusetui.own_memory import YOUNG_OF_COMMAND, end, look_less_often

    look_less_often(YOUNG_OF_COMMAND)
    end(main())
