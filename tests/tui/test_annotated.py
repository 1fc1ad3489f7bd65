"""Replayed kernels with the modules that annotations name, in the app."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.analysis.servers import Event, Server, call, gpu, save
from tests.finding import find
from tests.trace.program.test_dependencies import flow
from tests.tui.driving import LARGE, opened, screen, selected, settled
from tests.tui.test_captured import sides_of

from fusetui.analysis.graphs.captures import NODE_ID
from fusetui.trace import open_trace
from fusetui.trace.model.joined import Joined
from fusetui.trace.model.report import never
from fusetui.trace.program.backward import dependencies
from fusetui.tui import loading, registry
from fusetui.tui.background_results import compute_pieces
from fusetui.tui.state.search import show_row

SERVER = Server(hip=False)


@pytest.fixture
def annotated(tmp_path: Path) -> str:
    step = SERVER.step(4, 0, 1)
    for n, event in enumerate(step[2:], 1):
        event["args"] |= {"graph id": 5, "graph node id": n, "name": f"L.{min(n, 3)}"}
    return str(save(tmp_path / "replay.json", step))


async def test_app_says_that_modules_are_by_annotations(annotated: str) -> None:
    async with opened([annotated], LARGE) as (app, _):
        text = screen(app)
    assert "modules of graph kernels from annotations" in text
    assert "captured" not in text


async def test_annotated_kernel_shows_its_module_without_recorded_times(
    annotated: str,
) -> None:
    """Times that nobody recorded are not shown."""
    async with opened([annotated], LARGE) as (app, pilot):
        await pilot.press("6")
        line = next(line for line in screen(app).splitlines() if "L.*" in line)
        assert "100 %" in line
        await pilot.press("enter")
        await settled(app, pilot)
        assert selected(app) in {launch.kernel for launch in SERVER.launches(4)}
        assert "in L > L." in screen(app)
        app.do(registry.details)
        await settled(app, pilot)
        text = screen(app)
    own = [line.strip(" │|") for line in text.splitlines() if "annotation L" in line]
    assert len(own) == 2
    assert all(
        line.split()[0] == "annotation" and len(line.split()) == 2 for line in own
    )
    assert "captured by" not in text


def three_nodes(*more: Event) -> list[Event]:
    """A replay of the nodes one, two and six, each 10 us long and 1 us after the one
    before."""
    nodes = [
        gpu(name, 20 + 11 * n, 10, 1) for n, name in enumerate(("one", "two", "six"))
    ]
    for number, node in enumerate(nodes, 1):
        node["args"] |= {NODE_ID: number}
    return [call("cudaGraphLaunch", 0, 5, 1), *nodes, *more]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("one", ["before: two"]),
        ("two", ["after: one", "before: six"]),
        ("six", ["after: two"]),
    ],
)
async def test_details_of_a_node_list_what_it_waits_for(
    tmp_path: Path, name: str, told: list[str]
) -> None:
    path = save(tmp_path / "a.json", three_nodes(*flow(0, 30, 31), *flow(1, 41, 42)))
    async with opened([str(path)], LARGE) as (app, pilot):
        await settled(app, pilot)
        app.do(lambda state: show_row(state, int(find(state.side.trace, name)[0])))
        app.do(registry.details)
        await settled(app, pilot)
        lines = [line.strip(" │|") for line in screen(app).splitlines()]
    assert [line for line in lines if line.startswith(("after:", "before:"))] == told


def test_dependencies_are_read_where_nodes_have_numbers(tmp_path: Path) -> None:
    def made(path: Path) -> bool:
        found = compute_pieces(open_trace(str(path)), never)
        return any(isinstance(one, dict) and dependencies in one for one in found)

    assert made(save(tmp_path / "a.json", three_nodes()))
    assert not made(save(tmp_path / "b.json", Server().step(4, 0, 1)))


def test_the_trace_is_shown_before_its_args_are_read(annotated: str) -> None:
    posted: list[Any] = []
    loading.load([annotated], posted.append, never)
    shown = [sides_of(one) for one in posted if sides_of(one)]
    assert [isinstance(sides[0].trace, Joined) for sides in shown] == [False, True]
