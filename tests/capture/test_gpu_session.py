"""benchmarks/gpu_session.py: all that only a GPU can show, in one command."""

import json
import random
import re
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.places import ROOT
from tests.scripts import benchmark

from fusetui import kernels

torch = pytest.importorskip("torch", reason="the scripts run torch")
gpu = pytest.importorskip("tests.fake_gpu")
pytest.importorskip("fusetui.capture.recorder", reason="needs torch")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("fast_timing")]

SHORT = 20
"""Seconds within which a process prints a line on a busy machine."""
LINEAR = ROOT / "sample_traces" / "lessons" / "linear-eager.json.gz"


@pytest.fixture(scope="module")
def session() -> Any:
    return benchmark("gpu_session")


def test_every_experiment_has_its_turn_once(session: Any, tmp_path: Path) -> None:
    experiments = [one.name for one in benchmark("capture_experiments").EXPERIMENTS]
    words = [word for part in session.parts(tmp_path) for word in part.command]
    assert sorted(word for word in words if word in experiments) == sorted(experiments)
    assert all(
        (ROOT / word).exists()
        for word in words
        if word.startswith(("benchmarks/", "tests/"))
    )


def test_the_parts_and_their_packing_fit_into_the_budget(
    session: Any, tmp_path: Path
) -> None:
    made = session.parts(tmp_path)
    limits = sum(part.limit + session.PACKING_SECONDS for part in made)
    assert limits <= session.BUDGET_SECONDS
    assert made[-1].name == "attach"


def test_attaching_has_time_for_both_tries(session: Any, tmp_path: Path) -> None:
    parts = benchmark("gpu_parts")
    longest = len(parts.TRIES) * (parts.TRY_SECONDS + parts.START_SECONDS)
    assert parts.TRY_SECONDS == 12
    assert longest <= session.parts(tmp_path)[-1].limit


def python(name: str, code: str, session: Any, limit: float = 60) -> Any:
    return session.Piece(name, [sys.executable, "-c", code], limit)


def files_of(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "out" / "logs").mkdir(parents=True)
    return tmp_path / "out"


