"""`capture`: from the options of the command line to a run folder, and on to the app."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from fusetui.capture import command
from fusetui.capture.options import Options, Recording
from fusetui.commands.errors import DONE, NO, CommandError, say

SECONDS = 1.0  # of timing for each variant
SECONDS_OF_A_POINT = 0.3  # the same in a sweep, which has many
MOST_NAMED = 5  # variants in a sentence


def run(args: Namespace) -> int:
    """1 when a guess was wrong or a variant failed. Raises CaptureError or CommandError."""
    from fusetui.commands.open import browse, has_terminal

    if args.open and not has_terminal():
        raise CommandError("--open needs a terminal: leave it out, and open the run later.")
    sweep = tuple(args.sweep or ())
    options = _options(args, seconds_for(args.seconds, sweep))
    outcome = command.run_capture(args.workload, options, out=args.out, sweep=sweep)
    code = DONE if outcome.right and not outcome.failed else NO
    if outcome.failed:
        say(_failures(outcome))
    if not args.open:
        return code
    return max(code, browse([str(outcome.folder)], ascii_only=False, mouse=True))


def _options(args: Namespace, seconds: float) -> Options:
    shapes = args.shapes is not False
    return Options(
        variants=tuple(args.variant or ()),
        device=args.device,
        dtype=args.dtype,
        shapes=args.rest,
        backward=args.backward,
        mode=args.mode,
        expect=tuple(args.expect or ()),
        seconds=seconds,
        recording=Recording(args.steps, args.stack, shapes, args.memory, args.scrub),
    )


def seconds_for(wanted: float | None, sweep: Sequence[str]) -> float:
    """How long to time a variant when nobody says."""
    if wanted is not None:
        return wanted
    return SECONDS_OF_A_POINT if sweep else SECONDS


def _failures(outcome: command.Outcome) -> str:
    """Which variants failed; why, the table has told."""
    named = ", ".join(outcome.failed[:MOST_NAMED])
    more = len(outcome.failed) - MOST_NAMED
    others = f" and {more} more" if more > 0 else ""
    return f"Failed: {named}{others}. What was measured is kept in {outcome.folder}."
