"""What changes are worth to a job, beside jobs that are simulated with and without
them."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.ranks.invented_job import Run, Steps, Work, simulated, write
from tests.scripts import benchmark

from fusetui.analysis.ranks.answer import explained
from fusetui.analysis.ranks.facts import JobFacts
from fusetui.analysis.ranks.joint_replay import replay_job
from fusetui.analysis.ranks.rank_graphs import build_graphs
from fusetui.analysis.ranks.summary import read_summary
from fusetui.analysis.ranks.whatif import JobWhatIf, estimate_changes
from fusetui.analysis.replay.changes import WrongChangeError
from fusetui.report.whatif import format_job_whatif

cases = benchmark("rank_jobs")
US = 1_000  # ns
MEET = Work(2 * US, 50 * US, group=(0, 1))


def facts_of(folder: Path) -> JobFacts:
    return explained(
        read_summary(str(path), cached=False)
        for path in sorted(folder.glob("rank*.json"))
    ).facts


def asked(run: Run, folder: Path, *changes: str) -> JobWhatIf:
    return estimate_changes(facts_of(write(run, folder)), changes)


def two(slow: int, fast: int, steps: int = 3) -> tuple[Steps, ...]:
    """Of each step a kernel, then a collective of 50 us."""
    return tuple([[Work(5 * US, ns), MEET]] * steps for ns in (slow, fast))


def job(
    seed: int, gemm: float = 1.0, comm: float = 1.0, op: float = 1.0, of: int = -1
) -> Run:
    """Random work between collectives of all ranks, or of pairs; they are behind the
    kernels, or on a stream of their own. `of`: the rank that is changed, -1: all."""
    chance = random.Random(seed)
    ranks, steps, each = (
        chance.randint(2, 4),
        chance.randint(2, 4),
        chance.randint(3, 9),
    )
    aside, pairs = seed % 2 == 1, ranks == 4 and chance.random() < 0.7
    kinds = [False, *(chance.random() < 0.5 for _ in range(each - 2)), True]
    among = [pairs and chance.random() < 0.5 for _ in kinds]
    joins = [aside and not is_met and chance.random() < 0.5 for is_met in kinds]
    transfers = [chance.randrange(10, 90) * US for _ in kinds]
    # us of ops: launches are ahead of the device, or not
    most = chance.choice((4, 200))

    def work(rank: int, place: int) -> Work:
        changed = of in (-1, rank)
        host, ns = chance.randrange(1, most) * US, chance.randrange(2, 300) * US
        host, call = (round(time * (op if changed else 1)) for time in (host, 500))
        if not kinds[place]:
            return Work(
                host, round(ns * gemm) if changed else ns, joins=joins[place], call=call
            )
        pair = (rank // 2 * 2, rank // 2 * 2 + 1)
        group = pair if among[place] else tuple(range(ranks))
        transfer = round(transfers[place] * comm) if changed else transfers[place]
        return Work(host, transfer, group=group, aside=aside, call=call)

    programs = [
        [[work(rank, place) for place in range(each)] for _ in range(steps)]
        for rank in range(ranks)
    ]
    return simulated(programs, [chance.randrange(0, 300) * US for _ in range(ranks)])


CHANGES: tuple[tuple[str, dict[str, float]], ...] = (
    ("family:gemm x0.5", {"gemm": 0.5}),
    ("family:gemm x2", {"gemm": 2.0}),
    ("comm x0.5", {"comm": 0.5}),
    ("comm x0", {"comm": 0.0}),
    ("op:aten::mm x0.5", {"op": 0.5}),
)


@pytest.fixture(scope="session")
def jobs(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[int], tuple[Run, JobFacts]]:
    """Each job of a seed, written and summarized once."""

    @cache
    def made(seed: int) -> tuple[Run, JobFacts]:
        run = job(seed)
        return run, facts_of(write(run, tmp_path_factory.mktemp("job")))

    return made


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("change", "parts"), CHANGES)
def test_job_whatif_predicts_every_simulated_change_exactly(
    seed: int,
    change: str,
    parts: dict[str, Any],
    jobs: Callable[[int], tuple[Run, JobFacts]],
) -> None:
    (run, facts), truth = jobs(seed), job(seed, **parts)
    found = estimate_changes(facts, (change,))
    assert found.why_not == ""
    assert [step.before_ns for step in found.steps[1:]] == run.steps
    assert [step.after_ns for step in found.steps[1:]] == truth.steps
    ranks = range(len(run.events))
    assert [row.last_before for row in found.ranks] == [
        run.last.count(n) for n in ranks
    ]
    assert [row.last_after for row in found.ranks] == [
        truth.last.count(n) for n in ranks
    ]


@pytest.mark.parametrize("seed", range(12))
def test_job_whatif_with_one_changed_rank_is_exact(
    seed: int, jobs: Callable[[int], tuple[Run, JobFacts]]
) -> None:
    truth = job(seed, gemm=0.5, of=1)
    found = estimate_changes(jobs(seed)[1], ("1:family:gemm x0.5",))
    assert [step.after_ns for step in found.steps[1:]] == truth.steps
    assert [row.rank for row in found.ranks if row.is_changed] == [1]


@pytest.mark.parametrize(
    ("call", "ahead", "certainty"),
    [
        ("cudaDeviceSynchronize", (), "bound"),
        ("cudaStreamSynchronize", (), "estimate"),  # of which stream, no event says
        ("cudaDeviceSynchronize", (0, 5_000 * US), "estimate"),
    ],
)
def test_a_wait_is_a_bound_unless_something_is_inferred(
    tmp_path: Path, call: str, ahead: tuple[int, ...], certainty: str
) -> None:
    run = simulated(two(2000 * US, 1200 * US, steps=6), (0, 0))
    for event in chain(*run.events):
        if event["name"] == "cudaDeviceSynchronize":
            event["name"] = call
    found = estimate_changes(
        facts_of(write(run, tmp_path, ahead)), ["no-sync:Synchronize"]
    )
    assert (found.why_not, found.certainty) == ("", certainty)
    assert (found.inferred_waits > 0) == (call == "cudaStreamSynchronize")
    assert ("at best" in format_job_whatif(found, 200, 0)) == (certainty == "bound")


def test_two_hosts_whose_clocks_are_apart(tmp_path: Path) -> None:
    """The answer is as near as it says that clocks are known."""
    programs = two(2000 * US, 1200 * US, steps=6)
    faster = ([[Work(5 * US, 1000 * US), MEET]] * 6, programs[1])
    run, truth = simulated(programs, (0, 0)), simulated(faster, (0, 0))
    found = estimate_changes(
        facts_of(write(run, tmp_path, ahead=(0, 5_000 * US))), ["0:family:gemm x0.5"]
    )
    assert found.why_not == ""
    assert 0 < found.uncertainty_ns < 10 * US
    for step, ns in zip(found.steps[1:], truth.steps, strict=True):
        assert step.after_ns is not None
        assert abs(step.after_ns - ns) <= found.uncertainty_ns


def test_the_slow_rank_helps_until_the_other_one_is_last(tmp_path: Path) -> None:
    """200 us against 120 us: at 0.8 it gains its 40 us, at 0.5 no more than the 80 us
    between."""
    run = simulated(two(200 * US, 120 * US), (0, 0))
    saved = {}
    for factor in (0.8, 0.5):
        found = asked(run, tmp_path, f"0:family:gemm x{factor}")
        assert found.before_ns is not None
        assert found.after_ns is not None
        saved[factor] = found.before_ns - found.after_ns
    assert saved == {0.8: 40 * US, 0.5: 80 * US}
    assert [row.last_before for row in found.ranks] == [3, 0]
    assert [row.last_after for row in found.ranks] == [0, 3]
    assert [row.waits_before_ns for row in found.ranks] == [0, 3 * 80 * US]
    assert [row.waits_after_ns for row in found.ranks] == [3 * 20 * US, 0]


def test_a_rank_that_is_not_last_is_worth_nothing(tmp_path: Path) -> None:
    found = asked(
        simulated(two(200 * US, 120 * US), (0, 0)), tmp_path, "1:family:gemm x0.1"
    )
    assert found.before_ns == found.after_ns
    assert [row.last_after for row in found.ranks] == [3, 0]


def assert_recorded(facts: JobFacts) -> None:
    """Without a change each rank is its recording, to the nanosecond; also where it is
    not recorded what waits for what."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "fusetui.analysis.ranks.rank_graphs._measure_unexplained_ns", lambda *_: 0
        )
        graphs = build_graphs(facts, ())
    found = replay_job(graphs.graphs, graphs.arrivals)
    assert found is not None
    for part, times in zip(graphs.ranks, found.times, strict=True):
        assert (times.begin == part.graph.began).all()
        assert (times.end == part.graph.ended).all()


