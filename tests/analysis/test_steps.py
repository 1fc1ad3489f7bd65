"""Every answer about a real trace is about the same steps."""

from __future__ import annotations

import pytest
from tests.places import TRACES

from fusetui.analysis.diff.windows import windows
from fusetui.analysis.questions.groups import kernel_groups
from fusetui.analysis.questions.summary import summary
from fusetui.analysis.ranks.summary import summarized
from fusetui.analysis.why.selection import accounted
from fusetui.gpu.roofline.many import jobs
from fusetui.trace import open_trace
from fusetui.trace.layout.steps import steps_of


@pytest.mark.parametrize(
    ("name", "count", "by"),
    [
        ("rtx2080ti_linear", 40, "up to the end of Optimizer.step#SGD.step"),
        ("mi300_ddp_resnet18", 5, "up to the end of Optimizer.step#SGD.step"),
        ("v100_resnet50_2021", 6, "ProfilerStep"),
        ("mi300_normalization_layers", 0, ""),
        ("mtia_inference", 0, ""),
    ],
)
def test_every_answer_about_a_real_trace_uses_the_same_steps(
    name: str, count: int, by: str
) -> None:
    path = TRACES / f"{name}.json.gz"
    if not path.is_file():
        pytest.skip("no corpus: set FUSETUI_TRACES")
    trace = open_trace(str(path), cached=False)
    assert (len(steps_of(trace)), steps_of(trace).by) == (count, by)
    assert len(summary(trace).steps) == len(accounted(trace).steps) == count
    assert len(windows(trace, "A")) == max(count, 1)
    assert len(summarized(trace, str(path)).steps) == count
    groups = kernel_groups(trace, jobs(trace), "step")
    assert len([one for one in groups if one.step is not None]) == count
