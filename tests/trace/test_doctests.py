"""The examples in the docstrings hold."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

from fusetui import trace

MODULES = [
    module.name
    for module in pkgutil.walk_packages(trace.__path__, f"{trace.__name__}.")
    if not module.ispkg
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_of_the_trace_hold(name: str) -> None:
    module = importlib.import_module(name)
    assert doctest.testmod(module).failed == 0


def test_some_modules_have_examples() -> None:
    arrays = importlib.import_module("fusetui.trace.model.arrays")
    assert doctest.testmod(arrays).attempted > 0
