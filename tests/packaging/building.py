"""The code that builds the project, and what it built."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from tests.places import ROOT


def setup() -> Any:
    """The module setup.py, which builds nothing when it is imported."""
    spec = importlib.util.spec_from_file_location("setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def built(pattern: str) -> Path:
    """The newest file of dist/ with such a name; without one the test is skipped."""
    found = sorted((ROOT / "dist").glob(pattern), key=lambda path: path.stat().st_mtime)
    if not found:
        pytest.skip("nothing is built: make dist")
    return found[-1]
