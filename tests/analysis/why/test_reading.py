"""What the findings need of the args is read in one pass, by several processes if it
can be."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.corpus.files import corpus_path

from fusetui.analysis.why.account import Accounts
from fusetui.analysis.why.answer import read_args_meanwhile, why
from fusetui.analysis.why.engine import run_rules_of_columns
from fusetui.analysis.why.facts import Facts
from fusetui.gpu.roofline.many import jobs
from fusetui.trace import open_trace
from fusetui.trace.program.backward import backward_ops
from fusetui.trace.read import workers
from fusetui.trace.read.document import Document
from fusetui.trace.read.document_text import Filed

why_module = sys.modules["fusetui.analysis.why.answer"]


def args_that_were_read_ahead_are_not_read_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bytes:
        raise OSError("no bytes")

    trace, alone = (open_trace(str(path), cached=False) for _ in range(2))
    with read_args_meanwhile(trace):
        pass
    expected = jobs(alone).number.tolist(), backward_ops(alone).forward.tolist()
    monkeypatch.setattr(Document, "part", fail)
    assert (
        jobs(trace).number.tolist(),
        backward_ops(trace).forward.tolist(),
    ) == expected
    assert max(expected[0]) > 0
    assert max(expected[1]) > 0


def test_args_that_were_read_ahead_are_not_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    args_that_were_read_ahead_are_not_read_again(corpus_path("training"), monkeypatch)


def answers_are_the_same(
    path: Path, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without:
        without.setattr(why_module, "read_args_meanwhile", lambda _: nullcontext())
        expected = why(open_trace(str(path), cached=False))
    monkeypatch.setattr(why_module, "MIN_BYTES_FOR_THREADS", 0)
    monkeypatch.setattr(workers, "core_count", lambda: cores)
    found = why(open_trace(str(path), cached=False))
    # arrays are not compared
    assert replace(found, _wanted=()) == replace(expected, _wanted=())


@pytest.mark.parametrize("name", ["training", "lesson-mlp-eager"])
@pytest.mark.parametrize("cores", [1, 2, 4])
def test_the_answers_are_the_same(
    monkeypatch: pytest.MonkeyPatch, cores: int, name: str
) -> None:
    answers_are_the_same(corpus_path(name), cores, monkeypatch)


def test_the_rules_that_are_answered_early_read_nothing(
    monkeypatch: pytest.MonkeyPatch, any_trace: Path
) -> None:
    def fail(*_: object) -> bytes:
        raise AssertionError("something is read")

    trace = open_trace(str(any_trace), cached=False)
    for kind in (Document, Filed):
        monkeypatch.setattr(kind, "part", fail)
    run_rules_of_columns(Facts(Accounts(trace)))
