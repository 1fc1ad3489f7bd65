"""Unreadable input ends with one sentence and exit code 2; partly read input is
reported."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
File = Callable[..., Path]
COMMANDS = ["summary", "kernels", "ops", "launches", "modules", "lines"]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "no such file"),
        (b"", "is empty"),
        (b"hello", "not the JSON"),
        (b"\x7fELF\x00", "not the JSON"),
        (b'{"a": 1}', "no traceEvents"),
        (b'{"schema": "1.1.1", "nodes": []}', "execution trace"),
        (b"[1, 2]", "not of trace events"),
        (gzip.compress(b"hello", mtime=0), "not the JSON"),
        (gzip.compress(b'{"traceEvents": []}', mtime=0)[:12], "gzip"),
        (
            gzip.compress(b'{"schemaVersion": 1, "traceEvents": []}', 0, mtime=0)[:30],
            "gzip",
        ),
    ],
)
def test_files_that_are_no_traces_are_refused_by_every_command(
    fusetui: Run, tmp_path: Path, command: str, content: bytes | None, says: str
) -> None:
    path = tmp_path / "trace.json"
    if content is not None:
        path.write_bytes(content)
    found = fusetui(command, path)
    assert (found.code, found.out) == (2, "")
    assert says in found.sentence
    assert str(path) in found.sentence


def test_folder_with_one_trace_opens_and_others_are_refused(
    fusetui: Run, tmp_path: Path, trace_file: File
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "without traces" in fusetui("summary", empty).sentence
    trace_file("a.json")
    assert fusetui("summary", tmp_path).code == 0
    trace_file("b.json")
    found = fusetui("summary", tmp_path)
    assert found.code == 2
    assert "a.json, b.json" in found.sentence


def test_unknown_sample_is_refused_with_the_known_names(fusetui: Run) -> None:
    found = fusetui("summary", "sample:nothing")
    assert found.code == 2
    assert "mlp-eager" in found.sentence


@pytest.mark.parametrize(
    "command", [["summary"], ["kernels"], ["ops"], ["check", "--expect=gemm=9"]]
)
def test_truncated_gzip_is_answered_with_exit_code_2(
    fusetui: Run, trace_file: File, command: list[str]
) -> None:
    path = trace_file()
    whole = gzip.compress(path.read_bytes(), compresslevel=0, mtime=0)
    path.write_bytes(whole[:-1000])
    found = fusetui(*command, path)
    assert found.code == 2
    assert "ends early, at byte" in found.sentence
    assert "cannot be verified" in found.sentence
    assert found.out
    assert fusetui("summary", path, "--json").json["complete"] is False


def test_truncated_json_is_answered_and_marked_incomplete(
    fusetui: Run, trace_file: File
) -> None:
    path = trace_file()
    path.write_bytes(path.read_bytes()[:-100])
    found = fusetui("summary", path, "--json")
    assert found.code == 0
    assert found.json["complete"] is False
    assert "ends early in the event at byte" in found.sentence
    assert "38 events could be read" in found.sentence


def test_skipped_events_are_counted_on_stderr(fusetui: Run, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    good = '{"ph": "X", "name": "a", "ts": 1, "dur": 1}'
    path.write_text(
        f'{{"traceEvents": [{good}, {{"ph": "X", "name": "a"b"}}, {good}]}}'
    )
    found = fusetui("summary", path, "--json")
    assert found.code == 0
    assert found.json["events_skipped"] == 1
    assert "1 of 3 events could not be read; the first is at byte 62" in found.sentence


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["sumary"], "no such command"),
        (["sumary"], "did you mean summary?"),
        (["summary"], "fusetui summary needs TRACE; see"),
        (["kernels"], "fusetui kernels needs TRACE; see"),
        (["summary", "x", "y"], "no such argument: y"),
        (["capture"], "needs WORKLOAD"),
        (["summary", "--jsn", "x"], "no such option"),
        (
            ["kernels", "x", "--top", "-1"],
            "--top takes a number of at least 0, not '-1'",
        ),
        (["kernels", "x", "--top", "many"], "--top takes a whole number, not 'many'"),
        (
            ["kernels", "x", "--by", "color"],
            ("library, stream, step or family, not 'color';"),
        ),
        (["why", "x", "--step", "one"], "--step takes a whole number, not 'one'"),
        (["why", "x", "--from", "-5ms"], "--from needs a value, as in --from=VALUE"),
        (["why", "x", "--json=yes"], "--json takes no value"),
        (
            ["diff", "x", "y", "--fail-over", "nan"],
            "takes a number of at least 0, not 'nan'",
        ),
        (
            ["capture", "mlp", "--steps", "few"],
            "--steps takes a whole number, not 'few'",
        ),
        (["completion", "tcsh"], "SHELL takes bash, zsh or fish, not 'tcsh'"),
        (["summary", ""], "The trace name is empty"),
        (
            ["kernels", "x", "--peak", "bf17=1e15"],
            "bf17=1e15: the kind must be one of fp64, ",
        ),
        (["kernels", "x", "--peak", "bf16"], "--peak bf16: use a number of"),
        (["kernels", "x", "--peak", "bf16=989"], "FLOP per second, as in bf16=989e12"),
        (
            ["kernels", "x", "--peak", "bandwidth=nan"],
            "bytes per second, as in bandwidth=3.35e12",
        ),
        (["check", "x"], "--expect"),
        (["check", "x", "--expect", "gem=3"], "gemm=3"),
        (["check", "x", "--expect", ""], "empty"),
        (["check", "x", "--expect", "gemm=-1"], "use a whole number, as in gemm=3"),
        (["diff", "x"], "second trace"),
        (["diff", "x", "y", "--json", "--markdown"], "not both"),
        (["open", "x"], "needs a terminal"),
        (["decode"], "needs NAME"),
        (["decode", "-"], "Standard input"),
    ],
)
def test_wrong_arguments_are_one_sentence_with_exit_code_2(
    fusetui: Run, arguments: list[str], says: str
) -> None:
    found = fusetui(*arguments)
    assert (found.code, found.out) == (2, "")
    assert says in found.sentence


def test_a_folder_that_is_no_run_is_not_compared_with_itself(
    fusetui: Run, tmp_path: Path
) -> None:
    found = fusetui("diff", tmp_path)
    assert (found.code, found.out) == (2, "")
    assert found.sentence.startswith(
        f"{tmp_path} is not a run folder: add a second trace"
    )


def test_files_of_which_none_is_a_rank(fusetui: Run, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    found = fusetui("ranks", missing)
    assert (found.code, found.out) == (2, "")
    assert found.sentence == f"{missing} cannot be opened: no such file or directory."
    found = fusetui("ranks", missing, tmp_path / "gone", tmp_path / "lost")
    assert found.sentence.endswith("; none of 2 other files is a rank either.")


def test_window_beyond_the_trace_is_refused(fusetui: Run) -> None:
    found = fusetui("why", "lesson:mlp-eager", "--from", "1000s")
    assert (found.code, found.out) == (2, "")
    assert "The window is empty: lesson:mlp-eager covers 0 to" in found.sentence


def test_a_window_is_a_part_of_the_trace(fusetui: Run) -> None:
    """Outside of it nothing is known."""
    whole = fusetui("why", "lesson:mlp-eager", "--from", "0ns", "--json").json
    wider = fusetui(
        "why", "lesson:mlp-eager", "--from=-5ms", "--to", "1000s", "--json"
    ).json
    assert wider == whole


def test_a_capture_for_a_trace_without_graphs_is_said_to_change_nothing(
    fusetui: Run,
) -> None:
    found = fusetui(
        "kernels", "lesson:mlp-eager", "--captured-by", "lesson:mlp-compiled"
    )
    assert found.code == 0
    assert found.sentence == (
        "lesson:mlp-eager replays no graph: --captured-by has no effect."
    )


def test_unknown_workload_is_refused_with_the_known_names(fusetui: Run) -> None:
    pytest.importorskip("torch", reason="capture asks for torch first")
    found = fusetui("capture", "nothing")
    assert found.code == 2
    assert "mlp" in found.err.splitlines()[-1]
    assert "Traceback" not in found.err


def test_pipe_that_closes(trace_file: File) -> None:
    """As in `fusetui decode ... | head -0`: no message, and the exit code of
    SIGPIPE."""
    read, write = os.pipe()
    os.close(read)
    run = subprocess.run(
        [sys.executable, "-P", "-m", "fusetui", "ops", str(trace_file())],
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(write)
    assert (run.returncode, run.stderr) == (141, b"")


def test_ctrl_c_ends_a_command_without_a_traceback() -> None:
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "fusetui", "decode", "a", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as run:
        with pytest.raises(subprocess.TimeoutExpired):
            run.wait(1.5)  # it waits for more names
        run.send_signal(signal.SIGINT)
        _, err = run.communicate(timeout=30)
    assert (run.returncode, err) == (130, b"")


def test_a_cut_event_with_what_looks_like_the_end_of_the_list_is_told_of(
    fusetui: Run, tmp_path: Path
) -> None:
    whole = '{"ph":"X","name":"a","cat":"cpu_op","ts":0,"dur":5,"pid":1,"tid":1}'
    place = tmp_path / "cut.json"
    place.write_text(
        f'[\n{whole},\n{{"ph":"X","pid":[{{"a":{{"b":[]}}}},1],"args":{{"c": 9'
    )
    found = fusetui("check", place, "--expect=kernels=1")
    assert found.code == 2
    assert "ends early in the event at byte 71: 1 event could be read" in found.sentence


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1 2, "traceEvents": [%s]}',
        '{"traceEvents": [%s], "b": 3 4}',
    ],
)
def test_keys_that_cannot_be_read_are_told_of(
    fusetui: Run, tmp_path: Path, text: str
) -> None:
    event = '{"ph":"X","name":"a","cat":"cpu_op","ts":0,"dur":5,"pid":1,"tid":1}'
    place = tmp_path / "keys.json"
    place.write_text(text % event)
    found = fusetui("summary", place)
    keys = f"{place}: some keys outside the events could not be read"
    assert (found.code, found.sentence) == (0, f"{keys}.")
    found = fusetui("convert", place, tmp_path / "out.json")
    assert (found.code, found.sentence) == (0, f"{keys} and are omitted.")
