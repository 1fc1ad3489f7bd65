"""Copies and fills by the copy engine."""

from tests.gpu.kernel_names.conftest import Says

from fusetui.gpu.kernel_names import decode


def test_copy(says: Says) -> None:
    found = says("Memcpy HtoD (Pageable -> Device)", family="memcpy", op="memcpy", direction="HtoD")
    assert "host wait" in found.parts[1][2]
    says("Memcpy DtoD (Device -> Device)", direction="DtoD")


def test_set(says: Says) -> None:
    says("Memset (Device)", family="memset", op="memset", direction=None)
    says("Memset (Unknown)", family="memset")


def test_other_text() -> None:
    assert decode("Memcpy of nothing") is None
