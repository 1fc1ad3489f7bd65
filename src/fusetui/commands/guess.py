"""`check`: a guess about the kernels of a trace, compared with what is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from fusetui.capture.expect import parse
from fusetui.commands.errors import DONE, NO
from fusetui.commands.kinds import Tallies, tallies
from fusetui.commands.loading import load
from fusetui.render.output import emit, emit_json
from fusetui.trace.format import plural


class Outcome(msgspec.Struct, frozen=True):
    """One term of the guess; `found` has a number per step, or one for the whole trace."""

    kind: str
    expected: int
    found: tuple[int, ...]

    @property
    def right(self) -> bool:
        return all(count == self.expected for count in self.found)


def check(name: str, guess: str, as_json: bool) -> int:
    expected = parse(guess)
    loaded = load(name)
    counted = tallies(loaded.trace)
    outcomes = [
        Outcome(kind, count, tuple(tally[kind] for tally in counted.tallies))
        for kind, count in expected.items()
    ]
    if as_json:
        emit_json(_record(counted, outcomes))
    else:
        emit("\n".join(_lines(counted, outcomes)))
    return max(loaded.code, DONE if all(outcome.right for outcome in outcomes) else NO)


def _lines(counted: Tallies, outcomes: Sequence[Outcome]) -> list[str]:
    """A line per term; `=` is right, `!` is wrong."""
    what = "kernels" if counted.on_gpu else "CPU ops that compute (there is no GPU)"
    steps = plural(len(counted.steps), "step")
    where = f"in each of {steps}" if counted.steps else "in the whole trace, which has no steps"
    wide = max(len(outcome.kind) for outcome in outcomes)
    return [f"Counted {what} {where}:", *(_line(outcome, wide) for outcome in outcomes)]


def _line(outcome: Outcome, wide: int) -> str:
    sign = "=" if outcome.right else "!"
    alike = len(set(outcome.found)) == 1
    found = str(outcome.found[0]) if alike else ", ".join(map(str, outcome.found))
    return f"  {sign} {outcome.kind:{wide}}  guess {outcome.expected:>4}   found {found}"


def _record(counted: Tallies, outcomes: Sequence[Outcome]) -> Mapping[str, object]:
    return {
        "per": "step" if counted.steps else "trace",
        "steps": list(counted.steps),
        "counted": "kernels" if counted.on_gpu else "cpu_ops",
        "right": all(outcome.right for outcome in outcomes),
        "guesses": [
            {"kind": o.kind, "expected": o.expected, "found": list(o.found), "right": o.right}
            for o in outcomes
        ],
    }
