"""What `why` reads of two real traces."""

from __future__ import annotations

import pytest
from tests.analysis.why.test_reading import (
    answers_are_the_same,
    args_that_were_read_ahead_are_not_read_again,
)
from tests.real.traces import real

TRAINING = "mi250_minitoy"
FORWARD_ONLY = "h100_bert-small"


def test_args_that_were_read_ahead_are_not_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    args_that_were_read_ahead_are_not_read_again(real(TRAINING), monkeypatch)


@pytest.mark.parametrize("name", [TRAINING, FORWARD_ONLY])
@pytest.mark.parametrize("cores", [1, 2, 4])
def test_the_answers_are_the_same(
    monkeypatch: pytest.MonkeyPatch, cores: int, name: str
) -> None:
    answers_are_the_same(real(name), cores, monkeypatch)
