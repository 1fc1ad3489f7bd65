"""The joins, worked out once more by a script that shares no code."""

from __future__ import annotations

from tests.corpus.files import corpus_path
from tests.worked_out_lines import Expected, expected_of

from fusetui.analysis.compiled.answer import report_compilation
from fusetui.analysis.compiled.finding import find_compile_log
from fusetui.analysis.compiled.model import CompileAnswer
from fusetui.trace import open_trace


def found_in(answer: CompileAnswer) -> dict[Expected, object]:
    """How often each kernel ran, and its lines."""
    found: dict[Expected, object] = {}
    for region in answer.regions:
        for kernel in region.kernels:
            one = Expected(region.compile_id, region.key, kernel.handle)
            places = frozenset((line.file, line.line) for line in kernel.lines)
            found[one] = (kernel.calls, places)
    return found


def test_every_kernel_leads_to_the_lines_that_were_worked_out() -> None:
    path = corpus_path("lesson-mlp-compiled")
    trace = open_trace(str(path), cached=False)
    log = find_compile_log(trace)
    assert log is not None, "the log lies beside the trace"
    answer = report_compilation(trace, log)
    assert answer.joined > 0
    log_path = path.with_name("mlp-compiled.compile_log.txt")
    expected = expected_of(path, [log_path])
    assert expected
    assert found_in(answer) == expected
