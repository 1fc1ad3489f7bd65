"""`says(name, field=value, ...)` asserts what decode determines about a name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fusetui.gpu.kernel_names import KernelName, decode

Says = Callable[..., KernelName]


@pytest.fixture
def says() -> Says:
    def check(name: str, **expected: Any) -> KernelName:
        found = decode(name)
        assert found is not None, f"no family knows {name}"
        assert {key: getattr(found, key) for key in expected} == expected
        assert found.name == name
        return found

    return check
