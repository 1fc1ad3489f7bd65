"""Commands on real exports of Nsight Systems."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.places import TRACES

FILES = sorted((TRACES.parent / "nsys").glob("*.sqlite"))
SMALLEST = sorted(FILES, key=lambda path: path.stat().st_size)[:1]
pytestmark = pytest.mark.skipif(
    not FILES, reason="needs real exports beside the real traces"
)
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


@pytest.fixture(params=SMALLEST, ids=lambda path: path.stem)
def path(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_every_question_is_answered(fusetui: Run, path: Path, command: str) -> None:
    found = fusetui(command, path)
    assert found.code == 0
    assert found.out
    assert "Traceback" not in found.err


@pytest.mark.parametrize("command", ["modules", "lines", "why"])
def test_stacks_missing_from_an_nsys_file_are_advised_for_torch_profiler_only(
    fusetui: Run, path: Path, command: str
) -> None:
    """No option of torch.profiler alone would record it."""
    out = " ".join(fusetui(command, path).out.split())
    assert out.count("with_stack=True") == out.count(
        "torch.profiler with with_stack=True"
    )
    assert "record_function" not in out


def test_a_diff_with_itself_finds_no_change(fusetui: Run, path: Path) -> None:
    found = fusetui("diff", path, path)
    assert found.code == 0
    assert "by work: no change" in found.out
    assert "by place: no change" in found.out


def test_diff_of_nsys_export_and_torch_trace_answers(fusetui: Run, path: Path) -> None:
    found = fusetui("diff", path, "lesson:mlp-eager")
    assert found.code == 0
    assert "GPU busy" in found.out


@pytest.mark.parametrize("command", ["summary", "why"])
def test_larger_exports_are_read_too(fusetui: Run, command: str) -> None:
    assert all(
        fusetui(command, path).code == 0 for path in FILES if path not in SMALLEST
    )


def test_processes_are_ranks(fusetui: Run) -> None:
    found = fusetui("ranks", "--json", FILES[-1]).json
    assert {rank["path"].rpartition("#")[2] for rank in found["ranks"]} == {
        "144",
        "145",
    }
    assert found["collectives"]


def test_a_conversion_says_the_same(fusetui: Run, path: Path, tmp_path: Path) -> None:
    out = tmp_path / "converted.json.gz"
    assert fusetui("convert", path, out).code == 0
    found = fusetui("diff", path, out)
    assert "by work: no change" in found.out
    assert "by place: no change" in found.out
