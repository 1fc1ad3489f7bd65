"""A line for each family of kernels below a stream."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from tests.tui.prepared import after, do, drawn, opened

from fusetui.timeline.cells import edges, sum_kind_in_cells
from fusetui.trace import Trace
from fusetui.tui.layout.places import places
from fusetui.tui.layout.view import Place
from fusetui.tui.state.state import Size, State


def families(state: State) -> list[Place]:
    return [place for place in places(state.side, state.view) if place.family]


def test_each_family_has_a_line_with_its_share(mlp: Trace) -> None:
    state = after(opened(mlp), *do("families"))
    labels = [place.label for place in families(state)]
    assert labels == ["  gemm 65 %", "  pointwise 20 %", "  fused 15 %"]
    lines = drawn(state).splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("  gemm 65 %"))
    assert "█" in lines[first]
    assert families(after(state, *do("families"))) == []


def test_the_families_of_a_cell_add_up_to_what_is_covered(mlp: Trace) -> None:
    state = after(opened(mlp), *do("families"))
    borders = edges(mlp.begin_ns, mlp.end_ns, 50)
    found = [place.family for place in families(state) if place.family]
    line = found[0][0]
    sums = sum(sum_kind_in_cells(line, borders, kind) for _, kind in found)
    covered = [
        sum(
            max(0, min(end, b) - max(start, a))
            for start, end in zip(line.start, line.end, strict=True)
        )
        for a, b in pairwise(borders)
    ]
    assert np.array_equal(sums, covered)


def test_a_share_that_does_not_fit_is_left_out(mlp: Trace) -> None:
    """Of 65 % a narrow screen would show `6`."""
    narrow = drawn(after(opened(mlp, size=Size(60, 40)), *do("families")))
    (line,) = [line for line in narrow.splitlines() if line.startswith("  pointwise")]
    assert not any(character.isdigit() for character in line)
