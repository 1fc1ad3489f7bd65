"""Tables and parts of traces that the app writes to files."""

from __future__ import annotations

import csv
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.tui.driving import opened, screen, settled
from textual.pilot import Pilot

import fusetui
from fusetui.cli import run
from fusetui.sample_traces import lessons
from fusetui.tables import files
from fusetui.text.figures import size
from fusetui.trace import open_trace
from fusetui.tui.app import FusetuiApp
from fusetui.tui.pages.overlays import OVERLAYS
from fusetui.tui.state import search
from fusetui.tui.state.commands import obeyed
from fusetui.tui.state.session import Range
from fusetui.tui.state.state import HitList

LESSON = str(lessons.path("mlp-eager"))
NAMED = ("name", "total_ns", "count", "median_ns", "min_ns", "max_ns")


async def test_the_palette_asks_for_a_name_and_saves_the_rows_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same figures as those of the command."""
    monkeypatch.chdir(tmp_path)
    async with opened([LESSON]) as (app, pilot):
        await pilot.press("3", "ctrl+p", *"save this", "down", "enter")
        await pilot.pause()
        assert screen(app).splitlines()[-1].strip() == "save kernels.csv"
        await pilot.press("enter")
        await settled(app, pilot)
        assert "kernels.csv: 4 rows, " in screen(app)
    with open("kernels.csv", newline="") as file:
        rows = [{name: row[name] for name in NAMED} for row in csv.DictReader(file)]
    table = fusetui.open(LESSON).kernels.select(NAMED)
    assert rows == [{name: str(value) for name, value in row.items()} for row in table]


@pytest.mark.parametrize("line", ["save kernels.csv", "cut part.json.gz"])
async def test_saving_examples_of_the_guide_write_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert f"* `{line}`: " in (Path(__file__).parents[2] / "docs/guide.md").read_text()
    async with opened([LESSON]) as (app, pilot):
        await pilot.press("v", "d", "v", "3", "colon", *line, "enter")
        await settled(app, pilot)
    assert Path(line.split()[1]).stat().st_size > 100


async def saved(app: FusetuiApp, pilot: Pilot[int], path: Path) -> list[dict[str, str]]:
    """The rows that `:save` writes for what is on the screen."""
    app.do(partial(obeyed, line=f"save {path}"))
    await settled(app, pilot)
    with open(path, newline="") as file:
        return [*csv.DictReader(file)]


async def test_hits_are_saved_and_copied_with_full_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the table of slices has them; the list stays."""
    monkeypatch.chdir(tmp_path)
    slices = fusetui.open(LESSON).slices
    named = [row for row in slices if "gemm" in str(row["name"])]
    async with opened([LESSON], (160, 30)) as (app, pilot):
        app.do(partial(search.searched, text="kind:gemm kind:kernel"))
        await settled(app, pilot)
        await pilot.press("T")
        rows = await saved(app, pilot, Path("hits.csv"))
        assert len(rows) == len(named) > 1
        for row, slice_row in zip(rows, named, strict=True):
            for column in ("name", "lane", "row", "start_ns", "dur_ns"):
                assert row[column] == str(slice_row[column])
        assert "hits.csv: 9 rows" in OVERLAYS.rows(app.state).titles(120)
        await pilot.press("down", "y")
        copied = app.clipboard.split("\n")[1].split("\t")
        assert copied == list(rows[1].values())
        await pilot.press("colon", *"save typed.md", "enter")
        await settled(app, pilot)
        assert Path("typed.md").read_text().count("\n") == len(rows) + 2


async def test_steps_are_saved_with_their_numbers(tmp_path: Path) -> None:
    steps = fusetui.open(LESSON).steps
    async with opened([LESSON], (160, 30)) as (app, pilot):
        await pilot.press("C")
        assert isinstance(app.state.overlay, HitList)
        assert app.state.overlay.steps is not None
        rows = await saved(app, pilot, tmp_path / "steps.csv")
        await pilot.press("y")
        assert app.clipboard.startswith("name\tnumber\tstart_ns\tdur_ns\n")
    assert len(rows) == len(steps) > 1
    for row, step in zip(rows, steps, strict=True):
        assert row == {name: str(step[name]) for name in row}


async def test_findings_gaps_and_marks_are_saved(tmp_path: Path) -> None:
    findings = fusetui.open(LESSON).findings
    async with opened([LESSON], (160, 30)) as (app, pilot):
        await pilot.press("5")
        rows = await saved(app, pilot, tmp_path / "why.csv")
        by_what = {row["what"]: row for row in rows}
        assert {row["name"] for row in rows if row["what"] == "finding"} == {
            finding["rule"] for finding in findings
        }
        assert int(by_what["gap"]["bound_ns"]) > 0
        await pilot.press("1")
        app.do(partial(obeyed, line="mark b slow, here"))
        app.do(partial(obeyed, line="mark a"))
        marks = await saved(app, pilot, tmp_path / "marks.csv")
        assert [(mark["mark"], mark["note"]) for mark in marks] == [
            ("a", ""),
            ("b", "slow, here"),
        ]
        view = app.state.view
        assert int(marks[0]["dur_ns"]) == view.end - view.begin


