"""The worked examples of CONTRIBUTING.md run with this code.

Each is added to the package for one test: its files stand in a folder of the test, which
the package looks into as well.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.analysis.why.rules.conftest import Ask, found  # noqa: F401  (a fixture)
from tests.cli.conftest import fusetui, trace_file  # noqa: F401  (fixtures)
from tests.places import ROOT
from tests.tui.conftest import mlp  # noqa: F401  (a fixture)

from fusetui.analysis.why import engine
from fusetui.command_line import arguments, registry
from fusetui.report import documents
from fusetui.tables import sources
from fusetui.trace import Trace, formats

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"```python\n# (\S+)\n(.*?)```", re.DOTALL)
CODE_OF_FILE: dict[str, str] = dict(BLOCK.findall(PAGE))
Run = Callable[..., Any]


@pytest.fixture
def add_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], ModuleType]]:
    """Imports a module of the page, such as `fusetui.commands.lanes`, as if its file
    stood in the package."""
    known = set(sys.modules)

    def add(module: str) -> ModuleType:
        package, _, name = module.rpartition(".")
        folder = tmp_path / package
        folder.mkdir()
        (folder / f"{name}.py").write_text(_code_of_module(module), encoding="utf-8")
        parent = import_module(package)
        monkeypatch.setattr(parent, "__path__", [*parent.__path__, str(folder)])
        return import_module(module)

    yield add
    for name in set(sys.modules) - known:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and Path(file).is_relative_to(tmp_path):
            del sys.modules[name]


def _code_of_module(module: str) -> str:
    """The code of the page whose file is that of a module of fusetui."""
    file = f"{module.removeprefix('fusetui.').replace('.', '/')}.py"
    for folder in ("", "src/fusetui/"):
        if folder + file in CODE_OF_FILE:
            return CODE_OF_FILE[folder + file]
    raise KeyError(f"CONTRIBUTING.md has no code of {module}.")


def example_tests(file: str) -> list[Callable[..., None]]:
    """The test functions that the page has in this file."""
    package = file.rpartition("/")[0].replace("/", ".")
    names: dict[str, Any] = {"__package__": package, "__name__": package}
    exec(compile(CODE_OF_FILE[file], f"CONTRIBUTING.md, {file}", "exec"), names)
    functions = [names[name] for name in names if name.startswith("test_")]
    assert functions
    return functions


def test_example_of_a_rule_finds_what_its_test_says(
    found: Ask,  # noqa: F811
    add_module: Callable[[str], ModuleType],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rule = add_module("fusetui.analysis.why.rules.sleeping").sleeping
    rules = sorted((*engine.RULES, rule), key=lambda each: each.id)
    monkeypatch.setattr(engine, "RULES", tuple(rules))
    for test in example_tests("tests/analysis/why/rules/test_sleeping.py"):
        test(found)
    assert f"* **Try**: {rule.remedy}\n" in PAGE


def test_example_of_a_format_is_read_as_its_test_says(
    add_module: Callable[[str], ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package = tmp_path / "trace" / "oplines"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('"""Lines of text, one for each op."""\n')
    trace = import_module("fusetui.trace")
    monkeypatch.setattr(trace, "__path__", [*trace.__path__, str(package.parent)])
    add_module("fusetui.trace.oplines.reading")
    names: dict[str, Any] = {}
    exec(CODE_OF_FILE["src/fusetui/trace/read/foreign.py"], names)
    monkeypatch.setitem(formats.FORMATS, "oplines", names["is_oplines"])
    for test in example_tests("tests/trace/oplines/test_reading_lines.py"):
        test(tmp_path)


def test_example_of_a_column_has_the_values_that_its_test_says(
    trace_of: Run,
    event: Run,
    launched: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (line,) = re.findall(r"```text\n(busy_share .*)\n```", PAGE)
    columns = dict(sources._sections())
    columns["steps"] = (*columns["steps"], sources._parse_spec(line))
    monkeypatch.setattr(sources, "_sections", lambda: columns)
    names = dict(vars(sources))
    exec(CODE_OF_FILE["src/fusetui/tables/sources.py"], names)
    monkeypatch.setitem(sources.MAKERS, "steps", names["_steps"])
    for test in example_tests("tests/tables/test_busy_share.py"):
        test(trace_of, event, launched)


def test_example_of_a_page_shows_what_its_tests_say(
    mlp: Trace,  # noqa: F811
    add_module: Callable[[str], ModuleType],
) -> None:
    add_module("fusetui.tui.pages.steps")
    for test in example_tests("tests/tui/pages/test_steps_page.py"):
        test(mlp)


def test_example_of_a_command_prints_what_its_test_says(
    fusetui: Run,  # noqa: F811
    trace_file: Run,  # noqa: F811
    add_module: Callable[[str], ModuleType],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = dict(vars(documents))
    names["TrackFigures"] = import_module(
        "fusetui.analysis.questions.summary"
    ).TrackFigures
    exec(CODE_OF_FILE["src/fusetui/report/documents.py"], names)
    document = names["LanesDocument"]
    monkeypatch.setattr(documents, "LanesDocument", document, raising=False)
    add_module("fusetui.commands.lanes")
    entry = eval(
        CODE_OF_FILE["src/fusetui/command_line/registry.py"], dict(vars(arguments))
    )
    commands = (*registry.COMMANDS, entry)
    monkeypatch.setattr(registry, "COMMANDS", commands)
    monkeypatch.setattr("fusetui.command_line.parser.COMMANDS", commands)
    for test in example_tests("tests/cli/test_lanes.py"):
        test(fusetui, trace_file)
