"""`check`: a guess about the kernels of a trace, compared with what is there."""

from __future__ import annotations

from collections.abc import Sequence

from fusetui.capture.expect import Guess, compare, parse
from fusetui.commands.errors import DONE, NO
from fusetui.commands.loading import load
from fusetui.render.note import noted, with_note
from fusetui.render.output import emit, emit_json
from fusetui.trace.questions.tally import Tallies, tallies
from fusetui.trace.text.figures import plural


def check(name: str, guess: str, as_json: bool) -> int:
    expected = parse(guess)
    loaded = load(name)
    counted = tallies(loaded.trace)
    guesses = compare(expected, counted)
    if as_json:
        emit_json(with_note(_record(counted, guesses), loaded.trace))
    else:
        emit(noted("\n".join(_lines(counted, guesses)), loaded.trace))
    return max(loaded.code, DONE if all(guess.right for guess in guesses) else NO)


def _lines(counted: Tallies, guesses: Sequence[Guess]) -> list[str]:
    """A line per term; `=` is right, `!` is wrong."""
    what = "kernels" if counted.on_gpu else "CPU ops that compute (there is no GPU)"
    steps = plural(len(counted.steps), "step")
    where = f"in each of {steps}" if counted.steps else "in the whole trace, which has no steps"
    wide = max(len(guess.kind) for guess in guesses)
    return [f"Counted {what} {where}:", *(_line(guess, wide) for guess in guesses)]


def _line(guess: Guess, wide: int) -> str:
    sign = "=" if guess.right else "!"
    return f"  {sign} {guess.kind:{wide}}  guess {guess.expected:>4}   found {guess.said}"


def _record(counted: Tallies, guesses: Sequence[Guess]) -> dict[str, object]:
    return {
        "per": "step" if counted.steps else "trace",
        "steps": list(counted.steps),
        "counted": "kernels" if counted.on_gpu else "cpu_ops",
        "right": all(guess.right for guess in guesses),
        "guesses": [
            {"kind": g.kind, "expected": g.expected, "found": list(g.found), "right": g.right}
            for g in guesses
        ],
    }
