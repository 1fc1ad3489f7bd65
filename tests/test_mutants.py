"""The script that plants faults into a copy of the program."""

from __future__ import annotations

import ast

import pytest
from tests.scripts import benchmark

mutants = benchmark("mutants")

MODULE = '''
"""Adds one: a docstring, not code."""
from __future__ import annotations

__all__ = ["limit"]

def limit(number: int, most: int = 3) -> int | None:
    if number < most and not number == 7:
        return number + 1
    return None
'''


def planted_one_by_one() -> dict[str, str]:
    """By kind of fault, the module with the first fault of that kind as its only
    text."""
    tree = ast.parse(MODULE)
    found: dict[str, str] = {}
    for fault in mutants.faults(tree):
        changed = mutants.replacement(fault)
        found.setdefault(fault.kind, ast.unparse(changed))
    return found


def test_each_kind_of_fault_changes_one_thing() -> None:
    assert planted_one_by_one() == {
        "number": "4",
        "and, or": "number < most or not number == 7",
        "comparison": "number <= most",
        "not removed": "number == 7",
        "return None": "None",
        "plus, minus": "number - 1",
    }


@pytest.mark.parametrize(
    "text",
    [
        "x: Literal[1]",
        "__all__ = [1]",
        "if TYPE_CHECKING:\n    x = 1",
        "class A(Struct, frozen=True): pass",
        "logger.info(1)",
        "@triton.jit\ndef kernel(x):\n    return x + 1",
        "x = f'{1}'",
        "x = 'a' + b",
    ],
)
def test_no_fault_is_made_in_what_is_no_code(text: str) -> None:
    assert list(mutants.faults(ast.parse(text))) == []


def test_a_planted_fault_is_off_unless_its_mutant_is_chosen() -> None:
    fault = mutants.Mutant(
        number=5,
        package="text",
        file="a.py",
        line=8,
        kind="comparison",
        index=0,
        before="",
        after="",
    )
    text = mutants.planted(MODULE, [fault])
    text = text.replace("from fusetui._mutants import chosen as _chosen_mutant", "")
    answers = {}
    for chosen in (5, 6):
        names: dict[str, object] = {
            "_chosen_mutant": lambda number, now=chosen: number == now
        }
        exec(text, names)
        answers[chosen] = names["limit"](3)  # type: ignore[operator]
    assert answers == {5: 4, 6: None}


def test_all_packages_get_mutants_and_large_ones_more() -> None:
    assert mutants.allotment({"small": 10, "large": 90}, 16) == {
        "small": 4,
        "large": 12,
    }
