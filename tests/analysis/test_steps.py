"""Every answer about a trace is about the same steps."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.corpus.files import corpus_path

from fusetui.analysis.diff.windows import find_steps
from fusetui.analysis.questions.groups import group_kernels
from fusetui.analysis.questions.summary import summary
from fusetui.analysis.ranks.summary import extract_summary
from fusetui.analysis.why.selection import account_for_selection
from fusetui.gpu.roofline.many import jobs
from fusetui.trace import open_trace
from fusetui.trace.layout.steps import steps_of


def every_answer_uses_the_same_steps(path: Path, count: int, by: str) -> None:
    trace = open_trace(str(path), cached=False)
    assert (len(steps_of(trace)), steps_of(trace).by) == (count, by)
    assert len(summary(trace).steps) == len(account_for_selection(trace).steps) == count
    assert len(find_steps(trace, "A")) == max(count, 1)
    assert len(extract_summary(trace, str(path)).steps) == count
    groups = group_kernels(trace, jobs(trace), "step")
    assert len([one for one in groups if one.step is not None]) == count


@pytest.mark.parametrize(
    ("name", "count", "by"),
    [
        ("training", 6, "ProfilerStep"),
        ("job/rank1", 4, "ProfilerStep"),
        ("annotated-graph", 0, ""),
        ("collectives", 6, "ProfilerStep"),
    ],
)
def test_every_answer_about_a_trace_uses_the_same_steps(
    name: str, count: int, by: str
) -> None:
    every_answer_uses_the_same_steps(corpus_path(name), count, by)
