"""The lines of capture that only a GPU runs, run without one: tests/fake_gpu.py stands
in."""

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.places import ROOT
from tests.snapshots import trained

from fusetui import kernels
from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.model import Answer
from fusetui.capture import profile
from fusetui.capture.command import capture
from fusetui.capture.options import DEFAULT_STEPS, ROUNDS, Options
from fusetui.kernels import Variant
from fusetui.trace import open_trace
from fusetui.trace.snapshot.reading import read_snapshot

torch = pytest.importorskip("torch", reason="capture runs torch")
gpu = pytest.importorskip("tests.fake_gpu")
pytest.importorskip("fusetui.capture.recorder", reason="needs torch")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("fast_timing")]

LESSON = ROOT / "sample_traces" / "lessons" / "mlp-eager.json.gz"
SHAPES = ["--batch=2", "--seq=3", "--dim=4", "--hidden=5"]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, int]:
    found: Mapping[str, int] = gpu.stand_in(monkeypatch, LESSON)
    return found


def record(folder: Path, variants: list[str], **options: Any) -> Any:
    asked = Options(variants, "cuda", shapes=SHAPES, seconds=0.01, **options)
    outcome = capture("mlp", asked, folder)
    return json.loads((outcome.folder / "run.json").read_text())


def test_a_run_on_a_gpu(calls: Mapping[str, int], tmp_path: Path) -> None:
    found = record(tmp_path / "a", ["eager"], expect=["kernels=5 gemm=3"])
    (eager,) = found["variants"]
    assert (found["device"], found["device_kind"]) == (gpu.NAME, "cuda")
    assert eager["kernels_per_step"] == 5
    assert eager["peak_memory_bytes"] == gpu.PEAK_BYTES
    assert 0 < eager["step_ns"]["p10"] <= eager["step_ns"]["median"]
    assert [guess["found"] for guess in eager["guesses"]] == [
        [5] * DEFAULT_STEPS,
        [3] * DEFAULT_STEPS,
    ]
    assert calls["synchronize"] > 3


def test_record_describes_the_simulated_gpu(
    calls: Mapping[str, int], tmp_path: Path
) -> None:
    state = record(tmp_path / "a", ["eager"])["provenance"]["gpu"]
    assert (state["multiprocessors"], state["l2_cache_bytes"]) == (108, gpu.CACHE_BYTES)
    assert state["capability"] == "8.0"


