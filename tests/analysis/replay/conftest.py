"""Asks what hand-made traces would take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from fusetui.analysis.replay.whatif import WhatIf, whatif
from fusetui.trace import Trace

Ask = Callable[..., WhatIf]


@pytest.fixture
def asked(trace_of: Callable[..., Trace]) -> Ask:
    """What some changes of a trace of these events are worth."""

    def ask(events: Sequence[dict[str, Any]], *changes: str, **keys: Any) -> WhatIf:
        return whatif(trace_of(events), changes, **keys)

    return ask


@pytest.fixture
def us(asked: Ask) -> Callable[..., tuple[float, float | None]]:
    """The time before and after, in us."""

    def ask(
        events: Sequence[dict[str, Any]], *changes: str
    ) -> tuple[float, float | None]:
        found = asked(events, *changes)
        after = found.after_ns
        return found.before_ns / 1000, None if after is None else after / 1000

    return ask
