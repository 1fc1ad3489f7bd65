"""Pictures: what the app shows, as an SVG that holds nothing else."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.docs.test_reference import DOCS, script
from tests.hostile import FILE_NAME, obeyed, write_trace
from tests.tui.prepared import drawn as lines_of

from fusetui.command_line.file_commands import PICTURED
from fusetui.commands.sources import one_trace
from fusetui.trace import open_trace
from fusetui.tui import pictures, registry
from fusetui.tui.pictures import BASE_LINE, CELL_WIDTH, LINE_HEIGHT, MARGIN, SHAPES
from fusetui.tui.state.state import Size

Run = Callable[..., Any]
EAGER, COMPILED = "lesson:mlp-eager", "lesson:mlp-compiled"
SVG = "{http://www.w3.org/2000/svg}"


def texts_of(svg: str) -> dict[tuple[int, int], str]:
    """Each text by the line and the cell in which it begins."""
    return {
        (
            round((float(text.attrib["y"]) - BASE_LINE - MARGIN) / LINE_HEIGHT),
            round((float(span.attrib["x"]) - MARGIN) / CELL_WIDTH),
        ): span.text or ""
        for text in ElementTree.fromstring(svg).iter(f"{SVG}text")
        for span in text
    }


def test_pages_are_those_of_the_app() -> None:
    """But for those of ranks, of memory snapshots and of flight-recorder dumps: of a
    trace they show nothing."""
    assert {*PICTURED, "ranks", "memory", "hang"} == {
        page.name for page in registry.PAGES
    }


@pytest.mark.parametrize("page", PICTURED)
def test_a_picture_has_the_texts_of_the_page(page: str) -> None:
    names = [EAGER, COMPILED] if page == "diff" else [EAGER]
    traces = [open_trace(one_trace(name)) for name in names]
    state = pictures.shown(traces, names, page, Size(100, 30))
    assert state.page == page
    lines = lines_of(state).split("\n")[1:-1]
    assert len(lines) == 30
    seen = [[" "] * 100 for _ in lines]
    for (y, x), text in texts_of(pictures.drawn(state, True, page)).items():
        seen[y][x : x + len(text)] = text
    without = str.maketrans(dict.fromkeys(SHAPES, " "))
    assert ["".join(line) for line in seen] == [
        line.translate(without) for line in lines
    ]


def test_names_are_text(fusetui: Run, tmp_path: Path) -> None:
    """Whatever a trace holds: no control character, no element, no address."""
    markup = "</text><script>alert(1)</script><image href='http://x/'/>&lt;"
    trace = write_trace(tmp_path / "a.json", [markup])
    out = tmp_path / "out.html"
    assert fusetui("picture", str(trace), str(out), "--size=200x60").code == 0
    page = out.read_text()
    svg = page[page.index("<svg") : page.index("</svg>") + 6]
    used = {one.tag.removeprefix(SVG) for one in ElementTree.fromstring(svg).iter()}
    assert used <= {"svg", "title", "rect", "path", "text", "tspan"}
    assert any("</text><scr" in text for text in texts_of(svg).values())
    loads = {"href", "src", "style", "class"}
    assert not [
        one for one in ElementTree.fromstring(svg).iter() if loads & {*one.attrib}
    ]
    assert page[: page.index("<svg")].count("<script") == page.count("<script>") == 0
    hostile = write_trace(tmp_path / f"{FILE_NAME}.json")
    assert (
        fusetui("picture", str(hostile), str(tmp_path / "b.svg"), "--size=200x60").code
        == 0
    )
    assert obeyed((tmp_path / "b.svg").read_text()) == set()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_web_page_around_a_picture_has_its_color_scheme(
    fusetui: Run, tmp_path: Path, scheme: str
) -> None:
    out = tmp_path / "out.html"
    assert fusetui("picture", EAGER, str(out), f"--{scheme}").code == 0
    assert f'<meta name="color-scheme" content="{scheme}">' in out.read_text()


def test_a_part_fills_the_window(fusetui: Run, tmp_path: Path) -> None:
    whole, part = tmp_path / "whole.svg", tmp_path / "part.svg"
    assert fusetui("picture", EAGER, str(whole)).code == 0
    assert (
        fusetui("picture", EAGER, str(part), "--range", "0.8ms..1.4ms", "--dark").code
        == 0
    )
    ruler = [text for (y, _), text in texts_of(part.read_text()).items() if y == 3]
    assert re.findall(r"[0-9.]+ [mu]s", " ".join(ruler))[0] == "800 us"
    assert "800 us" not in whole.read_text()
    assert 'fill="#121212"' in part.read_text()
    assert 'fill="#ffffff"' in whole.read_text()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["out.txt"], ".svg, .png or .html"),
        (["out.svg", "--page=diff"], "two fully loaded traces"),
        (["out.svg", "--page=why", "--step=3"], "--page timeline"),
        (["out.svg", "--range=3"], "takes two times"),
        (["out.svg", "--size=20x5"], "takes columns and lines"),
    ],
)
def test_wrong_picture_arguments_are_one_sentence(
    wrong: list[str],
    said: str,
    fusetui: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    told = fusetui("picture", EAGER, *wrong)
    assert (told.code, told.out) == (2, "")
    assert said in told.err
    assert len(told.err.splitlines()) == 1
    assert not [*tmp_path.iterdir()]


def test_a_png_is_as_wide_as_asked(fusetui: Run, tmp_path: Path) -> None:
    pytest.importorskip("resvg_py", reason="a PNG is made by resvg")
    out = tmp_path / "out.png"
    assert fusetui("picture", EAGER, str(out), "--pixels=800").code == 0
    head = out.read_bytes()[:24]
    assert head[1:4] == b"PNG"
    assert struct.unpack(">I", head[16:20]) == (800,)


def test_a_png_needs_a_package(
    fusetui: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "resvg_py", None)
    told = fusetui("picture", EAGER, str(tmp_path / "out.png"))
    assert told.code == 2
    assert "fusetui[picture]" in told.err
    assert not [*tmp_path.iterdir()]


def test_the_pictures_of_the_docs_are_those_of_this_code() -> None:
    for name, svg in script("pictures").pages():
        assert (DOCS / "pictures" / name).read_text(encoding="utf-8") == svg, (
            "run make pictures"
        )
