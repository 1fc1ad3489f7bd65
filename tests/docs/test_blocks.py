"""The code blocks of the pages run, and print what the pages say."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.docs.test_reference import DOCS, script

from fusetui.cli import main
from fusetui.command_line.parser import command_parsers, parse
from fusetui.command_line.registry import command as command_of
from fusetui.commands.sources import traces

BLOCKS = script("blocks")
PAGES = (
    *("reading-a-gpu-trace.md", "ssh.md", "ci.md", "json.md", "tables.md", "python.md"),
    *("sql.md", "agents.md", "guide.md", "whatif.md", "pictures.md"),
)
RUN_HERE = (*PAGES, "../README.md")
NEEDS_TORCH = pytest.param("recording.md", marks=pytest.mark.torch)
KNOWN = command_parsers()
SHIPPED = re.compile(r"(?:sample|lesson):\S+")
COMMAND = re.compile(r"(?:^|\||\$|^srun .*)\s*(?:[A-Z]+=\S+ )?fusetui (.*)")
QUOTED = re.compile(r"""'[^']*'|"[^"$`\\]*\"""")
PLAIN = re.compile(r"fusetui [\w .,:=/-]+")
PROSE = [*DOCS.glob("*.md"), DOCS.parent / "README.md"]
INDENTED = re.compile(r"^    fusetui (\S.*)$", re.MULTILINE)


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def is_plain(block: Any) -> bool:
    """Whether it is commands of fusetui alone, of which a shell would only take quotes
    away."""
    lines = [QUOTED.sub("", line) for line in block.text.splitlines()]
    return block.kind == "sh" and all(PLAIN.fullmatch(line) for line in lines)


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs here what needs no shell: plain commands, and blocks of Python, for which
    this process has imported torch already."""
    in_a_process = BLOCKS._run

    def command(line: str, folder: Path) -> str:
        printed = TextIOWrapper(BytesIO(), "utf-8")
        with monkeypatch.context() as patch, redirect_stdout(printed):
            patch.chdir(folder)
            patch.setattr(sys, "argv", shlex.split(line))
            for name, value in BLOCKS._environment(folder).items():
                patch.setenv(name, value)
            assert main() == 0
        printed.seek(0)
        return printed.read()

    def run(block: Any, folder: Path) -> str:
        if is_plain(block):
            return "".join(command(line, folder) for line in block.text.splitlines())
        # The client of mcp takes the stderr of its first import, which may be a test's.
        needs_own_process = block.kind != "python" or "mcp" in block.text
        if needs_own_process:
            return str(in_a_process(block, folder))
        with monkeypatch.context() as patch, redirect_stdout(StringIO()) as printed:
            patch.chdir(folder)
            exec(block.text, {"__name__": "__main__"})
        return printed.getvalue()

    monkeypatch.setattr(BLOCKS, "_run", run)
    own = os.pathsep.join(
        (str(Path(sys.executable).parent), os.environ.get("PATH", ""))
    )
    monkeypatch.setenv("PATH", own)  # where the program is that a block starts


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("name", [*RUN_HERE, NEEDS_TORCH])
def test_blocks_print_what_the_page_says(name: str, tmp_path: Path) -> None:
    if name == "recording.md":
        pytest.importorskip("torch", reason="the page records a trace")
    for block, printed in BLOCKS.outputs(page(name), tmp_path):
        assert block.text == printed, "run python -P docs/blocks.py"


@pytest.mark.parametrize("path", PROSE, ids=lambda path: path.name)
def test_every_indented_command_is_one(path: Path) -> None:
    """What stands behind several blanks is an explanation."""
    for line in INDENTED.findall(path.read_text(encoding="utf-8")):
        parse(shlex.split(re.split(r" {2,}", line)[0]))


def words_of(command: str) -> list[str]:
    """The words of a command of a shell, up to what redirects or follows it, or a
    comment."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    lexer.commenters = ""
    return [*itertools.takewhile(lambda word: word[:1] not in {*"|&;<>#"}, lexer)]


