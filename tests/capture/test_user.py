"""The user's own callables."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.laptops import needs_fork

from fusetui.capture import provenance
from fusetui.capture.command import capture
from fusetui.capture.errors import CaptureError
from fusetui.capture.options import Options

torch = pytest.importorskip("torch", reason="capture runs torch")
user = pytest.importorskip("fusetui.capture.job", reason="needs torch")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("fast_timing")]


def variants(target: str, folder: Path, **options: Any) -> list[dict[str, Any]]:
    capture(target, Options(device="cpu", seconds=1e-9, **options), folder)
    found: list[dict[str, Any]] = json.loads((folder / "run.json").read_text())[
        "variants"
    ]
    return found


def test_functions_of_a_file_are_captured_and_compared(
    code: Path, tmp_path: Path
) -> None:
    first, second = variants(f"{code}:build", tmp_path / "a")
    assert (first["name"], first["max_error"]) == ("function", None)
    assert (second["name"], second["max_error"]) == ("pair", 3.0)


def test_a_module_is_found_in_the_working_directory(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(variants("ways:build", tmp_path / "a")) == 2


def test_whole_numbers_are_shapes(code: Path, tmp_path: Path) -> None:
    variants(f"{code}:build", tmp_path / "a", shapes=["--batch", "2"])
    record = json.loads((tmp_path / "a" / "run.json").read_text())
    assert record["shapes"] == {"batch": 2, "dim": 3}
    assert record["summary"] == "Two ways to multiply."
    assert record["dtype"] == ""


def test_functions_of_a_file_can_be_swept(code: Path, tmp_path: Path) -> None:
    options = Options(device="cpu", sweep=["batch=1,2"], seconds=1e-9)
    outcome = capture(f"{code}:build", options, tmp_path / "a")
    assert (outcome.folder / "batch=2" / "pair.json.gz").exists()


def test_a_training_step_needs_a_result_with_a_gradient(
    code: Path, tmp_path: Path
) -> None:
    first, second = variants(f"{code}:build", tmp_path / "a", backward=True)
    assert "failed" not in first | second
    with pytest.raises(CaptureError, match="does not require grad"):
        variants(f"{code}:typed", tmp_path / "b", backward=True)


def test_device_and_dtype_are_passed(code: Path, tmp_path: Path) -> None:
    (only,) = variants(f"{code}:typed", tmp_path / "a", dtype="bf16")
    assert only["kernels_per_step"] == 1
    assert json.loads((tmp_path / "a" / "run.json").read_text())["dtype"] == "bfloat16"


def test_an_exception_in_a_function_spares_the_others(
    code: Path, tmp_path: Path
) -> None:
    broken, fine = variants(f"{code}:broken", tmp_path / "a")
    assert broken["failed"] == "ValueError: no luck (ways.py, line 12)"
    assert fine["files"] == ["fine.json.gz"]


def test_a_compiled_function_has_a_compile_time(code: Path, tmp_path: Path) -> None:
    (only,) = variants(f"{code}:graph_breaks", tmp_path / "a")
    assert only["compile_ns"] > 0
    assert only["recompilations"] == 0


@pytest.mark.parametrize("target", ["build", "typed", "broken"])
def test_a_scrubbed_record_names_no_folder(
    target: str, code: Path, tmp_path: Path
) -> None:
    variants(f"{code}:{target}", tmp_path / "a", scrub=True)
    text = (tmp_path / "a" / "run.json").read_text()
    assert json.loads(text)["workload"] == f"dir1/ways.py:{target}"
    assert not any(part in text for part in code.parent.parts[1:])


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("absent", {}, "has no function 'absent'"),
        ("leaves", {}, r"leaves failed: SystemExit: 3 \(ways.py, line 20\)"),
        ("nothing", {}, "returned int: it must return a function"),
        (
            "build",
            {"shapes": ["--rows=3"]},
            "Unknown option --rows: this workload has --batch",
        ),
        ("build", {"variants": ["fast"]}, "has no variant 'fast', only function, pair"),
        (
            "build",
            {"mode": "max-autotune"},
            ("--mode applies only to built-in workloads"),
        ),
        ("build", {"dtype": "bf16"}, "--dtype has no effect"),
    ],
)
def test_user_code_that_cannot_run_is_one_sentence_and_leaves_no_folder(
    code: Path, tmp_path: Path, name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(CaptureError, match=message):
        variants(f"{code}:{name}", tmp_path / "a", **options)
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ""] in (
        [],
        ["__pycache__"],
    )


def test_code_that_changes_the_folder_keeps_its_run(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    looked: list[Path] = []
    monkeypatch.setattr(
        provenance, "provenance", lambda kind, where, scrubbed: looked.append(where)
    )
    fine, broken = variants(f"{code.name}:moves", Path("a"))
    assert fine["files"] == ["fine.json.gz"]
    assert broken["failed"].startswith("TypeError: ")
    assert (tmp_path / "a" / "fine.json.gz").exists()
    assert looked == [tmp_path]


def test_a_sweep_of_code_that_changes_the_folder_goes_on(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = Options(["fine"], "cpu", sweep=["batch=1,2"], seconds=1e-9)
    capture(f"{code.name}:moves", options, Path("a"))
    assert (tmp_path / "a" / "batch=2" / "fine.json.gz").exists()


@needs_fork
def test_code_that_forks_keeps_its_run(code: Path, tmp_path: Path) -> None:
    parent = os.getpid()
    try:
        (only,) = variants(f"{code}:forks", tmp_path / "a")
    finally:
        if os.getpid() != parent:  # the child came back: its exit code says so
            os._exit(9)
    assert only["files"] == ["function.json.gz"]
    record = json.loads((tmp_path / "a" / "run.json").read_text())
    assert record["summary"] == "[0, 0]"


def test_which_function_failed_is_in_the_outcome(code: Path, tmp_path: Path) -> None:
    options = Options(device="cpu", seconds=1e-9)
    outcome = capture(f"{code}:broken", options, tmp_path / "a")
    assert (outcome.folder, outcome.failed) == (tmp_path / "a", ("broken",))


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("no_such_file.py:build", r"^There is no file no_such_file\.py\.$"),
        ("no_such_module:build", "no_such_module cannot be imported: .*no_such_module"),
    ],
)
def test_code_that_cannot_be_imported_is_one_sentence(
    target: str, says: str, tmp_path: Path
) -> None:
    with pytest.raises(CaptureError, match=says):
        capture(target, Options(device="cpu"), tmp_path / "a")


def test_names_must_be_names_of_files() -> None:
    with pytest.raises(CaptureError, match="use letters, digits"):
        user.functions_of({"../x": print}, "f.py:build")
