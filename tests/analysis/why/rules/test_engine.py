"""The list of all rules."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from fusetui.analysis.why import rules
from fusetui.analysis.why.engine import RULES
from fusetui.analysis.why.rule import Rule


def test_every_rule_is_in_the_list() -> None:
    written = set()
    for file in pkgutil.iter_modules(rules.__path__):
        module = import_module(f"{rules.__name__}.{file.name}")
        written |= {
            value.id for value in vars(module).values() if isinstance(value, Rule)
        }
    assert {rule.id for rule in RULES} == written


def test_the_list_is_in_the_order_of_names() -> None:
    names = [rule.id for rule in RULES]
    assert names == sorted(set(names))
