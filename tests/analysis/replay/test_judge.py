"""The judge says what is wrong, and invented programs are what they are called."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.analysis.replay.cases import CHANGES, cases
from tests.analysis.replay.changes import changed
from tests.analysis.replay.invented import KINDS, invented
from tests.analysis.replay.judge import Prediction, figures, judged
from tests.analysis.replay.recording import gpu, span_of
from tests.analysis.replay.simulator import CALL, simulate

KIND, CHANGE = "mixed", CHANGES["kernel x0.5"]


def seer(late: int) -> Prediction:
    """Knows the program, and is late by so much in the last step."""
    whole = invented(KIND, 1)
    run = simulate(whole)
    before, steps = figures(run, run)
    after, steps_after = figures(simulate(changed(whole, *CHANGE)), run)
    last = max(steps)
    told = {
        name: (steps[name], steps_after[name] + late * (name == last)) for name in steps
    }
    return Prediction(int(before), int(after), "step", told, "estimate")


def test_a_right_prediction_is_exact(tmp_path: Path) -> None:
    verdict = judged(invented(KIND, 1), CHANGE, lambda path, changes: seer(0), tmp_path)
    assert verdict.wrong == ()
    assert verdict.error == 0


def test_a_wrong_step_is_named(tmp_path: Path) -> None:
    (wrong,) = judged(
        invented(KIND, 1), CHANGE, lambda path, changes: seer(7), tmp_path
    ).wrong
    assert wrong.startswith("ProfilerStep#8 after: +7 ns of ")


def test_prediction_that_abstains_is_not_wrong(tmp_path: Path) -> None:
    def silent(path: Path, changes: Sequence[str]) -> Prediction:
        assert path.is_file()
        return Prediction(refused=3)

    verdict = judged(invented(KIND, 1), CHANGE, silent, tmp_path)
    assert verdict.abstained
    assert not verdict.wrong


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_is_a_program(kind: str) -> None:
    assert invented(kind, 3) == invented(kind, 3) != invented(kind, 4)


def test_programs_are_what_they_are_called() -> None:
    def busy(kind: str) -> float:
        run = simulate(invented(kind, 1))
        return sum(one.end - one.start for one in gpu(run)) / span_of(run)

    assert busy("host-bound") < 0.15
    assert busy("GPU-bound") > 0.85
    depth = KINDS["full queue"].machine.depth
    run = simulate(invented("full queue", 1))
    flying = [
        sum(
            call.end <= launch.start < item.end
            for call in run
            for item in gpu(run)
            if call.kind == CALL and call.link == item.link
        )
        for launch in run
        if launch.name == "cudaLaunchKernel"
    ]
    assert max(flying) == depth


def test_judged_cases_cover_every_kind_and_every_change() -> None:
    met = {(kind, change) for kind, _, change in cases(2)}
    assert {kind for kind, _ in met} == {*KINDS}
    assert {change for _, change in met} == {*CHANGES}
