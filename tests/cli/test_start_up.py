"""What a command imports, and how many patterns it compiles, before it answers. A
person waits for both each time, so each has a bound; one that is raised needs a
reason."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

import msgspec
import pytest

from fusetui import sample_traces

SAMPLE = str(sample_traces.path("mlp-eager"))
PROGRAM = """
import json, os, re._compiler, sys

ours, compiled = [], re._compiler.compile

def counted(*given):
    frame = sys._getframe(1)
    while frame.f_globals["__name__"].split(".")[0] in ("re", "functools"):
        frame = frame.f_back
    ours.append(frame.f_globals["__name__"])
    return compiled(*given)

re._compiler.compile = counted
sys.argv = ["fusetui", *json.loads(sys.argv[1])]
try:
    BODY
except SystemExit:
    pass
patterns = sum(name.startswith("fusetui") for name in ours)
print(json.dumps({"modules": [*sys.modules], "patterns": patterns}))
"""
COMMAND = PROGRAM.replace("BODY", "from fusetui.cli import main; main()")
APP = PROGRAM.replace("BODY", "import fusetui.tui.app")


class Started(msgspec.Struct, frozen=True):
    """The modules that were imported, of whatever package, and how many patterns ours
    compiled."""

    modules: frozenset[str]
    patterns: int

    def ours(self, room: str = "") -> set[str]:
        """Our own modules below a room."""
        return {name for name in self.modules if name.startswith(f"fusetui{room}")}


def started(program: str, *arguments: str) -> Started:
    run = subprocess.run(
        [sys.executable, "-P", "-c", program, json.dumps(arguments)],
        capture_output=True,
        text=True,
        check=True,
    )
    return msgspec.json.decode(run.stdout.splitlines()[-1], type=Started)


@pytest.mark.parametrize(
    ("arguments", "without"),
    [
        ("--version", ["argparse", "msgspec", "pathlib"]),
        ("--help", ["torch", "textual", "numpy", "fusetui.trace", "mcp"]),
        ("capture --help", ["torch", "textual", "numpy"]),
        ("decode ampere_sgemm_32x32_tn", ["torch", "textual"]),
        ("summary TRACE", ["torch", "textual", "regex"]),
        ("summary TRACE --json", ["torch", "textual", "regex", "numpy.ma", "duckdb"]),
        ("kernels TRACE --json", ["torch", "textual", "mcp", "duckdb", "nanoarrow"]),
        ("sql --help", ["numpy", "duckdb", "nanoarrow", "fusetui.tables"]),
        ("modules TRACE --json", ["torch", "textual"]),
        ("summary nowhere.json", ["torch", "textual"]),
        ("why TRACE", ["torch", "textual", "regex"]),
        ("why TRACE --no-worth", ["fusetui.analysis.replay", "numpy.ma"]),
        ("kernels TRACE", ["fusetui.analysis.replay"]),
        ("gaps TRACE --json", ["torch", "textual", "fusetui.gpu.roofline"]),
    ],
)
def test_commands_import_no_more_than_they_need(
    arguments: str, without: Sequence[str]
) -> None:
    words = [SAMPLE if word == "TRACE" else word for word in arguments.split()]
    found = started(COMMAND, *words)
    assert "fusetui.cli" in found.modules
    assert not found.modules.intersection(without)


def test_version_imports_and_compiles_next_to_nothing() -> None:
    found = started(COMMAND, "--version")
    assert not found.ours(".trace")
    assert len(found.ours()) <= 7
    assert found.patterns == 0


def test_a_summary_decodes_no_kernel_and_knows_no_server() -> None:
    found = started(COMMAND, "summary", SAMPLE, "--json")
    assert found.ours(".gpu") == {"fusetui.gpu", "fusetui.gpu.kinds"}
    assert not found.ours(".analysis.serving")
    assert len(found.ours()) <= 88
    assert found.patterns <= 13


def test_the_app_begins_without_what_it_answers_later() -> None:
    found = started(APP)
    assert "torch" not in found.modules
    assert not found.ours(".analysis.ranks")
    assert not found.ours(".analysis.serving")
    assert not found.ours(".analysis.why.rules")
    assert not found.ours(".analysis.diff.align")
    assert not found.ours(".analysis.replay")
    assert not found.ours(".analysis.memory")
    assert len(found.ours()) <= 191
    assert found.patterns <= 11
