"""A real job whose processes meet by gloo, one of which is late at a known place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.places import ROOT

from fusetui.analysis.ranks.answer import explained
from fusetui.analysis.ranks.executors import summarize
from fusetui.report.ranks_words import describe_straggler

JOB = ROOT / "benchmarks" / "gloo_job.py"


@pytest.mark.torch
@pytest.mark.slow  # the ranks import torch
def test_the_delay_and_its_place_are_found(tmp_path: Path) -> None:
    """It takes as long as three processes take to import torch; fewer ranks cannot
    meet."""
    pytest.importorskip("torch", reason="needs torch: pip install 'fusetui[capture]'")
    asked = ("--ranks", "2", "--late", "1", "--delay-ms", "100", "--steps", "2")
    command = [sys.executable, "-P", str(JOB), str(tmp_path), *asked]
    subprocess.run(command, check=True, capture_output=True, timeout=400)
    answer = explained(
        summarize(sorted(map(str, tmp_path.iterdir())), cached=False)
    ).answer
    first = answer.stragglers[0]
    assert (answer.given, answer.unmatched, first.rank, first.cause) == (
        2,
        0,
        1,
        "inside",
    )
    assert "load_batch" in describe_straggler(answer, first)
    place = next(one for one in first.reason.excess if one.name == "load_batch")
    assert place.ns >= 2 * 90_000_000
