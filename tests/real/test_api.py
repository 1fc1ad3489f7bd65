"""A real server, opened in Python."""

from __future__ import annotations

from tests.api.test_open import captures_are_joined
from tests.real.traces import real


def test_captures_are_joined_as_on_the_command_line() -> None:
    captures_are_joined(real("mi300_sglang_decode_graph"), real("mi300_sglang_capture"))
