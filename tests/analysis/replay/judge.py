"""Judges predictions by what invented programs do when they are changed.

A prediction is asked for from outside, as a user would: by the command line and its
JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from statistics import median

from tests.analysis.replay.changes import changed
from tests.analysis.replay.programs import Program
from tests.analysis.replay.recording import lengths, span_of, step_of_items, write
from tests.analysis.replay.simulator import Residuals, Slice, simulate

from fusetui.cli import main

NOTHING, ABSTAINS = 2, 3
SAME = 1 / 2000  # of a time: a smaller difference is none


@dataclass(frozen=True)
class Prediction:
    """What was said, or why nothing was: `refused` is the exit code then. `steps` has
    the lengths before and after of each step."""

    before: int = 0
    after: int = 0
    of: str = ""
    steps: Mapping[str, tuple[int, int]] | None = None
    certainty: str = ""
    notes: tuple[str, ...] = ()
    refused: int = 0
    said: str = ""


Predict = Callable[[Path, Sequence[str]], Prediction]


def by_command(path: Path, changes: Sequence[str]) -> Prediction:
    """What `fusetui whatif` says. Raises RuntimeError when it fails in another way than
    it may."""
    code, out, err = _command_line("whatif", str(path), *changes, "--json")
    if code in (NOTHING, ABSTAINS):
        return Prediction(refused=code, said=(err or out).strip())
    if code:
        raise RuntimeError(f"exit code {code}: {err.strip()[-2000:]}")
    found = json.loads(out)
    steps = {
        step["name"]: (step["before_ns"], step["after_ns"]) for step in found["steps"]
    }
    return Prediction(
        before=found["before_ns"],
        after=found["after_ns"],
        of=found["of"],
        steps=steps,
        certainty=found["certainty"],
        notes=tuple(found["notes"]),
    )


def _command_line(*arguments: str) -> tuple[object, str, str]:
    """The exit code of a command in this process, and what it printed."""
    before, sys.argv = sys.argv, ["fusetui", *arguments]
    code: object
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        try:
            code = main()
        except SystemExit as ended:
            code = ended.code
        finally:
            sys.argv = before
    return code, out.getvalue(), err.getvalue()


@dataclass(frozen=True)
class Verdict:
    """A prediction beside what happened, in ns: of the median step, or of the span
    where there are no two steps. `wrong` names what is not exact."""

    before: float
    after: float
    prediction: Prediction
    wrong: tuple[str, ...]

    @property
    def abstained(self) -> bool:
        return bool(self.prediction.refused)

    @property
    def is_bound(self) -> bool:
        """Whether the prediction is the time at best, and says that the data loader is
        why."""
        return bool(
            {"batches_unknown", "loader_never_waits"} & set(self.prediction.notes)
        )

    @property
    def is_right(self) -> bool:
        """Whether the median step is right, or not below the time at best where that is
        told."""
        if self.is_bound:
            return self.prediction.after <= self.after
        return abs(self.error) < SAME

    @property
    def error(self) -> float:
        """Of the time after the change, relative to what it is."""
        return (self.prediction.after - self.after) / self.after

    @property
    def error_of_change(self) -> float:
        """Of the time after the change, relative to the time before."""
        return (self.prediction.after - self.after) / self.before


def figures(
    run: Sequence[Slice], before: Sequence[Slice]
) -> tuple[float, dict[str, int]]:
    """The median step, and the length of each but the first; else the span. What an
    item belongs to is what it belonged to in the run before the change."""
    steps = lengths(run, step_of_items(before))
    return (median(steps.values()) if steps else span_of(run)), steps


def judged(
    program: Program,
    changes: Sequence[str],
    predict: Predict,
    folder: Path,
    residuals: Residuals | None = None,
) -> Verdict:
    """A recording of the program is given to `predict`; the changed program runs with
    the same residuals. Raises ValueError where a change is refused."""
    recorded = simulate(program, residuals)
    before, steps = figures(recorded, recorded)
    after, steps_after = figures(
        simulate(changed(program, *changes), residuals), recorded
    )
    said = predict(write(recorded, folder / "invented.json"), changes)
    if said.refused:
        return Verdict(before, after, said, ())
    wrong = [
        text
        for name, true in steps_after.items()
        for text in _differences(
            name, (said.steps or {}).get(name), (steps[name], true)
        )
    ]
    if not steps_after and said.after != after:
        wrong.append(f"span after: {said.after - after:+,} ns of {after:,}")
    return Verdict(before, after, said, tuple(wrong))


def _differences(
    name: str, told: tuple[int, int] | None, true: tuple[int, int]
) -> Iterator[str]:
    if told is None:
        yield f"{name} is missing"
        return
    for what, has, was in zip(("before", "after"), told, true, strict=True):
        if has != was:
            yield f"{name} {what}: {has - was:+,} ns of {was:,}"
