"""`capture`: from the options of the command line to a run folder, and on to the app."""

from __future__ import annotations

from argparse import Namespace

from fusetui.capture import command
from fusetui.capture.options import Options, declared
from fusetui.capture.record import Outcome
from fusetui.commands.errors import DONE, NO, CommandError, say

MOST_NAMED = 5  # variants listed in a message


def run(args: Namespace) -> int:
    """Returns 1 if a guess was wrong or a variant failed. Raises CaptureError or CommandError."""
    from fusetui.commands.open import browse
    from fusetui.commands.terminal import has_terminal

    if args.open and not has_terminal():
        raise CommandError("--open needs a terminal: leave it out, and open the run later.")
    outcome = command.capture(args.workload, _options(args), out=args.out)
    code = DONE if outcome.right and not outcome.failed else NO
    if outcome.failed:
        say(_failures(outcome))
    if not args.open:
        return code
    return max(code, browse([str(outcome.folder)]))


def _options(args: Namespace) -> Options:
    """The options that were given; the others have their defaults."""
    given = {name: value for name, value in vars(args).items() if name in declared()}
    repeated = {name: tuple(value) for name, value in given.items() if isinstance(value, list)}
    return Options(**(given | repeated), shapes=args.rest)


def _failures(outcome: Outcome) -> str:
    """Names the variants that failed; the table has already said why."""
    named = ", ".join(outcome.failed[:MOST_NAMED])
    more = len(outcome.failed) - MOST_NAMED
    others = f" and {more} more" if more > 0 else ""
    return f"Failed: {named}{others}. The other results are in {outcome.folder}."
