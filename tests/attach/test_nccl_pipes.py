"""Dumps of NCCL by its pipes, and the environment that switches its recorder on."""

from __future__ import annotations

import os
from pathlib import Path

from fusetui.attach.nccl_pipes import ask_pipes, recorder_environment


def test_a_rank_that_listens_to_its_pipe_is_asked(tmp_path: Path) -> None:
    pipe = tmp_path / "rank_0.pipe"
    os.mkfifo(pipe)
    listener = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert ask_pipes(str(tmp_path)) == 1
        assert os.read(listener, 10) == b"1"
    finally:
        os.close(listener)


def test_a_pipe_without_a_listener_and_a_plain_file_are_left_alone(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "rank_0.pipe")
    plain = tmp_path / "rank_1.pipe"
    plain.touch()
    assert ask_pipes(str(tmp_path)) == 0
    assert plain.read_bytes() == b""


def test_a_recorder_buffer_size_set_by_the_user_stays(tmp_path: Path) -> None:
    given = {"TORCH_FR_BUFFER_SIZE": "20"}
    added = recorder_environment(tmp_path, "/pipes", given)
    assert "TORCH_FR_BUFFER_SIZE" not in added
    assert added["TORCH_NCCL_TRACE_BUFFER_SIZE"] == "2000"
    assert added["TORCH_FR_DUMP_TEMP_FILE"] == f"{tmp_path}/rank_"
