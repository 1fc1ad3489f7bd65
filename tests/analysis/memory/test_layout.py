"""What lay where at any event, beside what the allocator had then."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from tests.snapshots import MB, Machine

from fusetui.analysis.memory import layout as layouts
from fusetui.analysis.memory.history import build_histories
from fusetui.analysis.memory.layout import compute_layout, measure_waste
from fusetui.trace.snapshot.reading import read_snapshot

Held = tuple[int, int]


def state(machine: Machine) -> Held:
    """What is reserved, and what of it is inactive."""
    blocks = [block for one in machine.segments for block in one["blocks"]]
    inactive = sum(block["size"] for block in blocks if block["state"] == "inactive")
    return sum(one["total_size"] for one in machine.segments), inactive


def run(machine: Machine, seed: int) -> dict[int, Held]:
    """What there was after some events."""
    chance, live, seen = random.Random(seed), list[int | None](), dict[int, Held]()
    for _ in range(150):
        if live and chance.random() < 0.5:
            machine.free(live.pop(chance.randrange(len(live))))
        else:
            size = chance.choice((700, 300_000, 3 * MB, 9 * MB, 31 * MB + 5))
            live.append(machine.alloc(size, stream=chance.randrange(2)))
        if chance.random() < 0.05:
            machine.release()
        seen[len(machine.events) - 1] = state(machine)
    return seen


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("expandable", [False, True])
def test_layout_at_any_event_equals_that_of_the_allocator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, expandable: bool
) -> None:
    """By moments that were looked at before, too, of which one in seven is kept."""
    monkeypatch.setattr(layouts, "CHANGES_BETWEEN_KEPT", 7)
    machine = Machine(total=200 * MB, expandable=expandable)
    seen = run(machine, seed)
    history = build_histories(read_snapshot(str(machine.write(tmp_path / "a.pickle"))))[
        0
    ]
    for event, (reserved, inactive) in seen.items():
        found = compute_layout(history, event)
        assert (
            sum(one.size for one in found.segments)
            == reserved
            == history.reserved[event + 1]
        )
        assert (int(found.size.sum()), bool(found.slack.any())) == (inactive, False)
        told = measure_waste(history, event, found)
        parts = [
            told.active_bytes,
            told.rounding_bytes,
            told.split_bytes,
            told.cached_bytes,
        ]
        known = [one for one in parts if one is not None]
        assert (sum(known), len(known)) == (reserved, 4)
        assert min(known) >= 0
    lost = len(machine.events) // 2
    ring = build_histories(
        read_snapshot(str(machine.write(tmp_path / "b.pickle", lost=lost)))
    )[0]
    for event, (_, inactive) in list(seen.items()):
        if event >= lost:
            put_back = compute_layout(ring, event - lost)
            unsure = int(np.minimum(put_back.slack, put_back.size).sum())
            assert inactive <= put_back.size.sum() <= inactive + unsure
    assert found.size.sum() == inactive
