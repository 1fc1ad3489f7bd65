"""The answer about dumps of a real job of gloo with four ranks."""

from __future__ import annotations

from tests.real.traces import TRACES, existing

from fusetui.analysis.hang.answer import why_it_hangs
from fusetui.analysis.hang.model import HangAnswer
from fusetui.trace.flight.reading import read_dumps


def answer_of(case: str) -> HangAnswer:
    folder = existing(TRACES.parent / "flight" / case)
    return why_it_hangs(read_dumps(sorted(map(str, folder.iterdir()))))


def test_the_rank_that_slept_is_named_with_the_line_of_its_last_collective() -> None:
    answer = answer_of("missing")
    assert answer.verdict == "missing"
    (culprit,) = answer.culprits
    assert (culprit.rank, culprit.sequence, culprit.waiting) == (1, 8, 3)
    assert culprit.last is not None
    assert culprit.last.place is not None
    assert (culprit.last.place.function, culprit.last.place.line) == ("train", 16)


def test_the_barrier_among_all_gathers_is_a_mismatch() -> None:
    answer = answer_of("mismatch")
    assert answer.verdict == "mismatch"
    (mismatch,) = answer.mismatches
    assert mismatch.sequence == 8
    assert [side.ranks for side in mismatch.sides] == [(0, 1, 3), (2,)]


def test_a_job_that_ended_names_nobody() -> None:
    answer = answer_of("healthy")
    assert answer.verdict == "none"
    assert answer.waits == ()
    assert answer.mismatches == ()
