"""Pages of the documentation that show what commands print of real traces."""

from __future__ import annotations

import re

import pytest
from tests.docs.test_questions import ANSWERS, QUESTIONS
from tests.docs.test_reference import script
from tests.docs.test_serving import PAGE, SERVING
from tests.real.traces import TRACES


async def test_the_keys_of_a_question_lead_to_its_answer() -> None:
    question = next(one for one in QUESTIONS if one.trace == "mi300_vllm_decode_graph")
    assert re.search(
        ANSWERS[question.trace], await script("questions").screen(question, TRACES)
    )


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        block[1:]
        for block in SERVING.BLOCK.findall(PAGE)
        if block[1].startswith("serving ")
    ],
)
def test_the_output_is_real(command: str, shown: str) -> None:
    assert shown == SERVING.output(command, TRACES)
