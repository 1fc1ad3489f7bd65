"""torch.compile's log beside the trace of a compiled variant."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusetui.analysis.compiled.finding import FOLDER_ENDING
from fusetui.capture import compile_log
from fusetui.capture.options import LOOP_OPTIONS, Options
from fusetui.capture.session import _compile_log_folder
from fusetui.command_line.parser import parse
from fusetui.commands.run import compile_log_folder
from fusetui.trace.compile_log.files import find_log_files
from fusetui.trace.compile_log.records import read_records

torch = pytest.importorskip("torch")


def log_something() -> None:
    from torch._logging import trace_structured

    trace_structured(
        "artifact",
        metadata_fn=lambda: {"name": "something", "encoding": "string"},
        payload_fn=lambda: "first\nsecond",
        expect_trace_id=False,
    )


def test_what_is_compiled_in_the_block_is_logged(tmp_path: Path) -> None:
    import torch._inductor.config

    folder = compile_log.folder_beside(tmp_path, "compiled")
    level = torch._inductor.config.trace.provenance_tracking_level
    with compile_log.logged(folder):
        assert torch._inductor.config.trace.provenance_tracking_level >= 1
        log_something()
    log_something()
    assert torch._inductor.config.trace.provenance_tracking_level == level
    (path,) = find_log_files(str(folder)).logs
    records = read_records(path)
    assert [records.kinds[kind] for kind in records.kind].count("something") == 1
    place = records.kinds.index("something")
    assert records.text(int((records.kind == place).argmax())) == "first\nsecond"


def test_nothing_is_written_where_nothing_is_compiled(tmp_path: Path) -> None:
    with compile_log.logged(tmp_path / "log"):
        pass
    with compile_log.logged(None):
        log_something()
    assert list(tmp_path.iterdir()) == []


def test_a_torch_without_such_logs_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._logging import _internal

    monkeypatch.delattr(_internal, "LazyTraceHandler")
    with compile_log.logged(tmp_path / "log"):
        log_something()
    assert list(tmp_path.iterdir()) == []


def test_a_loop_logs_on_request_and_never_when_scrubbed(tmp_path: Path) -> None:
    assert "compile_log" in LOOP_OPTIONS
    wanted = _compile_log_folder(Options(compile_log=True), tmp_path, "train")
    assert wanted == tmp_path / f"train{FOLDER_ENDING}"
    assert _compile_log_folder(Options(compile_log=False), tmp_path, "train") is None
    assert (
        _compile_log_folder(Options(compile_log=True, scrub=True), tmp_path, "train")
        is None
    )


def test_the_folder_of_run_is_one_that_compile_finds(tmp_path: Path) -> None:
    assert compile_log_folder(tmp_path).name == "compile_log"


def test_the_option_of_run() -> None:
    assert parse(["run", "--compile-log", "--", "python", "x.py"]).compile_log
    assert not parse(["run", "--", "python", "x.py"]).compile_log
