"""`check`: compares a guess about the kernels of a trace with the trace."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from fusetui.analysis.questions.tally import Tallies, tallies
from fusetui.capture.expect import Guess, compare, parse
from fusetui.commands.errors import DONE, NO
from fusetui.commands.loading import load
from fusetui.report.documents import CheckDocument, GuessDocument
from fusetui.report.note import emit_json_of, emit_of
from fusetui.text.figures import plural


def run(args: Namespace) -> int:
    """Returns 1 if any guess is wrong."""
    expected = parse(args.expect)
    loaded = load(args.trace)
    counted = tallies(loaded.trace)
    guesses = compare(expected, counted)
    if args.json:
        emit_json_of(loaded.trace, _document(counted, guesses))
    else:
        emit_of(loaded.trace, "\n".join(_lines(counted, guesses)))
    return max(loaded.code, DONE if all(guess.right for guess in guesses) else NO)


def _lines(counted: Tallies, guesses: Sequence[Guess]) -> list[str]:
    """A line per term; `=` marks a right guess, `!` a wrong one."""
    what = "kernels" if counted.on_gpu else "CPU ops that compute (the trace has no GPU events)"
    steps = plural(len(counted.steps), "step")
    where = f"in each of {steps}" if counted.steps else "in the whole trace, which has no steps"
    wide = max(len(guess.kind) for guess in guesses)
    return [f"Counted {what} {where}:", *(_line(guess, wide) for guess in guesses)]


def _line(guess: Guess, wide: int) -> str:
    sign = "=" if guess.right else "!"
    return f"  {sign} {guess.kind:{wide}}  guess {guess.expected:>4}   found {guess.said}"


def _document(counted: Tallies, guesses: Sequence[Guess]) -> CheckDocument:
    return CheckDocument(
        per="step" if counted.steps else "trace",
        steps=list(counted.steps),
        counted="kernels" if counted.on_gpu else "cpu_ops",
        right=all(guess.right for guess in guesses),
        guesses=[GuessDocument(g.kind, g.expected, g.found, g.right) for g in guesses],
    )
