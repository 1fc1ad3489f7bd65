"""A finding that is part of another one claims no more than that."""

from __future__ import annotations

import pytest

from fusetui.analysis.why import engine
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.rule import Claim, Rule

from .conftest import Ask
from .work import ADD, work


def rule(name: str, at_stake_ns: int, part_of: str | None = None) -> Rule:
    def find(_: Facts) -> list[Claim]:
        return [Claim(name, at_stake_ns, part_of=part_of)]

    return Rule(id=name, remedy="", find=find)


@pytest.mark.parametrize(
    ("whole", "told"), [(8_850, None), (10_460, "whole"), (20_000, "whole")]
)
def test_a_part_is_no_more_than_the_whole(
    found: Ask, monkeypatch: pytest.MonkeyPatch, whole: int, told: str | None
) -> None:
    both = (rule("part", 10_460, "whole"), rule("whole", whole))
    monkeypatch.setattr(engine, "RULES", both)
    (finding,) = found("part", work(("aten::add", ADD, 100)))
    assert finding.part_of == told


def test_a_whole_that_is_not_told_has_no_part(
    found: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time is below the threshold."""
    both = (rule("part", 10_460, "whole"), rule("whole", 1))
    monkeypatch.setattr(engine, "RULES", both)
    (finding,) = found("part", work(("aten::add", ADD, 100)))
    assert finding.part_of is None
