"""The page in front as a picture: of every page, whole or not at all."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace
from tests.snapshots import trained
from tests.tui.driving import opened, screen, settled
from tests.tui.prepared import (
    after,
    drawn,
    dumps_of_two_groups,
    explained,
    remembered,
)
from tests.tui.prepared import opened as opened_state

from fusetui import Error
from fusetui.cli import run
from fusetui.sample_traces import lessons
from fusetui.trace import open_trace
from fusetui.tui import pictures, registry
from fusetui.tui.pictures import save_picture
from fusetui.tui.state.commands import obeyed
from fusetui.tui.state.state import Size, State

A, B = (str(lessons.path(name)) for name in ("mlp-eager", "mlp-compiled"))
SVG = "{http://www.w3.org/2000/svg}"


def texts_of(path: Path) -> str:
    """What can be read in an SVG."""
    root = ElementTree.parse(path).getroot()
    return "\n".join("".join(text.itertext()) for text in root.iter(f"{SVG}text"))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, State]:
    """All pages, each in front, by their names."""
    state = explained(opened_state(open_trace(A), open_trace(B), size=Size(120, 35)))
    folder = tmp_path_factory.mktemp("dumps")
    state = replace(state, hang=dumps_of_two_groups(folder))
    memory = remembered(State(), trained(folder)).memory
    state = replace(state, memory=memory)
    states = {}
    for page in registry.PAGES:
        states[page.name] = after(replace(state, page=page.name))
    return states


def test_every_page_is_drawn_with_what_is_on_the_screen(
    pages: dict[str, State], tmp_path: Path
) -> None:
    """In the words of the screen, without the bar of pages and the keys."""
    assert len(pages) == 10
    for name, state in pages.items():
        path = tmp_path / f"{name}.svg"
        save_picture(state, str(path), light=False)
        read = texts_of(path)
        lines = drawn(state).splitlines()[1:-1]
        words = {word for line in lines for word in line.split() if word.isalpha()}
        assert words, name
        assert [word for word in words if word not in read] == [], name
        assert "quit" not in read


def test_html_is_a_whole_document_without_scripts(
    pages: dict[str, State], tmp_path: Path
) -> None:
    path = tmp_path / "kernels.html"
    save_picture(pages["kernels"], str(path), light=True)
    content = path.read_text()
    assert content.startswith("<!DOCTYPE html>")
    assert content.endswith("</html>\n")
    assert "<script" not in content
    assert "<svg" in content


async def test_the_palette_asks_for_a_name_and_draws_as_the_command_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with opened([A], (160, 30)) as (app, pilot):
        await pilot.press("3", "ctrl+p", *"save picture", "down", "enter")
        await pilot.pause()
        assert screen(app).splitlines()[-1].strip() == "picture kernels.svg"
        await pilot.press("enter")
        await settled(app, pilot)
        assert app.state.hint.startswith("kernels.svg: the page Kernels, ")
        size = app.state.size
    command = ["picture", A, "theirs.svg", "--page=kernels", "--dark"]
    assert run([*command, f"--size={size.width}x{size.height}"]) == 0
    theirs = texts_of(Path("theirs.svg")).split()
    ours = texts_of(Path("kernels.svg")).split()
    assert [word for word in ours if word not in theirs] == []


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("picture", "picture takes the name of a new file: picture page.svg"),
        ("picture a.gif", "a.gif must end in .svg, .png or .html."),
        ("picture there.svg", "there.svg already exists"),
        ("picture nowhere/a.svg", "no such folder"),
    ],
)
async def test_a_picture_that_cannot_be_drawn_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.svg").write_text("mine")
    async with opened([A], (160, 30)) as (app, pilot):
        app.do(partial(obeyed, line=line))
        await settled(app, pilot)
        assert sentence in app.state.hint
    assert Path("there.svg").read_text() == "mine"
    assert [*tmp_path.iterdir()] == [tmp_path / "there.svg"]


def test_a_png_without_its_package_is_one_sentence(
    pages: dict[str, State], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(Error, match="A PNG needs resvg_py: pip install"):
        save_picture(pages["why"], str(tmp_path / "why.png"), light=True)
    assert not [*tmp_path.iterdir()]


def test_a_failure_while_it_is_drawn_leaves_nothing(
    pages: dict[str, State], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> str:
        raise Error("no")

    monkeypatch.setattr(pictures, "drawn", fail)
    with pytest.raises(Error, match="no"):
        save_picture(pages["why"], str(tmp_path / "why.svg"), light=True)
    assert not [*tmp_path.iterdir()]