@pytest.mark.parametrize("name", ["ddp-gemm", "hosts-1ms", "drift", "tp2dp4-gemm"])
def test_planted_jobs_are_replayed_as_recorded(name: str, tmp_path: Path) -> None:
    """Several groups, two hosts, clocks that drift."""
    cases.make(cases.case_of(name), 0, tmp_path)
    assert_recorded(facts_of(tmp_path))


PLANTED = (
    ("pp4", "not_all_wait"),
    ("gloo-gemm", "on_cpu"),
    ("partial-dp", "not_whole"),
    ("lost-first", "unmatched"),
    ("torn", "clocks"),
    ("dp-gemm", "not_linked"),
    ("tp8dp2-gemm", "uncertain"),
)


@pytest.mark.parametrize(("name", "why"), PLANTED)
def test_job_whatif_is_inconclusive_for_incomplete_or_inferred_jobs(
    name: str, why: str, tmp_path: Path
) -> None:
    cases.make(cases.case_of(name), 0, tmp_path)
    found = estimate_changes(facts_of(tmp_path), ["comm x0.5"])
    assert (found.why_not, found.before_ns, found.after_ns) == (why, None, None)


def test_wrong_job_changes_are_refused_in_one_sentence(tmp_path: Path) -> None:
    facts = facts_of(write(simulated(two(2 * US, 3 * US), (0, 0)), tmp_path))
    for change, sentence in (
        ("2:comm x0.5", "There is no rank 2."),
        ("kernel:nothing x0.5", "No kernel matches kernel:nothing."),
        (
            "device=H200",
            "The gain of another device is not estimated for a job: it is a range.",
        ),
        ("1:op:aten x0", "A collective cannot be changed on only some of its ranks."),
        ("1:comm x0.5", "A collective cannot be changed on only some of its ranks."),
        ("1:faster", 'Unknown change "faster". Valid: kernel:PATTERN x0.5, '),
    ):
        with pytest.raises(WrongChangeError, match=re.escape(sentence)):
            estimate_changes(facts, [change])
