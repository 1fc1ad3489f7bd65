"""`record --dumps` and `run --dumps`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Result
from tests.debug_server import RankAnswer, debug_server, dumps_of, page, stacks
from tests.flight_dumps import Job
from tests.ports import free_port

Run = Callable[..., Result]


def missing_rank(*others: RankAnswer) -> dict[str, bytes]:
    """The pages of a job whose rank 1 has not come to an all_gather; `others` are what
    the ranks from 2 on answer."""
    job = Job(2, "gloo")
    job.everywhere()
    job.issue(0, "all_gather", over=False)
    sleeping = stacks(("/job/train.py", 7, "load"), ("/job/train.py", 30, "main"))
    return {
        "/fr_trace_json": page(dumps_of(job) | dict(enumerate(others, 2))),
        "/fr_trace_nccl_json": page({}),
        "/stacks": page({1: sleeping}),
    }


def test_record_writes_a_dump_for_each_rank(fusetui: Run, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with debug_server(missing_rank()) as address:
        told = fusetui("record", "--dumps", "--server", address, "--out", out)
    assert told.code == 0
    assert sorted(path.name for path in out.iterdir()) == ["rank_0", "rank_1"]
    assert "2 dumps with 3 collectives" in told.err


def test_the_answer_says_where_the_missing_rank_was(
    fusetui: Run, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with debug_server(missing_rank()) as address:
        fusetui("record", "--dumps", "--server", address, "--out", out)
    told = fusetui("hang", out)
    assert told.code == 1
    one_line = " ".join(told.out.split())
    assert "It was at load, /job/train.py:7 when the dumps were taken." in one_line


def test_a_rank_that_does_not_answer_is_named(fusetui: Run, tmp_path: Path) -> None:
    with debug_server(missing_rank(RankAnswer("refused", 503))) as address:
        told = fusetui(
            "record", "--dumps", "--server", address, "--out", tmp_path / "out"
        )
    assert told.code == 1
    assert "No dump of rank 2: it did not answer the debug server" in told.err


def test_a_job_without_a_debug_server_leaves_no_folder(
    fusetui: Run, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    address = f"localhost:{free_port()}"
    told = fusetui("record", "--dumps", "--server", address, "--out", out)
    assert told.code == 2
    assert "start_debug_server()" in told.sentence
    assert not out.exists()


@pytest.mark.parametrize(
    "line",
    [
        "record --dumps --pid 1",
        "record --dumps --steps 3",
        "run --dumps --steps 3 -- ls",
    ],
)
def test_options_of_traces_are_refused(
    fusetui: Run, line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    told = fusetui(*line.split())
    assert told.code == 2
    assert "--dumps records no trace: omit --" in told.sentence
    assert not list(tmp_path.iterdir())


def test_dumps_of_two_recorders_are_two_jobs(fusetui: Run, tmp_path: Path) -> None:
    pages = missing_rank()
    pages["/fr_trace_nccl_json"] = pages["/fr_trace_json"]
    out = tmp_path / "out"
    with debug_server(pages) as address:
        told = fusetui("record", "--dumps", "--server", address, "--out", out)
    assert told.code == 0
    for recorder in ("cpu", "nccl"):
        assert f"out/{recorder}\n" in told.err
        assert fusetui("hang", out / recorder).code == 1


WRITES_ITS_DUMP = """
import os, pathlib
pathlib.Path(os.environ["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] + "0").write_bytes(b"dump")
"""


def test_run_lists_the_dumps_that_the_program_wrote(
    fusetui: Run, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    program = (sys.executable, "-c", WRITES_ITS_DUMP)
    told = fusetui("run", "--dumps", "--no-open", "--out", out, "--", *program)
    assert told.code == 0
    assert [path.name for path in out.iterdir()] == ["rank_0"]
    assert "See why the job hangs: fusetui hang" in told.err


def test_run_of_a_program_that_did_not_hang_is_no_error(
    fusetui: Run, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    told = fusetui(
        "run",
        "--dumps",
        "--out",
        out,
        "--",
        sys.executable,
        "-c",
        "raise SystemExit(3)",
    )
    assert told.code == 3
    assert "No dump was written: no NCCL collective timed out" in told.sentence
    assert not out.exists()


def test_run_asks_the_debug_server_once_it_is_time(
    fusetui: Run, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    sleeps = (sys.executable, "-c", "import time; time.sleep(2)")
    with debug_server(missing_rank()) as address:
        options = ("--dumps", "--after", 0.1, "--server", address, "--no-open")
        told = fusetui("run", *options, "--out", out, "--", *sleeps)
    assert told.code == 0
    assert sorted(path.name for path in out.iterdir()) == ["rank_0", "rank_1"]
