"""How long a kernel should take: benchmarks/predictions.py."""

import gzip
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.scripts import benchmark

from fusetui import kernels
from fusetui.gpu.roofline.peaks import Peak

torch = pytest.importorskip("torch", reason="the kernels take tensors")
pytest.importorskip("triton", reason="needs triton: pip install 'fusetui[triton]'")
launches = pytest.importorskip("tests.kernels.launches")
predictions = benchmark("predictions")
pytestmark = pytest.mark.torch
KERNEL = "geglu_forward_kernel_triton"
DEVICE = Peak("", sms=100, gigabytes_per_s=1000, cache_mb=1, teraflops={"bf16": 100.0})


def test_the_work_of_the_fused_gemm_is_that_of_both_projections() -> None:
    mlp = kernels.get("mlp")
    launch, _ = launches.launches(
        mlp, mlp.variants["fused-gemm"], mlp.gpu_shapes, torch.bfloat16, "sm_80"
    )
    work = predictions.work_of(launch)
    assert work.flop == 2 * (2 * 8192 * 768 * 3072)
    assert work.moved == 2 * (8192 * 768 + 2 * 3072 * 768 + 8192 * 3072)


def test_a_prediction_is_for_the_dtype_in_which_its_workload_runs() -> None:
    """`partitioned-linear` runs in float32, as in its source: twice the bytes, and
    another rate."""
    layers = next(
        one for one in predictions.EXPERIMENTS if one.name == "partitioned-linear"
    )
    (use,) = predictions.uses(layers, "sm_80")
    work = predictions.work_of(use.launch)
    assert work.kind == "fp32"
    assert work.moved == 4 * 32 * (64 * 32 + 32 * 32 + 64 * 32)
    rates = Peak("", 100, 1000, 1, {"bf16": 100.0, "fp32": 10.0})
    heavy = predictions.Work(10**12, 10**9, 100, kind="fp32")
    assert predictions.predicted_ns(heavy, 100, rates) == 10**8
    assert predictions.assumed(heavy, 100, rates) == "10 TFLOP/s"


@pytest.mark.parametrize(
    ("registers", "shared", "warps", "blocks"),
    [(32, 0, 4, 16), (128, 0, 8, 2), (32, 82_000, 4, 2), (255, 150_000, 8, 1)],
)
def test_registers_and_shared_memory_limit_resident_blocks_of_a_prediction(
    registers: int, shared: int, warps: int, blocks: int
) -> None:
    code = SimpleNamespace(registers=registers, shared=shared, warps=warps)
    assert predictions.at_once(code, "sm_80", 10) == 10 * blocks


def test_measured_times_stand_beside_predicted_ones(tmp_path: Path) -> None:
    mlp = next(one for one in predictions.EXPERIMENTS if one.name == "mlp")
    fused, gemm = predictions.uses(mlp, "sm_80")
    times = [
        {
            "ph": "X",
            "cat": "kernel",
            "pid": 0,
            "tid": 7,
            "ts": ts,
            "dur": dur,
            "name": KERNEL,
        }
        for ts, dur in ((0, 90), (200, 94))
    ]
    (tmp_path / fused.run).parent.mkdir(parents=True)
    (tmp_path / fused.run).write_bytes(
        gzip.compress(json.dumps({"traceEvents": times}).encode())
    )
    assert predictions._measured(tmp_path, fused) == "92 us"
    assert predictions._measured(tmp_path, gemm) == "-"


def test_each_point_of_a_sweep_has_a_prediction() -> None:
    sweep = next(one for one in predictions.EXPERIMENTS if one.name == "paper-in")
    found = [(use.what, str(use.run)) for use in predictions.uses(sweep, "sm_80")]
    assert found[2] == (
        "fused in_features=253",
        "paper-in/in_features=253/fused.json.gz",
    )
    assert len(found) == 4


def test_the_longer_of_arithmetic_and_traffic_counts() -> None:
    assert (
        predictions.predicted_ns(predictions.Work(0, 10**9, 100), 100, DEVICE) == 10**6
    )
    assert (
        predictions.predicted_ns(predictions.Work(10**12, 10**9, 100), 100, DEVICE)
        == 10**7
    )


def test_a_prediction_says_what_it_assumes() -> None:
    """Of what takes longer: arithmetic that leaves most of the device idle does, where
    a device full of it would not."""
    traffic = predictions.Work(0, 10**9, 100)
    assert predictions.assumed(traffic, 100, DEVICE) == "1 TB/s"
    arithmetic = predictions.Work(10**12, 10**9, 100)
    assert predictions.assumed(arithmetic, 100, DEVICE) == "100 TFLOP/s"
    light = predictions.Work(10**10, 10**9, 1)
    assert predictions.assumed(light, 1, DEVICE) == "1 TB/s"
    assert predictions.assumed(light, 100, DEVICE) == "100 TFLOP/s"
    assert predictions.predicted_ns(light, 100, DEVICE) == 10**7


def test_the_range_is_between_what_is_attained_and_what_the_source_reached() -> None:
    """Its GEMM of 190 us is slower than an A100 attains; its pointwise kernel is at the
    best."""
    name = predictions.SOURCE_DEVICE
    peak = predictions._peak(name, 108)
    best, slow = predictions.best_case(peak), predictions.slow_end(peak)
    gemm = predictions.Work(predictions.SOURCE_FLOP, 0, 1)
    pointwise = predictions.Work(0, predictions.SOURCE_BYTES, 1)
    assert best.teraflops["bf16"] == peak.teraflops["bf16"]
    assert predictions.predicted_ns(gemm, 1, slow) == 190_000
    assert predictions.predicted_ns(gemm, 1, best) < 190_000
    assert predictions.predicted_ns(pointwise, 1, best) == 89_400
    assert predictions.predicted_ns(pointwise, 1, slow) > 89_400
    assert slow.gigabytes_per_s == peak.gigabytes_per_s


def test_the_page_says_how_far_the_source_was_from_the_best_case() -> None:
    """Gate and up took 190 us, down 170 us, each with the same arithmetic."""
    best = predictions.best_case(predictions._peak(predictions.SOURCE_DEVICE, 108))
    reached = [predictions.SOURCE_FLOP / seconds / 1e12 for seconds in (190e-6, 170e-6)]
    page = " ".join(predictions.PAGE.read_text(encoding="utf-8").split())
    assert f"assumes {best.teraflops['bf16']:g} TFLOP/s for a bfloat16 GEMM" in page
    assert (
        f"{reached[0]:.0f} TFLOP/s (gate and up) and {reached[1]:.0f} TFLOP/s (down)"
        in page
    )
    assert max(reached) < best.teraflops["bf16"]


def test_a_row_has_the_range_and_its_assumption(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code = SimpleNamespace(registers=32, shared=0, warps=4)
    monkeypatch.setattr(predictions, "compiled", lambda *_: code)
    mlp = next(one for one in predictions.EXPERIMENTS if one.name == "mlp")
    name = predictions.SOURCE_DEVICE
    _, gemm = predictions.rows(mlp, name, *predictions.DEVICES[name], None)
    assumes, best, slow = gemm[-3:]
    assert assumes.endswith("TFLOP/s")
    assert float(best.split()[0]) < float(slow.split()[0])


def test_a_last_wave_takes_as_long_as_a_full_one() -> None:
    one_more = predictions.Work(101 * 10**10, 0, 101)
    assert predictions.predicted_ns(one_more, 100, DEVICE) == 2 * 10**7
