"""Devices and a missing torch."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from fusetui.capture.errors import CaptureError
from fusetui.capture.options import Options, check_device
from fusetui.capture.provenance import find_device, load_torch, select_gpu
from fusetui.kernels.outlines import OUTLINES


def test_an_unknown_device_is_told() -> None:
    with pytest.raises(CaptureError, match="auto, cuda, cpu"):
        find_device("tpu")


def test_a_missing_torch_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(CaptureError, match=r"pip install 'fusetui\[capture\]'"):
        load_torch()


@pytest.mark.torch
def test_a_cpu_is_always_there() -> None:
    pytest.importorskip("torch", reason="torch knows the devices")
    device = find_device("cpu")
    assert (device.kind, "thread" in device.name) == ("cpu", True)


@pytest.mark.torch
def test_cuda_without_a_gpu_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="torch knows the devices")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(CaptureError, match="finds no GPU: use --device cpu"):
        find_device("cuda")


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda", "cuda:0", "cuda:12"])
def test_a_gpu_may_have_a_number(device: str) -> None:
    check_device(device)


@pytest.mark.parametrize(
    "device", ["cuda:", "cuda:x", "cuda:-1", "cpu:0", "cuda:²", "mps"]
)
def test_unknown_device_text_is_refused(device: str) -> None:
    with pytest.raises(CaptureError, match="use one of auto, cuda, cpu, cuda:1"):
        check_device(device)


@pytest.mark.torch
def test_a_numbered_gpu_is_described_and_becomes_the_current_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch", reason="torch knows the devices")
    entered: list[int] = []

    class Current:
        def __init__(self, number: int) -> None:
            self.number = number

        def __enter__(self) -> None:
            entered.append(self.number)

        def __exit__(self, *_: object) -> None: ...

    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: 2,
        "current_device": lambda: 0,
        "get_device_name": "GPU {}".format,
        "get_device_capability": lambda number: (8, number),
        "get_device_properties": lambda number: SimpleNamespace(
            L2_cache_size=100 + number
        ),
        "device": Current,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    second = find_device("cuda:1")
    assert (second.kind, second.name, second.cache_bytes) == ("cuda", "GPU 1", 101)
    with select_gpu(second):
        pass
    with select_gpu(find_device("cuda")):
        pass
    assert entered == [1]
    with pytest.raises(CaptureError, match="does not find cuda:2, only cuda:0, cuda:1"):
        find_device("cuda:2")


@pytest.mark.parametrize(
    ("workload", "options", "message"),
    [
        ("mpl", {}, "Unknown workload 'mpl'"),
        ("linear", {"shapes": ["--bath=3"]}, "this workload has --rows, --in-features"),
        ("linear", {"variants": ["fused"]}, "linear has no variant 'fused'"),
        ("linear", {"sweep": ["paper-n"]}, "it has no presets"),
        ("linear", {"expect": ["fused: gemm=1"]}, "not among the variants run"),
        (
            "linear",
            {"compare": True, "variants": ["eager"]},
            "--compare needs two variants",
        ),
        ("linear", {"device": "tpu"}, "Unknown device 'tpu'"),
        (
            "mine.py:build",
            {"expect": ["gems=1"]},
            "'gems=1' is not a valid expectation",
        ),
    ],
)
def test_a_request_is_checked_without_torch(
    workload: str, options: dict[str, Any], message: str
) -> None:
    code = f"""
import sys
sys.modules["torch"] = None
from fusetui.capture.command import capture
from fusetui.capture.errors import CaptureError
from fusetui.capture.options import Options
try:
    capture({workload!r}, Options(**{options!r}))
except CaptureError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True
    )
    assert message in done.stdout, done.stderr


def test_a_variant_without_its_package_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from fusetui.capture.command import check_request

    monkeypatch.setattr("fusetui.kernels.outlines.find_spec", lambda _: None)
    with pytest.raises(
        CaptureError, match=r"needs the package liger-kernel: .*pip install"
    ):
        check_request("mlp", Options(variants=["liger"]))
    monkeypatch.setattr("fusetui.kernels.outlines.find_spec", lambda name: name)
    check_request("mlp", Options(variants=["liger"]))


@pytest.mark.torch
@pytest.mark.parametrize("name", OUTLINES)
def test_the_outline_without_torch_equals_the_workload(name: str) -> None:
    pytest.importorskip("torch", reason="the workloads are torch modules")
    from fusetui import kernels

    workload, outline = kernels.get(name), kernels.outline(name)
    assert tuple(workload.variants) == outline.available
    assert dict(workload.sweeps) == dict(outline.sweeps)
    assert (workload.gpu_shapes, workload.cpu_shapes) == (
        outline.gpu_shapes,
        outline.cpu_shapes,
    )
