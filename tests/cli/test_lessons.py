"""Lessons on the command line: they open by their names and never pass for
recordings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fusetui.command_line.parser import command_parsers
from fusetui.sample_traces import lessons

Run = Callable[..., Any]
SAID = "Reconstructed, not recorded"
MORE = {
    "check": ["--expect", "kernels=5 gemm=3"],
    "diff": ["lesson:mlp-compiled"],
    "whatif": ["family:gemm x0.5"],
}
ASKED = sorted(
    name
    for name, parser in command_parsers().items()
    if any(
        option == "--json"
        for action in parser._actions
        for option in action.option_strings
    )
    and any(
        action.dest in ("trace", "a") and not action.option_strings
        for action in parser._actions
    )
)
"""Every command that answers with figures of a trace."""


def words(command: str, trace: str) -> list[str]:
    return [command, trace, *MORE.get(command, [])]


def plain(text: str) -> str:
    return " ".join(text.split())


def test_commands_that_show_figures_are_all_asked() -> None:
    assert {"summary", "kernels", "ops", "check", "diff"} <= set(ASKED)


@pytest.mark.parametrize("command", ASKED)
def test_every_table_says_that_a_lesson_is_no_recording(
    fusetui: Run, command: str
) -> None:
    found = fusetui(*words(command, "lesson:mlp-eager"))
    assert found.code == 0
    assert not found.err
    assert SAID in plain(found.out)


@pytest.mark.parametrize("command", ASKED)
def test_every_document_says_so(fusetui: Run, command: str) -> None:
    found = fusetui(*words(command, "lesson:mlp-eager"), "--json").json
    assert SAID in str(found["notes" if command == "diff" else "note"])


def test_the_markdown_of_a_diff_says_so(fusetui: Run) -> None:
    assert (
        SAID
        in fusetui("diff", "lesson:mlp-eager", "lesson:mlp-liger", "--markdown").out
    )


def test_of_two_traces_one_note_is_enough_when_both_say_the_same(fusetui: Run) -> None:
    two = (
        ("why", "sample:mlp-eager", "lesson:mlp-eager"),
        ("why", *["lesson:mlp-eager"] * 2),
    )
    assert [plain(fusetui(*words).out).count(SAID) for words in two] == [1, 1]


@pytest.mark.parametrize("command", ["summary", "kernels", "ops"])
def test_a_recorded_trace_has_no_note(fusetui: Run, command: str) -> None:
    assert "note" not in fusetui(command, "sample:mlp-eager", "--json").json
    assert "! " not in fusetui(command, "sample:mlp-eager").out


def test_a_scrubbed_lesson_still_says_so(fusetui: Run, tmp_path: Path) -> None:
    assert fusetui("scrub", "lesson:mlp-eager", tmp_path / "out.json").code == 0
    assert SAID in plain(fusetui("kernels", tmp_path / "out.json").out)


def test_lesson_mlp_eager_has_the_published_kernels(fusetui: Run) -> None:
    found = fusetui("kernels", "lesson:mlp-eager", "--json").json["kernels"]
    assert [(kernel["count"], kernel["median_ns"]) for kernel in found] == [
        *((6, 190_000), (3, 170_000), (3, 89_400), (3, 59_600)),
    ]


def test_samples_lists_lessons_as_reconstructed(fusetui: Run) -> None:
    listed = fusetui("samples", "--json").json["lessons"]
    assert [lesson["name"] for lesson in listed] == lessons.names()
    assert all("reconstructed, not recorded" in lesson["shows"] for lesson in listed)
    assert "lesson:mlp-liger" in fusetui("samples").out


def test_unknown_lesson_is_refused_with_the_known_names(fusetui: Run) -> None:
    found = fusetui("summary", "lesson:nothing")
    assert found.code == 2
    assert "There is no lesson 'nothing', only linear-eager" in found.sentence


def test_a_diff_of_lessons_cannot_fail_a_build(fusetui: Run) -> None:
    found = fusetui(
        "diff", "lesson:linear-eager", "lesson:linear-compiled", "--fail-over", 5
    )
    assert found.code == 3
