"""docs/memory.md shows what the command prints of real files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import fusetui
from tests.places import ROOT
from tests.real.traces import SNAPSHOTS, TRACES, existing

PAGE = (ROOT / "docs" / "memory.md").read_text(encoding="utf-8")
SHOWN = (
    SNAPSHOTS / "gpt_fullstep_ctx128.pickle",
    TRACES / "h100_transformer_step.json.gz",
)


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.name)
def test_memory_page_shows_what_the_command_prints(
    fusetui: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    path: Path,
) -> None:
    monkeypatch.chdir(existing(path).parent)
    monkeypatch.setenv("COLUMNS", "90")
    _, _, after = PAGE.partition(f"$ fusetui memory {path.name}\n")
    shown, is_cut, _ = after.partition("```")[0].partition("...\n")
    printed = fusetui("memory", path.name).out
    assert printed.startswith(shown) if is_cut else printed == shown
