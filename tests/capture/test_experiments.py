"""The page of the experiments and the script that fills it in."""

from typing import Any

import pytest
from tests.scripts import benchmark

pytest.importorskip("torch", reason="the script runs torch")
pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def script() -> Any:
    return benchmark("capture_experiments")


def test_a_table_goes_between_its_markers(script: Any) -> None:
    page = "a\n<!-- table: x cpu -->\nold\n<!-- end -->\n<!-- table: x cuda -->\n<!-- end -->\n"
    once = script.insert(page, "x cpu", "new")
    assert once == page.replace("old", "new")
    assert script.insert(once, "x cpu", "old") == page


def test_a_table_without_a_place_is_an_error(script: Any) -> None:
    with pytest.raises(ValueError, match="no place for 'y cpu'"):
        script.insert("<!-- table: x cpu --><!-- end -->", "y cpu", "new")


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_the_page_has_a_place_for_every_experiment(script: Any, kind: str) -> None:
    page = script.PAGE.read_text(encoding="utf-8")
    for experiment in script.EXPERIMENTS:
        assert "\nnew\n" in script.insert(page, f"{experiment.name} {kind}", "new")


def test_a_command_can_be_typed(script: Any) -> None:
    batch = next(e for e in script.EXPERIMENTS if e.name == "paper-n")
    assert batch.command("cpu") == (
        "OMP_NUM_THREADS=1 fusetui capture partitioned-linear --variant loop --variant big "
        "--variant masked --variant bmm --variant fused --sweep paper-n --device cpu"
    )
