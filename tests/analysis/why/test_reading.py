"""What the findings need of the args is read in one pass, by several processes if it
can be."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.places import TRACES

from fusetui.analysis.why.account import Accounts
from fusetui.analysis.why.answer import args_read, why
from fusetui.analysis.why.engine import answer_early
from fusetui.analysis.why.facts import Facts
from fusetui.gpu.roofline.many import jobs
from fusetui.trace import open_trace
from fusetui.trace.program.backward import backward_ops
from fusetui.trace.read import workers
from fusetui.trace.read.document import Document
from fusetui.trace.read.document_text import Filed

TRACE = TRACES / "mi250_minitoy.json.gz"
FORWARD_ONLY = TRACES / "h100_bert-small.json.gz"
why_module = sys.modules["fusetui.analysis.why.answer"]


@pytest.fixture(autouse=True)
def _needs_traces() -> None:
    if not TRACE.is_file():
        pytest.skip(f"there is no {TRACE}")


def test_args_that_were_read_ahead_are_not_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> bytes:
        raise OSError("no bytes")

    trace, alone = (open_trace(str(TRACE), cached=False) for _ in range(2))
    with args_read(trace):
        pass
    expected = jobs(alone).number.tolist(), backward_ops(alone).forward.tolist()
    monkeypatch.setattr(Document, "part", fail)
    assert (
        jobs(trace).number.tolist(),
        backward_ops(trace).forward.tolist(),
    ) == expected
    assert max(expected[0]) > 0
    assert max(expected[1]) > 0


@pytest.mark.parametrize("path", [TRACE, FORWARD_ONLY])
@pytest.mark.parametrize("cores", [1, 2, 4])
def test_the_answers_are_the_same(
    monkeypatch: pytest.MonkeyPatch, cores: int, path: Path
) -> None:
    with monkeypatch.context() as without:
        without.setattr(why_module, "args_read", lambda _: nullcontext())
        expected = why(open_trace(str(path), cached=False))
    monkeypatch.setattr(why_module, "MIN_BYTES_FOR_THREADS", 0)
    monkeypatch.setattr(workers, "core_count", lambda: cores)
    found = why(open_trace(str(path), cached=False))
    # arrays are not compared
    assert replace(found, _wanted=()) == replace(expected, _wanted=())


@pytest.mark.parametrize(
    "path", sorted(TRACES.glob("*.json.gz")), ids=lambda path: path.name
)
def test_the_rules_that_are_answered_early_read_nothing(
    monkeypatch: pytest.MonkeyPatch, path: Path
) -> None:
    def fail(*_: object) -> bytes:
        raise AssertionError("something is read")

    trace = open_trace(str(path), cached=False)
    for kind in (Document, Filed):
        monkeypatch.setattr(kind, "part", fail)
    answer_early(Facts(Accounts(trace)))
