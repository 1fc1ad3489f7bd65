"""A capture from its options to the run folder, with shapes of a few elements."""

import gzip
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fusetui import cli, kernels
from fusetui.analysis.diff.statistics import MIN_STEPS_FOR_VERDICT
from fusetui.capture.command import capture, measure
from fusetui.capture.errors import CaptureError, Progress
from fusetui.capture.options import DEFAULT_STEPS, Options
from fusetui.kernels.outlines import OUTLINES

torch = pytest.importorskip("torch", reason="capture runs torch")
pytestmark = pytest.mark.torch

TINY = ["--batch", "2", "--seq=3", "--dim", "4", "--hidden", "8"]


class Run(NamedTuple):
    folder: Path
    out: str
    err: str

    @property
    def record(self) -> Any:
        return json.loads((self.folder / "run.json").read_text())

    def variant(self, name: str) -> Any:
        return next(v for v in self.record["variants"] if v["name"] == name)

    def events(self, name: str) -> list[dict[str, Any]]:
        trace = json.loads(
            gzip.decompress((self.folder / f"{name}.json.gz").read_bytes())
        )
        return [event for event in trace["traceEvents"] if event["ph"] == "X"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, fast_timing: None) -> Run:
    """All variants of the MLP on the CPU, compiled once for all tests of this
    module."""
    import contextlib
    import io

    out, err = io.StringIO(), io.StringIO()
    folder = tmp_path_factory.mktemp("capture") / "run"
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        options = Options(device="cpu", shapes=TINY, steps=2, seconds=1e-9)
        assert capture("mlp", options, folder).folder == folder
    return Run(folder, out.getvalue(), err.getvalue())


@pytest.fixture
def compiled(run: Run) -> Any:
    """The record of the compiled variant; skips if nothing can be compiled here."""
    variant = run.variant("compiled")
    if "no C++ compiler" in variant.get("failed", ""):
        pytest.skip("torch.compile needs a C++ compiler")
    return variant


@pytest.mark.usefixtures("compiled")
def test_the_folder_holds_the_record_and_a_trace_per_variant(run: Run) -> None:
    names = sorted(path.name for path in run.folder.iterdir())
    assert names == [
        "compiled.compile_log",
        "compiled.json.gz",
        "eager.json.gz",
        "run.json",
    ]


def test_the_record_tells_what_was_run(run: Run) -> None:
    keys = ("workload", "shapes", "dtype", "device_kind", "profiled_steps")
    shapes = {"batch": 2, "seq": 3, "dim": 4, "hidden": 8}
    assert [run.record[key] for key in keys] == ["mlp", shapes, "float32", "cpu", 2]


def test_the_record_tells_what_was_asked_for(run: Run) -> None:
    asked = Options(device="cpu", shapes=TINY, steps=2, seconds=1e-9)
    assert run.record["options"] == json.loads(json.dumps(asdict(asked)))


def test_a_capture_has_the_steps_that_a_verdict_needs() -> None:
    """And one more that is cold, and one that is odd."""
    assert Options().profiled_steps == DEFAULT_STEPS >= MIN_STEPS_FOR_VERDICT + 2


def test_step_times_are_ordered_integers(run: Run) -> None:
    step_ns = run.variant("eager")["step_ns"]
    assert 0 < step_ns["p10"] <= step_ns["median"] <= step_ns["p90"]


def test_only_the_compiled_variant_has_a_compile_time(run: Run, compiled: Any) -> None:
    assert run.variant("eager")["compile_ns"] is None
    assert compiled["compile_ns"] > 0


def test_eager_runs_five_kernels(run: Run) -> None:
    assert run.variant("eager")["kernels_per_step"] == 5


def test_compiling_fuses_two_of_the_five(compiled: Any) -> None:
    assert compiled["kernels_per_step"] == 4


@pytest.mark.usefixtures("compiled")
def test_the_fused_kernel_is_in_every_profiled_step(run: Run) -> None:
    names = [event["name"] for event in run.events("compiled")]
    assert sum("cpp_fused" in name and "gelu_mul" in name for name in names) == 2


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("name", ["eager", "compiled"])
def test_each_step_is_marked_with_the_workloads_name(run: Run, name: str) -> None:
    assert sum(event["name"] == "mlp_fwd" for event in run.events(name)) == 2


@pytest.mark.usefixtures("fast_timing")
def test_check_counts_what_capture_counted(tmp_path: Path) -> None:
    """An nn.Linear whose addmm copies the bias itself counts as one kernel in both."""
    folder = tmp_path / "run"
    shapes = ["--rows", "4", "--in", "3", "--out", "2"]
    options = Options(
        ["eager"], "cpu", shapes=shapes, expect=["kernels=1"], seconds=1e-9, steps=2
    )
    assert capture("linear", options, out=folder).right
    found = Run(folder, "", "").variant("eager")
    assert found["kernels_per_step"] == 1
    assert found["guesses"] == [{"kind": "kernels", "expected": 1, "found": [1, 1]}]
    assert (
        cli.run(["check", str(folder / "eager.json.gz"), "--expect", "kernels=1"]) == 0
    )


