"""The page of the experiments and the script that fills it in."""

from typing import Any

import pytest
from tests.scripts import benchmark

pytest.importorskip("torch", reason="the script runs torch")
pytestmark = pytest.mark.torch

insert = benchmark("pages").insert


@pytest.fixture(scope="module")
def script() -> Any:
    return benchmark("capture_experiments")


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_the_page_has_a_place_for_every_experiment(script: Any, kind: str) -> None:
    page = script.PAGE.read_text(encoding="utf-8")
    for experiment in script.EXPERIMENTS:
        assert "\nnew\n" in insert(page, f"{experiment.name} {kind}", "new", "x.py 1 at 2")


def test_a_command_can_be_typed(script: Any) -> None:
    batch = next(e for e in script.EXPERIMENTS if e.name == "paper-n")
    assert batch.command("cpu") == (
        "OMP_NUM_THREADS=1 fusetui capture partitioned-linear --variant loop --variant big "
        "--variant masked --variant bmm --variant fused --sweep paper-n --device cpu"
    )
