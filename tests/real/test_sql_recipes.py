"""The recipes of docs/sql.md, asked about a large real trace."""

from __future__ import annotations

import pytest
from tests.cli.conftest import fusetui
from tests.cli.test_sql_recipes import SAME, Run, recipe_says_what_the_command_says
from tests.real.traces import real


@pytest.mark.parametrize("title", SAME)
def test_a_recipe_says_what_the_command_says(fusetui: Run, title: str) -> None:
    path = real("a100_train_diff_control")
    recipe_says_what_the_command_says(fusetui, str(path), title)
