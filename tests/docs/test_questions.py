"""The page of questions: at most five keys each, and the answers are on the screens."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.docs.test_reference import script
from tests.places import ROOT

QUESTIONS = script("questions").QUESTIONS
PAGE = (ROOT / "docs" / "questions.md").read_text(encoding="utf-8")
ANSWERS = {
    "h100_Qwen1.5-0.5B": r"gemm bf16 .*\n(.*\n)+.*Qwen2",
    "h100_owlv2": r"the CPU was in .*zoom_shift",
    "nccl_collectives": r"Exposed communication takes (.*\n)+.*all_?[Rr]educe",
    "b300_deepseek_r1_decode": r"the CPU was in replay cuda_graph_runner",
    "mi300_vllm_decode_graph": r"6 distinct kernels, 121 launches   only kind gemm",
}


def test_each_question_takes_at_most_five_keys() -> None:
    assert len(QUESTIONS) == 5
    assert max(len(question.keys) for question in QUESTIONS) <= 5


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.trace)
def test_the_page_answers_it(question: Any) -> None:
    found = re.search(
        rf"## {re.escape(question.title)}\n.*?```text\n(.*?)```", PAGE, re.DOTALL
    )
    assert found is not None
    assert re.search(ANSWERS[question.trace], found[1])
