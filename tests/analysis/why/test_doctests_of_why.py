"""The examples in the docstrings hold."""

import doctest
import importlib
import pkgutil

import pytest

from fusetui.analysis import why

MODULES = [
    module.name for module in pkgutil.walk_packages(why.__path__, f"{why.__name__}.")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_of_why_hold(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
