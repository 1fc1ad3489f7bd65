"""The command line of what is on the screen: it gives the same figures, and a shell reads
it as it was meant."""

from __future__ import annotations

import csv
import io
import json
import shlex
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.snapshots import trained
from tests.tui.driving import opened, screen, settled
from tests.tui.prepared import after, do, explained, remembered
from tests.tui.prepared import opened as opened_state

from fusetui.cli import run
from fusetui.sample_traces import lessons
from fusetui.trace import open_trace
from fusetui.trace.layout.steps import steps_of
from fusetui.tui import registry
from fusetui.tui.pages.kernels import show_only_group, shown_table
from fusetui.tui.pages.overlays import OVERLAYS
from fusetui.tui.shell_lines import NO_PASSWORD, make_shell_command
from fusetui.tui.state import search
from fusetui.tui.state.commands import obeyed
from fusetui.tui.state.session import Range
from fusetui.tui.state.state import ShownCommand, Size, State

A, B = (str(lessons.path(name)) for name in ("mlp-eager", "mlp-compiled"))
HOSTILE = "-it's $(touch pwned) `x`; \x1b[31m \n a.json.gz"
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def lesson() -> State:
    """A trace whose answer is known."""
    return explained(opened_state(open_trace(A), paths=(A,)))


def figures(state: State, capsys: Capture, *options: str) -> Any:
    """What the command line of a state prints as CSV or JSON."""
    line = make_shell_command(state).line
    program, *words = shlex.split(line)
    assert program == "fusetui"
    capsys.readouterr()
    assert run([*words, *options]) == 0
    out = capsys.readouterr().out
    if "--json" in options:
        return json.loads(out)
    return [*csv.DictReader(io.StringIO(out))]


@pytest.mark.parametrize("by", ["name", "kind", "stream", "op", "step"])
def test_groups_of_kernels_have_the_same_totals(
    lesson: State, capsys: Capture, by: str
) -> None:
    state = after(lesson, *do("kernels"))
    state = replace(state, kernels=replace(state.kernels, by=by))
    rows = figures(state, capsys, "--format=csv")
    table = shown_table(state)
    assert table.by == by
    ours = sorted(table.totals.tolist())
    assert sorted(int(row["total_ns"]) for row in rows) == ours


@pytest.mark.parametrize("by", ["kind", "library", "stream", "op", "step"])
def test_kernels_that_were_drilled_into_have_the_same_total(
    lesson: State, capsys: Capture, by: str
) -> None:
    """The groups of a kind or a library, else the kernels of the group."""
    state = after(lesson, *do("kernels"))
    state = replace(state, kernels=replace(state.kernels, by=by))
    for _ in range(len(shown_table(state)) - 1):
        state = after(state, *do("row-down"))
    now = after(state, show_only_group)
    assert now.kernels.only
    rows = figures(now, capsys, "--format=csv")
    column = "total_ns" if "total_ns" in rows[0] else "dur_ns"
    total = sum(int(row[column]) for row in rows)
    assert total == shown_table(now).whole_ns < shown_table(lesson).whole_ns or (
        len(shown_table(state)) == 1
    )


def test_a_filter_without_a_command_is_said(lesson: State) -> None:
    state = after(lesson, *do("kernels"))
    state = replace(state, kernels=replace(state.kernels, by="module"))
    now = after(state, show_only_group)
    command = make_shell_command(now)
    assert command.notes == (
        "No command has the filter by module: this one has all kernels.",
    )


def test_a_step_and_a_range_have_their_own_breakdown(
    lesson: State, capsys: Capture
) -> None:
    state = after(lesson, *do("timeline"), partial(obeyed, line="step 2"))
    number = steps_of(state.side.trace).numbers[0]
    document = figures(state, capsys, "--json", "--no-worth")
    assert document["about"].endswith(f"#{number}")
    begin = state.side.trace.begin_ns
    chosen = Range(0, begin + 100_000, begin + 900_000, ended=True)
    ranged = replace(state, session=replace(state.session, time_range=chosen))
    document = figures(ranged, capsys, "--json", "--no-worth")
    (device,) = document["devices"]
    assert device["span_ns"] == 800_000


