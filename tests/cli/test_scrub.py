"""`fusetui scrub`, and what `summary` says about secrets."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
File = Callable[..., Path]
TOKEN = "hf_" + "aB3dE5gH7jK9" * 3


@pytest.fixture
def private(trace_file: File) -> Path:
    """A trace that reveals where and by whom it was made."""
    path = trace_file("private.json")
    document = json.loads(path.read_text())
    document["metadata"] = {"env": {"HF_TOKEN": TOKEN, "HOME": "/home/adal", "X": "1"}}
    document["host_name"] = "box17"
    document["traceEvents"][1]["args"] = {"file": "/home/adal/own/x.py", "on": "box17"}
    path.write_text(json.dumps(document))
    return path


def figures(run: Run, command: str, path: Path) -> Any:
    found = run(command, path, "--json").json
    return {key: found[key] for key in found if key not in ("file", "bytes")}


def test_a_trace_is_written_anew_with_the_same_figures(
    fusetui: Run, private: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.json.gz"
    found = fusetui("scrub", private, out)
    assert (found.code, found.err) == (0, "")
    assert found.out == (
        f"{out}: 39 events; removed: 3 environment variables, 1 secret, 1 user name, 1 host, "
        "2 folders.\n"
    )
    for command in ("summary", "kernels", "ops"):
        assert figures(fusetui, command, out) == figures(fusetui, command, private)
    text = gzip.decompress(out.read_bytes()).decode()
    assert not any(word in text for word in (TOKEN, "adal", "box17", "own", "home"))


def test_scrub_of_a_trace_without_private_text_says_so(
    fusetui: Run, trace_file: File, tmp_path: Path
) -> None:
    found = fusetui("scrub", trace_file(), tmp_path / "out.json")
    assert found.out.endswith("39 events; removed: nothing.\n")


def test_a_file_that_exists_is_wrong_use(fusetui: Run, private: Path) -> None:
    before = private.read_text()
    found = fusetui("scrub", private, private)
    assert found.code == 2
    assert (
        found.sentence == f"{private} already exists: choose another name, or move it."
    )
    assert private.read_text() == before


def test_unreadable_events_are_left_out_of_a_scrubbed_trace_and_told(
    fusetui: Run, tmp_path: Path
) -> None:
    path, out = tmp_path / "a.json", tmp_path / "out.json"
    path.write_text(
        '{"traceEvents": [{"ph": "X", "name": "a"}, {"ph" "X"}, {"ph": "X", "na'
    )
    found = fusetui("scrub", path, out)
    assert found.code == 0
    assert found.err.splitlines() == [
        f"{path} ends early: the readable part was written.",
        f"{path}: 2 events could not be read and are left out; the first is at byte 43 "
        "(Expecting ':' delimiter).",
    ]
    assert json.loads(out.read_text()) == {"traceEvents": [{"ph": "X", "name": "a"}]}


def test_a_packed_file_that_is_cut_is_told_and_exit_code_2(
    fusetui: Run, private: Path, tmp_path: Path
) -> None:
    packed, out = tmp_path / "a.json.gz", tmp_path / "out.json"
    packed.write_bytes(gzip.compress(private.read_bytes())[:-100])
    found = fusetui("scrub", packed, out)
    assert found.code == 2
    assert "gzip data ends early" in found.err
    assert "adal" not in out.read_text()


def test_summary_names_a_secret_and_never_tells_it(fusetui: Run, private: Path) -> None:
    found = fusetui("summary", private, "--json")
    assert found.code == 0
    assert "may contain a secret (HF_TOKEN)" in found.sentence
    assert TOKEN not in found.out + found.err


def test_a_scrubbed_trace_is_not_told_of(
    fusetui: Run, private: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.json"
    fusetui("scrub", private, out)
    assert fusetui("summary", out).err == ""


def test_the_name_of_a_secret_is_printed_escaped(fusetui: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    keys = {
        "\x1b]0;X_TOKEN": "qwertyuiop1234567",
        "traceEvents": [{"ph": "X", "name": "a"}],
    }
    path.write_text(json.dumps(keys))
    assert "\x1b" not in fusetui("summary", path).err
