"""`capture` and `open`: what the command line passes to capture and to the app."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fusetui.capture import command
from fusetui.capture.errors import CaptureError
from fusetui.capture.options import Options
from fusetui.capture.record import RunOutcome

Run = Callable[..., Any]
File = Callable[..., Path]


@dataclass(frozen=True)
class Call:
    workload: str
    options: Options
    out: Path | None


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """The calls of capture; the workload `bad` cannot be captured, two variants of
    `broken` fail, and a guess about `odd` is wrong."""
    calls: list[Call] = []

    def capture(
        workload: str,
        options: Options,
        out: Path | None = None,
        *,
        prints_json: bool = False,
    ) -> RunOutcome:
        calls.append(Call(workload, options, out))
        if workload == "bad":
            raise CaptureError("There is no workload 'bad'.")
        failed = ("eager", "fused") if workload == "broken" else ()
        return RunOutcome(Path("runs/x"), workload != "odd", failed)

    monkeypatch.setattr(command, "capture", capture)
    return calls


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], int, bool, bool]]:
    """The calls of the app, as if on a terminal: paths, how many of them are opened,
    flags."""
    from fusetui.tui import app

    calls: list[tuple[list[str], int, bool, bool]] = []

    def run(
        paths: Sequence[str],
        *,
        opened: int,
        ascii_only: bool,
        mouse: bool,
        **others: object,
    ) -> int:
        calls.append((list(paths), opened, ascii_only, mouse))
        return 0

    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setattr(app, "run", run)
    for module in ("open", "record"):
        monkeypatch.setattr(f"fusetui.commands.{module}.has_terminal", lambda: True)
    return calls


def test_capture_defaults(fusetui: Run, captured: list[Call]) -> None:
    assert fusetui("capture", "mlp").code == 0
    assert captured == [Call("mlp", Options(), None)]


def test_capture_options(fusetui: Run, captured: list[Call]) -> None:
    words = "capture mlp --variant eager --batch 32 --hidden=64 --device cpu --variant compiled"
    more = "--steps 5 --dtype float32 --out r --backward --mode max-autotune --stack --no-shapes"
    assert fusetui(*words.split(), *more.split(), "--memory", "--scrub").code == 0
    options = Options(
        variants=("eager", "compiled"),
        device="cpu",
        dtype="float32",
        shapes=("--batch", "32", "--hidden=64"),
        backward=True,
        mode="max-autotune",
        steps=5,
        stack=True,
        record_shapes=False,
        memory=True,
        scrub=True,
    )
    assert captured == [Call("mlp", options, Path("r"))]


def test_capture_passes_a_sweep_on(fusetui: Run, captured: list[Call]) -> None:
    assert fusetui("capture", "mlp", "--sweep", "batch=1,2").code == 0
    assert captured == [Call("mlp", Options(sweep=("batch=1,2",)), None)]


def test_capture_with_a_wrong_guess_exits_with_1(
    fusetui: Run, captured: list[Call]
) -> None:
    assert fusetui("capture", "odd", "--expect", "gemm=2", "--seconds", 0.5).code == 1
    assert captured == [Call("odd", Options(expect=("gemm=2",), seconds=0.5), None)]


def test_capture_error_is_one_sentence_with_exit_code_2(
    fusetui: Run, captured: list[Call]
) -> None:
    found = fusetui("capture", "bad")
    assert found.code == 2
    assert found.sentence == "There is no workload 'bad'."


def test_capture_with_failed_variants(fusetui: Run, captured: list[Call]) -> None:
    found = fusetui("capture", "broken")
    assert found.code == 1
    assert found.sentence == "Failed: eager, fused. The other results are in runs/x."


def test_capture_and_open_needs_a_terminal(fusetui: Run, captured: list[Call]) -> None:
    found = fusetui("capture", "mlp", "--open")
    assert found.code == 2
    assert "--open needs a terminal" in found.sentence
    assert captured == []


def test_capture_with_failed_variants_and_open(
    fusetui: Run,
    captured: list[Call],
    opened: list[Any],
    tmp_path: Path,
    trace_file: File,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "x").mkdir(parents=True)
    trace_file("runs/x/a.json")
    assert fusetui("capture", "broken", "--open").code == 1
    assert opened == [(["runs/x/a.json"], 2, False, True)]


def test_capture_and_open(
    fusetui: Run,
    captured: list[Call],
    opened: list[Any],
    tmp_path: Path,
    trace_file: File,
) -> None:
    found = fusetui("capture", "mlp", "--open")
    assert found.code == 2  # this capture wrote nothing
    assert "runs/x" in found.sentence


def test_open_passes_one_trace_and_the_look_on(
    fusetui: Run, opened: list[Any], trace_file: File
) -> None:
    path = str(trace_file())
    assert fusetui("open", path, "--ascii", "--no-mouse").code == 0
    assert opened == [([path], 2, True, False)]


@pytest.mark.parametrize("more", [(), ("--ascii",)])
def test_a_trace_is_opened_without_a_command(
    fusetui: Run, opened: list[Any], trace_file: File, more: tuple[str, ...]
) -> None:
    path = str(trace_file())
    assert fusetui(path, *more).code == 0
    assert fusetui("sample:mlp-eager").code == 0
    assert opened[0] == ([path], 2, bool(more), True)
    assert opened[1][0][0].endswith("mlp-eager.json.gz")


def test_a_command_goes_before_a_file_of_its_name(
    fusetui: Run, opened: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "samples").write_text("{}")
    assert fusetui("samples").code == 0
    assert not opened


def test_open_passes_two_traces_on(
    fusetui: Run, opened: list[Any], trace_file: File
) -> None:
    a, b = str(trace_file("a.json")), str(trace_file("b.json"))
    assert fusetui("open", a, b).code == 0
    assert opened == [([a, b], 2, False, True)]


def test_open_passes_the_file_of_a_sample_on(fusetui: Run, opened: list[Any]) -> None:
    assert fusetui("open", "sample:mlp-eager").code == 0
    ((paths, *_),) = opened
    assert paths[0].endswith("mlp-eager.json.gz")


def test_open_run_folder(
    fusetui: Run, opened: list[Any], trace_file: File, tmp_path: Path
) -> None:
    files = [str(trace_file(name)) for name in ("z.json", "a.json")]
    (tmp_path / "run.json").write_text(
        '{"variants": [{"files": ["z.json"]}, {"failed": "no"}, {"files": ["a.json", "x"]}]}'
    )
    found = fusetui("open", tmp_path)
    assert found.code == 0
    assert (
        "lists 'x', which cannot be opened (no such file or directory)"
        in found.sentence
    )
    assert opened == [(files, 2, False, True)]


def test_open_folder_to_choose_from(
    fusetui: Run, opened: list[Any], trace_file: File, tmp_path: Path
) -> None:
    ranks = [str(trace_file(name)) for name in ("a.json", "b.json")]
    assert fusetui("open", tmp_path).code == 0
    assert opened == [(ranks, 0, False, True)]


@pytest.mark.parametrize("name", ["nowhere.json", "sample:nothing", "-"])
def test_open_of_what_does_not_exist_is_refused(
    fusetui: Run, opened: list[Any], name: str
) -> None:
    found = fusetui("open", name)
    assert found.code == 2
    assert found.sentence
    assert not opened


def test_open_needs_a_terminal(fusetui: Run) -> None:
    found = fusetui("open", "sample:mlp-eager")
    assert found.code == 2
    assert "fusetui summary" in found.sentence
    assert "textual" not in found.out
    assert sys.stdout is not None