def test_a_variant_that_needs_a_gpu_says_so(run: Run) -> None:
    assert "needs a GPU" in run.variant("fused")["failed"]


def test_stdout_ends_with_the_command_that_opens_the_run(run: Run) -> None:
    assert run.out.endswith(f"fusetui open {run.folder}\n")


def test_progress_goes_to_stderr(run: Run) -> None:
    assert "compiling compiled ... " in run.err
    assert "compiling" not in run.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workload": "mpl"}, "Unknown workload 'mpl': use one of mlp, linear"),
        (
            {"variants": ["fast"]},
            "no variant 'fast', only eager, compiled, fused, fused-gemm",
        ),
        (
            {"shapes": ["--rows", "3"]},
            "this workload has --batch, --seq, --dim, --hidden",
        ),
        ({"dtype": "int8"}, "Unknown dtype"),
        ({"steps": 0}, "at least 1"),
        ({"mode": "fast"}, "Unknown mode 'fast': use one of default, reduce-overhead"),
        (
            {"expect": ["gemms=3"]},
            "'gemms=3' is not a valid expectation: write KIND=NUMBER, as in gemm=3, "
            "where KIND is one of attention, comm, ",
        ),
        ({"variants": ["fused"]}, "Nothing was captured: fused: it needs a GPU"),
    ],
)
def test_a_wrong_option_is_one_sentence_and_leaves_nothing(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    workload = options.pop("workload", "mlp")
    with pytest.raises(CaptureError, match=message):
        capture(workload, Options(**{"device": "cpu", **options}), tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def broken(build: Callable[..., Any]) -> kernels.Workload:
    """The linear workload with one more variant."""
    linear = kernels.get("linear")
    variants = {"broken": kernels.Variant(build), "eager": linear.variants["eager"]}
    return kernels.Workload(**{**vars(linear), "variants": variants})


def capture_broken(
    build: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> list[dict[str, Any]]:
    workload = broken(build)
    monkeypatch.setattr(kernels, "get", lambda name: workload)
    options = Options(device="cpu", shapes=["--rows", "4"], seconds=1e-9)
    capture("linear", options, folder)
    variants: list[dict[str, Any]] = json.loads((folder / "run.json").read_text())[
        "variants"
    ]
    return variants


@pytest.mark.usefixtures("fast_timing")
def test_a_wrong_result_is_reported_and_not_timed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, second = capture_broken(
        lambda model: lambda x: 2 * model(x), monkeypatch, tmp_path / "a"
    )
    assert "differs from the float32 reference" in first["failed"]
    assert second["files"] == ["eager.json.gz"]


@pytest.mark.usefixtures("fast_timing")
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (AttributeError("no such layer"), "AttributeError: no such layer"),
        (
            torch.cuda.OutOfMemoryError("CUDA"),
            "it ran out of GPU memory: use smaller shapes.",
        ),
        (SystemExit(3), "SystemExit: 3"),
    ],
)
def test_a_variant_that_fails_spares_the_others(
    error: BaseException, told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(model: Any) -> Any:
        raise error

    first, second = capture_broken(fail, monkeypatch, tmp_path / "a")
    assert first["failed"].startswith(told)
    assert second["files"] == ["eager.json.gz"]


@pytest.mark.usefixtures("fast_timing")
@pytest.mark.parametrize(
    ("wanted", "failed"), [(("broken", "eager"), ("broken",)), ((), ())]
)
def test_a_variant_that_cannot_run_here_fails_only_who_asked_for_it(
    wanted: tuple[str, ...],
    failed: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    workload = broken(lambda model: model)
    outline = replace(kernels.outline("linear"), variants=tuple(workload.variants))
    monkeypatch.setitem(OUTLINES, "linear", outline)
    needs_gpu = kernels.Variant(lambda model: model, needs_gpu=True)
    variants = {**workload.variants, "broken": needs_gpu}
    workload = kernels.Workload(**{**vars(workload), "variants": variants})
    monkeypatch.setattr(kernels, "get", lambda name: workload)
    options = Options(
        variants=wanted, device="cpu", shapes=["--rows", "4"], seconds=1e-9
    )
    outcome = capture("linear", options, out=tmp_path / "a")
    assert outcome.failed == failed
    first, _ = json.loads((tmp_path / "a" / "run.json").read_text())["variants"]
    assert first["skipped"] is not bool(failed)


@pytest.mark.usefixtures("fast_timing")
def test_a_wrong_result_is_in_the_outcome(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    workload = broken(lambda model: lambda x: 2 * model(x))
    monkeypatch.setattr(kernels, "get", lambda name: workload)
    options = Options(device="cpu", shapes=["--rows", "4"], seconds=1e-9)
    assert capture("linear", options, out=tmp_path / "a").failed == ("broken",)


@pytest.mark.usefixtures("fast_timing")
def test_two_captures_in_one_second_are_both_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The second one begins while the first is measuring."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "fusetui.capture.command.default_folder", lambda *_: Path("runs/a")
    )
    options = Options(variants=["eager"], device="cpu", seconds=1e-9)
    inner: list[Path] = []

    def build(model: Any) -> Any:
        if not inner:
            inner.append(Path())
            inner[0] = capture("linear", options, out=None).folder
        return model

    workload = broken(build)
    outline = replace(kernels.outline("linear"), variants=tuple(workload.variants))
    monkeypatch.setitem(OUTLINES, "linear", outline)
    monkeypatch.setattr(kernels, "get", lambda name: workload)
    outer = capture("linear", replace(options, variants=["broken"]))
    assert (outer.folder, inner) == (Path("runs/a"), [Path("runs/a-2")])
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["a", "a-2"]


@pytest.mark.usefixtures("fast_timing")
def test_ctrl_c_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupt(model: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        capture_broken(interrupt, monkeypatch, tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("fast_timing")
@pytest.mark.parametrize(
    ("guess", "right"), [("kernels=1 gemm=1", True), ("gemm=2", False)]
)
def test_a_guess_is_printed_with_what_was_found(
    guess: str, right: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = Options(variants=["eager"], device="cpu", expect=[guess], seconds=1e-9)
    outcome = capture("linear", options, out=tmp_path / "a")
    assert outcome.right is right
    lines = capsys.readouterr().out.splitlines()
    assert f"{'=' if right else '!'} eager gemm: expected {guess[-1]}, found 1" in lines


@pytest.mark.usefixtures("fast_timing")
def test_a_training_step_has_both_passes_and_a_gradients_error(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    options = Options(["eager"], "cpu", shapes=TINY, backward=True, seconds=1e-9)
    capture("mlp", options, folder)
    run = Run(folder, "", "")
    names = [event["name"] for event in run.events("eager")]
    assert (names.count("mlp_fwd"), names.count("mlp_bwd")) == (
        DEFAULT_STEPS,
        DEFAULT_STEPS,
    )
    assert run.record["backward"] is True
    assert 0 <= run.variant("eager")["max_gradient_error"] < 0.03


@pytest.mark.usefixtures("fast_timing")
def test_options_choose_what_the_profiler_records(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    options = Options(
        variants=["eager"],
        device="cpu",
        stack=True,
        record_shapes=False,
        memory=True,
        scrub=True,
        seconds=1e-9,
    )
    capture("linear", options, folder)
    trace = json.loads(gzip.decompress((folder / "eager.json.gz").read_bytes()))
    events = trace["traceEvents"]
    assert any(event.get("cat") == "python_function" for event in events)
    assert any(event["name"] == "[memory]" for event in events)
    assert not any("Input Dims" in event.get("args", {}) for event in events)
    assert not any(name.startswith("/") for name in (event["name"] for event in events))


@pytest.mark.usefixtures("fast_timing")
def test_the_weights_of_a_variant_are_told(tmp_path: Path) -> None:
    shapes = ["--batch=2", "--n=4", "--in=8", "--out=8"]
    options = Options(["loop", "masked"], "cpu", "float32", shapes, seconds=1e-9)
    record, _ = measure(
        "partitioned-linear", options, out=tmp_path / "a", progress=Progress()
    )
    blocks, biases = 4 * 8 * 8 * 4, 4 * 8 * 4
    assert [v.weight_bytes for v in record.measured] == [
        blocks + biases,
        8 * blocks + biases,
    ]


def test_too_large_a_workload_is_one_sentence_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    with pytest.raises(
        CaptureError, match=r"linear cannot be set up: it ran out of memory"
    ):
        capture(
            "linear", Options(device="cpu", shapes=[f"--rows={2**50}"]), tmp_path / "a"
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("fast_timing")
def test_a_machine_without_a_compiler_measures_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from torch._inductor.exc import InvalidCxxCompiler

    def compile_nothing(call: Any, **options: Any) -> Any:
        def fail(*args: Any) -> Any:
            raise InvalidCxxCompiler

        return fail

    monkeypatch.setattr(torch, "compile", compile_nothing)
    capture("linear", Options(device="cpu", seconds=1e-9), tmp_path / "a")
    eager, compiled = json.loads((tmp_path / "a" / "run.json").read_text())["variants"]
    assert eager["files"] == ["eager.json.gz"]
    assert "no C++ compiler: install" in compiled["failed"]


@pytest.mark.usefixtures("fast_timing")
@pytest.mark.parametrize(
    ("sweep", "file"), [((), "run.json"), (("rows=2,4",), "sweep.json")]
)
def test_json_is_what_the_file_holds(
    sweep: tuple[str, ...],
    file: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = Options(["eager"], "cpu", seconds=1e-9, sweep=sweep)
    capture("linear", options, tmp_path / "a", prints_json=True)
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "a" / file).read_text())
