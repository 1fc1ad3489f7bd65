"""Compilation inside what was recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .conftest import Ask

Make = Callable[..., Any]


def test_it_speaks(found: Ask, event: Make, launched: Make) -> None:
    compiling = event("compile_fx_inner (dynamo_timed)", 20, 60, cat="user_annotation")
    (finding,) = found("recompilation", [*launched(1, 0, 5), compiling, *launched(2, 90, 95)])
    assert finding.at_stake_ns == 60_000


def test_running_compiled_code_is_silent(found: Ask, event: Make, launched: Make) -> None:
    running = event("Torch-Compiled Region: 0/0", 20, 60)
    assert found("recompilation", [*launched(1, 0, 5), running, *launched(2, 90, 95)]) == []
