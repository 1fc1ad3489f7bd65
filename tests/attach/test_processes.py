"""What /proc tells of processes: forks, helpers, ranks."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from fusetui.attach import processes
from fusetui.attach.processes import Process, forks_of, is_ancestor, is_fork, process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
TWO = """
import os, subprocess, sys, time
if len(sys.argv) == 2 and "STARTED" not in os.environ:
    if sys.argv[1] == "fork":
        pid = os.fork()
    else:
        pid = subprocess.Popen([sys.executable, *sys.argv], env=os.environ | {"STARTED": "1"}).pid
    if pid:
        print(pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("how", ["fork", "start"])
def test_a_fork_is_told_from_a_process_of_the_same_command(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "has_torch", lambda pid: True)
    program = tmp_path / "two.py"
    program.write_text(TWO)
    line = [sys.executable, str(program), how]
    with subprocess.Popen(line, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            until = time.monotonic() + 10
            found = process(child)
            while (
                found is None or found.program != "two.py"
            ) and time.monotonic() < until:
                found = process(child)  # it is on its way to its own program
            assert found is not None
            assert is_fork(found) == (how == "fork")
            assert [one.pid for one in forks_of([parent.pid])] == [child] * (
                how == "fork"
            )
            above = process(parent.pid)
            assert above is not None
            assert is_ancestor(above, found)
            assert not is_ancestor(found, above)
        finally:
            os.kill(child, 9)
            parent.kill()


def test_a_fork_of_a_program_without_torch_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has loaded torch itself, with the thread that asks."""
    own = process(os.getpid())
    assert own is not None
    parent = replace(own, pid=own.parent)
    monkeypatch.setattr(processes, "process", lambda pid: parent)
    monkeypatch.setattr(processes, "has_torch", lambda pid: True)
    assert is_fork(own)
    monkeypatch.setattr(processes, "has_torch", lambda pid: False)
    assert not is_fork(own)


@pytest.mark.parametrize(
    ("command", "program", "helps"),
    [
        (
            ("python", "-m", "torch.distributed.run", "train.py"),
            "torch.distributed.run",
            True,
        ),
        (("/usr/bin/torchrun", "train.py"), "torchrun", True),
        (
            ("python", "/x/torch/_inductor/compile_worker/__main__.py", "-n"),
            "__main__.py",
            True,
        ),
        (("python", "train.py", "torchrun"), "train.py", False),
    ],
)
def test_helpers_run_no_operations(
    command: tuple[str, ...], program: str, helps: bool
) -> None:
    one = Process(1, 0, 0, command, program, frozenset(), "")
    assert one.only_helps is helps


def test_ranks_of_this_machine_follow_from_rank_variables() -> None:
    given = {"RANK": "5", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    assert processes._ranks_here(given) == (4, 5, 6, 7)
    assert processes._ranks_here(given | {"LOCAL_RANK": ""}) == ()
    assert processes._ranks_here({}) == ()
    assert len(processes._ranks_here(given | {"LOCAL_WORLD_SIZE": "999999"})) == 1024
