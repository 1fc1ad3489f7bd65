"""The examples in the docstrings hold."""

import doctest
import importlib
import pkgutil

import pytest

from fusetui.gpu import roofline as work

MODULES = [module.name for module in pkgutil.iter_modules(work.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_of_roofline_hold(name: str) -> None:
    module = importlib.import_module(f"{work.__name__}.{name}")
    assert doctest.testmod(module).failed == 0
