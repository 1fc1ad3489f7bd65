"""The list of workloads, which does not need torch."""

import pytest

from fusetui import kernels


def test_names_lists_the_workloads() -> None:
    assert kernels.names()[:2] == ("mlp", "linear")


def test_an_unknown_workload_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="no-such"):
        kernels.get("no-such")