def test_hits_are_the_slices_of_the_search(lesson: State, capsys: Capture) -> None:
    query = "kind:gemm dur>180us"
    state = after(lesson, partial(search.searched, text=query), *do("hits"))
    assert state.session.hits is not None
    rows = figures(state, capsys, "--format=csv")
    assert [int(row["row"]) for row in rows] == state.session.hits.rows.tolist()


def test_steps_and_flame_graph_and_diff(lesson: State, capsys: Capture) -> None:
    steps = figures(after(lesson, *do("steps")), capsys, "--format=csv")
    assert len(steps) == len(steps_of(lesson.side.trace))
    flamed = after(lesson, *do("flame", "flame-time"))
    assert make_shell_command(flamed).line.endswith(" --of=ops --time=cpu")
    pair = opened_state(open_trace(A), open_trace(B), paths=(A, B))
    document = figures(replace(pair, page="diff"), capsys, "--json")
    assert (document["a"], document["b"]) == ("mlp-eager", "mlp-compiled")


def test_the_moment_of_a_snapshot_is_that_of_the_cursor(
    tmp_path: Path, capsys: Capture
) -> None:
    state = remembered(State(), trained(tmp_path))
    assert state.memory is not None
    view = replace(state.memory.view, at=40)
    shown = replace(state.memory, views=(view,))
    state = replace(state, memory=shown, page="memory")
    assert shown.view.at != shown.moments(0).history.peak_index
    (device,) = figures(state, capsys, "--json")["devices"]
    assert device["at_index"] == shown.view.at
    assert device["at_allocated_bytes"] == int(
        shown.moments(0).history.allocated[shown.view.at + 1]
    )


def test_every_page_has_a_command_that_the_parser_takes(lesson: State) -> None:
    from fusetui.command_line.parser import command_parsers

    for page in registry.PAGES:
        if page.name in ("hang", "ranks", "memory"):
            continue  # nothing of theirs is open
        _, name, *words = shlex.split(
            make_shell_command(replace(lesson, page=page.name)).line
        )
        command_parsers(name)[name].parse_args(words)


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_a_hostile_name_is_one_word_of_a_shell(lesson: State, tmp_path: Path) -> None:
    line = make_shell_command(replace(lesson, page="why", paths=(HOSTILE,))).line
    assert line.isprintable()
    script = f'fusetui() {{ printf "%s\\0" "$@"; }}; {line}'
    printed = subprocess.run(
        ["bash", "-c", script], capture_output=True, check=True, cwd=tmp_path
    )
    assert printed.stdout.decode().split("\0")[:-1] == ["why", f"./{HOSTILE}"]
    assert not [*tmp_path.iterdir()]


def test_captures_that_were_named_are_named_again(lesson: State) -> None:
    named = replace(lesson, captured_by=("c d.json", "annotations:a.pkl"))
    line = make_shell_command(replace(named, page="modules")).line
    assert shlex.split(line)[-2:] == ["--captured-by=c d.json", "--annotations=a.pkl"]


def test_a_password_is_never_shown(lesson: State) -> None:
    url = "https://me:secret@host/a.json?sig=hidden"
    command = make_shell_command(replace(lesson, page="why", paths=(url,)))
    assert "secret" not in command.line
    assert "hidden" not in command.line
    assert command.notes == (NO_PASSWORD,)


def test_a_screen_of_one_cell_has_room_for_an_overlay(lesson: State) -> None:
    tiny = replace(lesson, size=Size(1, 1), overlay=ShownCommand("fusetui why a.json"))
    assert OVERLAYS.rows(tiny).count > 1


async def test_the_line_is_shown_and_copied() -> None:
    async with opened([A], (160, 30)) as (app, pilot):
        await pilot.press("3", "colon", *"shell", "enter")
        await settled(app, pilot)
        overlay = app.state.overlay
        assert isinstance(overlay, ShownCommand)
        assert overlay.line == f"fusetui kernels {A} --by=name --top=0"
        await pilot.pause(0.1)
        assert "fusetui kernels " in screen(app)
        await pilot.press("y")
        assert app.clipboard == overlay.line
        await pilot.press("escape")
        assert app.state.overlay is None
