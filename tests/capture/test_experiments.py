"""The page of the experiments and the script that fills it in."""

import re
import shlex
from typing import Any

import pytest
from tests.places import ROOT
from tests.scripts import benchmark

from fusetui.capture.command import check_request
from fusetui.capture.options import Options, declared_options
from fusetui.command_line.parser import command_parsers

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
        assert "\nnew\n" in insert(
            page, f"{experiment.name} {kind}", "new", "x.py 1 at 2"
        )


def test_a_command_can_be_typed(script: Any) -> None:
    batch = next(e for e in script.EXPERIMENTS if e.name == "paper-n")
    assert batch.command("cpu") == (
        "OMP_NUM_THREADS=1 fusetui capture partitioned-linear --variant loop --variant big "
        "--variant masked --variant bmm --variant fused --sweep paper-n --device cpu"
    )


STATES = ("works here", "needs a GPU", "not reproduced", "inconclusive")


def claims(script: Any) -> list[list[str]]:
    """The cells of the table of claims: what is claimed, the command, the state."""
    page = script.PAGE.read_text(encoding="utf-8")
    section = page.partition("## The claims, one by one")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def test_every_claim_has_a_state(script: Any) -> None:
    rows = claims(script)
    assert len(rows) > 15
    for _, _, state in rows:
        assert state.startswith(STATES)


def test_every_command_of_a_claim_can_be_typed(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # of Liger
    monkeypatch.setattr("fusetui.kernels.outlines.find_spec", lambda name: name)
    for _, cell, _ in claims(script):
        (text,) = re.findall(r"`(.*)`", cell)
        words = shlex.split(text)
        if words[:2] == ["fusetui", "capture"]:
            parser = command_parsers("capture")["capture"]
            parsed, rest = parser.parse_known_args(words[2:])
            given = {
                name: value
                for name, value in vars(parsed).items()
                if name in declared_options()
            }
            check_request(parsed.workload, Options(**given, shapes=rest))
        elif words[0] == "python":
            assert (ROOT / words[2]).is_file()
        else:
            assert words[1] in command_parsers()


MEASURED = """
<!-- table: x cpu, b.py 1 at 2 -->
= eager gemm: expected 3, found 3
figure              source          here           why
kernels of eager    5: 3 GEMMs      5              ops 93 %
a against b         12.5x           0.63x          ops 91 %
a against b, n=4    at most 1x      0.64x: yes     ops 90 %
a against b, n=4 to n=8  the gap shrinks  0.4x, 0.5x: no  -
<!-- end -->
"""


@pytest.mark.parametrize(
    ("row", "cell", "said"),
    [
        ("= eager gemm: expected 3, found 3", "", ""),
        (
            "= eager gemm: expected 2, found 2",
            "",
            "not eager gemm: expected 2, found 2",
        ),
        ("kernels of eager", "", ""),
        ("kernels of eager", "4", "not 4"),
        ("a against b", "", "0.63x"),
        ("a against b, n=4", "", ""),
        ("a against b, n=4 to n=8", "", "0.4x, 0.5x"),
    ],
)
def test_a_row_agrees_with_a_claim_or_contradicts_it(
    row: str, cell: str, said: str
) -> None:
    module = benchmark("claims")
    assert module.contradiction(module.DecidingRow("x", row, cell), MEASURED) == said


@pytest.mark.parametrize(
    "remark", ["", "b: its steps took long: something else was running."]
)
def test_a_time_that_was_disturbed_decides_nothing(remark: str) -> None:
    module = benchmark("claims")
    page = MEASURED.replace("figure ", f"{remark}\nfigure ")
    claim = module.Claim(
        "b is slow", "x", (module.DecidingRow("x", "a against b, n=4"),)
    )
    assert module.state(claim, page).startswith(
        "inconclusive" if remark else "works here"
    )


@pytest.mark.parametrize(
    ("row", "remark", "is_disturbed"),
    [
        ("a against b, n=4", "b: at n = 4: something else was running.", True),
        ("a against b, n=4", "b: at n = 8: something else was running.", False),
        ("a against b, n=4", "c: at n = 4: something else was running.", False),
        ("a against b, n=4 to n=8", "b: at n = 8: something else was running.", True),
        ("a against b", "a: its steps took long: something else was running.", True),
    ],
)
def test_a_remark_of_a_sweep_is_about_its_points(
    row: str, remark: str, is_disturbed: bool
) -> None:
    module = benchmark("claims")
    page = MEASURED.replace("figure ", f"{remark}\nfigure ")
    page = page.replace("12.5x           0.63x", "12.5x           12.4x").replace(
        "0.4x, 0.5x: no", "0.5x, 0.4x: yes"
    )
    claim = module.Claim("b is slow", "x", (module.DecidingRow("x", row),))
    assert module.state(claim, page).startswith("inconclusive") == is_disturbed


def test_a_row_that_the_page_lacks_is_an_error() -> None:
    module = benchmark("claims")
    with pytest.raises(ValueError, match="has no row 'c against d'"):
        module.contradiction(module.DecidingRow("x", "c against d"), MEASURED)


def test_the_states_of_the_claims_are_those_of_the_tables_on_the_page(
    script: Any,
) -> None:
    """After new tables: python -P benchmarks/claims.py."""
    page = script.PAGE.read_text(encoding="utf-8")
    assert benchmark("claims").markdown(page) in page
