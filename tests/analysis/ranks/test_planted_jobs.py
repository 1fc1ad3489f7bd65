"""The jobs of benchmarks/rank_jobs.py: they are what they claim to be."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from tests.scripts import benchmark

from fusetui.analysis.ranks.model import RankSummary
from fusetui.analysis.ranks.summary import read_summary

jobs = benchmark("rank_jobs")
cases = benchmark("job_cases")


def collectives(path: Path) -> dict[tuple[str, int], list[float]]:
    """Begin and end (us) by process group and sequence number."""
    found: dict[tuple[str, int], list[float]] = {}
    count: defaultdict[str, int] = defaultdict(int)
    for event in json.loads(path.read_text())["traceEvents"]:
        group = event.get("args", {}).get("Process Group Name")
        if event.get("cat") == "kernel" and group is not None:
            found[group, count[group]] = [event["ts"], event["ts"] + event["dur"]]
            count[group] += 1
    return found


def test_the_culprit_begins_last_and_all_end_together(tmp_path: Path) -> None:
    truth = jobs.make(jobs.case_of("dp-loading"), 0, tmp_path)
    ranks = [collectives(tmp_path / f"rank{rank}.json") for rank in range(8)]
    first = [rank["0", 0] for rank in ranks]
    (culprit,) = truth.culprits
    assert max(first)[0] == first[culprit][0]
    others = sum(first[culprit][0] - start for start, _ in first) / 7
    assert 1e3 * others == pytest.approx(truth.planted, rel=0.05)
    for key in ranks[0]:
        ends = [rank[key][1] for rank in ranks]
        assert max(ends) - min(ends) < 3
        assert min(ends) > max(rank[key][0] for rank in ranks)


def test_a_host_has_a_clock_of_its_own(tmp_path: Path) -> None:
    jobs.make(jobs.case_of("hosts-5ms"), 0, tmp_path)
    first, second = (
        collectives(tmp_path / f"rank{rank}.json")["0", 0] for rank in (0, 8)
    )
    assert second[1] - first[1] == pytest.approx(5000, abs=30)


def test_a_balanced_pipeline_does_not_hang(tmp_path: Path) -> None:
    truth = jobs.make(jobs.case_of("pp4dp2"), 0, tmp_path)
    assert (truth.culprits, len(list(tmp_path.iterdir()))) == ([], 8)


def test_every_case_has_a_name_of_its_own() -> None:
    names = [case.name for case in jobs.CASES]
    assert len(set(names)) == len(names)


def truth(**more: Any) -> Any:
    """Rank 3 of 4 is 1 ms late in each of two steps of 10 ms."""
    fields = dict.fromkeys(jobs.Truth._fields, 0) | {
        "case": "dp-loading",
        "expect": "rank",
        "culprits": [3],
        "planted": 1e6,
        "waited": 0.98e6,
        "step": 10e6,
        "ordinary": 9e6,
        "steps": 2,
        "given": [0, 1, 2, 3],
        "waits": [(0.0, 0.0)] * 4,
        "cause": "loading",
    }
    return jobs.Truth(**(fields | more))


def answer(rank: int | None, caused_us: float = 2000, text: str = "") -> dict[str, Any]:
    """Names a rank, or nobody."""
    row = {"rank": rank or 0, "caused_ns": caused_us * 1e3, "waited_ns": 0, "steps": 2}
    named = [] if rank is None else [{"rank": rank, "text": text}]
    return {"ranks": [row | {"step_ns": 10_000_000}], "stragglers": named}


SAID = "Rank 3 arrives last; the others wait 1 ms a step for it."


@pytest.mark.parametrize(
    ("found", "text", "verdict"),
    [
        (answer(3), SAID, jobs.RIGHT),
        (answer(3, 2200), SAID, jobs.WRONG),  # 10 % more than was planted
        (answer(2), SAID.replace("3", "2"), jobs.WRONG),  # an innocent rank
        (answer(3), SAID.replace("3", "2"), jobs.WRONG),  # the text names another one
        # another figure
        (answer(3, text=SAID.replace("1 ms", "2 ms")), SAID, jobs.WRONG),
        # not why
        (answer(3, text=f"{SAID} Meanwhile kernels ran longer."), SAID, jobs.WRONG),
        (
            answer(3, text=f"{SAID} It spends 3 ms a step more in DataLoader."),
            SAID,
            jobs.WRONG,
        ),
        (answer(3, 30_000), SAID, jobs.WRONG),  # longer than the step
        (answer(None, 0), "4 of 4 ranks.", jobs.WRONG),  # says nothing at all
        (
            answer(None, 0),
            "For 1 collective they do not tell which was last.",
            jobs.WRONG,
        ),
        (
            answer(None, 0)
            | {"verdict": ["For whom the ranks wait cannot be told: clocks."]},
            "For whom the ranks wait cannot be told: clocks.",
            jobs.CANNOT,
        ),
    ],
)
def test_judge_of_planted_jobs_tells_right_from_wrong(
    found: dict[str, Any], text: str, verdict: str
) -> None:
    assert jobs.judged(truth(), found, text).verdict == verdict


def paused(held_up_us: list[float], late: list[int]) -> Any:
    """What is said where rank 3 holds up the others by so much in each of the steps,
    and these steps, from 0, are named."""
    planted = truth(
        cause="gc",
        planted=1e3 * sum(held_up_us) / len(held_up_us),
        waited=1e3 * sum(held_up_us) / len(held_up_us),
        steps=len(held_up_us),
        held_up=[1e3 * us for us in held_up_us],
    )
    found = answer(3, sum(held_up_us))
    found["ranks"][0]["steps"] = len(held_up_us)
    names = [f"ProfilerStep#{jobs.FIRST_STEP + step}" for step in late]
    found["stragglers"][0]["late_steps"] = [{"name": name} for name in names]
    return jobs.judged(planted, found, SAID.replace("the others wait 1 ms a step", ""))


@pytest.mark.parametrize(
    ("held_up_us", "late", "verdict"),
    [
        ([1000, 350], [0, 1], jobs.RIGHT),
        ([1000, 350], [0], jobs.WRONG),  # 3.5 % of a step, a third of the worst
        ([1000, 250], [0], jobs.RIGHT),  # near 2 % of a step: either is right
        ([1000, 250], [0, 1], jobs.RIGHT),
        ([1000, 90], [0, 1], jobs.WRONG),  # 0.9 % of a step
        ([1000, 90], [0], jobs.RIGHT),
        ([9000, 400], [0], jobs.RIGHT),  # 4 % of a step, 4.4 % of the worst
        ([9000, 400], [0, 1], jobs.WRONG),
        ([9000, 1400], [0], jobs.WRONG),  # 16 % of the worst
    ],
)
def test_steps_of_a_pause_are_judged_by_the_floors(
    held_up_us: list[float], late: list[int], verdict: str
) -> None:
    assert paused(held_up_us, late).verdict == verdict


def test_waits_of_the_other_ranks_for_a_planted_pause_add_up(tmp_path: Path) -> None:
    """By the step of the pause. In the last one only a rank of another group waits."""
    planted = jobs.make(jobs.case_of("fw-tp4dp2-pause"), 0, tmp_path)
    assert sum(planted.held_up) == pytest.approx(planted.steps * planted.waited)
    assert min(planted.held_up[:-1]) > 0.9 * min(planted.longer[:-1])
    assert 0 < planted.held_up[-1] < planted.longer[-1] / 5


@pytest.mark.parametrize(
    ("share", "named", "verdict"),
    [
        (0.04, [3, 2], jobs.RIGHT),
        (0.04, [3], jobs.WRONG),
        (0.016, [3], jobs.RIGHT),  # near 2 % of a step: either is right
        (0.016, [3, 2], jobs.RIGHT),
        (0.005, [3, 2], jobs.WRONG),
        (0.005, [3], jobs.RIGHT),
    ],
)
def test_a_late_rank_below_the_floor_is_not_to_be_named(
    share: float, named: list[int], verdict: str
) -> None:
    """Of two ranks that are late in the same steps; the others wait for the second one
    by this share of a step."""
    ns = {3: 1e6, 2: share * 10e6}
    several = [
        cases.Culprit(rank, "loading", one, one, 9e6, [], [], [])
        for rank, one in ns.items()
    ]
    planted = truth(
        expect="ranks",
        culprits=[2, 3],
        planted=sum(ns.values()),
        waited=sum(ns.values()),
        several=several,
    )
    rows = [
        {"rank": rank, "caused_ns": 2 * one, "waited_ns": 0, "steps": 2, "step_ns": 1e7}
        for rank, one in ns.items()
    ]
    stragglers = [{"rank": rank, "text": "", "late_steps": []} for rank in named]
    text = "\n".join(f"Rank {rank} arrives last." for rank in named)
    found = {"ranks": rows, "stragglers": stragglers}
    assert jobs.judged(planted, found, text).verdict == verdict


def test_job_without_a_culprit_expects_no_name() -> None:
    balanced = truth(expect="nobody", culprits=[])
    assert jobs.judged(balanced, answer(None, 0), "").verdict == jobs.RIGHT
    assert jobs.judged(balanced, answer(3), SAID).verdict == jobs.WRONG


@pytest.mark.parametrize(
    "name",
    [
        "dp-loading",
        "ddp-gemm",
        "hosts-1ms",
        "tp2dp4-gemm",
        "pp4-slow",
        "flips",
        "pp4",
        "fw-tp2dp2-gc",
        "fw-tp2dp4-loading",
        "fw-tp4dp2-gemm",
        "fw-tp2dp2-balanced",
        "both-tp2dp4-loading",
        "both-tp2dp4-pause",
        "fw-busy-tp2dp2-pause",
        "both-busy-tp2dp2-loading",
        "bound-tp2dp4-gemm",
        "few-loading",
        "few-tp2dp2-loading",
    ],
)
def test_the_culprit_is_named_and_nobody_else(name: str) -> None:
    _, one = jobs.trial(jobs.case_of(name), 0)
    assert one == (jobs.RIGHT, "")


def test_clocks_that_contradict_each_other_are_refused() -> None:
    _, one = jobs.trial(jobs.case_of("torn"), 0)
    assert one.verdict == jobs.CANNOT


def test_a_queued_collective_is_ready_when_its_inputs_were_computed(
    tmp_path: Path,
) -> None:
    """Gradients take longer to reduce than to compute: each reduction but the first is
    queued."""
    jobs.make(jobs.case_of("bound-tp2dp4-balanced"), 0, tmp_path)
    summary = read_summary(str(tmp_path / "rank0.json"), cached=False)
    assert isinstance(summary, RankSummary)
    columns = summary.collectives
    queued = columns.ready < columns.start
    assert queued.any()
    assert (columns.ahead[queued] > 0).any()
    assert (columns.end[:-1][queued[1:]] <= columns.start[1:][queued[1:]]).all()
    assert (columns.ahead[~queued] == 0).all()
    assert (columns.stalled <= columns.end - columns.ready).all()
