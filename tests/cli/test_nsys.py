"""Commands on exports of Nsight Systems."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

COMMANDS = (
    "summary",
    "kernels",
    "why",
    "gaps",
    "ops",
    "modules",
    "launches",
    "serving",
    "lines",
)
Run = Callable[..., Any]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_question_is_answered(
    fusetui: Run, any_export: Path, command: str
) -> None:
    found = fusetui(command, any_export)
    assert found.code == 0
    assert found.out
    assert "Traceback" not in found.err


@pytest.mark.parametrize("command", ["modules", "lines", "why"])
def test_stacks_missing_from_an_nsys_file_are_advised_for_torch_profiler_only(
    fusetui: Run, any_export: Path, command: str
) -> None:
    """No option of torch.profiler alone would record it."""
    out = " ".join(fusetui(command, any_export).out.split())
    assert out.count("with_stack=True") == out.count(
        "torch.profiler.profile(with_stack=True)"
    )
    assert "record_function" not in out


def test_a_diff_with_itself_finds_no_change(fusetui: Run, any_export: Path) -> None:
    found = fusetui("diff", any_export, any_export)
    assert found.code == 0
    assert "by work: no change" in found.out
    assert "by place: no change" in found.out


def test_diff_of_nsys_export_and_torch_trace_answers(
    fusetui: Run, any_export: Path
) -> None:
    found = fusetui("diff", any_export, "lesson:mlp-eager")
    assert found.code == 0
    assert "GPU busy" in found.out


def test_a_conversion_says_the_same(
    fusetui: Run, any_export: Path, tmp_path: Path
) -> None:
    out = tmp_path / "converted.json.gz"
    assert fusetui("convert", any_export, out).code == 0
    found = fusetui("diff", any_export, out)
    assert "by work: no change" in found.out
    assert "by place: no change" in found.out
