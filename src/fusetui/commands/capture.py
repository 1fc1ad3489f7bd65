"""`capture`: from the options of the command line to a run folder, and on to the app."""

from __future__ import annotations

from argparse import Namespace

from fusetui.capture import command
from fusetui.capture.options import Options, declared
from fusetui.commands.errors import DONE, NO, CommandError, say
from fusetui.text.figures import several

MOST_NAMED = 5  # variants listed in a message


def run_capture(args: Namespace) -> int:
    """Returns 1 if a guess was wrong or a variant failed. Raises CaptureError or CommandError."""
    from fusetui.commands.open import browse
    from fusetui.commands.terminal import has_terminal

    if args.open and not has_terminal():
        raise CommandError("--open needs a terminal: leave it out, and open the run later.")
    outcome = command.capture(args.workload, _options(args), out=args.out)
    code = DONE if outcome.right and not outcome.failed else NO
    if outcome.failed:
        named = several(outcome.failed, MOST_NAMED)  # the table has already said why
        say(f"Failed: {named}. The other results are in {outcome.folder}.")
    if not args.open:
        return code
    return max(code, browse([str(outcome.folder)]))


def _options(args: Namespace) -> Options:
    given = {name: value for name, value in vars(args).items() if name in declared()}
    repeated = {name: tuple(value) for name, value in given.items() if isinstance(value, list)}
    return Options(**(given | repeated), shapes=args.rest)
