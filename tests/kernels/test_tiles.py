"""What the tiles depend on: the architecture of a GPU, its formats, what its threads
write."""

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the tiles are for tensors")
tiles = pytest.importorskip("fusetui.kernels.tiles", reason="needs torch")
pytestmark = pytest.mark.torch

A100, H100 = SimpleNamespace(major=8, minor=0), SimpleNamespace(major=9, minor=0)
MI300X = SimpleNamespace(gcnArchName="gfx942:sramecc+:xnack-")
MI355X = SimpleNamespace(gcnArchName="gfx950:sramecc+:xnack-")


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function: a tensor on a GPU with such properties."""

    def tensor(properties: Any, hip: str | None, dtype: Any = torch.bfloat16) -> Any:
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
        monkeypatch.setattr(torch.version, "hip", hip)
        device = SimpleNamespace(type="cuda")
        return SimpleNamespace(
            device=device, dtype=dtype, element_size=lambda: dtype.itemsize
        )

    return tensor


def test_the_architecture_is_that_of_the_device(on: Any) -> None:
    assert tiles.architecture(on(H100, None)) == "sm_90"
    assert tiles.architecture(on(MI300X, "6.4")) == "gfx942"
    assert tiles.architecture(torch.ones(1)) == "sm_80"


@pytest.mark.parametrize(
    ("properties", "hip", "dtype", "narrowest", "run"),
    [
        (MI300X, "6.4", torch.bfloat16, 64, 8),
        (MI300X, "6.4", torch.float32, 64, 1),
        (MI355X, "7.0", torch.bfloat16, 64, 1),
        (MI355X, "7.0", torch.bfloat16, 16, 8),
        (H100, None, torch.bfloat16, 16, 1),
    ],
)
def test_sums_are_exchanged_where_a_thread_has_less_than_16_bytes(
    on: Any, properties: Any, hip: str | None, dtype: Any, narrowest: int, run: int
) -> None:
    assert tiles.run_of_store(on(properties, hip, dtype), narrowest) == run


def test_float32_on_newer_gpus_has_all_registers(on: Any) -> None:
    assert tiles.register_limit(on(H100, None, torch.float32)) == {"maxnreg": 255}
    assert tiles.register_limit(on(H100, None, torch.bfloat16)) == {}
    assert tiles.register_limit(on(A100, None, torch.float32)) == {}
    assert tiles.register_limit(on(MI300X, "6.4", torch.float32)) == {}


@pytest.mark.parametrize(
    ("properties", "hip", "allowed", "name"),
    [
        (H100, None, "high", "tf32"),
        (H100, None, "highest", "fp32"),
        (MI300X, "6.4", "high", "tf32"),
        (MI355X, "7.0", "high", "fp32"),
    ],
)
def test_float32_is_multiplied_as_torch_allows_and_the_gpu_can(
    on: Any, properties: Any, hip: str | None, allowed: str, name: str
) -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(allowed)
    try:
        assert tiles.precision_name(on(properties, hip, torch.float32)) == name
    finally:
        torch.set_float32_matmul_precision(before)