def test_a_part_that_fails_spares_the_others(
    session: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = [
        python("fails", "raise SystemExit(3)", session),
        session.Piece("missing", [str(folder / "no-such-program")], 60),
        python("runs", "print('measured')", session),
    ]
    results = session.session(
        made, folder, folder.with_suffix(".tar.gz"), 60, session.PAGE
    )
    codes = [part["code"] for part in results]
    assert (codes[0], codes[2]) == (3, 0)
    assert "No such file" in codes[1]
    assert json.loads((folder / "session.json").read_text()) == results
    assert (folder / "logs" / "runs.txt").read_text() == "measured\n"


def is_running(pid: int) -> bool:
    """Whether there is such a process, and not only what it left for its parent to
    collect."""
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        )
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at /proc")
@pytest.mark.parametrize("own_group", [False, True])
def test_two_parts_that_hang_leave_no_process_and_the_archive_comes_back(
    own_group: bool, session: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither SIGTERM nor a session of its own saves the child of a part that is out of
    time."""
    hang = f"""
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
command = [sys.executable, "-c", "import time; time.sleep(600)"]
child = subprocess.Popen(command, start_new_session={own_group})
print(os.getpid(), child.pid, flush=True)
time.sleep(600)
"""
    made = [
        python("first", "print('measured')", session, limit=SHORT),
        python("hangs", hang, session, limit=4),
        python("hangs-too", hang, session, limit=4),
        python("last", "print('measured too')", session),
    ]
    archive = folder.with_suffix(".tar.gz")
    results = session.session(made, folder, archive, 600, session.PAGE)
    assert [part["code"] for part in results] == [0, "out of time", "out of time", 0]
    for name in ("hangs", "hangs-too"):
        pids = [
            int(word) for word in (folder / "logs" / f"{name}.txt").read_text().split()
        ]
        assert len(pids) == 2
        assert not any(map(is_running, pids))
    found = files_of(archive)
    assert found["session/logs/last.txt"] == b"measured too\n"
    assert json.loads(found["session/session.json"]) == results
    assert found["session/experiments.md"] == session.PAGE.read_bytes()


def test_no_part_begins_after_the_budget(
    session: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = [python("late", "print('measured')", session)]
    archive = folder.with_suffix(".tar.gz")
    results = session.session(
        made, folder, archive, session.PACKING_SECONDS, session.PAGE
    )
    assert [part["code"] for part in results] == [None]
    assert "session/session.json" in files_of(archive)


def test_a_part_has_the_time_that_the_one_before_it_left(
    session: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that took all of its time leaves none, and nobody takes any from the parts
    behind it."""
    clock = 0.0
    takes = {"quick": 1.0, "slow": 19.0, "last": 10.0}
    limits: dict[str, float] = {}

    def run(part: Any, out: Path, seconds_left: float) -> dict[str, object]:
        nonlocal clock
        limits[part.name] = min(part.limit, seconds_left)
        clock += takes[part.name]
        return {"name": part.name, "code": 0, "seconds": takes[part.name]}

    monkeypatch.setattr(session, "run", run)
    monkeypatch.setattr(session, "pack", lambda out, archive: None)
    monkeypatch.setattr(session, "perf_counter", lambda: clock)
    made = [python(name, "", session, limit=10) for name in takes]
    session.session(made, folder, folder.with_suffix(".tar.gz"), 36, session.PAGE)
    assert limits == {"quick": 10, "slow": 19, "last": 10}


def test_each_part_of_a_gpu_session_leaves_an_archive(
    session: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = folder.with_suffix(".tar.gz")
    copy = folder.with_name("second.tar.gz")
    copies = f"import shutil; shutil.copyfile({str(archive)!r}, {str(copy)!r})"
    made = [
        python("first", "print('measured')", session),
        python("second", copies, session),
    ]
    session.session(made, folder, archive, 60, session.PAGE)
    assert files_of(copy)["session/logs/first.txt"] == b"measured\n"


def test_an_archive_is_small_and_says_what_it_leaves_out(
    session: Any, folder: Path
) -> None:
    """Noise does not compress: of three traces of 7 MiB two fit, and the text of them
    all does."""
    runs = folder / "runs"
    (runs / ".broken.part").mkdir(parents=True)
    (runs / ".broken.part" / "run.json").write_text("{}")
    noise = random.Random(1)
    for number in range(3):
        (runs / f"{number}.json.gz").write_bytes(noise.randbytes(7 * 2**20 + number))
    (runs / "run.json").write_text("{}" * 2**20)
    (folder / "session.json").write_text("[]")
    archive = folder.with_suffix(".tar.gz")
    session.pack(folder, archive)
    assert archive.stat().st_size < session.ARCHIVE_BYTES
    found = files_of(archive)
    assert {
        "session/runs/0.json.gz",
        "session/runs/1.json.gz",
        "session/runs/run.json",
    } <= {*found}
    assert "session/runs/2.json.gz" not in found
    assert not any("broken" in name for name in found)
    assert b"runs/2.json.gz" in found["session/left-out.txt"]


def test_a_rehearsal_replaces_what_is_planted(session: Any, tmp_path: Path) -> None:
    made = session.planted(session.parts(tmp_path), ["workloads=hang", "attach=fail"])
    assert [part.name for part in made] == [
        part.name for part in session.parts(tmp_path)
    ]
    commands = {part.name: part.command for part in made}
    assert commands["workloads"] == session.PLANTS["hang"]
    assert commands["attach"] == session.PLANTS["fail"]
    with pytest.raises(
        ValueError, match="'attach=sleep' is not PART=hang or fail, of gpu-state"
    ):
        session.planted(made, ["attach=sleep"])


def test_a_recorded_program_must_have_kernels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = benchmark("gpu_parts")
    monkeypatch.setattr(
        parts.subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=0)
    )
    assert parts._recorded("steps", tmp_path, "cuda") == 1
    assert "there is no trace" in capsys.readouterr().out
    op = {
        "ph": "X",
        "cat": "cpu_op",
        "pid": 1,
        "tid": 1,
        "ts": 1,
        "dur": 1,
        "name": "aten::mm",
    }
    (tmp_path / "a.json").write_text(json.dumps({"traceEvents": [op]}))
    assert parts._recorded("steps", tmp_path, "cuda") == 1
    kernel = {**op, "cat": "kernel", "pid": 0, "tid": 7}
    (tmp_path / "a.json").write_text(json.dumps({"traceEvents": [op, kernel]}))
    assert parts._recorded("steps", tmp_path, "cuda") == 0
    (tmp_path / "b.json").write_text(json.dumps({"traceEvents": [op]}))
    assert parts._recorded("steps", tmp_path, "cuda") == 1


@pytest.mark.parametrize(("left", "code"), [("a.json", 1), ("a.json.tmp", 0)])
def test_a_trace_that_is_no_trace_spares_the_next_try(
    left: str,
    code: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What libkineto only began, `*.json.tmp`, is no trace; one that cannot be read is
    told."""
    parts = benchmark("gpu_parts")
    monkeypatch.setattr(
        parts.subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=0)
    )
    kernel = {"ph": "X", "cat": "kernel", "pid": 0, "tid": 7, "ts": 1, "dur": 1}
    for name in parts.TRIES:
        (tmp_path / name).mkdir()
        whole = json.dumps({"traceEvents": [{**kernel, "name": "gemm"}]})
        (tmp_path / name / "b.json").write_text(whole)
    (tmp_path / "seconds" / left).touch()
    assert parts.attach(tmp_path, "cuda") == code
    said = capsys.readouterr().out
    assert "steps: b.json has 1 kernels" in said
    assert ("is empty" in said) == bool(code)


def test_the_wheels_are_those_that_the_project_needs() -> None:
    wheels = benchmark("wheels")
    command = wheels.command("3.12", "x86_64", Path("wheels"))
    names = {re.split(r"[<>=;]", line)[0] for line in wheels.requirements()}
    assert {"numpy", "msgspec", "textual", "pytest", "pytest-asyncio"} <= names
    assert not names & {"torch", "triton", "setuptools"}  # the machine has its own
    assert command[command.index("--python-version") + 1] == "3.12"
    assert "manylinux_2_28_x86_64" in command
    assert "manylinux_2_28_aarch64" in wheels.command("3.12", "aarch64", Path("wheels"))


def test_a_table_of_a_gpu_is_filled_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script, page = benchmark("capture_experiments"), tmp_path / "page.md"
    page.write_text("<!-- table: linear cuda -->\nNot measured yet.\n<!-- end -->\n")
    gpu.stand_in(monkeypatch, LINEAR)
    monkeypatch.setattr("fusetui.capture.step.MAX_SAMPLES", 10)
    variants = kernels.get("linear").variants
    monkeypatch.setitem(
        variants, "compiled", replace(variants["compiled"], compiled=False)
    )
    command = [
        "",
        "--device",
        "cuda",
        "--runs",
        str(tmp_path / "runs"),
        "--page",
        str(page),
    ]
    command.append("linear")
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as ended:
        script.main()
    assert ended.value.code == 0
    text = page.read_text()
    assert f"linear on cuda ({gpu.NAME})" in text
    assert "= eager gemm: expected 1, found 1" in text
    assert "eager: compute " in text