@pytest.mark.parametrize("path", PROSE, ids=lambda path: path.name)
def test_every_fusetui_command_of_a_page_is_one(path: Path) -> None:
    """Also in blocks that do not run here, and behind srun."""
    lines = [
        line
        for b in BLOCKS.blocks(path.read_text(encoding="utf-8"))
        if b.kind in ("sh", "console", "yaml", "bash")
        for line in b.text.replace("\\\n", " ").splitlines()
    ]
    commands = [found[1] for line in lines if (found := COMMAND.search(line))]
    for command in commands:
        words = words_of(command)
        parse(words)
        assert all(traces(word) for word in words if SHIPPED.fullmatch(word))


def test_the_workflows_run_shell_and_give_the_action_what_it_takes() -> None:
    texts = [
        block.text for block in BLOCKS.blocks(page("ci.md")) if block.kind == "yaml"
    ]
    steps = [
        step
        for text in texts
        for step in yaml.safe_load(text)["jobs"]["compare"]["steps"]
    ]
    scripts = [step["run"] for step in steps if "run" in step]
    assert len(scripts) == 5
    for text in scripts:
        assert "${{" not in text
        subprocess.run(["bash", "-n"], input=text, text=True, timeout=20, check=True)
    action = yaml.safe_load((DOCS.parent / "action.yml").read_text(encoding="utf-8"))
    (given,) = (
        step["with"]
        for step in steps
        if step.get("uses", "").startswith("OWNER/fusetui@")
    )
    needed = {name for name, one in action["inputs"].items() if one.get("required")}
    assert needed <= set(given) <= set(action["inputs"])
    described = re.findall(r"^\| `([a-z-]+)` \|", page("ci.md"), re.MULTILINE)
    assert described == [*action["inputs"]]


def examples_of_capture() -> list[str]:
    return [
        block.text
        for block in BLOCKS.blocks(page("capture.md"))
        if block.kind == "python"
    ]


@pytest.mark.torch
def test_example_of_a_file_of_functions_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The functions that it builds run; capturing them is tested in tests/capture."""
    torch = pytest.importorskip("torch", reason="the example needs it")
    monkeypatch.setattr(torch, "compile", lambda function: function)
    names: dict[str, Any] = {}
    exec(examples_of_capture()[0], names)
    variants = names["build"](batch=4, dim=8)
    function, inputs = variants["compiled"]
    assert function(*inputs).shape == variants["eager"]().shape == (4, 8)


@pytest.mark.torch
def test_example_of_a_training_loop_records_a_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="the example needs it")
    monkeypatch.chdir(tmp_path)
    exec(examples_of_capture()[1], {})
    assert traces(str(tmp_path / "runs" / "x"))


SPAN = re.compile(r"`(?:\$ )?fusetui ([a-z][^`]*)`")


@pytest.mark.parametrize("path", PROSE, ids=lambda path: path.name)
def test_every_option_of_a_command_within_a_sentence_is_one(path: Path) -> None:
    """Such a command may leave its files out, so it is not parsed as a whole."""
    sentences = BLOCKS._BLOCK.sub("", path.read_text(encoding="utf-8"))
    for command in SPAN.findall(sentences):
        first, *words = command.split()
        if first not in KNOWN:
            assert traces(first) or "." in first  # a trace alone opens it
            continue
        parser = KNOWN[first]
        options = {
            option for action in parser._actions for option in action.option_strings
        }
        given = itertools.takewhile(lambda word: word != "--", words)
        named = {word.partition("=")[0] for word in given if word.startswith("--")}
        assert named <= options or command_of(first).open_ended


def test_a_block_that_fails_is_told(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="exit code 2"):
        list(BLOCKS.outputs("```sh\nfusetui summary nowhere.json\n```\n", tmp_path))
