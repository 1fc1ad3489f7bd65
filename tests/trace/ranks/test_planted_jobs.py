"""The jobs of benchmarks/rank_jobs.py: they are what they claim to be."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest
from tests.scripts import benchmark

jobs = benchmark("rank_jobs")


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
    first, second = (collectives(tmp_path / f"rank{rank}.json")["0", 0] for rank in (0, 8))
    assert second[1] - first[1] == pytest.approx(5000, abs=30)


def test_a_balanced_pipeline_does_not_hang(tmp_path: Path) -> None:
    truth = jobs.make(jobs.case_of("pp4dp2"), 0, tmp_path)
    assert (truth.culprits, len(list(tmp_path.iterdir()))) == ([], 8)


def test_every_case_has_a_name_of_its_own() -> None:
    names = [case.name for case in jobs.CASES]
    assert len(set(names)) == len(names)