def test_inputs_take_turns_until_they_exceed_the_cache(
    calls: Mapping[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[int, int] = {}

    def watched(model: Any) -> Any:
        model.register_forward_pre_hook(
            lambda _, inputs: seen.update({inputs[0].data_ptr(): inputs[0].nbytes})
        )
        return model

    monkeypatch.setitem(kernels.get("mlp").variants, "eager", Variant(watched))
    record(tmp_path / "a", ["eager"])
    assert sum(seen.values()) > gpu.CACHE_BYTES
    assert len(seen) > 1


def test_one_variant_out_of_memory_spares_the_others(
    calls: Mapping[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_large(model: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setitem(kernels.get("mlp").variants, "compiled", Variant(too_large))
    compiled, eager = record(tmp_path / "a", ["compiled", "eager"], backward=True)[
        "variants"
    ]
    assert compiled["failed"] == "it ran out of GPU memory: use smaller shapes."
    assert eager["max_gradient_error"] < 0.03
    assert calls["empty_cache"] == 2


def test_variant_that_needs_newer_tensor_cores_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu.stand_in(monkeypatch, LESSON, (7, 5))
    _, refused = record(tmp_path / "a", ["eager", "fused-gemm"])["variants"]
    assert refused["failed"].startswith(
        "it needs compute capability 8.0, but this GPU has 7.5"
    )


def test_sweep_on_a_simulated_gpu_has_a_row_per_point(
    calls: Mapping[str, int], tmp_path: Path
) -> None:
    options = Options(
        ["eager"], "cuda", shapes=SHAPES[1:], sweep=["batch=1,2"], seconds=0.01
    )
    capture("mlp", options, tmp_path / "a")
    rows = json.loads((tmp_path / "a" / "sweep.json").read_text())["rows"]
    assert [row["kernels_per_step"] for row in rows] == [5, 5]


def test_variants_that_take_turns_on_a_gpu(
    calls: Mapping[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        kernels.get("mlp").variants, "compiled", Variant(lambda model: model)
    )
    found = record(tmp_path / "a", ["eager", "compiled"], compare=True)
    assert [variant["kernels_per_step"] for variant in found["variants"]] == [5, 5]
    traces = [
        open_trace(str(tmp_path / "a" / f"{name}.json.gz"))
        for name in ("eager", "compiled")
    ]
    compared = diff(*traces)
    assert compared.step.turns
    assert compared.verdict.answer is Answer.NO_DIFFERENCE
    assert calls["synchronize"] > 2 * ROUNDS


def test_loop_on_a_simulated_gpu_is_recorded(
    calls: Mapping[str, int], tmp_path: Path
) -> None:
    with profile(tmp_path / "a", device="cuda", steps=3) as session:
        for _ in range(8):
            session.step()
    (loop,) = json.loads((tmp_path / "a" / "run.json").read_text())["variants"]
    assert loop["kernels_per_step"] == 5
    assert loop["step_ns"]["n"] > 0


@pytest.fixture
def history(
    calls: Mapping[str, int],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> list[Any]:
    """What is asked of torch's memory history, and the observers of memory that ran
    out."""
    found: list[Any] = []

    def dump(path: str) -> None:
        found.append("dump")
        trained(Path(path).parent).rename(path)

    def recorded(enabled: str | None = "all", **options: Any) -> None:
        found.append(enabled)

    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", recorded)

    def snapshot() -> object:
        found.append("snapshot")
        return pickle.loads(trained(tmp_path_factory.mktemp("memory")).read_bytes())

    monkeypatch.setattr(torch.cuda.memory, "_dump_snapshot", dump)
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", snapshot)
    attach = "_cuda_attach_out_of_memory_observer"
    monkeypatch.setattr(torch._C, attach, found.append, raising=False)
    return found


def test_memory_snapshot_of_each_variant_is_written(
    history: list[Any], tmp_path: Path
) -> None:
    record(tmp_path / "a", ["eager"], memory=True)
    on, _, dump, off = history
    assert (on, dump, off) == ("all", "dump", None)
    assert read_snapshot(str(tmp_path / "a" / "eager.pickle")).segments


def test_stacks_of_allocations_are_those_of_python(
    history: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch takes minutes to name frames of C++."""
    asked: list[object] = []

    def recorded(enabled: str | None = "all", **options: Any) -> None:
        if enabled:
            asked.append(options["stacks"])

    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", recorded)
    record(tmp_path / "a", ["eager"], memory=True)
    assert asked == ["python"]


def test_no_snapshot_is_recorded_unless_asked_for(
    history: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path / "a", ["eager"])
    record(tmp_path / "b", ["eager"], memory=True, scrub=True)
    assert (history, [*tmp_path.glob("*/*.pickle")]) == ([], [])
    assert capsys.readouterr().err.count("No memory snapshot with --scrub") == 1


def runs_out(history: list[Any], folder: Path) -> None:
    """A loop in which memory runs out twice."""

    def looped() -> None:
        with profile(folder, device="cuda", memory=True):
            history[1](0, 1, 2, 3)
            history[1](0, 1, 2, 3)
            raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        looped()


def test_a_loop_that_runs_out_of_memory(
    history: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first time is told, once, in a file that no other has; afterwards nothing
    is."""
    (tmp_path / "a-oom.pickle").write_bytes(b"mine")
    runs_out(history, tmp_path / "a")
    ran_out = history[1]
    ran_out(0, 1, 2, 3)
    assert history == ["all", ran_out, "snapshot", None]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a-oom-2.pickle",
        "a-oom.pickle",
    ]
    assert read_snapshot(str(tmp_path / "a-oom-2.pickle")).segments
    assert "fusetui memory " in capsys.readouterr().err


def test_an_observer_that_fails_hides_no_error(
    history: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise OSError("no space")

    monkeypatch.setattr(torch.cuda.memory, "_snapshot", fails)
    runs_out(history, tmp_path / "a")
    assert [*tmp_path.iterdir()] == []


def test_loop_with_memory_writes_a_snapshot(
    history: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with profile(tmp_path / "a", device="cuda", steps=1, memory=True) as session:
        for _ in range(4):
            session.step()
    assert history[2:] == ["dump", None]
    assert read_snapshot(str(tmp_path / "a" / "train.pickle")).segments
    assert "See what held memory: fusetui memory" in capsys.readouterr().err


def test_the_page_is_ready_to_paste(
    history: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "recording.md").read_text(encoding="utf-8")
    block = page.partition("## Memory")[2].partition("```py\n")[2].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    exec(block, {"train": lambda: history[1](0, 1, 2, 3)})
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "oom.pickle",
        "snapshot.pickle",
    ]
    assert (history[0], history[2:]) == ("all", ["dump", "dump", None])
