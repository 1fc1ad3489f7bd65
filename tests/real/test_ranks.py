"""Four of the eight ranks of a DLRM training on V100s, recorded in 2023."""

from __future__ import annotations

from pathlib import Path

from tests.analysis.ranks.made import US, answer_of
from tests.analysis.ranks.test_whatif import assert_recorded
from tests.real.traces import TRACES, existing

from fusetui.analysis.ranks.answer import explained
from fusetui.analysis.ranks.executors import summarize
from fusetui.analysis.ranks.facts import JobFacts
from fusetui.analysis.ranks.summary import read_summary
from fusetui.analysis.ranks.whatif import estimate_changes


def ranks() -> list[Path]:
    return sorted(existing(TRACES / "dlrm_ranks").iterdir())


def facts() -> JobFacts:
    return explained(read_summary(str(path), cached=False) for path in ranks()).facts


def test_four_of_eight_real_ranks_name_the_missing_ones() -> None:
    """A DLRM training step on eight V100 of one machine, recorded in 2023; see
    docs/ranks.md."""
    answer = answer_of(summarize([str(path) for path in ranks()], cached=False))
    assert (answer.given, answer.missing) == (4, (4, 5, 6, 7))
    assert (answer.collectives, answer.unmatched) == (8, 0)
    first = answer.stragglers[0]
    assert (first.rank, first.last_count, first.of, first.cause) == (2, 5, 8, "outside")
    assert first.reason.begins_after_ns == 6_887 * US
    assert first.reason.begins_after_rank == 1
    assert first.what_if is None
    worst = {row.rank: row.worst_wait for row in answer.ranks}
    # Durations 2146, 7635 and 6132 us, of which the transfer is at most rank 2's 518.
    waits = [worst[n].wait_ns for n in (0, 1, 3) if worst[n] is not None]  # type: ignore[union-attr]
    assert waits == [1_627 * US, 7_116 * US, 5_614 * US]


def test_real_ranks_are_replayed_as_recorded() -> None:
    assert_recorded(facts())


def test_job_whatif_of_an_incomplete_job_is_refused() -> None:
    assert estimate_changes(facts(), ["comm x0.5"]).why_not == "not_whole"
