"""Numbers of a real trace whose times count from 1970."""

from __future__ import annotations

import pytest
from tests.cli.conftest import fusetui
from tests.cli.test_json_numbers import COMMANDS, Run, numbers_are_doubles
from tests.real.traces import real


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_number_is_beyond_a_double(fusetui: Run, command: tuple[str, ...]) -> None:
    numbers_are_doubles(fusetui, real("v100_absolute_ns"), command)
