"""Devices and a missing torch."""

import sys

import pytest

from fusetui.capture.errors import CaptureError
from fusetui.capture.provenance import find_device, load_torch


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
    with pytest.raises(CaptureError, match="no GPU here: use --device cpu"):
        find_device("cuda")
