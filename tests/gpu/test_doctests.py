"""The examples in the docstrings of the modules beside the packages hold."""

import doctest

import pytest

from fusetui.gpu import calls, dtypes, kinds


@pytest.mark.parametrize("module", [calls, dtypes, kinds])
def test_examples_in_docstrings_of_gpu_hold(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]
