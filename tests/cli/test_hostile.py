"""Text that a terminal would interpret, through every command: it is shown, not
interpreted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.hostile import FILE_NAME, WORST, obeyed, write_trace

from fusetui.trace import Trace, open_trace

Run = Callable[..., Any]


@pytest.fixture
def trace_path(tmp_path: Path) -> Path:
    folder = tmp_path / FILE_NAME
    folder.mkdir()
    return write_trace(folder / f"{FILE_NAME}.json")


@pytest.fixture
def run_folder(trace_path: Path) -> Path:
    """A run folder of two variants, whose record is as hostile as its traces."""
    other = write_trace(trace_path.with_name("b.json"), [f"{WORST}b"])
    variants = [{"name": WORST, "files": [path.name]} for path in (trace_path, other)]
    record = {
        "workload": WORST,
        "summary": WORST,
        "device": WORST,
        "variants": variants,
    }
    (trace_path.parent / "run.json").write_text(json.dumps(record, ensure_ascii=True))
    return trace_path.parent


def is_safe(*texts: str) -> None:
    """No control characters but line ends, and no line that begins within a name."""
    for text in texts:
        assert obeyed(text) == set()
        assert not [line for line in text.split("\n") if line.startswith("PWN")]


@pytest.mark.parametrize("width", ["80", "400"])
@pytest.mark.parametrize(
    "command",
    [
        ["summary"],
        ["kernels", "--top=0"],
        ["ops", "--top=0"],
        ["ops", "--by=shape"],
        ["kernels", "--by=op"],
        ["kernels", "--by=shape"],
        ["kernels", "--by=family"],
        ["kernels", "--by=stream"],
        ["kernels", "--by=step"],
        ["launches"],
        ["modules", "--top=0", "--expand"],
        ["lines", "--top=0"],
        ["check", "--expect=kernels=1"],
        ["why"],
        ["why", "--markdown"],
        ["gaps", "--all"],
        ["summary", "--json"],
        ["kernels", "--json"],
        ["ops", "--json"],
        ["kernels", "--by=shape", "--json"],
        ["launches", "--json"],
        ["modules", "--json"],
        ["lines", "--json"],
        ["why", "--json"],
        ["gaps", "--json"],
        ["check", "--expect=kernels=1", "--json"],
    ],
    ids=" ".join,
)
def test_hostile_names_are_escaped_by_every_command(
    fusetui: Run,
    monkeypatch: pytest.MonkeyPatch,
    trace_path: Path,
    command: list[str],
    width: str,
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    found = fusetui(*command, trace_path)
    assert found.out
    is_safe(found.out, found.err)


@pytest.mark.parametrize("form", ["--markdown", "--json", "--fail-over=1"])
def test_hostile_names_are_escaped_by_diff(
    fusetui: Run, monkeypatch: pytest.MonkeyPatch, run_folder: Path, form: str
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    found = fusetui("diff", run_folder, form)
    assert found.out
    is_safe(found.out, found.err)


@pytest.mark.parametrize(
    "command",
    [
        [WORST],
        ["summary", WORST],
        ["summary", "x", WORST],
        ["summary", f"--{WORST}", "x"],
        ["kernels", "x", "--top", WORST],
        ["lines", "sample:mlp-eager", "--file", WORST],
        ["diff", "x", "y", "--fail-over", WORST],
        ["diff", "RUN", "--baseline", WORST],
        ["check", "x", "--expect", WORST],
        ["open", WORST],
        ["open", f"sample:{WORST}"],
        ["summary", "RUN"],
        ["decode", WORST],
        ["decode", f"void {WORST}<int, {WORST}>({WORST})"],
        ["decode", "-"],
        ["capture", "mlp", "--mode", WORST],
        ["samples", WORST],
    ],
    ids=lambda command: " ".join(command).encode("unicode_escape").decode()[:40],
)
def test_hostile_arguments_are_escaped_in_messages(
    fusetui: Run, monkeypatch: pytest.MonkeyPatch, run_folder: Path, command: list[str]
) -> None:
    monkeypatch.setattr("fusetui.commands.open.has_terminal", lambda: True)
    words = [str(run_folder) if word == "RUN" else word for word in command]
    monkeypatch.setenv("COLUMNS", "2000")  # no name is wrapped
    found = fusetui(*words, stdin=WORST.replace("\n", ""))
    assert found.out or found.err
    is_safe(found.out, found.err)


@pytest.mark.parametrize(
    "command",
    [
        [WORST],
        [f"{WORST}.py:build"],
        ["mlp", "--variant", WORST],
        ["mlp", "--device", WORST],
        ["mlp", "--device=cpu", "--dtype", WORST],
        ["mlp", "--device=cpu", f"--{WORST}", "1"],
        ["mlp", "--device=cpu", "--expect", WORST],
        ["mlp", "--device=cpu", "--sweep", WORST],
        ["mlp", "--device=cpu", "--sweep", "batch=2", "--out", "FOLDER"],
    ],
    ids=lambda command: " ".join(command).encode("unicode_escape").decode()[:40],
)
def test_hostile_options_of_capture_are_escaped_in_messages(
    fusetui: Run, run_folder: Path, command: list[str]
) -> None:
    pytest.importorskip("torch", reason="capture asks for torch first")
    found = fusetui(
        "capture", *[str(run_folder) if w == "FOLDER" else w for w in command]
    )
    assert found.code == 2
    is_safe(found.out, found.err)


def test_code_that_fails(fusetui: Run, tmp_path: Path) -> None:
    """The file, its name and its message belong to the user, or come from elsewhere."""
    pytest.importorskip("torch", reason="capture asks for torch first")
    path = tmp_path / f"{FILE_NAME}.py"
    path.write_text(f"def build():\n    raise ValueError({WORST!a})\n")
    found = fusetui("capture", f"{path}:build", "--device=cpu")
    assert found.code == 2
    assert "ValueError" in found.err
    is_safe(found.out, found.err)


def test_json_is_the_same_document(fusetui: Run, tmp_path: Path) -> None:
    path = write_trace(tmp_path / "a.json", [WORST.replace("\ud800", "")])
    kernels = fusetui("kernels", path, "--json").json["kernels"]
    assert [kernel["name"] for kernel in kernels] == [names_of(open_trace(str(path)))]


def test_a_file_whose_name_is_no_utf8(fusetui: Run, tmp_path: Path) -> None:
    """Its odd bytes are lone surrogates in Python, which JSON can write only
    escaped."""
    path = write_trace(tmp_path / "a\udcff.json", ["k"])
    assert fusetui("summary", path, "--json").json["file"] == str(path)


def names_of(trace: Trace) -> str:
    return trace.name_of(int(trace.gpu_rows[0]))
