"""Where in the program a kernel comes from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.hostile import WORST, obeyed
from tests.tui.explainable import training
from tests.tui.prepared import after, at, do, drawn, explained, opened

from fusetui.trace import Trace
from fusetui.tui.drawing.details import details, inner
from fusetui.tui.drawing.schemes import UNICODE
from fusetui.tui.pages.overlays import OVERLAYS

Make = Callable[..., Trace]


def test_the_chain_goes_on_to_frame_and_module(trace_of: Make) -> None:
    state = after(opened(trace_of(training())), at("ampere"))
    assert "my_model.py" not in drawn(state)
    assert "in Net_0 > Attention_0   my_model.py:40 forward" in drawn(
        after(state, explained)
    )


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("Net_0 > Attention_0", "Net_0 > Attention_0"),
        (
            "Model_0 > DecoderLayer_1 > MLP_1 > MergedColumnLinear_1",
            "… > DecoderLayer_1 > MLP_1 > MergedColumnLinear_1",
        ),
        ("Model_0 > " + "x" * 90, "… > " + "x" * 90),
    ],
)
def test_long_module_path_shows_its_inner_levels(path: str, shown: str) -> None:
    """The terminal may have room for little more than them."""
    assert inner(path) == shown


def test_all_details_list_every_frame(trace_of: Make) -> None:
    state = after(opened(trace_of(training())), explained, at("ampere"), *do("details"))
    rows = OVERLAYS.rows(state)
    text = "\n".join(
        "".join(t for t, _ in rows.format(n, 90)) for n in range(rows.count)
    )
    assert "module Attention_0" in text
    assert "main train.py:9" in text


@pytest.mark.parametrize("height", [6, 8, 11])
def test_the_facts_stay_where_there_is_little_room(trace_of: Make, height: int) -> None:
    side = after(opened(trace_of(training())), explained).side
    row = int(side.trace.gpu_rows[0])
    lines = details(side, row, 80, height, UNICODE)
    assert len(lines) <= height
    assert any("my_model.py:40" in line.text for line in lines)
    assert any(line.text.startswith("launched ") for line in lines)


def test_a_trace_without_stacks_has_no_line_for_it(mlp: Trace) -> None:
    state = opened(mlp)
    row = int(mlp.gpu_rows[0])
    known = details(after(state, explained).side, row, 80, 8, UNICODE)
    assert known == details(state.side, row, 80, 8, UNICODE)


def test_names_stay_printable(trace_of: Make) -> None:
    events: list[dict[str, Any]] = [
        {**e, "name": e["name"] + WORST} for e in training()
    ]
    state = after(opened(trace_of(events)), explained, at("ampere"))
    assert obeyed(drawn(state)) == set()
