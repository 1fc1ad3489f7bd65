"""`fusetui cut`: which part, and what is said of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
LESSON = "lesson:mlp-eager"


def part(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())["cut_from"]
    return found


def test_cut_step_writes_that_step_with_its_figures(
    fusetui: Run, tmp_path: Path
) -> None:
    out = tmp_path / "step.json"
    found = fusetui("cut", LESSON, out, "--step", 2)
    assert (found.code, found.err) == (0, "")
    assert found.out.startswith(f"{out}: ")
    whole = fusetui("why", LESSON, "--step", 2, "--json").json["devices"]
    begin, end = (str(part(out)[key]) for key in ("from_ns", "to_ns"))
    assert (
        fusetui("why", LESSON, "--from", begin, "--to", end, "--json").json["devices"]
        == whole
    )
    assert "This trace is the part" in fusetui("summary", out).out


def test_cut_from_to_writes_that_time(fusetui: Run, tmp_path: Path) -> None:
    out = tmp_path / "time.json"
    assert fusetui("cut", LESSON, out, "--from", "1ms", "--to", "1.5ms").code == 0
    assert (part(out)["from_ns"], part(out)["to_ns"]) == (1_000_000, 1_500_000)


def test_a_steady_step_is_not_the_first(fusetui: Run, tmp_path: Path) -> None:
    out = tmp_path / "steady.json"
    assert fusetui("cut", LESSON, out, "--steady").code == 0
    assert part(out)["from_ns"] > 0


def test_cut_around_writes_the_time_of_a_slice(fusetui: Run, tmp_path: Path) -> None:
    out = tmp_path / "around.json"
    assert fusetui("cut", LESSON, out, "--around", 3).code == 0
    assert part(out)["to_ns"] > part(out)["from_ns"]


def test_cut_scrub_writes_nothing_private(
    fusetui: Run, tmp_path: Path, trace_file: Callable[..., Path]
) -> None:
    path = trace_file("private.json")
    document = json.loads(path.read_text())
    document["host_name"] = "box17"
    path.write_text(json.dumps(document))
    out = tmp_path / "out.json"
    assert fusetui("cut", path, out, "--from", "0ns", "--scrub").code == 0
    assert "box17" not in out.read_text()
    assert "private.json" not in out.read_text()
    assert sorted(tmp_path.iterdir()) == [out, path]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "Specify a part: --step N, --from T --to T, --around ROW or --steady."),
        (("--step", 2, "--steady"), "Specify only one part"),
        (("--step", 99), "has no step 99"),
        (("--around", 10**9), "There is no row"),
        (("--from", "10s"), "The window is empty"),
    ],
)
def test_cut_of_a_missing_step_or_time_is_refused(
    fusetui: Run, tmp_path: Path, arguments: tuple[Any, ...], says: str
) -> None:
    out = tmp_path / "out.json"
    found = fusetui("cut", LESSON, out, *arguments)
    assert found.code == 2
    assert says in found.sentence
    assert not out.exists()


@pytest.mark.parametrize("more", [[], ["--scrub"]])
def test_why_of_a_step_cut_out_once_or_twice_equals_that_of_the_whole(
    fusetui: Run, tmp_path: Path, more: list[str]
) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    assert fusetui("cut", LESSON, first, "--step", 3, *more).code == 0
    assert fusetui("cut", first, second, "--step", 3, *more).code == 0
    (whole,) = fusetui("why", LESSON, "--step", 3, "--json").json["steps"]
    for out in (first, second):
        (step,) = fusetui("why", out, "--json").json["steps"]
        assert step["name"] == whole["name"]
        assert step["dur_ns"] == whole["dur_ns"]
        assert step["devices"][0]["idle"] == whole["devices"][0]["idle"]


def test_a_piece_of_a_step_is_no_step(fusetui: Run, tmp_path: Path) -> None:
    out = tmp_path / "piece.json"
    assert fusetui("cut", LESSON, out, "--from", "900us", "--to", "1.2ms").code == 0
    assert fusetui("why", out, "--json").json["steps"] == []


def test_perfetto_gets_what_cut_writes(fusetui: Run, tmp_path: Path) -> None:
    """And a sentence about how to open it."""
    cut, part = tmp_path / "cut.json", tmp_path / "part.json"
    assert (
        fusetui("cut", "lesson:mlp-eager", cut, "--from=0.8ms", "--to=1.4ms").code == 0
    )
    told = fusetui("perfetto", "lesson:mlp-eager", part, "--at=0.8ms..1.4ms")
    assert (told.code, part.read_bytes()) == (0, cut.read_bytes())
    assert "ui.perfetto.dev" in told.out
    whole = fusetui("perfetto", "lesson:mlp-eager", tmp_path / "whole.json")
    assert (whole.code, (tmp_path / "whole.json").exists()) == (2, False)
