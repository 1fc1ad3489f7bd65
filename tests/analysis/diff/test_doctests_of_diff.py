"""The examples in the docstrings hold."""

import doctest
import importlib
import pkgutil

import pytest

from fusetui.analysis import diff

MODULES = [
    module.name for module in pkgutil.walk_packages(diff.__path__, f"{diff.__name__}.")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_of_diff_hold(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
