"""The examples in the docstrings hold."""

import doctest
import importlib
import pkgutil

import pytest

from fusetui.gpu import kernel_names

MODULES = [module.name for module in pkgutil.iter_modules(kernel_names.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_of_kernel_names_hold(name: str) -> None:
    module = importlib.import_module(f"{kernel_names.__name__}.{name}")
    assert doctest.testmod(module).failed == 0