async def test_blocks_of_the_flame_graph_are_saved_as_stacks_has_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Self times by name add up to those of `fusetui stacks`."""
    assert run(["stacks", LESSON, "--folded"]) == 0
    lines = capsys.readouterr().out.splitlines()
    folded = sum(int(line.rpartition(" ")[2]) for line in lines)
    async with opened([LESSON], (160, 30)) as (app, pilot):
        await pilot.press("8")
        rows = await saved(app, pilot, tmp_path / "flame.csv")
    assert sum(int(row["time_ns"]) for row in rows if row["level"] == "0") == folded
    names = {row["name"] for row in rows}
    assert {name for line in lines for name in line.rpartition(" ")[0].split(";")} == (
        names
    )


async def test_every_table_is_saved_in_every_format(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    sizes = {}
    async with opened([LESSON, str(lessons.path("mlp-compiled"))]) as (app, pilot):
        app.do(partial(obeyed, line="mark a"))
        for page in ("1", "2", "3", "4", "5", "6", "8"):
            await pilot.press(page)
            for ending in ("csv", "tsv", "md", "json", "parquet"):
                path = tmp_path / f"page-{page}.{ending}"
                app.do(partial(obeyed, line=f"save {path}"))
                await settled(app, pilot)
                sizes[path.name] = path.stat().st_size if path.exists() else 0
    assert [name for name, size in sizes.items() if size <= 20] == []


@pytest.mark.parametrize(
    ("keys", "line", "sentence"),
    [
        ("3", "save", "save takes the name of a new file"),
        (
            "3",
            "save kernels.xls",
            "its name must end in .csv, .tsv, .md, .json, .parquet",
        ),
        ("3", "save there.csv", "there.csv already exists"),
        ("3", "save nowhere/kernels.csv", "no such folder"),
        ("1", "save marks.csv", "there is no mark to save: m and a letter sets one"),
        (
            "1",
            "cut part.json",
            "This needs a time range: press v at its start and at its end",
        ),
        ("13", "cut", "This needs a time range: press v at its start and at its end"),
    ],
)
async def test_save_that_cannot_be_done_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: str, line: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.csv").write_text("mine")
    async with opened([LESSON], (160, 30)) as (app, pilot):
        await pilot.press(*keys)
        app.do(partial(obeyed, line=line))
        await settled(app, pilot)
        assert sentence in screen(app)
    assert Path("there.csv").read_text() == "mine"
    assert [*tmp_path.iterdir()] == [tmp_path / "there.csv"]


async def test_a_full_disk_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(files.TEXTS, "csv", full)
    async with opened([LESSON], (160, 30)) as (app, pilot):
        await pilot.press("3")
        app.do(partial(obeyed, line=f"save {tmp_path}/kernels.csv"))
        await settled(app, pilot)
        assert "cannot be written: no space left on device" in screen(app)
    assert not [*tmp_path.iterdir()]


async def test_a_part_is_that_of_the_command(tmp_path: Path) -> None:
    """Byte for byte, of the second side of two as well."""
    trace = open_trace(LESSON)
    begin, end = 100_000, 900_000
    theirs, ours = tmp_path / "theirs.json", tmp_path / "ours.json"
    assert run(["cut", LESSON, str(theirs), f"--from={begin}", f"--to={end}"]) == 0
    chosen = Range(0, trace.begin_ns + begin, trace.begin_ns + end, ended=True)
    async with opened([LESSON], (160, 30)) as (app, pilot):
        app.do(lambda s: replace(s, session=replace(s.session, time_range=chosen)))
        app.do(partial(obeyed, line=f"cut {ours}"))
        await settled(app, pilot)
        assert app.state.hint.startswith(f"{ours}: {size(ours.stat().st_size)}, ")
        assert "slices" in app.state.hint
        app.do(partial(obeyed, line=f"cut {ours}"))
        await settled(app, pilot)
        assert (
            app.state.hint == f"{ours} already exists: choose another name, or move it."
        )
    assert ours.read_bytes() == theirs.read_bytes()


async def test_the_script_of_the_selected_slice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is that of the command; `R` asks for its name."""
    monkeypatch.chdir(tmp_path)
    async with opened([LESSON], (160, 30)) as (app, pilot):
        await pilot.press("R")
        assert "This needs a slice: select one in the timeline" in screen(app)
        app.do(partial(search.searched, text="aten::gelu"))
        await settled(app, pilot)
        row = app.state.view.selected
        await pilot.press("R", "enter")
        await settled(app, pilot)
        assert f"reproduce-{row}.py: aten::gelu, " in app.state.hint
    ours = Path(f"reproduce-{row}.py").read_bytes()
    command = ["reproduce", LESSON, f"--row={row}", "--out=theirs.py"]
    assert run(command) == 0
    assert Path("theirs.py").read_bytes() == ours
