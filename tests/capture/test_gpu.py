"""What can be measured only on a GPU."""

import json
from pathlib import Path
from typing import Any

import pytest

from fusetui.capture.command import capture
from fusetui.capture.errors import CaptureError
from fusetui.capture.options import Options

torch = pytest.importorskip("torch", reason="capture runs torch")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]


def record(workload: str, folder: Path, **options: Any) -> Any:
    capture(workload, Options(device="cuda", seconds=0.05, **options), folder)
    return json.loads((folder / "run.json").read_text())


def test_the_record_describes_the_gpu(tmp_path: Path) -> None:
    found = record(
        "linear", tmp_path / "a", variants=["eager"], expect=["kernels=1 gemm=1"]
    )
    gpu = found["provenance"]["gpu"]
    assert gpu["name"] == found["device"]
    assert min(gpu["multiprocessors"], gpu["memory_bytes"], gpu["l2_cache_bytes"]) > 0
    assert found["variants"][0]["peak_memory_bytes"] > 0
    assert all(guess["found"] == 1 for guess in found["variants"][0]["guesses"])


@pytest.mark.parametrize("backward", [False, True])
def test_every_variant_of_the_mlp_runs(backward: bool, tmp_path: Path) -> None:
    shapes = ["--batch=2", "--seq=64", "--dim=128", "--hidden=256"]
    found = record("mlp", tmp_path / "a", shapes=shapes, backward=backward)
    assert [v["name"] for v in found["variants"] if "failed" in v] == []
    counts = {v["name"]: v["kernels_per_step"] for v in found["variants"]}
    assert backward or (counts["eager"], counts["compiled"], counts["fused"]) == (
        5,
        4,
        4,
    )


def test_cuda_graphs_can_be_captured(tmp_path: Path) -> None:
    found = record("linear", tmp_path / "a", mode="reduce-overhead")
    assert [v["name"] for v in found["variants"] if "failed" in v] == []


def test_too_large_a_workload_is_told(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="ran out of"):
        record("linear", tmp_path / "a", shapes=[f"--rows={2**50}"])
