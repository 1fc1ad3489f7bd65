"""A command is one function and one entry of the registry."""

from __future__ import annotations

import re
from argparse import Namespace
from importlib import import_module
from inspect import signature
from pathlib import Path

import pytest
from tests.places import ROOT

from fusetui import cli
from fusetui.command_line import registry
from fusetui.command_line.arguments import JSON, MODULES, Command, argument
from fusetui.command_line.parser import command_parsers
from fusetui.command_line.registry import COMMANDS


@pytest.mark.parametrize("name", [one.name for one in COMMANDS])
def test_a_command_has_a_function(name: str) -> None:
    module = import_module(f"fusetui.commands.{MODULES.get(name, name)}")
    run = getattr(module, f"run_{name}")
    assert list(signature(run).parameters) == ["args"]


def test_a_function_that_runs_is_in_the_registry() -> None:
    files = (ROOT / "src/fusetui/commands").glob("*.py")
    running = {
        name
        for path in files
        for name in re.findall(r"\brun_(\w+)(?:\(args: | =)", path.read_text())
    }
    assert running == {one.name for one in COMMANDS}


def test_an_entry_is_all_that_a_new_command_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its file is not imported before it runs."""
    (tmp_path / "count.py").write_text(
        "def run_count(args):\n    return args.number + len(args.rest)\n"
    )
    monkeypatch.setattr(import_module("fusetui.commands"), "__path__", [str(tmp_path)])
    number = argument("NUMBER", "How many.", type=int)
    new = Command("count", "Count.", (number, JSON), "More of it.", open_ended=True)
    monkeypatch.setattr(registry, "COMMANDS", (*COMMANDS, new))
    monkeypatch.setattr("fusetui.command_line.parser.COMMANDS", (*COMMANDS, new))
    assert "More of it." in command_parsers()["count"].format_help()
    assert cli.run(["count", "5", "--other", "word"]) == 7


def test_options_unknown_to_the_parser_are_passed_on_to_capture(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only a workload knows its shapes."""
    told: list[tuple[str, ...]] = []

    def run(args: Namespace) -> int:
        told.append(args.rest)
        return 0

    monkeypatch.setattr("fusetui.commands.record.run_capture", run)
    assert cli.run(["capture", "mlp", "--batch", "32"]) == 0
    assert told == [("--batch", "32")]
