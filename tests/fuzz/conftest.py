"""Inputs that are read in the process of other tests."""

from __future__ import annotations

import pytest
from fuzz import limits


@pytest.fixture(autouse=True)
def memory_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tests needed before is not the input's."""
    monkeypatch.setattr(limits.Before, "peak", limits.peak())
    monkeypatch.setattr(limits.Before, "held", limits.held())
