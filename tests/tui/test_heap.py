"""An open trace is not looked at by the collector of cycles: keys would wait for it."""

from __future__ import annotations

import gc
import json
from pathlib import Path

from tests.tui.conftest import mlp_events

from fusetui.tui import heap
from fusetui.tui.app import FusetuiApp, Options


async def test_an_open_trace_is_not_looked_at_again(tmp_path: Path) -> None:
    path = tmp_path / "mlp.json"
    path.write_text(json.dumps({"traceEvents": mlp_events()}))
    app = FusetuiApp(Options((str(path),), alone=False))
    try:
        async with app.run_test() as pilot:
            await app.workers.wait_for_complete()
            await pilot.pause()
            looked_at = {id(found) for found in gc.get_objects()}
            assert id(app.state.side.lanes[0]) not in looked_at
    finally:
        heap.thaw()
    assert not gc.get_freeze_count()
