"""Where there is no room on the disk: one sentence, an exit code that is not 0, no half
file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.flight_dumps import hanging
from tests.room import room_for
from tests.snapshots import trained

from fusetui.command_line.registry import COMMANDS
from fusetui.tables.files import TEXTS
from fusetui.trace.scrub.document import ENDINGS

Run = Callable[..., Any]
File = Callable[..., Path]
LESSON = "lesson:mlp-eager"
ARGUMENTS = {
    **{name: ["lesson:mlp-eager", "lesson:mlp-compiled"] for name in ("diff", "ranks")},
    "sql": [LESSON, "select 1"],
    "check": [LESSON, "--expect=kernels=1"],
    "decode": ["ampere_sgemm_128x64_tn"],
    "samples": [],
    "help": [],
    "whatif": [LESSON, "family:gemm x0.5"],
    "memory": ["SNAPSHOT"],
    "hang": ["DUMPS"],
    "schema": ["summary"],
    "completion": ["bash"],
}
"""Of the commands that do not take one trace."""
MORE = {
    "sql": ((),),
    **dict.fromkeys(("schema", "help", "completion", "stacks"), ((),)),
    **dict.fromkeys(
        ("steps", "slices"), ((), *((f"--format={form}",) for form in TEXTS))
    ),
}
"""Options of the commands without `--json`."""
NO_OUTPUT = (
    *("capture", "tutor", "open", "scrub", "cut", "convert", "mcp"),
    *("perfetto", "picture", "report", "run", "record", "watch"),
)


@pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="this system has no full device"
)
@pytest.mark.parametrize(
    "name", [one.name for one in COMMANDS if one.name not in NO_OUTPUT]
)
def test_output_to_a_full_disk_is_one_sentence_and_no_success(
    fusetui: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    made = {"SNAPSHOT": trained(tmp_path)} if name == "memory" else {}
    if name == "hang":
        made["DUMPS"] = hanging(tmp_path / "dumps")
    for more in MORE.get(name, ((), ("--json",))):
        with open("/dev/full", "w") as full:
            monkeypatch.setattr("sys.stdout", full)
            found = fusetui(
                name, *(made.get(w, w) for w in ARGUMENTS.get(name, [LESSON])), *more
            )
        assert found.code == 2
        assert (
            found.sentence
            == "Standard output cannot be written: No space left on device."
        )


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("command", [("scrub",), ("convert",), ("cut", "--from=0ns")])
def test_trace_written_to_a_full_disk_is_one_sentence_and_leaves_nothing(
    fusetui: Run,
    tmp_path: Path,
    trace_file: File,
    ending: str,
    command: tuple[str, ...],
) -> None:
    path = trace_file()
    for room in (0, 200):
        with room_for(room):
            found = fusetui(*command, path, tmp_path / f"out{ending}")
        assert found.code == 2
        assert found.sentence.endswith(
            f"out{ending} cannot be written: file too large."
        )
        assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "command", ["picture OUT.svg", "report OUT.html", "stacks OUT.folded"]
)
def test_writing_what_was_asked(
    fusetui: Run, tmp_path: Path, trace_file: File, command: str
) -> None:
    path, (name, out) = trace_file(), command.split()
    with room_for(20):
        found = fusetui(name, path, tmp_path / out)
    assert found.code == 2
    assert found.sentence.endswith(f"{out} cannot be written: file too large.")
    assert list(tmp_path.iterdir()) == [path]


def test_full_disk_of_the_cache_is_not_reported(
    fusetui: Run, tmp_path: Path, trace_file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It helps only to open a trace again sooner: nothing is said."""
    monkeypatch.setenv("FUSETUI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("fusetui.trace.cache.entry.MIN_DOCUMENT_BYTES", 0)
    path = trace_file()
    with room_for(200):
        found = fusetui("summary", path)
    assert (found.code, found.err) == (0, "")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [path]
